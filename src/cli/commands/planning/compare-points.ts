/**
 * `compare` on several clusters, numbers of devices, sequences or batches: reads the lists, asks
 * one comparison for each point, and prints all at their best, side by side, with curves.
 */

import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import type { Comparison } from '../../../recipes/compare/comparison.ts';
import { planningText } from '../../../report/text/planning.ts';
import { planningScreenText } from '../../../report/text/planning-screen.ts';
import {
  type AskedCluster,
  type AskedPoint,
  clustersNamed,
  pointsOf,
} from '../../../sweep/planning/asked-points.ts';
import type { AskedGoals } from '../../../sweep/planning/goals.ts';
import {
  type Planning,
  planningOf,
  type PlanningPoint,
  pointOf,
} from '../../../sweep/planning/planning.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { paintScreen } from '../../output/paint.ts';
import type { RunControl } from '../../thread/run-control.ts';
import { compareByConfig } from './compare-model.ts';
import type { CompareOptions } from './flags.ts';

/**
 * The clusters of `--cluster`, each with its price. @throws E_CLUSTER, E_IO, E_USAGE where prices
 * do not match
 */
export function askedClusters({
  cluster,
  price,
  calibration,
  collectives,
}: Pick<CompareOptions, 'cluster' | 'price' | 'calibration' | 'collectives'>): AskedCluster[] {
  const files = { ...defined({ calibration, collectives }) };
  return clustersNamed(cluster, price, (name) => clusterText(name, files));
}

/** Tells whether the lists make more than one point, or a question is about points. */
export function asksMany(options: CompareOptions): boolean {
  const { cluster, devices = [], seq = [], globalBatch = [] } = options;
  return (
    goalFlag(options) !== undefined ||
    [cluster, devices, seq, globalBatch].some((list) => list.length > 1)
  );
}

/** The flag that asks about the time or the money of a run. */
export function goalFlag({
  within,
  spend,
}: Pick<CompareOptions, 'within' | 'spend'>): '--within' | '--spend' | undefined {
  if (within !== undefined) return '--within';
  return spend === undefined ? undefined : '--spend';
}

/** The goals of `--within` and `--spend`. @throws E_USAGE without tokens */
function goalsAsked(options: CompareOptions): AskedGoals {
  const { within, spend, tokens } = options;
  const flag = goalFlag(options);
  if (flag !== undefined && tokens === undefined)
    throw new ShardwrightError('E_USAGE', `${flag} needs --tokens: it is about a whole run`, {
      hint: `--tokens 300B ${flag} ${flag === '--within' ? '30d' : '2MUSD --price 2.5USD'}`,
    });
  return defined({ withinSeconds: within, spend });
}

/** @throws E_USAGE for a sum of a currency in which no cluster has a price */
function checkSpend({ spend }: CompareOptions, asked: readonly AskedPoint[]): void {
  if (spend === undefined) return;
  const prices = asked.flatMap(
    ({ cluster: { text, price } }) =>
      price ?? loadCluster(text).operation?.pricePerDeviceHour ?? [],
  );
  const [first] = prices;
  if (prices.some(({ currency }) => currency === spend.currency)) return;
  throw new ShardwrightError(
    'E_USAGE',
    first === undefined
      ? '--spend needs the price of a device-hour, and no cluster file states one'
      : `--spend is in ${spend.currency}, and devices are paid in ${first.currency}`,
    { hint: `--price 2.5${spend.currency}` },
  );
}

/**
 * Answers `compare --json` for one point; undefined where the time was over before any plan was
 * priced.
 */
export async function askPoint(
  config: { readonly name: string; readonly text: string },
  { question, cluster }: AskedPoint,
  options: CompareOptions,
  control: Parameters<typeof compareByConfig>[3],
): Promise<Comparison | undefined> {
  const { devices, sequence, globalBatch } = question;
  try {
    return await compareByConfig(
      config,
      { devices, cluster: cluster.text, sequence, globalBatch, price: cluster.price },
      options,
      control,
    );
  } catch (error) {
    if (
      error instanceof ShardwrightError &&
      (error.code === 'E_TIME_LIMIT' || error.code === 'E_INTERRUPTED')
    )
      return undefined;
    throw error;
  }
}

/** `compare` with lists: every point at its best plan. */
export async function comparePoints(
  config: { readonly name: string; readonly text: string },
  options: CompareOptions,
  io: CliIo,
  control: RunControl,
): Promise<number> {
  for (const flag of ['layout', 'like', 'resume', 'slice'] as const)
    if (options[flag] !== undefined)
      throw new ShardwrightError(
        'E_USAGE',
        `--${flag} is for one comparison, and ` +
          (goalFlag(options) === undefined
            ? 'the lists ask for several'
            : `${goalFlag(options)} asks about points side by side`),
        { hint: 'name one cluster, one number of devices, one sequence and one batch.' },
      );
  const goals = goalsAsked(options);
  const asked = pointsOf(config, askedClusters(options), options);
  checkSpend(options, asked);
  const deadline = control.deadline(options.timeLimit);
  const points: PlanningPoint[] = [];
  for (const [i, point] of asked.entries()) {
    const { cluster, devices, sequence, globalBatch } = point.question;
    const at =
      `${i + 1} of ${asked.length}: ${devices} devices of ${cluster}, sequences of ` +
      `${sequence}, ${globalBatch} a step`;
    const part = deadline.part(1 / (asked.length - i));
    const comparison = part.isOver
      ? undefined
      : await askPoint(config, point, options, {
          deadline: part,
          onPlan: control.answers,
          whatIf: false,
          ...(options.quiet === true
            ? {}
            : { onProgress: (line) => io.progress(`${at}: ${line}`) }),
        });
    for (const warning of comparison?.warnings ?? []) io.stderr(`warning: ${at}: ${warning}\n`);
    points.push(pointOf(point.question, comparison));
  }
  const planning = planningOf(points, goals);
  printPlanning(planning, options, io);
  const stopped = points.filter((p) => p.stopped !== undefined).length;
  if (stopped > 0) {
    io.stderr(`${deadline.cause}: ${stopped} of ${points.length} points are not done\n`);
    return EXIT.gap;
  }
  return points.every((p) => p.best === null) ? EXIT.infeasible : EXIT.ok;
}

/** Prints comparisons side by side: a first screen, and with `-v` all figures below it. */
export function printPlanning(
  planning: Planning,
  options: Pick<CompareOptions, 'json' | 'verbose'>,
  io: CliIo,
): void {
  answer(
    io,
    options,
    planning,
    (p) =>
      options.verbose === true
        ? `${planningScreenText(p, true)}\n\n${planningText(p)}`
        : planningScreenText(p),
    paintScreen,
  );
}
