/**
 * Elementwise operators of ATen on one tensor, with their parameters. Which pending reductions pass
 * follows from the function alone (linear, monotone); what is not listed reduces first.
 */

import { realOf } from '../../record/dtypes.ts';
import type { OperatorRecord, TypedContext } from '../../record/record.ts';
import { ALL_KINDS, LINEAR_KINDS, type Rule } from '../../record/rule.ts';
import {
  comparisonRules,
  linearIn,
  nonDecreasing,
  nonDecreasingExt,
  nonIncreasing,
  onePartial,
  scaleRules,
} from '../../rules/partials.ts';
import {
  pointwise,
  type PointwiseSpec,
  TRANSCENDENTAL,
  withInPlace,
} from '../../rules/pointwise.ts';

const unary = (names: string, spec: Omit<PointwiseSpec, 'schema'>): OperatorRecord[] =>
  names
    .split(' ')
    .flatMap((n) => withInPlace(`aten.${n}.default`, { schema: 'Tensor self', ...spec }));

const keepsInteger = { result: 'promote' } as const;
const real = { result: 'float', cost: TRANSCENDENTAL } as const;

const plainOps: OperatorRecord[] = [
  // Non-decreasing on all reals.
  ...unary('ceil floor round trunc sgn sign relu', { ...keepsInteger, extra: nonDecreasing }),
  ...unary('asinh atan erf exp exp2 expm1 sigmoid sinh tanh', { ...real, extra: nonDecreasing }),
  ...unary('deg2rad rad2deg', {
    result: 'float',
    extra: (ctx) => [...linearIn()(ctx), ...nonDecreasing(ctx)],
  }),
  ...unary('relu6 hardsigmoid selu', { ...keepsInteger, extra: nonDecreasingExt }),
  ...unary('erfc', { ...real, extra: nonIncreasing }),
  pointwise('aten.log_sigmoid.default', {
    schema: 'Tensor self',
    ...real,
    extra: nonDecreasingExt,
  }),
  pointwise('aten.positive.default', { schema: 'Tensor self', extra: (ctx) => allKinds(ctx) }),
  ...unary('neg', {
    extra: (ctx) => [...LINEAR_KINDS.map((k) => onePartial(ctx, 0, k)), ...nonIncreasing(ctx)],
  }),
  // Neither linear nor monotone on all reals, or undefined on part of them: what the other ranks
  // hold may be out of domain.
  ...unary('abs', { result: (ctx) => realOf(ctx.inputs[0].dtype) }),
  ...unary('hardswish', keepsInteger),
  // A power with an integer exponent: bools become integers.
  ...unary('square', {
    result: (ctx) => (ctx.inputs[0].dtype === 'b8' ? 'i64' : ctx.inputs[0].dtype),
  }),
  ...unary('sin cos tan asin acos acosh atanh cosh silu mish lgamma digamma sinc frac', real),
  ...unary('log log2 log10 log1p sqrt rsqrt reciprocal', real),
  // For an integer it is -1 - x.
  ...unary('bitwise_not', {
    extra: (ctx) =>
      ctx.inputs[0].dtype === 'b8'
        ? [onePartial(ctx, 0, 'bor', 'band', 'ext'), onePartial(ctx, 0, 'band', 'bor', 'ext')]
        : [onePartial(ctx, 0, 'max', 'min', 'ext'), onePartial(ctx, 0, 'min', 'max', 'ext')],
  }),
  ...unary('logical_not', {
    result: 'bool',
    extra: (ctx) =>
      ctx.inputs[0].dtype === 'b8'
        ? [onePartial(ctx, 0, 'bor', 'band', 'ext'), onePartial(ctx, 0, 'band', 'bor', 'ext')]
        : [],
  }),
  pointwise('aten.special_i1.default', {
    schema: 'Tensor self',
    ...real,
    aliases: ['aten.special_modified_bessel_i1.default'],
    extra: nonDecreasing,
  }),
  pointwise('aten.special_i0.default', {
    schema: 'Tensor self',
    ...real,
    aliases: ['aten.i0.default', 'aten.special_modified_bessel_i0.default'],
  }),
  pointwise('aten.special_erfcx.default', { schema: 'Tensor self', ...real, extra: nonIncreasing }),
  // Decreasing for positive arguments, NaN below zero: other ranks hold values above a pending
  // minimum, so that it passes.
  ...['k0', 'k1'].flatMap((k) =>
    ['special_modified_bessel', 'special_scaled_modified_bessel'].map((n) =>
      pointwise(`aten.${n}_${k}.default`, {
        // PyTorch names the argument of the scaled ones otherwise.
        schema: n.includes('scaled') ? 'Tensor x' : 'Tensor self',
        ...real,
        extra: (ctx) => [onePartial(ctx, 0, 'min', 'max')],
      }),
    ),
  ),
  ...['isnan', 'isinf', 'isfinite', 'isposinf', 'isneginf'].map((n) =>
    pointwise(`aten.${n}.default`, { schema: 'Tensor self', result: 'bool' }),
  ),
  pointwise('aten.signbit.default', {
    schema: 'Tensor self',
    result: 'bool',
    extra: (ctx) => (ctx.inputs[0].dtype === 'b8' ? [] : comparisonRules(ctx, [false])),
  }),
  // A NaN on one rank only is lost by nan_to_num, so extremes do not pass.
  pointwise('aten.nan_to_num.default', {
    schema: 'Tensor self, float? nan=None, float? posinf=None, float? neginf=None',
  }),
  ...withInPlace('aten.gelu.default', {
    schema: "Tensor self, *, str approximate='none'",
    ...real,
  }),
];

function allKinds(ctx: TypedContext): Rule[] {
  return ALL_KINDS.map((k) => onePartial(ctx, 0, k));
}

/** Non-decreasing when the condition on the parameters holds. */
const monotoneIf =
  (condition: (ctx: TypedContext) => boolean): NonNullable<PointwiseSpec['extra']> =>
  (ctx) =>
    condition(ctx) ? nonDecreasingExt(ctx) : [];

const parametricOps: OperatorRecord[] = [
  ...withInPlace('aten.clamp.default', {
    schema: 'Tensor self, Scalar? min=None, Scalar? max=None',
    operands: ['self', 'min', 'max'],
    extra: nonDecreasingExt,
  }),
  ...withInPlace('aten.clamp_min.default', {
    schema: 'Tensor self, Scalar min',
    operands: ['self', 'min'],
    extra: nonDecreasing,
  }),
  ...withInPlace('aten.clamp_max.default', {
    schema: 'Tensor self, Scalar max',
    operands: ['self', 'max'],
    extra: nonDecreasing,
  }),
  ...withInPlace('aten.hardtanh.default', {
    schema: 'Tensor self, Scalar min_val=-1, Scalar max_val=1',
    extra: nonDecreasingExt,
  }),
  ...withInPlace('aten.leaky_relu.default', {
    schema: 'Tensor self, Scalar negative_slope=0.01',
    extra: monotoneIf((ctx) => ctx.number('negative_slope') >= 0),
  }),
  ...withInPlace('aten.elu.default', {
    schema: 'Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1',
    cost: TRANSCENDENTAL,
    extra: monotoneIf((ctx) => ['alpha', 'scale', 'input_scale'].every((n) => ctx.number(n) >= 0)),
  }),
  ...withInPlace('aten.celu.default', {
    schema: 'Tensor self, Scalar alpha=1.0',
    cost: TRANSCENDENTAL,
    extra: monotoneIf((ctx) => ctx.number('alpha') > 0),
  }),
  pointwise('aten.softplus.default', {
    schema: 'Tensor self, Scalar beta=1, Scalar threshold=20',
    cost: TRANSCENDENTAL,
    // Past the threshold it is x itself, which is below softplus(x): a step down, so extremes pass
    // only without one.
    extra: monotoneIf((ctx) => ctx.number('beta') > 0 && ctx.number('threshold') >= 20),
  }),
  pointwise('aten.hardshrink.default', {
    schema: 'Tensor self, Scalar lambd=0.5',
    extra: nonDecreasing,
  }),
  pointwise('aten.softshrink.default', {
    schema: 'Tensor self, Scalar lambd=0.5',
    extra: nonDecreasingExt,
  }),
  ...withInPlace('aten.threshold.default', {
    schema: 'Tensor self, Scalar threshold, Scalar value',
    extra: (ctx) => (ctx.number('value') <= ctx.number('threshold') ? nonDecreasing(ctx) : []),
  }),
  ...withInPlace('aten.pow.Tensor_Scalar', {
    schema: 'Tensor self, Scalar exponent',
    operands: ['self', 'exponent'],
    extra: (ctx) => {
      const exponent = ctx.number('exponent');
      if (exponent === 1) return scaleRules(ctx, 1);
      // Odd powers are increasing on all reals; even ones fold the negative half over.
      return exponent > 0 && Math.abs(exponent % 2) === 1 ? nonDecreasingExt(ctx) : [];
    },
  }),
  pointwise('aten.pow.Scalar', {
    schema: 'Scalar self, Tensor exponent',
    operands: ['self', 'exponent'],
    cost: TRANSCENDENTAL,
    extra: (ctx) => {
      const base = ctx.number('self');
      if (base >= 1) return nonDecreasingExt(ctx);
      return base > 0
        ? [onePartial(ctx, 0, 'max', 'min', 'ext'), onePartial(ctx, 0, 'min', 'max', 'ext')]
        : [];
    },
  }),
];

export const unaryOps: readonly OperatorRecord[] = [...plainOps, ...parametricOps];
