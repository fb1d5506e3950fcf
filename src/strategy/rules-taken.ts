/** Finds the rule that a call takes on each mesh dim, from its placements. */
import { internalError } from '../errors.ts';
import { Partial } from '../mesh/placements/partials/partial.ts';
import type { Placement } from '../mesh/placements/placement.ts';
import type { ShardingSpace } from '../mesh/sharding/space.ts';
import type { Rule, RuleSlot } from '../ops/record/rule.ts';

/**
 * The rule that a call takes on each mesh dim, found from its placements: the first whose slots
 * they are, as the expansion keeps the first of strategies that look the same. Undefined where the
 * call is replicated over the mesh dim.
 */
export function rulesTaken(
  space: ShardingSpace,
  rules: readonly Rule[],
  inputs: readonly number[],
  outputs: readonly number[],
): (Rule | undefined)[] {
  const ids = [...inputs, ...outputs];
  return space.mesh.sizes.map((size, m) => {
    if (size === 1) return undefined;
    const here = ids.map((id) => (id < 0 ? null : space.get(id).placements[m]));
    const axis = space.mesh.names[m];
    const named = rules.some(({ axes }) => axes?.includes(axis) === true);
    if (!named && here.every((p) => p === null || p.kind === 'replicate')) return undefined;
    const stands = ({ axes }: Rule): boolean =>
      named ? axes?.includes(axis) === true : axes === undefined;
    const taken = rules.find(
      (r) => stands(r) && [...r.inputs, ...r.outputs].every((slot, t) => is(here[t], slot)),
    );
    if (taken === undefined)
      throw internalError(
        `no rule has ${here.map((p) => p?.text ?? '-').join(', ')} on mesh dim ${m}`,
      );
    return taken;
  });
}

function is(placement: Placement | null, slot: RuleSlot): boolean {
  // A result that the call masks off has no placement, whatever the rule says of it.
  if (placement === null) return true;
  if (slot === null) return placement.kind === 'replicate';
  switch (slot.kind) {
    case 'replicate':
      return placement.kind === 'replicate';
    case 'shard':
      // A cut of any kind matches: its needs were checked when the call was expanded.
      return placement.dim === slot.dim;
    case 'partial':
      return placement instanceof Partial && placement.op === slot.op;
  }
}
