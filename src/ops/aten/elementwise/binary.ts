/**
 * Elementwise operators of ATen on several operands: arithmetic, comparison, logic, selection.
 * Which pending reductions pass follows from the function alone (linear, monotone, lattice); what
 * is not listed reduces first.
 */

import type { DType } from '../../../graph/types.ts';
import { floatResult } from '../../record/dtypes.ts';
import type { OpContext, OperatorRecord, TypedContext } from '../../record/record.ts';
import { ALL_KINDS, LINEAR_KINDS, P, type Rule, rule } from '../../record/rule.ts';
import {
  addedOperand,
  additiveRules,
  affineRules,
  comparisonRules,
  jointPartial,
  latticeRules,
  linearIn,
  onePartial,
  scaleRules,
} from '../../rules/partials.ts';
import {
  pointwise,
  type PointwiseSpec,
  productCost,
  promotedType,
  TRANSCENDENTAL,
  withInPlace,
} from '../../rules/pointwise.ts';

type Extra = NonNullable<PointwiseSpec['extra']>;

const scalarOf = (ctx: TypedContext, name: string): number => ctx.scalar(name)?.value ?? NaN;

const SELF_OTHER = ['self', 'other'];
const TENSOR_PAIR = 'TensorOrScalar self, TensorOrScalar other';
const TENSOR_SCALAR = 'Tensor self, Scalar other';

// ---- arithmetic of two
// -----------------------------------------------------------------------------

/** `c1 * self + c2 * other`, either side a tensor or a number. */
const additive =
  (signOfSelf: number, signOfOther: number, alphaOnSelf = false): Extra =>
  (ctx) => {
    const alpha = ctx.number('alpha');
    const c1 = signOfSelf * (alphaOnSelf ? alpha : 1);
    const c2 = signOfOther * (alphaOnSelf ? 1 : alpha);
    const self = ctx.indexOf('self');
    const other = ctx.indexOf('other');
    if (self >= 0 && other >= 0) return additiveRules(ctx, self, other, c1, c2);
    if (self >= 0) return affineRules(ctx, c1, c2 * scalarOf(ctx, 'other'));
    return affineRules(ctx, c2, c1 * scalarOf(ctx, 'self'));
  };

const product: Extra = (ctx) => {
  if (ctx.outputs[0]?.dtype === 'b8') return [];
  if (ctx.inputs.length === 1)
    return scaleRules(ctx, scalarOf(ctx, ctx.indexOf('self') < 0 ? 'self' : 'other'));
  return [0, 1].flatMap((i) => LINEAR_KINDS.map((kind) => onePartial(ctx, i, kind)));
};

/** The larger or the smaller of two. */
function larger(
  name: string,
  kind: 'max' | 'min',
  aliases: readonly string[] = [],
): OperatorRecord[] {
  const extra: Extra = (ctx) => latticeRules(ctx, kind);
  return [
    pointwise(`aten.${name}.default`, { schema: 'Tensor self, Tensor other', aliases, extra }),
  ];
}

/** The numerator only, and no rounding: a quotient is not linear in its divisor. */
const quotient: Extra = (ctx) => {
  if (ctx.indexOf('self') < 0) return [];
  if (ctx.inputs.length === 1) return scaleRules(ctx, 1 / scalarOf(ctx, 'other'));
  return LINEAR_KINDS.map((kind) => onePartial(ctx, 0, kind));
};

/** Rounding keeps the order: with a number as the other operand, extremes pass by its sign. */
function roundedQuotient(ctx: TypedContext): Rule[] {
  if (ctx.inputs.length !== 1 || ctx.indexOf('self') < 0) return [];
  const divisor = scalarOf(ctx, 'other');
  return addedOperand(ctx, 'self', 1 / divisor).filter(
    (r) => r.inputs[0]?.kind === 'partial' && r.inputs[0].op !== 'avg',
  );
}

const ADD = { operands: SELF_OTHER, extra: additive(1, 1) };
const SUB = { operands: SELF_OTHER, extra: additive(1, -1) };
const RSUB = { operands: SELF_OTHER, extra: additive(-1, 1, true) };
const MUL = { operands: SELF_OTHER, extra: product, cost: productCost };
const DIV = { operands: SELF_OTHER, result: 'float', extra: quotient } as const;
const withAlpha = (schema: string): string => `${schema}, *, Scalar alpha=1`;

/** Every overload of a binary operator whose partial rules are none. */
const plainBinary = (names: string, spec: Omit<PointwiseSpec, 'schema'> = {}): OperatorRecord[] =>
  names
    .split(' ')
    .flatMap((n) => [
      ...withInPlace(`aten.${n}.Tensor`, { schema: TENSOR_PAIR, operands: SELF_OTHER, ...spec }),
      ...withInPlace(`aten.${n}.Scalar`, { schema: TENSOR_SCALAR, operands: SELF_OTHER, ...spec }),
    ]);
const defaultBinary = (names: string, spec: Omit<PointwiseSpec, 'schema'> = {}): OperatorRecord[] =>
  names
    .split(' ')
    .map((n) =>
      pointwise(`aten.${n}.default`, { schema: TENSOR_PAIR, operands: SELF_OTHER, ...spec }),
    );

/**
 * `min(max(x, low), high)`: each operand is non-decreasing; maxima join with the lower bound,
 * minima with the upper.
 */
function clampRules(ctx: TypedContext, x: string, low: string, high: string): Rule[] {
  const present = [x, low, high].filter((name) => ctx.indexOf(name) >= 0);
  return [
    ...present.flatMap((name) =>
      (['max', 'min'] as const).map((k) => jointPartial(ctx, [name], k)),
    ),
    ...(ctx.indexOf(low) < 0 ? [] : [jointPartial(ctx, [x, low], 'max')]),
    ...(ctx.indexOf(high) < 0 ? [] : [jointPartial(ctx, [x, high], 'min')]),
    ...(ctx.indexOf(low) < 0 || ctx.indexOf(high) < 0
      ? []
      : [jointPartial(ctx, [low, high], 'min')]),
  ];
}

const arithmeticOps: OperatorRecord[] = [
  ...withInPlace('aten.add.Tensor', { schema: withAlpha(TENSOR_PAIR), ...ADD }),
  ...withInPlace('aten.add.Scalar', {
    schema: 'Tensor self, Scalar other, Scalar alpha=1',
    ...ADD,
  }),
  ...withInPlace('aten.sub.Tensor', { schema: withAlpha(TENSOR_PAIR), ...SUB }),
  ...withInPlace('aten.sub.Scalar', {
    schema: 'Tensor self, Scalar other, Scalar alpha=1',
    ...SUB,
  }),
  pointwise('aten.rsub.Tensor', { schema: withAlpha(TENSOR_PAIR), ...RSUB }),
  pointwise('aten.rsub.Scalar', { schema: 'Tensor self, Scalar other, Scalar alpha=1', ...RSUB }),
  ...withInPlace('aten.mul.Tensor', { schema: TENSOR_PAIR, ...MUL }),
  ...withInPlace('aten.mul.Scalar', { schema: TENSOR_SCALAR, ...MUL }),
  ...withInPlace('aten.div.Tensor', {
    schema: TENSOR_PAIR,
    ...DIV,
    aliases: ['aten.true_divide.Tensor'],
  }),
  ...withInPlace('aten.div.Scalar', { schema: TENSOR_SCALAR, ...DIV }),
  ...['Tensor_mode', 'Scalar_mode'].map((overload) =>
    pointwise(`aten.div.${overload}`, {
      schema: `${overload === 'Tensor_mode' ? TENSOR_PAIR : TENSOR_SCALAR}, *, str? rounding_mode`,
      operands: SELF_OTHER,
      result: (ctx) => dividedType(ctx),
      extra: (ctx) => (ctx.has('rounding_mode') ? roundedQuotient(ctx) : quotient(ctx)),
    }),
  ),
  ...defaultBinary('floor_divide', { extra: (ctx) => roundedQuotient(ctx) }),
  pointwise('aten.floor_divide.Scalar', {
    schema: TENSOR_SCALAR,
    operands: SELF_OTHER,
    extra: (ctx) => roundedQuotient(ctx),
  }),
  ...plainBinary('remainder fmod'),
  ...defaultBinary('atan2', { result: 'float', cost: TRANSCENDENTAL }),
  ...defaultBinary('hypot nextafter'),
  pointwise('aten.heaviside.default', { schema: 'Tensor self, Tensor values' }),
  pointwise('aten.copysign.Tensor', { schema: TENSOR_PAIR, operands: SELF_OTHER, result: 'float' }),
  pointwise('aten.pow.Tensor_Tensor', {
    schema: 'Tensor self, Tensor exponent',
    cost: TRANSCENDENTAL,
  }),
  ...larger('maximum', 'max', ['aten.max.other']),
  ...larger('fmax', 'max'),
  ...larger('minimum', 'min', ['aten.min.other']),
  ...larger('fmin', 'min'),
  pointwise('aten.clamp_min.Tensor', {
    schema: 'Tensor self, Tensor min',
    extra: (ctx) => latticeRules(ctx, 'max'),
  }),
  pointwise('aten.clamp_max.Tensor', {
    schema: 'Tensor self, Tensor max',
    extra: (ctx) => latticeRules(ctx, 'min'),
  }),
  pointwise('aten.clamp.Tensor', {
    schema: 'Tensor self, Tensor? min=None, Tensor? max=None',
    extra: (ctx) => clampRules(ctx, 'self', 'min', 'max'),
  }),
  ...['logaddexp', 'logaddexp2'].map((n) =>
    pointwise(`aten.${n}.default`, {
      schema: 'Tensor self, Tensor other',
      cost: TRANSCENDENTAL,
      extra: (ctx) => latticeRules(ctx, null),
    }),
  ),
  ...['aten.special_xlog1py.default', 'aten.xlogy.Tensor'].map((name) =>
    pointwise(name, {
      schema: TENSOR_PAIR,
      operands: SELF_OTHER,
      result: 'float',
      cost: TRANSCENDENTAL,
      extra: (ctx) => (ctx.indexOf('self') < 0 ? [] : linearIn('self')(ctx)),
    }),
  ),
];

function dividedType(ctx: OpContext): DType {
  const promoted = promotedType(ctx, SELF_OTHER);
  return ctx.has('rounding_mode') ? promoted : floatResult(promoted);
}

// ---- comparisons and logic
// -----------------------------------------------------------------------------

const COMPARISONS: readonly [string, readonly boolean[]][] = [
  ['lt', [false, true]],
  ['le', [false, true]],
  ['gt', [true, false]],
  ['ge', [true, false]],
];

/**
 * And and or distribute over each other, so either pending kind passes next to a replicated
 * operand.
 */
const logic =
  (own: 'bor' | 'band'): Extra =>
  (ctx) => {
    if (ctx.inputs.some((t) => t.dtype !== 'b8') || ctx.outputs[0]?.dtype !== 'b8') return [];
    // Beside a constant: either kind passes whatever the constant is.
    if (ctx.inputs.length < 2)
      return (['bor', 'band'] as const).map((k) => onePartial(ctx, 0, k, k, 'ext'));
    const one = (['bor', 'band'] as const).flatMap((k) => [
      onePartial(ctx, 0, k, k, 'ext'),
      onePartial(ctx, 1, k, k, 'ext'),
    ]);
    return [...one, rule([P(own), P(own)], [P(own)], { origin: 'ext' })];
  };

const logicOps: OperatorRecord[] = [
  ...plainBinary('eq ne', { result: 'bool' }),
  ...COMPARISONS.flatMap(([n, rises]) =>
    plainBinary(n, {
      result: 'bool',
      extra: (ctx) => {
        if (ctx.inputs.some((t) => t.dtype === 'b8')) return [];
        const present = ctx.inputs.length === 2 ? rises : [rises[ctx.indexOf('self') < 0 ? 1 : 0]];
        return comparisonRules(ctx, present);
      },
    }),
  ),
  ...defaultBinary('logical_and', { result: 'bool', extra: logic('band') }),
  ...defaultBinary('logical_or', { result: 'bool', extra: logic('bor') }),
  ...defaultBinary('logical_xor', { result: 'bool' }),
  ...plainBinary('bitwise_and __and__', { extra: logic('band') }),
  ...plainBinary('bitwise_or __or__', { extra: logic('bor') }),
  ...plainBinary('bitwise_xor __xor__', {
    extra: (ctx) => {
      if (ctx.inputs.length > 1 || ctx.inputs[0].dtype !== 'b8' || ctx.outputs[0]?.dtype !== 'b8')
        return [];
      const flips = scalarOf(ctx, ctx.indexOf('self') < 0 ? 'self' : 'other') !== 0;
      return [
        onePartial(ctx, 0, 'bor', flips ? 'band' : 'bor', 'ext'),
        onePartial(ctx, 0, 'band', flips ? 'bor' : 'band', 'ext'),
      ];
    },
  }),
  ...['bitwise_left_shift', 'bitwise_right_shift'].flatMap((n) => [
    ...withInPlace(`aten.${n}.Tensor`, { schema: TENSOR_PAIR, operands: SELF_OTHER }),
    ...withInPlace(`aten.${n}.Tensor_Scalar`, { schema: TENSOR_SCALAR, operands: SELF_OTHER }),
  ]),
];

// ---- selection and fused arithmetic
// -----------------------------------------------------------------------------

/** Elementwise choice between two values by a replicated mask: any pending kind that both share. */
const choice =
  (values: readonly [string, string]): Extra =>
  (ctx) => {
    const tensors = values.filter((n) => ctx.indexOf(n) >= 0);
    const kinds = ctx.outputs[0]?.dtype === 'b8' ? (['bor', 'band'] as const) : ALL_KINDS;
    if (tensors.length === 2) return kinds.map((k) => jointPartial(ctx, tensors, k));
    if (tensors.length === 0) return [];
    const constant = scalarOf(ctx, tensors[0] === values[0] ? values[1] : values[0]);
    // A constant survives an average and an extreme; n copies of it add up to more than one.
    return kinds
      .filter((k) => k !== 'sum' || constant === 0)
      .map((k) => jointPartial(ctx, tensors, k));
  };

const linearGroups =
  (...groups: readonly (readonly string[])[]): Extra =>
  (ctx) =>
    groups.flatMap((names) => LINEAR_KINDS.map((k) => jointPartial(ctx, names, k)));

const selectionOps: OperatorRecord[] = [
  pointwise('aten.where.self', {
    schema: 'Tensor condition, TensorOrScalar self, TensorOrScalar other',
    aliases: ['aten.where.ScalarSelf', 'aten.where.ScalarOther', 'aten.where.Scalar'],
    operands: SELF_OTHER,
    extra: choice(['self', 'other']),
  }),
  ...['Scalar', 'Tensor'].flatMap((overload) =>
    withInPlace(`aten.masked_fill.${overload}`, {
      schema: `Tensor self, Tensor mask, ${overload} value`,
      result: 'first',
      extra: choice(['self', 'value']),
    }),
  ),
  pointwise('aten.lerp.Scalar', {
    schema: 'Tensor self, Tensor end, Scalar weight',
    extra: (ctx) => {
      const w = ctx.number('weight');
      return [
        ...linearGroups(['self', 'end'])(ctx),
        ...addedOperand(ctx, 'self', 1 - w),
        ...addedOperand(ctx, 'end', w),
      ];
    },
  }),
  pointwise('aten.lerp.Tensor', {
    schema: 'Tensor self, Tensor end, Tensor weight',
    extra: (ctx) => [
      ...linearGroups(['self', 'end'])(ctx),
      onePartial(ctx, 2, 'avg', 'avg', 'ext'),
    ],
  }),
  ...withInPlace('aten.addcmul.default', {
    schema: 'Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1',
    extra: (ctx) => [
      ...linearGroups(['self', 'tensor1'], ['self', 'tensor2'])(ctx),
      ...addedOperand(ctx, 'self', 1),
    ],
  }),
  ...withInPlace('aten.addcdiv.default', {
    schema: 'Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1',
    extra: (ctx) => [...linearGroups(['self', 'tensor1'])(ctx), ...addedOperand(ctx, 'self', 1)],
  }),
];

export const binaryOps: readonly OperatorRecord[] = [
  ...arithmeticOps,
  ...logicOps,
  ...selectionOps,
];
