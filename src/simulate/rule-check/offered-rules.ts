/**
 * Gives the sharding rules that strategy expansion offers for a call on one mesh dim, and tells
 * whether a found combination follows from them.
 */

import { parseMesh } from '../../mesh/devices/mesh.ts';
import { ShardingSpace } from '../../mesh/sharding/space.ts';
import { expandRules } from '../../ops/expansion/expand.ts';
import { isStrided, type Rule, type RuleSlot } from '../../ops/record/rule.ts';
import type { SampleCall } from './sample-call.ts';

/**
 * The rules that the product offers for a call on one mesh dim, by its own expansion: evenness,
 * units and ties applied.
 */
export function offeredRules(sample: SampleCall, rules: readonly Rule[], ranks: number): Rule[] {
  const space = new ShardingSpace(parseMesh(`n=${ranks}`));
  const set = expandRules(space, rules, sample.ctx.inputs, sample.ctx.outputs, {
    uneven: 'allow',
    patterns: 'any',
  });
  const chosen: Rule[] = [];
  for (let s = 0; s < set.count; s++) if (set.choice[s] > 0) chosen.push(set.rules[set.choice[s]]);
  return chosen;
}

/**
 * Tells whether a combination is one of the rules, or comes from one by conversions that cost
 * nothing: a replicated tensor is cut locally, and may be read as any pending reduction but a
 * product.
 */
export function follows(
  rules: readonly Rule[],
  inputs: readonly RuleSlot[],
  outputs: readonly RuleSlot[],
): boolean {
  return rules.some(
    (r) =>
      r.inputs.every((slot, i) => becomes(inputs[i], slot)) &&
      r.outputs.every((slot, k) => becomes(slot, outputs[k])),
  );
}

/** Tells whether a tensor placed `from` can be taken as `to` for nothing. */
function becomes(from: RuleSlot, to: RuleSlot): boolean {
  if (from === null || to === null) return true;
  if (from.kind === 'replicate') return to.kind !== 'partial' || to.op !== 'product';
  if (from.kind === 'shard')
    return to.kind === 'shard' && to.dim === from.dim && isStrided(to) === isStrided(from);
  return to.kind === 'partial' && to.op === from.op;
}
