/**
 * Elementwise operations of StableHLO and CHLO. Operands have one shape (no implicit broadcasting)
 * and results the dtype of the operands; what is said of pending reductions is the same mathematics
 * as for the ATen twins.
 */

import { defined } from '../../defined.ts';
import type { DType } from '../../graph/types.ts';
import { realOf } from '../record/dtypes.ts';
import {
  defineOp,
  elements,
  metaBytes,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../record/record.ts';
import { ALL_KINDS, LINEAR_KINDS, P, type Rule, rule } from '../record/rule.ts';
import { sameShape } from '../rules/dims.ts';
import {
  additiveRules,
  castKinds,
  comparisonRules,
  jointPartial,
  latticeRules,
  linearIn,
  nonDecreasing,
  nonIncreasing,
  onePartial,
} from '../rules/partials.ts';
import { pointwise, pointwiseRules, TRANSCENDENTAL } from '../rules/pointwise.ts';

type Extra = (ctx: TypedContext) => readonly Rule[];

interface Elementwise {
  readonly schema: string;
  readonly extra?: Extra;
  readonly cost?: number;
  /** Result dtype; that of the first operand by default. */
  readonly result?: (ctx: OpContext) => DType;
}

/** Operands that must have the shape of the result; the others are scalars or of that shape. */
function elementwise(name: string, spec: Elementwise): OperatorRecord {
  return defineOp(name, {
    schema: spec.schema,
    cls: 'pointwise',
    infer: (ctx) => {
      const { dtype, shape } = equalShapes(ctx);
      return [{ dtype: spec.result === undefined ? dtype : spec.result(ctx), shape }];
    },
    shard: (ctx) => [...pointwiseRules(ctx), ...(spec.extra?.(ctx) ?? [])],
    flops: (ctx) => ({
      matrix: 0,
      vector: (spec.cost ?? 1) * elements(ctx.outputs[0]?.shape ?? []),
    }),
  });
}

function equalShapes(ctx: OpContext): TensorMeta {
  const [first, ...rest] = ctx.inputs;
  for (const other of rest) {
    if (!sameShape(first.shape, other.shape))
      ctx.fail(
        `operands have shapes [${first.shape.join(', ')}] and [${other.shape.join(', ')}]; ` +
          'they must be equal',
      );
    if (other.dtype !== first.dtype)
      ctx.fail(`operands are ${first.dtype} and ${other.dtype}; they must have one element type`);
  }
  return first;
}

const names = (text: string): string[] => text.split(' ');
const unary = (text: string, spec: Omit<Elementwise, 'schema'> = {}): OperatorRecord[] =>
  names(text).map((n) => elementwise(n, { schema: 'Tensor operand', ...spec }));
const binary = (text: string, spec: Omit<Elementwise, 'schema'> = {}): OperatorRecord[] =>
  names(text).map((n) => elementwise(n, { schema: 'Tensor lhs, Tensor rhs', ...spec }));

const isBool = (ctx: TypedContext): boolean => ctx.inputs[0].dtype === 'b8';
const hard = { cost: TRANSCENDENTAL };

/**
 * and, or of bools: either pending kind passes next to a replicated operand, the own kind on both.
 */
const logic =
  (own: 'bor' | 'band'): Extra =>
  (ctx) => {
    if (!isBool(ctx)) return [];
    const one = (['bor', 'band'] as const).flatMap((k) =>
      [0, 1].map((i) => onePartial(ctx, i, k, k, 'ext')),
    );
    return [...one, rule([P(own), P(own)], [P(own)], { origin: 'ext' })];
  };

/** Addition and multiplication of bools are `or` and `and`, as are maximum and minimum. */
const unlessBool =
  (numbers: Extra, bools: Extra): Extra =>
  (ctx) =>
    isBool(ctx) ? bools(ctx) : numbers(ctx);

const FLOATS = new Set<DType>([
  'f64',
  'f32',
  'bf16',
  'f16',
  'c64',
  'c128',
  'f8e4m3fn',
  'f8e5m2',
  'f8e8m0fnu',
]);
const product: Extra = (ctx) =>
  [0, 1].flatMap((i) => LINEAR_KINDS.map((kind) => onePartial(ctx, i, kind)));
/** Linear in the numerator; the quotient of integers rounds, and is not. */
const quotient: Extra = (ctx) =>
  FLOATS.has(ctx.inputs[0].dtype) ? LINEAR_KINDS.map((kind) => onePartial(ctx, 0, kind)) : [];

const unaryOps: OperatorRecord[] = [
  // Non-decreasing on all reals.
  ...unary('stablehlo.ceil stablehlo.floor stablehlo.sign', { extra: nonDecreasing }),
  ...unary('stablehlo.round_nearest_afz stablehlo.round_nearest_even', { extra: nonDecreasing }),
  ...unary(
    'stablehlo.exponential stablehlo.exponential_minus_one stablehlo.tanh stablehlo.logistic ' +
      'stablehlo.cbrt',
    {
      ...hard,
      extra: nonDecreasing,
    },
  ),
  ...unary('chlo.erf chlo.asinh chlo.sinh chlo.atan', { ...hard, extra: nonDecreasing }),
  ...unary('chlo.erfc', { ...hard, extra: nonIncreasing }),
  ...unary('stablehlo.negate', {
    extra: (ctx) => [...LINEAR_KINDS.map((k) => onePartial(ctx, 0, k)), ...nonIncreasing(ctx)],
  }),
  // Neither linear nor monotone on all reals, or undefined on part of them.
  ...unary(
    'stablehlo.cosine stablehlo.sine stablehlo.tan stablehlo.log stablehlo.log_plus_one',
    hard,
  ),
  ...unary('stablehlo.sqrt stablehlo.rsqrt stablehlo.popcnt stablehlo.count_leading_zeros', hard),
  ...unary('chlo.square chlo.constant_like'),
  ...unary(
    'chlo.erf_inv chlo.lgamma chlo.digamma chlo.acos chlo.asin chlo.acosh chlo.atanh ' +
      'chlo.cosh chlo.tan chlo.bessel_i1e',
    hard,
  ),
  // The absolute value and the parts of complex numbers are real.
  ...unary('stablehlo.abs', { result: partType }),
  ...unary('stablehlo.real stablehlo.imag', { result: partType, extra: linearIn() }),
  ...unary('chlo.conj', { extra: linearIn() }),
  ...unary('stablehlo.is_finite chlo.is_inf chlo.is_neg_inf chlo.is_pos_inf', {
    result: () => 'b8',
  }),
  ...unary('stablehlo.not', {
    extra: (ctx) =>
      isBool(ctx)
        ? [onePartial(ctx, 0, 'bor', 'band', 'ext'), onePartial(ctx, 0, 'band', 'bor', 'ext')]
        : [],
  }),
  // Rounding to fewer bits is monotone.
  elementwise('stablehlo.reduce_precision', {
    schema: 'Tensor operand, *, int exponent_bits, int mantissa_bits',
    extra: nonDecreasing,
  }),
];

function partType(ctx: OpContext): DType {
  return realOf(ctx.inputs[0].dtype);
}

const sum: Extra = (ctx) => additiveRules(ctx, 0, 1, 1, 1);
const difference: Extra = (ctx) => additiveRules(ctx, 0, 1, 1, -1);
const maximum = unlessBool((ctx) => latticeRules(ctx, 'max'), logic('bor'));
const minimum = unlessBool((ctx) => latticeRules(ctx, 'min'), logic('band'));

const binaryOps: OperatorRecord[] = [
  ...binary('stablehlo.add', { extra: unlessBool(sum, logic('bor')) }),
  ...binary('stablehlo.subtract', { extra: difference }),
  ...binary('stablehlo.multiply', { extra: unlessBool(product, logic('band')) }),
  ...binary('stablehlo.divide', { extra: quotient }),
  ...binary('stablehlo.maximum', { extra: maximum }),
  ...binary('stablehlo.minimum', { extra: minimum }),
  ...binary('stablehlo.and', { extra: logic('band') }),
  ...binary('stablehlo.or', { extra: logic('bor') }),
  ...binary('stablehlo.xor stablehlo.remainder'),
  ...binary('stablehlo.shift_left stablehlo.shift_right_arithmetic stablehlo.shift_right_logical'),
  ...binary('stablehlo.power stablehlo.atan2 chlo.next_after chlo.polygamma chlo.zeta', hard),
  elementwise('stablehlo.complex', {
    schema: 'Tensor lhs, Tensor rhs',
    result: (ctx) => (ctx.inputs[0].dtype === 'f64' ? 'c128' : 'c64'),
    extra: (ctx) => LINEAR_KINDS.map((kind) => jointPartial(ctx, ['lhs', 'rhs'], kind)),
  }),
];

/** CHLO's forms with implicit broadcasting; the result has the operands' element type. */
const broadcasting: OperatorRecord[] = (
  [
    ['add', unlessBool(sum, logic('bor'))],
    ['subtract', difference],
    ['multiply', unlessBool(product, logic('band'))],
    ['divide', quotient],
    ['maximum', maximum],
    ['minimum', minimum],
    ['and', logic('band')],
    ['or', logic('bor')],
    ['xor', undefined],
    ['power', undefined],
    ['remainder', undefined],
    ['atan2', undefined],
  ] as const
).map(([n, extra]) =>
  pointwise(`chlo.broadcast_${n}`, {
    schema: 'Tensor lhs, Tensor rhs',
    ...defined({ extra }),
  }),
);

// ---- comparison, choice, conversion
// -----------------------------------------------------------------------------

const DIRECTIONS: Readonly<Record<string, readonly boolean[] | null>> = {
  EQ: null,
  NE: null,
  LT: [false, true],
  LE: [false, true],
  GT: [true, false],
  GE: [true, false],
};

function compareKinds(ctx: TypedContext): Rule[] {
  const rises = directionOf(ctx);
  return rises === null || isBool(ctx) ? [] : comparisonRules(ctx, rises);
}

/** Which operand makes the comparison true by growing; null for (in)equality. */
function directionOf(ctx: OpContext): readonly boolean[] | null {
  const word = ctx.text('comparison_direction');
  if (!Object.hasOwn(DIRECTIONS, word))
    ctx.fail(`'${word}' is not a comparison; expected EQ, NE, LT, LE, GT or GE`);
  return DIRECTIONS[word];
}

const COMPARE = 'Tensor lhs, Tensor rhs, *, str comparison_direction, str? compare_type=None';

const choiceOps: OperatorRecord[] = [
  defineOp('stablehlo.compare', {
    schema: COMPARE,
    cls: 'pointwise',
    infer: (ctx) => {
      directionOf(ctx);
      return [{ dtype: 'b8', shape: equalShapes(ctx).shape }];
    },
    shard: (ctx) => [...pointwiseRules(ctx), ...compareKinds(ctx)],
  }),
  pointwise('chlo.broadcast_compare', { schema: COMPARE, result: 'bool', extra: compareKinds }),
  // The mask is a scalar or of the result's shape; every pending kind that both values share
  // passes.
  defineOp('stablehlo.select', {
    schema: 'Tensor pred, Tensor on_true, Tensor on_false',
    cls: 'pointwise',
    infer: (ctx) => {
      const [pred, a, b] = ctx.inputs;
      if (pred.dtype !== 'b8') ctx.fail(`the mask is ${pred.dtype}, expected i1`);
      if (a.dtype !== b.dtype || !sameShape(a.shape, b.shape))
        ctx.fail('the two values must have one type');
      if (pred.shape.length > 0 && !sameShape(pred.shape, a.shape))
        ctx.fail(
          `the mask has shape [${pred.shape.join(', ')}], expected a scalar or ` +
            `[${a.shape.join(', ')}]`,
        );
      return [a];
    },
    shard: (ctx) => {
      const kinds = ctx.outputs[0]?.dtype === 'b8' ? (['bor', 'band'] as const) : ALL_KINDS;
      return [
        ...pointwiseRules(ctx),
        ...kinds.map((k) => jointPartial(ctx, ['on_true', 'on_false'], k)),
      ];
    },
  }),
  // Bounds are scalars or of the operand's shape; non-decreasing in the operand.
  defineOp('stablehlo.clamp', {
    schema: 'Tensor min, Tensor operand, Tensor max',
    cls: 'pointwise',
    infer: (ctx) => {
      const [low, x, high] = ctx.inputs;
      for (const bound of [low, high])
        if (bound.dtype !== x.dtype || (bound.shape.length > 0 && !sameShape(bound.shape, x.shape)))
          ctx.fail('bounds must be scalars, or of the type of the operand');
      return [x];
    },
    shard: (ctx) => [
      ...pointwiseRules(ctx),
      ...(['max', 'min'] as const).map((kind) => onePartial(ctx, 1, kind, kind, 'ext')),
    ],
    flops: (ctx) => ({ matrix: 0, vector: 2 * elements(ctx.outputs[0]?.shape ?? []) }),
  }),
  // To the same dtype it is another name of the value, and moves nothing.
  defineOp('stablehlo.convert', {
    schema: 'Tensor operand, ScalarType dtype',
    cls: 'pointwise',
    infer: (ctx) => [
      { dtype: ctx.dtype('dtype') ?? ctx.inputs[0].dtype, shape: ctx.inputs[0].shape },
    ],
    shard: (ctx) => [...pointwiseRules(ctx), ...castKinds(ctx)],
    flops: (ctx) => ({ matrix: 0, vector: isIdentity(ctx) ? 0 : elements(ctx.inputs[0].shape) }),
    bytes: (ctx) =>
      isIdentity(ctx)
        ? 0
        : metaBytes(ctx.inputs[0]) + (ctx.outputs[0] ? metaBytes(ctx.outputs[0]) : 0),
  }),
];

function isIdentity(ctx: TypedContext): boolean {
  return ctx.inputs[0].dtype === ctx.outputs[0]?.dtype;
}

export const elementwiseOps: readonly OperatorRecord[] = [
  ...unaryOps,
  ...binaryOps,
  ...broadcasting,
  ...choiceOps,
];
