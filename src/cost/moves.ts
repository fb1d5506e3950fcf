import { partialCode } from '../mesh/space.ts';

/** What steps between placement states may do: which axes together, which tensor dims, which reductions from R. */

/** Non-empty subsets of at most `most` members, ascending inside. */
export function subsets(list: readonly number[], most: number): number[][] {
  const out: number[][] = [];
  for (let mask = 1; mask < 1 << list.length; mask++) {
    const subset = list.filter((_, i) => (mask & (1 << i)) !== 0);
    if (subset.length <= most) out.push(subset);
  }
  return out;
}

/**
 * Tensor dims that steps may cut. All of them on up to three mesh dims; beyond, those that a source or target cuts and
 * one more, because a detour needs only one spare dim and the states grow as rank ^ mesh dims.
 */
export function reachedDims(rank: number, axes: number, cut: ReadonlySet<number>): number[] {
  const all = Array.from({ length: rank }, (_, d) => d);
  if (axes <= 3) return all;
  const spare = all.find((d) => !cut.has(d));
  return all.filter((d) => cut.has(d) || d === spare);
}

const NOT_FROM_REPLICATE: ReadonlySet<number> = new Set(
  (['product', 'band', 'bor', 'bxor'] as const).map((op) => partialCode(op)),
);
/** Whether equal values can be read as operands of the reduction without work: sum keeps one, avg, max and min keep all. */
export function madeFromReplicate(code: number): boolean {
  return !NOT_FROM_REPLICATE.has(code);
}

const SUM = partialCode('sum');
const AVG = partialCode('avg');
/** Whether two kinds of pending reduction may stand on one tensor, by their codes. */
export function mayStandTogether(a: number, b: number): boolean {
  return a === b || ((a === SUM || a === AVG) && (b === SUM || b === AVG));
}
