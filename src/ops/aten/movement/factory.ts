/**
 * Tensors from nothing. Constants can be made in any cut (each rank makes its own piece, with a
 * rewritten shape); a range needs the offset of the rank. A zero-dim result is replicated only.
 * `*_like` and `new_*` read the shape or dtype of their input, never its values, so any placement
 * of it will do.
 */

import type { DType } from '../../../graph/types.ts';
import { fromFlat } from '../../../ndarray/array.ts';
import { one } from '../../record/kernel.ts';
import {
  defineOp,
  type OpContext,
  type OperatorRecord,
  type ScalarArg,
  type TypedContext,
} from '../../record/record.ts';
import { ALL_KINDS, P, R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import { anyS, cuttable, need } from '../../rules/dims.ts';

const TAIL = '*, ScalarType? dtype=None, Any layout=None, Any device=None, Any pin_memory=None';

/** Result cut in dim d without inputs. */
function freeRules(ctx: TypedContext): Rule[] {
  return cuttable(ctx.outputs[0]?.shape ?? []).map((d) =>
    rule([], [anyS(d)], { origin: 'ext', rewrite: 'local-shape' }),
  );
}

function constant(
  name: string,
  schema: string,
  dtype: (ctx: OpContext) => DType,
  size = 'size',
): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'factory',
    infer: (ctx) => [{ dtype: dtype(ctx), shape: size === '' ? [] : ctx.ints(size) }],
    shard: freeRules,
  });
}

const byScalar = (scalar: ScalarArg): DType =>
  scalar.kind === 'float' ? 'f32' : scalar.kind === 'int' ? 'i64' : 'b8';
const asked = (ctx: OpContext, fallback: DType): DType => ctx.dtype('dtype') ?? fallback;
const scalarType =
  (name: string) =>
  (ctx: OpContext): DType => {
    const scalar = ctx.scalar(name);
    return asked(ctx, scalar === undefined ? 'f32' : byScalar(scalar));
  };

/** Same shape as the input: its cut is followed as it is; other cuts need a rewritten shape. */
function like(name: string, schema: string): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'factory',
    infer: (ctx) => [{ dtype: asked(ctx, ctx.inputs[0].dtype), shape: ctx.inputs[0].shape }],
    shard(ctx) {
      const follow = cuttable(ctx.inputs[0].shape).map((d) => rule([anyS(d)], [anyS(d)]));
      return [...follow, ...independentRules(ctx, follow)];
    },
  });
}

/** Own shape; dtype and device of the input. */
function created(name: string, schema: string): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'factory',
    infer: (ctx) => [{ dtype: asked(ctx, ctx.inputs[0].dtype), shape: ctx.ints('size') }],
    shard: (ctx) => independentRules(ctx, []),
  });
}

/**
 * Every placement of the input with every placement of the result, less all-replicate and those in
 * `known`.
 */
function independentRules(ctx: TypedContext, known: readonly Rule[]): Rule[] {
  const input = need(ctx, 'self').shape;
  const output = ctx.outputs[0]?.shape ?? [];
  const results: RuleSlot[] = [R, ...cuttable(output).map((d) => anyS(d))];
  const sources: RuleSlot[] = [
    R,
    ...cuttable(input).map((d) => S(d, { slicing: 'any', tie: 'input' })),
    ...ALL_KINDS.map((kind) => P(kind)),
  ];
  const rules: Rule[] = [];
  for (const source of sources) {
    for (const result of results) {
      if (source?.kind === 'replicate' && result?.kind === 'replicate') continue;
      const listed = known.some(
        (r) =>
          source?.kind === 'shard' &&
          result?.kind === 'shard' &&
          dimOf(r.inputs[0]) === source.dim &&
          source.dim === result.dim,
      );
      if (listed) continue;
      // Local sizes are only what the body would read if the result is as whole as the input.
      const whole = result?.kind === 'replicate' && source?.kind !== 'shard';
      rules.push(rule([source], [result], whole ? {} : { origin: 'ext', rewrite: 'local-shape' }));
    }
  }
  return rules;
}

const dimOf = (slot: RuleSlot): number => (slot?.kind === 'shard' ? slot.dim : -1);

/** Counts up: a rank starts at its offset, so its piece must be contiguous. */
function range(
  name: string,
  schema: string,
  count: (ctx: OpContext) => number,
  dtype: (ctx: OpContext) => DType,
): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'factory',
    infer: (ctx) => [{ dtype: dtype(ctx), shape: [count(ctx)] }],
    shard: (ctx) =>
      cuttable(ctx.outputs[0]?.shape ?? []).map((d) =>
        rule([], [S(d, { slicing: 'contiguous' })], { origin: 'ext', rewrite: 'offset' }),
      ),
  });
}

/** Number of steps from start to end, exclusive. */
function steps(ctx: OpContext, start: number, end: number, step: number): number {
  if (step === 0) ctx.fail("argument 'step' must not be 0");
  return Math.max(0, Math.ceil((end - start) / step));
}

function rangeType(...names: readonly string[]) {
  return (ctx: OpContext): DType => {
    const float = names.some((n) => ctx.scalar(n)?.kind === 'float');
    return asked(ctx, float ? 'f32' : 'i64');
  };
}

/**
 * Rows and columns of a triangle of a matrix, one after the other: few numbers, whole on every
 * rank.
 */
const triangle = (name: string, upper: boolean): OperatorRecord =>
  defineOp(name, {
    schema: `int row, int col, int offset=0, ${TAIL}`,
    cls: 'factory',
    infer: (ctx) => [
      { dtype: asked(ctx, 'i64'), shape: [2, trianglePlaces(ctx, upper).length / 2] },
    ],
    kernel: one((call) => {
      const places = trianglePlaces(call.ctx, upper);
      return fromFlat([2, places.length / 2], Float64Array.from(places), asked(call.ctx, 'i64'));
    }),
  });

/** All rows, then all columns, in row-major order. */
function trianglePlaces(ctx: OpContext, upper: boolean): number[] {
  const [rows, columns, offset] = [ctx.int('row'), ctx.int('col'), ctx.int('offset')];
  if (rows < 0 || columns < 0) ctx.fail(`a matrix of ${rows} x ${columns} has no triangle`);
  const places = Array.from({ length: rows }, (_, r) => r).flatMap((r) =>
    Array.from({ length: columns }, (_, c) => [r, c] as const).filter(([, c]) =>
      upper ? c - r >= offset : c - r <= offset,
    ),
  );
  return [...places.map(([r]) => r), ...places.map(([, c]) => c)];
}

/** Ones on the diagonal: a rank counts rows (or columns) from its own first. */
function eye(name: string, schema: string, second: string): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'factory',
    infer: (ctx) => [{ dtype: asked(ctx, 'f32'), shape: [ctx.int('n'), ctx.int(second)] }],
    shard: (ctx) =>
      cuttable(ctx.outputs[0]?.shape ?? []).map((d) =>
        rule([], [S(d, { slicing: 'contiguous' })], { origin: 'ext', rewrite: 'offset' }),
      ),
  });
}

const SELF_TAIL = `Tensor self, ${TAIL}, Any memory_format=None`;
const floats = (ctx: OpContext): DType => asked(ctx, 'f32');

export const factoryOps: readonly OperatorRecord[] = [
  constant('aten.zeros.default', `int[] size, ${TAIL}`, floats),
  constant('aten.ones.default', `int[] size, ${TAIL}`, floats),
  constant('aten.empty.memory_format', `int[] size, ${TAIL}, Any memory_format=None`, floats),
  constant('aten.full.default', `int[] size, Scalar fill_value, ${TAIL}`, scalarType('fill_value')),
  constant('aten.scalar_tensor.default', `Scalar s, ${TAIL}`, floats, ''),
  like('aten.zeros_like.default', SELF_TAIL),
  like('aten.ones_like.default', SELF_TAIL),
  like('aten.empty_like.default', SELF_TAIL),
  like('aten.full_like.default', `Tensor self, Scalar fill_value, ${TAIL}, Any memory_format=None`),
  ...['fill.Scalar', 'fill_.Scalar'].map((n) =>
    like(`aten.${n}`, 'Tensor self, Scalar value, *, ScalarType? dtype=None'),
  ),
  like('aten.zero_.default', 'Tensor self, *, ScalarType? dtype=None'),
  created('aten.new_zeros.default', `Tensor self, int[] size, ${TAIL}`),
  created('aten.new_ones.default', `Tensor self, int[] size, ${TAIL}`),
  created('aten.new_empty.default', `Tensor self, int[] size, ${TAIL}`),
  defineOp('aten.new_empty_strided.default', {
    schema: `Tensor self, int[] size, int[] stride, ${TAIL}`,
    cls: 'factory',
    infer: (ctx) => [{ dtype: asked(ctx, ctx.inputs[0].dtype), shape: ctx.ints('size') }],
    shard: (ctx) => independentRules(ctx, []),
  }),
  constant('aten.empty_strided.default', `int[] size, int[] stride, ${TAIL}`, floats),
  triangle('aten.tril_indices.default', false),
  triangle('aten.triu_indices.default', true),
  created('aten.new_full.default', `Tensor self, int[] size, Scalar fill_value, ${TAIL}`),
  eye('aten.eye.default', `int n, ${TAIL}`, 'n'),
  eye('aten.eye.m', `int n, int m, ${TAIL}`, 'm'),
  range(
    'aten.arange.default',
    `Scalar end, ${TAIL}`,
    (ctx) => steps(ctx, 0, ctx.number('end'), 1),
    rangeType('end'),
  ),
  range(
    'aten.arange.start',
    `Scalar start, Scalar end, ${TAIL}`,
    (ctx) => steps(ctx, ctx.number('start'), ctx.number('end'), 1),
    rangeType('start', 'end'),
  ),
  range(
    'aten.arange.start_step',
    `Scalar start, Scalar end, Scalar step=1, ${TAIL}`,
    (ctx) => steps(ctx, ctx.number('start'), ctx.number('end'), ctx.number('step')),
    rangeType('start', 'end', 'step'),
  ),
  range(
    'aten.linspace.default',
    `Scalar start, Scalar end, int steps, ${TAIL}`,
    (ctx) => ctx.int('steps'),
    floats,
  ),
  range(
    'prims.iota.default',
    'int length, *, int start, int step, ScalarType dtype, Any device=None, bool ' +
      'requires_grad=False',
    (ctx) => ctx.int('length'),
    (ctx) => asked(ctx, 'i64'),
  ),
];
