/**
 * Shared by all normalisations. Weight and bias enter linearly, so pending weights pass to the
 * output, and a pending gradient passes to all gradients.
 */

import { type DType, DTYPE_BYTES } from '../../../graph/types.ts';
import {
  elements,
  metaBytes,
  type OpContext,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleOptions, type RuleSlot } from '../../record/rule.ts';
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

/** Numbers of a call at local sizes. */
type Count = (local: TypedContext) => number;

/** Bytes of some numbers in at least 32 bits, as statistics are kept. */
function wideBytes(local: TypedContext, numbers: number): number {
  return numbers * Math.max(4, DTYPE_BYTES[need(local, 'input').dtype]);
}

/**
 * Statistics of values that lie on several ranks: each takes mean and variance of its own, and one
 * all-gather of both and of a count combines them. The kernels: variance and mean (of a wider copy
 * of 16-bit values), the norm with given statistics, which reads the input again, and small ones.
 *
 * @param statistics means that a rank has
 * @param small kernels that touch statistics alone
 */
export function gatheredStatistics(statistics: Count, small: number): RuleOptions {
  return {
    origin: 'ext',
    rewrite: 'all-gather-statistics',
    collectives: [
      {
        kind: 'all_gather',
        bytes: (local, members) => members * wideBytes(local, 2 * statistics(local) + 1),
      },
    ],
    body: (local) => {
      const { shape, dtype } = need(local, 'input');
      const own = DTYPE_BYTES[dtype];
      const wide = Math.max(4, own);
      const cast = own < wide ? 1 : 0;
      return {
        bytes: elements(shape) * (wide + 2 * own + cast * (own + wide)),
        kernels: small + 2 + cast,
      };
    },
  };
}

/**
 * Gradients through statistics of values that lie on several ranks: two sums for each, by one
 * all-reduce. The kernels: a backward with given statistics (gradients and input in, one tensor
 * out), a norm of the input that has the terms of the statistics as weight and bias, the sum of
 * both, and small ones.
 */
export function summedStatistics(sums: Count, small: number): RuleOptions {
  return {
    origin: 'ext',
    rewrite: 'all-reduce-statistics',
    collectives: [{ kind: 'all_reduce', bytes: (local) => wideBytes(local, 2 * sums(local)) }],
    body: (local) => ({ bytes: 8 * metaBytes(need(local, 'input')), kernels: small + 3 }),
  };
}
