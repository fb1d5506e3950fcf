/**
 * Measured collectives of one scale-up domain (`data/nccl_measured.json`, nccl-tests): times by
 * accelerator, collective, group size and bytes. Between sizes the logarithms are interpolated;
 * below the smallest its time holds, above the largest its rate. Single measurements carry spikes,
 * so times are made to rise with bytes first.
 */

import * as z from 'zod';

import { internalError } from '../../errors.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import { packageData } from '../../platform/platform.ts';

const points = z.array(z.tuple([z.number().positive(), z.number().positive()])).min(2);
const byGroup = z.record(z.string(), points);
const schema = z.looseObject({
  points: z.record(
    z.string(),
    z.object({
      all_gather: byGroup,
      all_reduce: byGroup,
      alltoall: byGroup,
      reduce_scatter: byGroup,
    }),
  ),
});

type MeasuredKind = Exclude<CollectiveKind, 'collective_permute'>;

/** Bytes of a message and its seconds. */
type Point = readonly [bytes: number, seconds: number];

/** Times of one collective over one group: a line through points in log-log, rising with bytes. */
export class MeasuredCurve {
  private readonly x: readonly number[];
  private readonly y: readonly number[];

  constructor(points: readonly Point[]) {
    const sorted = [...points].sort((a, b) => a[0] - b[0]);
    this.x = sorted.map(([bytes]) => Math.log2(bytes));
    this.y = rising(
      this.x,
      sorted.map(([, seconds]) => Math.log2(seconds)),
    );
  }

  /** Seconds at a size; never falls when bytes grow. */
  seconds(bytes: number): number {
    const { x, y } = this;
    const last = x.length - 1;
    const at = Math.log2(Math.max(bytes, 1));
    if (at <= x[0]) return 2 ** y[0];
    if (at >= x[last]) return 2 ** (y[last] + at - x[last]);
    let i = 1;
    while (x[i] < at) i++;
    return 2 ** (y[i - 1] + ((y[i] - y[i - 1]) * (at - x[i - 1])) / (x[i] - x[i - 1]));
  }
}

/**
 * The sequence made rising. A single point far above or below the line through its neighbours is
 * moved onto that line (spikes of single measurements); then pools of falling values take their
 * median.
 */
function rising(x: readonly number[], values: readonly number[]): number[] {
  const calm = values.map((v, i) => {
    if (i === 0 || i === values.length - 1) return v;
    const line =
      values[i - 1] + ((values[i + 1] - values[i - 1]) * (x[i] - x[i - 1])) / (x[i + 1] - x[i - 1]);
    return v - line > SPIKE || (v < values[i - 1] && line - v > SPIKE) ? line : v;
  });
  const pools: number[][] = [];
  for (const v of calm) {
    let pool = [v];
    for (
      let before = pools.at(-1);
      before !== undefined && median(before) > median(pool);
      before = pools.at(-1)
    ) {
      pool = [...before, ...pool];
      pools.pop();
    }
    pools.push(pool);
  }
  return pools.flatMap((pool) => new Array<number>(pool.length).fill(median(pool)));
}
/** Factor 1.3 above the line of the neighbours. */
const SPIKE = Math.log2(1.3);

function median(list: readonly number[]): number {
  const sorted = [...list].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Measured times of one accelerator. */
export interface MeasuredCollectives {
  /** Accelerator that was measured. */
  readonly accelerator: string;
  /** Smallest time of a pair, any collective. */
  readonly pairSeconds: number;
  seconds(kind: MeasuredKind, bytes: number, devices: number): number;
}

const FILE_KIND = {
  all_gather: 'all_gather',
  reduce_scatter: 'reduce_scatter',
  all_reduce: 'all_reduce',
  all_to_all: 'alltoall',
} as const;

/** Accelerators that share the links and switches of a measured one. */
const SAME_LINKS: readonly (readonly [prefix: string, measured: string])[] = [
  ['A100-SXM4', 'A100-SXM4-80GB'],
  ['H100-SXM5', 'H100-SXM'],
  ['H200-SXM', 'H100-SXM'],
  ['B200-SXM', 'B200'],
  ['GB200', 'GB200'],
  ['B300-SXM', 'B300'],
  ['GB300', 'GB200'],
  ['L40S', 'L40S'],
];

let loaded: z.infer<typeof schema>['points'] | undefined;

/** Raw points of the file: accelerator, collective, group size, `[bytes, microseconds]`. */
export function measuredPoints(): z.infer<typeof schema>['points'] {
  if (loaded !== undefined) return loaded;
  const parsed = schema.safeParse(JSON.parse(packageData('nccl_measured.json')));
  if (!parsed.success)
    throw internalError(`data/nccl_measured.json: ${z.prettifyError(parsed.error)}`);
  return (loaded = parsed.data.points);
}

/**
 * Measured collectives of an accelerator (`H100-SXM5-80GB`), undefined where none of its links were
 * measured.
 *
 * Between measured group sizes times are linear in the number of devices. Beyond the largest the
 * latency grows as between the last two sizes and the transfer by the ring's share (n-1)/n.
 */
export function measuredCollectives(accelerator: string): MeasuredCollectives | undefined {
  const name = SAME_LINKS.find(([prefix]) => accelerator.startsWith(prefix))?.[1];
  const table = name === undefined ? undefined : measuredPoints()[name];
  if (name === undefined || table === undefined) return undefined;
  const curves = new Map<
    MeasuredKind,
    readonly (readonly [devices: number, curve: MeasuredCurve])[]
  >();
  let pairSeconds = Infinity;
  for (const kind of Object.keys(FILE_KIND) as MeasuredKind[]) {
    const sizes = Object.entries(table[FILE_KIND[kind]]).map(([n, list]) => {
      const seconds = list.map(([bytes, micros]): Point => [bytes, micros * 1e-6]);
      if (n === '2') for (const [, s] of seconds) pairSeconds = Math.min(pairSeconds, s);
      return [Number(n), new MeasuredCurve(seconds)] as const;
    });
    curves.set(
      kind,
      sizes.sort((a, b) => a[0] - b[0]),
    );
  }
  return {
    accelerator: name,
    pairSeconds,
    seconds(kind, bytes, devices) {
      const list = curves.get(kind) ?? [];
      const last = list.length - 1;
      if (devices <= list[0][0]) return list[0][1].seconds(bytes);
      if (devices > list[last][0]) {
        const [n, curve] = list[last];
        const [before, smaller] = list[last - 1];
        const perDevice = Math.max(0, (curve.seconds(1) - smaller.seconds(1)) / (n - before));
        const share = (devices - 1) / devices / ((n - 1) / n);
        return (
          curve.seconds(1) +
          perDevice * (devices - n) +
          (curve.seconds(bytes) - curve.seconds(1)) * share
        );
      }
      const i = list.findIndex(([n]) => n >= devices);
      const [high, above] = list[i];
      if (high === devices) return above.seconds(bytes);
      const [low, below] = list[i - 1];
      const t = below.seconds(bytes);
      return t + ((above.seconds(bytes) - t) * (devices - low)) / (high - low);
    },
  };
}
