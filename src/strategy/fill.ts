/** Fills the shard slots of a call's rules with the cuts that its inputs have. */

import type { Placement } from '../mesh/placements/placement.ts';
import { Shard } from '../mesh/placements/shards/shard.ts';
import { StridedShard } from '../mesh/placements/shards/strided.ts';
import { toMeshView } from '../mesh/sharding/mesh-view.ts';
import type { Sharding } from '../mesh/sharding/sharding.ts';
import type { ShardingSpace } from '../mesh/sharding/space.ts';
import { allReplicate, cutRows, plainRow } from '../ops/expansion/expand.ts';
import type { Row } from '../ops/expansion/row.ts';
import type { TensorMeta } from '../ops/record/record.ts';
import type { Rule } from '../ops/record/rule.ts';

/**
 * Discovery: the rules of one call with their shard slots filled by the cuts that its inputs really
 * have. A rule with shard slots is taken once for every kind of cut that occurs, plain shards
 * first, then strided ones by ascending split factor, then others by their text; without any cut
 * among the inputs it is left out. Rules without shard slots stay as they are, so that pending
 * reductions are at hand even when all inputs are replicated. A dim that is cut by several mesh
 * dims in another order than theirs counts as its mesh view, which writes the order with strided
 * cuts.
 */
export interface FillOptions {
  /** `found` (default): the cuts that occur; `all`: plain shards as well. */
  readonly fill?: 'found' | 'all';
  /** Only the rules that PyTorch 2.13 has. */
  readonly compat?: boolean;
}

export interface FilledRules {
  /** The rules that `Row.rule` counts; 0 is the all-replicate rule. */
  readonly rules: readonly Rule[];
  readonly rows: readonly Row[];
}

/**
 * The kinds of cuts among placements in mesh order, named for dim 0, each once, in the order in
 * which rules are filled.
 */
export function cutsAmong(given: readonly (readonly Placement[])[]): Placement[] {
  const found = new Map<string, Placement>();
  for (const placements of given)
    for (const p of placements) if (p.dim !== undefined) found.set(p.withDim(0).text, p.withDim(0));
  const rank = (p: Placement): number =>
    p instanceof Shard ? 0 : p instanceof StridedShard ? p.factor : Infinity;
  return [...found.values()].sort((a, b) => {
    const [x, y] = [rank(a), rank(b)];
    return x === y ? (a.text < b.text ? -1 : a.text > b.text ? 1 : 0) : x - y;
  });
}

/**
 * The placements that, applied in mesh order, cut like the sharding; its own where a cut of another
 * kind has no such form.
 */
function inMeshOrder(sharding: Sharding, space: ShardingSpace): readonly Placement[] {
  if (sharding.inMeshOrder) return sharding.placements;
  const view = toMeshView(sharding, space.mesh);
  return 'refused' in view ? sharding.placements : view.placements;
}

/** @param given the sharding of each input */
export function fillRules(
  space: ShardingSpace,
  rules: readonly Rule[],
  inputs: readonly TensorMeta[],
  outputs: readonly (TensorMeta | null)[],
  given: readonly Sharding[],
  options: FillOptions = {},
): FilledRules {
  let plain = options.fill === 'all';
  let special = false;
  const views = given.map((sharding) => inMeshOrder(sharding, space));
  for (const placements of views)
    for (const p of placements)
      if (p instanceof Shard) plain = true;
      else if (p.dim !== undefined) special = true;
  const others = special ? cutsAmong(views).filter((p) => !(p instanceof Shard)) : [];
  const list = [allReplicate(inputs, outputs)];
  for (const r of rules) if (options.compat !== true || r.origin === 'base') list.push(r);
  const rows: Row[] = [];
  for (let i = 0; i < list.length; i++) {
    const row = plainRow(list[i], i);
    const cuts = row.shards.length > 0;
    if (!cuts || plain) rows.push(row);
    if (cuts && others.length > 0) rows.push(...cutRows(space, [row], others));
  }
  return { rules: list, rows };
}
