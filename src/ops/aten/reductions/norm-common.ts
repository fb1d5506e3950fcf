/**
 * Shared by all normalisations. Weight and bias enter linearly, so pending weights pass to the
 * output, and a pending gradient passes to all gradients.
 */

import type { DType } from '../../../graph/types.ts';
import {
  elements,
  type OpContext,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot } from '../../record/rule.ts';
import { linearKinds, need, slotsByName } from '../../rules/dims.ts';

/** Work per element of a normalisation, for time estimates. */
const NORM_COST = 8;

/** Work of a call. */
export const normWork = (ctx: TypedContext): { matrix: number; vector: number } => ({
  matrix: 0,
  vector: NORM_COST * elements(need(ctx, 'input').shape),
});

/** Slots of the results; null where the call masks one off. */
export function outputsOf(ctx: TypedContext, slots: readonly RuleSlot[]): RuleSlot[] {
  return ctx.outputs.map((meta, i) => (meta === null ? null : slots[i]));
}

/** One slot for several arguments. */
export function named(names: readonly string[], slot: RuleSlot): Record<string, RuleSlot> {
  return Object.fromEntries(names.map((name) => [name, slot]));
}

/**
 * Weight and bias pending the same way (those that are there): the output is pending, statistics
 * are not.
 */
export function pendingAffine(ctx: TypedContext, statistics: number): Rule[] {
  const names = ['weight', 'bias'].filter((name) => ctx.indexOf(name) >= 0);
  if (names.length === 0) return [];
  return linearKinds(need(ctx, 'input').dtype).map((kind) =>
    rule(
      slotsByName(ctx, named(names, P(kind))),
      outputsOf(ctx, [P(kind), ...new Array<RuleSlot>(statistics).fill(R)]),
      { origin: 'ext' },
    ),
  );
}

/** Pending gradient of the output: all gradients pending. */
export function pendingGrad(ctx: TypedContext): Rule[] {
  return linearKinds(need(ctx, 'input').dtype).map((kind) =>
    rule(slotsByName(ctx, { grad_out: P(kind) }), outputsOf(ctx, [P(kind), P(kind), P(kind)]), {
      origin: 'ext',
    }),
  );
}

/**
 * Pending weight: the input's gradient is linear in it, the weight's own gradient does not use it.
 */
export function pendingWeight(ctx: TypedContext): Rule[] {
  if (ctx.indexOf('weight') < 0 || ctx.outputs[0] === null) return [];
  return linearKinds(need(ctx, 'weight').dtype).map((kind) =>
    rule(slotsByName(ctx, { weight: P(kind) }), outputsOf(ctx, [P(kind), R, R]), { origin: 'ext' }),
  );
}

/** Statistics of 16-bit inputs are kept in f32, as accelerators do. */
export function statisticType(dtype: DType): DType {
  return dtype === 'f64' ? 'f64' : 'f32';
}

/** On a CPU the statistics of 16-bit values are of 16 bits too. */
export function withOwnStatistics(
  ctx: OpContext,
  results: readonly (TensorMeta | null)[],
): readonly (readonly (TensorMeta | null)[])[] {
  const { dtype } = need(ctx, 'input');
  if (statisticType(dtype) === dtype) return [];
  return [
    results.map((meta, i) =>
      i === 0 || meta === null || meta.dtype !== 'f32' ? meta : { ...meta, dtype },
    ),
  ];
}
