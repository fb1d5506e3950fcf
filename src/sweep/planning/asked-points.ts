/**
 * The points of a comparison side by side: takes clusters with prices, numbers of devices,
 * sequences and batches as they were asked for, and gives the question of each point.
 */
import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import type { Price } from '../../cost/hardware/operation.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { defaultSequence } from '../../models/build.ts';
import { parseModelConfig } from '../../models/families.ts';
import type { PointQuestion } from './planning.ts';

/** A cluster as it is asked about. */
export interface AskedCluster {
  /** Its name in the answer. */
  readonly name: string;
  readonly text: string;
  /** Its own devices (`dgx-b200:128`); absent: those of `--devices`. */
  readonly devices?: number;
  readonly price?: Price;
}

/**
 * Clusters as they are named (`dgx-h100`, `dgx-b200:128` with its own number of devices), each with
 * its price.
 *
 * @param prices one for all, or one for each
 * @param textOf the text of a named cluster: that of its file, or the name itself
 * @throws E_USAGE where prices do not match, and what `textOf` throws
 */
export function clustersNamed(
  names: readonly string[],
  prices: readonly Price[],
  textOf: (name: string) => string,
): AskedCluster[] {
  if (prices.length > 1 && prices.length !== names.length)
    throw new ShardwrightError(
      'E_USAGE',
      `--price is given ${prices.length} times, and --cluster ${names.length} times`,
      {
        hint: 'give one price for all, or one for each cluster in their order.',
      },
    );
  return names.map((given, i) => {
    const [, name = given, devices] = /^(.+):(\d{1,7})$/.exec(given) ?? [];
    const own = prices.length === 0 ? undefined : prices[Math.min(i, prices.length - 1)];
    return {
      name: name.replace(/^.*[/\\]/, '').replace(/\.json$/, ''),
      text: textOf(name),
      ...(devices === undefined ? {} : { devices: Number(devices) }),
      ...defined({ price: own }),
    };
  });
}

/** Devices of a cluster that cost as much as so many of the first one: whole hosts, or trays. */
function equalCost(
  first: AskedCluster,
  devices: number,
  { text, price, name }: AskedCluster,
): number {
  const cluster = loadCluster(text);
  const own = price ?? cluster.operation?.pricePerDeviceHour;
  const other = first.price ?? loadCluster(first.text).operation?.pricePerDeviceHour;
  if (own === undefined || other === undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `--equal cost needs the price of a device-hour of ${own === undefined ? name : first.name}`,
      {
        hint: 'give --price for each cluster, or operation.pricePerDeviceHour in its file.',
      },
    );
  if (own.currency !== other.currency)
    throw new ShardwrightError(
      'E_USAGE',
      `--equal cost: ${other.currency} and ${own.currency} cannot be compared`,
      {
        hint: 'give prices of one currency.',
      },
    );
  const unit = cluster.devicesPerTray ?? cluster.devicesPerHost;
  const count = Math.floor((devices * other.amount) / own.amount / unit) * unit;
  if (count > 0) return count;
  throw new ShardwrightError(
    'E_USAGE',
    `--equal cost: what ${devices} devices of ${first.name} cost pays no ${unit} of ${name}`,
    {
      hint: 'raise --devices.',
    },
  );
}

/** Lists of which every combination is a point. */
interface AskedLists {
  readonly devices?: readonly number[] | undefined;
  /** Default: the sequence of the model. */
  readonly seq?: readonly number[] | undefined;
  /** Default: one sequence a device. */
  readonly globalBatch?: readonly number[] | undefined;
  /** `cost`: each further cluster has as many devices as cost what those of the first do. */
  readonly equal?: string | undefined;
}

/** A point, and the cluster that it is on. */
export interface AskedPoint {
  readonly question: PointQuestion;
  readonly cluster: AskedCluster;
}

/** Every point of the lists. @throws E_USAGE, E_CLUSTER */
export function pointsOf(
  config: { readonly name: string; readonly text: string },
  clusters: readonly AskedCluster[],
  options: AskedLists,
): AskedPoint[] {
  for (const { text } of clusters) loadCluster(text);
  const {
    devices = [],
    seq = [defaultSequence(parseModelConfig(config.text))],
    globalBatch = [undefined],
  } = options;
  const [first] = clusters;
  return clusters.flatMap((cluster) => {
    const own = cluster.devices === undefined ? devices : [cluster.devices];
    if (own.length === 0)
      throw new ShardwrightError('E_USAGE', `no number of devices for ${cluster.name}`, {
        hint: `--devices 64, or --cluster ${cluster.name}:64`,
      });
    return own.flatMap((asked) => {
      const count =
        options.equal === 'cost' && first !== undefined && cluster !== first
          ? equalCost(first, asked, cluster)
          : asked;
      return seq.flatMap((sequence) =>
        globalBatch.map((batch): AskedPoint => ({
          question: {
            model: config.name,
            cluster: cluster.name,
            devices: count,
            sequence,
            globalBatch: batch ?? count,
          },
          cluster,
        })),
      );
    });
  });
}
