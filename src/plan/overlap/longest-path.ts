/**
 * What the step of one choice takes at least, and where. In: the work of a step, a choice. Out: seconds that no order of collectives,
 * no prefetch and no buckets go below: the longest path through the step, which follows the chain of kernels and waits, or a
 * stream over a stretch of it.
 */
import type { Model } from '../model/model.ts';
import { StepWork } from './step-work.ts';
import { COMPUTE } from './streams.ts';

/** A stretch of kernels from `from` to before `to`, with what stands before, between and after them, in which a stream counts. */
interface PathStretch {
  readonly from: number;
  readonly to: number;
  /** Seconds more than those of the chain. */
  readonly gainSeconds: number;
}

/** What a step takes at least, and the stretches in which a stream counts. */
export interface LongestPath {
  readonly seconds: number;
  readonly stretches: readonly PathStretch[];
}

interface Load {
  readonly stream: number;
  /** First and last gap in which it can run; gap k is before kernel k. */
  readonly from: number;
  readonly seconds: number;
}

/** The work of a model's steps under that price of buckets which is worth more for one plan. */
export function stepWorkFor(model: Model, options: { readonly launchSeconds: number; readonly bucketBytes: number }, choice: Int32Array): StepWork {
  const share = new StepWork(model, { ...options, bucketPrice: 'share' });
  const added = new StepWork(model, { ...options, bucketPrice: 'added', like: share });
  return longestPath(added, choice).seconds > longestPath(share, choice).seconds ? added : share;
} // prettier-ignore

/** Seconds are sums of doubles in two orders: no plan is dropped for a difference as small as this share. */
const ROUNDING = 1e-9;

/** Quadratic in the kernels. */
export function longestPath(work: StepWork, choice: Int32Array): LongestPath {
  const { count } = work.order;
  const kernels = new Float64Array(count);
  const waits = new Float64Array(count + 1);
  const loads: Load[][] = Array.from(waits, () => []);
  work.visit(choice, {
    kernel: (at, seconds) => (kernels[at] += seconds),
    move: ({ after, before, chained }, seconds, i, sign) => {
      seconds.forEach((list, stream) => {
        const own = sign * list[i];
        if (own === 0) return;
        if (chained[stream]) waits[before] += own;
        loads[before].push({ stream, from: after + 1, seconds: own });
      });
    },
  });
  // By stream: seconds that can run only from each gap to the present one.
  const within = new Map(work.streams.map((s) => [s, new Float64Array(count + 1)]));
  const upTo = new Float64Array(count + 2);
  const chain = new Float64Array(count + 2);
  const came: { from: number; to: number }[] = [];
  for (let gap = 0; gap <= count; gap++) {
    for (const { stream, from, seconds } of loads[gap]) {
      const sums = within.get(stream);
      if (sums !== undefined) for (let lo = 0; lo <= from; lo++) sums[lo] += seconds;
    }
    let most = upTo[gap] + waits[gap];
    let start = gap;
    let isStream = false;
    for (const sums of within.values())
      for (let lo = 0; lo <= gap; lo++)
        if (upTo[lo] + sums[lo] > most) [most, start, isStream] = [upTo[lo] + sums[lo], lo, true];
    came.push(isStream ? { from: start, to: gap } : { from: gap, to: -1 });
    const kernel = gap < count ? kernels[gap] : 0;
    upTo[gap + 1] = most + kernel;
    chain[gap + 1] = chain[gap] + waits[gap] + kernel;
    const own = within.get(COMPUTE);
    if (own !== undefined) for (let lo = 0; lo <= gap; lo++) own[lo] += kernel;
  }
  const stretches: PathStretch[] = [];
  for (let gap = count; gap >= 0; gap--) {
    const { from, to } = came[gap];
    if (to < 0) continue;
    stretches.push({ from, to, gainSeconds: upTo[gap + 1] - upTo[from] - (chain[gap + 1] - chain[from]) });
    gap = from;
  }
  return { seconds: upTo[count + 1] * (1 - ROUNDING), stretches };
}
