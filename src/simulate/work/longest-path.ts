/**
 * Finds a lower bound on the step of one choice: seconds that no order of collectives, no prefetch
 * and no buckets go below. It is the longest path through the step, which follows the chain of
 * kernels and waits, a stream over a stretch of it, or one move from the kernel before it to the
 * kernel that waits for it.
 */
import type { Model } from '../../plan/model/model.ts';
import { type PlanLoads, planLoads } from './plan-loads.ts';
import { PrefixMaximum } from './prefix-maximum.ts';
import { type Site, StepWork } from './step-work.ts';
import { COMPUTE } from './streams.ts';

/** From gap `from` to gap `to`, both included, and the kernels between them: off the chain. */
export interface PathStretch {
  readonly from: number;
  readonly to: number;
  /**
   * The work that counts there: everything of a stream that can run nowhere else, or one move
   * alone.
   */
  readonly by: number | Site;
  /** Seconds more than those of the chain. */
  readonly gainSeconds: number;
}

/** The least seconds of a step, and the stretches that are not on the chain, the last first. */
export interface LongestPath {
  readonly seconds: number;
  readonly stretches: readonly PathStretch[];
}

/**
 * The work of a model's steps under that price of buckets which is worth more for one plan, and the
 * path of that plan.
 */
export function stepWorkFor(
  model: Model,
  options: { readonly launchSeconds: number; readonly bucketBytes: number },
  choice: Int32Array,
): { readonly work: StepWork; readonly path: LongestPath } {
  const share = new StepWork(model, { ...options, bucketPrice: 'share' });
  const path = longestPath(share, choice);
  const added = new StepWork(model, { ...options, bucketPrice: 'added', like: share });
  const other = longestPath(added, choice);
  return other.seconds > path.seconds ? { work: added, path: other } : { work: share, path };
}

/**
 * Seconds are sums of doubles in two orders: no plan is dropped for a difference as small as this
 * share.
 */
const ROUNDING = 1e-9;

export function longestPath(work: StepWork, choice: Int32Array): LongestPath {
  const path = pathOfLoads(work, [{ loads: planLoads(work, choice), weight: 1 }]);
  return { ...path, seconds: path.seconds * (1 - ROUNDING) };
}

/** The work that a kernel waits for at the end of its window. */
interface Ending {
  readonly site: Site;
  readonly seconds: Float64Array;
  readonly latencySeconds: number;
}

/** The path that is longest for some plans in the weighted mean. */
export function pathOfLoads(
  work: StepWork,
  plans: readonly { readonly loads: PlanLoads; readonly weight: number }[],
): LongestPath {
  const { count } = work.order;
  const { kernels, waits, ending } = meanLoads(work, plans);
  // By stream: up to each gap, and then what can run only from there to the present one.
  const leaving = work.streams.map((stream) => ({ stream, from: new PrefixMaximum(count + 1) }));
  const computing = leaving.find(({ stream }) => stream === COMPUTE)?.from;
  const upTo = new Float64Array(count + 2);
  const chain = new Float64Array(count + 2);
  const came: Arrival[] = [];
  for (let gap = 0; gap <= count; gap++) {
    const ends = ending[gap] ?? [];
    for (const { from } of leaving) from.append(upTo[gap]);
    for (const { site, seconds } of ends)
      for (const { stream, from } of leaving)
        if (seconds[stream] !== 0) from.addBefore(site.after + 2, seconds[stream]);
    let most = upTo[gap] + waits[gap];
    let last: Arrival;
    for (const { stream, from } of leaving)
      if (from.value > most) [most, last] = [from.value, { from: from.place, by: stream }];
    for (const { site, latencySeconds } of ends)
      if (upTo[site.after + 1] + latencySeconds > most)
        [most, last] = [upTo[site.after + 1] + latencySeconds, { from: site.after + 1, by: site }];
    came.push(last);
    const kernel = gap < count ? kernels[gap] : 0;
    upTo[gap + 1] = most + kernel;
    chain[gap + 1] = chain[gap] + waits[gap] + kernel;
    computing?.addBefore(gap + 1, kernel);
  }
  return { seconds: upTo[count + 1], stretches: stretchesOf(came, upTo, chain) };
}

/** The task for which the last kernel before each gap of the longest path waited, and its start. */
type Arrival = { readonly from: number; readonly by: number | Site } | undefined;

/** The stretches of the path in which another stream leads, the last one first. */
function stretchesOf(
  came: readonly Arrival[],
  upTo: Float64Array,
  chain: Float64Array,
): PathStretch[] {
  const stretches: PathStretch[] = [];
  for (let gap = came.length - 1; gap >= 0; gap--) {
    const last = came[gap];
    if (last === undefined) continue;
    stretches.push({
      ...last,
      to: gap,
      gainSeconds: upTo[gap + 1] - upTo[last.from] - (chain[gap + 1] - chain[last.from]),
    });
    gap = last.from;
  }
  return stretches;
}

/** The work of plans in the weighted mean. */
interface MeanLoads {
  /** Seconds of each kernel, and those that each gap waits for in the chain. */
  readonly kernels: Float64Array;
  readonly waits: Float64Array;
  /** By gap: moves that end there at the latest. */
  readonly ending: readonly (readonly Ending[] | undefined)[];
}

function meanLoads(
  work: StepWork,
  plans: readonly { readonly loads: PlanLoads; readonly weight: number }[],
): MeanLoads {
  const { count } = work.order;
  const kernels = new Float64Array(count);
  const sums = new Map<Site, { readonly seconds: Float64Array; latencySeconds: number }>();
  for (const { loads, weight } of plans) {
    loads.kernels.forEach((seconds, k) => (kernels[k] += weight * seconds));
    for (const { site, seconds, latencySeconds } of loads.moves) {
      let sum = sums.get(site);
      if (sum === undefined)
        sums.set(site, (sum = { seconds: new Float64Array(seconds.length), latencySeconds: 0 }));
      for (let stream = 0; stream < seconds.length; stream++)
        sum.seconds[stream] += weight * seconds[stream];
      sum.latencySeconds += weight * latencySeconds;
    }
  }
  const waits = new Float64Array(count + 1);
  const ending = new Array<Ending[] | undefined>(count + 1).fill(undefined);
  for (const [site, { seconds, latencySeconds }] of sums) {
    (ending[site.before] ??= []).push({ site, seconds, latencySeconds });
    for (let stream = 0; stream < seconds.length; stream++)
      if (site.chained[stream]) waits[site.before] += seconds[stream];
  }
  return { kernels, waits, ending };
}
