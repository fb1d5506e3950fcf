/**
 * States which steps between placement states are allowed: which axes may move together, on which
 * tensor dims, and which reductions may start from R.
 */

import type { Placement } from '../../mesh/placements/placement.ts';
import { isPending } from '../../mesh/sharding/sharding.ts';
import { partialCode } from '../../mesh/sharding/space.ts';

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
 * Tensor dims that steps may cut. All of them on up to three mesh dims; beyond, those that a source
 * or target cuts and one more, because a detour needs only one spare dim and the states grow as
 * rank ^ mesh dims.
 */
export function reachedDims(rank: number, axes: number, cut: ReadonlySet<number>): number[] {
  const all = Array.from({ length: rank }, (_, d) => d);
  if (axes <= 3) return all;
  const spare = all.find((d) => !cut.has(d));
  return all.filter((d) => cut.has(d) || d === spare);
}

/**
 * Tells whether a tensor that every rank holds can be read as operands of the reduction without
 * communication: a value is taken apart as its kind says, an index tensor becomes a masked lookup.
 */
export function madeFromReplicate(p: Placement, n: number): boolean {
  return isLookup(p) || (isPending(p) && p.operand(1, 0, n) !== undefined);
}

/** Masked lookups are made from indices, never from values that were reduced. */
export function isLookup(p: Placement): boolean {
  return p.kind === 'mask-partial';
}

const SUM = partialCode('sum');
const AVG = partialCode('avg');
/**
 * Tells whether two pending mesh dims may be reduced in one collective, by their kind codes: one
 * kind, or sum and avg.
 */
export function reduceTogether(a: number, b: number): boolean {
  return a === b || ((a === SUM || a === AVG) && (b === SUM || b === AVG));
}
