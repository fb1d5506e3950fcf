/** Finds the strided cuts that the values of a program can have. */

import type { Placement } from '../../mesh/placements/placement.ts';
import { StridedShard } from '../../mesh/placements/shards/strided.ts';
import { toMeshView } from '../../mesh/sharding/mesh-view.ts';
import { FIRST_OTHER_CODE, type ShardingSpace } from '../../mesh/sharding/space.ts';
import type { TensorMeta } from '../record/record.ts';
import { isStrided, type Rule } from '../record/rule.ts';

/**
 * Strided cuts that values of a program can have. They come from views that merge dims (a cut of
 * the sequence becomes a strided one of batch x sequence) and pass through whatever hands an index
 * on. A call is offered those that one of its inputs can have and no others: all strides on all
 * dims would be a multiple of the strategies, and none of them comes free.
 */
export interface Patterns {
  /** By input: what its producer can leave, see `patternsOf`. */
  readonly byInput: readonly (readonly CutPattern[])[];
  /** Texts of all of them, whatever the dim. */
  readonly all: ReadonlySet<string>;
  /** Every strided cut that occurs in them, once, named for dim 0. */
  readonly cuts: readonly Placement[];
}

/** How the mesh dims cut one tensor dim, at least one of them in strides. */
export interface CutPattern {
  readonly dim: number;
  /** See `patternOf`. */
  readonly text: string;
  readonly strides: readonly StridedShard[];
}

/**
 * The cuts of one tensor dim as text, one word a mesh dim, whatever the dim's number: `-,_S(0,
 * 4),S(0)`.
 */
export function patternOf(placements: readonly Placement[], dim: number): string {
  return placements.map((p) => (p.dim === dim ? p.withDim(0).text : '-')).join();
}

/**
 * Strided cuts among shardings, each pattern once. @param ids of the shardings that strategies
 * leave of one result
 */
export function patternsOf(ids: Iterable<number>, space: ShardingSpace): CutPattern[] {
  const found = new Map<string, CutPattern>();
  const seen = new Set<number>();
  for (const id of ids) {
    if (id < 0 || seen.has(id)) continue;
    seen.add(id);
    // Most shardings are cut in one piece, and this is asked of every strategy.
    if (!mayStride(space, id)) continue;
    const sharding = space.get(id);
    const view = toMeshView(sharding, space.mesh);
    if ('refused' in view) continue;
    const dims = new Set(
      view.placements.flatMap((p) => (p instanceof StridedShard ? [p.dim] : [])),
    );
    for (const dim of dims) {
      const text = patternOf(view.placements, dim);
      const strides = view.placements.flatMap((p) =>
        p instanceof StridedShard && p.dim === dim ? [p.withDim(0)] : [],
      );
      found.set(`${dim} ${text}`, { dim, text, strides });
    }
  }
  return [...found.values()];
}

/**
 * Tells whether a sharding has a cut of another kind than plain shards, or an order that is one in
 * the mesh view.
 */
function mayStride(space: ShardingSpace, id: number): boolean {
  for (let m = 0; m < space.meshRank; m++) if (space.kindAt(id, m) >= FIRST_OTHER_CODE) return true;
  return !space.get(id).inMeshOrder;
}

/** @param byInput patterns of each input's producer */
export function gathered(byInput: readonly (readonly CutPattern[])[]): Patterns {
  const all = byInput.flat();
  const cuts = new Map(
    all.flatMap(({ strides }) => strides.map((cut) => [cut.text, cut] as const)),
  );
  return {
    byInput,
    all: new Set(all.map(({ text }) => text)),
    cuts: [...cuts.values()].sort((a, b) => a.factor - b.factor),
  };
}

/** Tells whether the producer of input `t` can leave it with a strided cut on a dim. */
export function hasCut(patterns: Patterns, t: number, dim: number, cut: Placement): boolean {
  const text = cut.withDim(0).text;
  return (
    patterns.byInput[t]?.some((p) => p.dim === dim && p.strides.some((s) => s.text === text)) ??
    false
  );
}

/**
 * Which dims that views merge may be cut in strides: none; `rows`, the leading ones, which are
 * batch and sequence in every program of a model; or all, heads with what is in a head too, which
 * have more placements than use.
 */
export type StridedCuts = 'off' | 'rows' | 'all';

/**
 * The rules of a call without those that cut in strides where these are not wanted. @param tensors
 * inputs, then results
 */
export function offered(
  rules: readonly Rule[],
  tensors: readonly (TensorMeta | null)[],
  strided: StridedCuts,
): readonly Rule[] {
  if (strided === 'all') return rules;
  const wanted = (r: Rule): boolean =>
    [...r.inputs, ...r.outputs].every((slot) => {
      if (slot?.kind !== 'shard' || !isStrided(slot) || slot.inside === null) return true;
      const { tensor, dims } = slot.inside;
      return (
        strided === 'rows' &&
        (tensors[tensor]?.shape ?? []).slice(0, dims[0]).every((size) => size <= 1)
      );
    });
  return rules.every(wanted) ? rules : rules.filter(wanted);
}

/** Stride factors of one tensor dim that are offered, the least first. */
export const MOST_FACTORS = 8;

/** Patterns whose factors are among the first of their dim. */
export function fewFactors(patterns: readonly CutPattern[]): readonly CutPattern[] {
  const byDim = new Map<number, Set<number>>();
  for (const { dim, strides } of patterns)
    for (const { factor } of strides)
      byDim.set(dim, (byDim.get(dim) ?? new Set<number>()).add(factor));
  if ([...byDim.values()].every((factors) => factors.size <= MOST_FACTORS)) return patterns;
  const kept = new Map(
    [...byDim].map(([dim, factors]) => [
      dim,
      new Set([...factors].sort((a, b) => a - b).slice(0, MOST_FACTORS)),
    ]),
  );
  return patterns.filter(({ dim, strides }) =>
    strides.every(({ factor }) => kept.get(dim)?.has(factor)),
  );
}
