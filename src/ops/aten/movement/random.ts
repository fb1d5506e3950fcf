/**
 * Random operators. Values are drawn from a counter keyed by the GLOBAL element index, so a shard
 * of the result is the slice of the unsharded one and any dim may be cut; lowering passes the
 * offset of the shard.
 */

import type { DType } from '../../../graph/types.ts';
import { floatResult } from '../../record/dtypes.ts';
import {
  defineOp,
  elements,
  metaBytes,
  type OpContext,
  type OperatorRecord,
  type TypedContext,
} from '../../record/record.ts';
import { LINEAR_KINDS, P, R, type Rule, rule, S } from '../../record/rule.ts';
import { broadcastAll, cuttable } from '../../rules/dims.ts';
import { identityKinds, linearIn, onePartial } from '../../rules/partials.ts';
import { pointwiseRules } from '../../rules/pointwise.ts';

const OFFSET = { rewrite: 'random-offset' } as const;

/**
 * The noise is the same for every part of a pending sum, so dropout, linear in its input, keeps
 * linear kinds.
 */
const dropout = defineOp('aten.dropout.default', {
  schema: 'Tensor input, float p, bool train',
  cls: 'random',
  aliases: ['aten.dropout_.default'],
  infer: (ctx) => [ctx.inputs[0]],
  shard: (ctx) => {
    const idle = ctx.number('p') === 0 || !ctx.bool('train');
    const kinds = idle ? identityKinds(ctx, 'ext') : linearIn()(ctx);
    return [...(idle ? pointwiseRules(ctx) : keyed(pointwiseRules(ctx))), ...kinds];
  },
  flops: (ctx) => ({ matrix: 0, vector: 4 * elements(ctx.inputs[0].shape) }),
});

const keyed = (rules: readonly Rule[]): Rule[] => rules.map((r) => ({ ...r, ...OFFSET }));

const nativeDropout = defineOp('aten.native_dropout.default', {
  schema: 'Tensor input, float p, Any train',
  cls: 'random',
  results: 'tuple',
  infer: (ctx) => [ctx.inputs[0], { dtype: 'b8', shape: ctx.inputs[0].shape }],
  shard: (ctx) => [
    ...keyed(pointwiseRules(ctx)),
    ...LINEAR_KINDS.map((kind) => rule([P(kind)], [P(kind), R], { origin: 'ext' })),
  ],
  flops: (ctx) => ({ matrix: 0, vector: 4 * elements(ctx.inputs[0].shape) }),
});

const nativeDropoutBackward = defineOp('aten.native_dropout_backward.default', {
  schema: 'Tensor grad_output, Tensor mask, float scale',
  cls: 'pointwise',
  infer: (ctx) => [ctx.inputs[0]],
  shard: (ctx) => [...pointwiseRules(ctx), ...linearIn('grad_output')(ctx)],
});

/** Draws over the elements of the operand, or new values in its shape. */
const overwritten = (names: string, schema: string): OperatorRecord[] =>
  names.split(' ').map((n) =>
    defineOp(`aten.${n}`, {
      schema: `Tensor self${schema}`,
      cls: 'random',
      infer: (ctx) => [ctx.inputs[0]],
      shard: (ctx) => keyed(pointwiseRules(ctx)),
      flops: (ctx) => ({ matrix: 0, vector: 8 * elements(ctx.inputs[0].shape) }),
    }),
  );

const TAIL = '*, ScalarType? dtype=None, Any layout=None, Any device=None, Any pin_memory=None';

const created = (name: string, schema: string, dtype: DType = 'f32'): OperatorRecord =>
  defineOp(`aten.${name}`, {
    schema: `${schema}, ${TAIL}`,
    cls: 'random',
    infer: (ctx: OpContext) => [{ dtype: ctx.dtype('dtype') ?? dtype, shape: ctx.ints('size') }],
    shard: (ctx: TypedContext) =>
      cuttable(ctx.outputs[0]?.shape ?? []).map((d) =>
        rule([], [S(d)], { origin: 'ext', ...OFFSET }),
      ),
    flops: (ctx) => ({ matrix: 0, vector: 8 * elements(ctx.outputs[0]?.shape ?? []) }),
  });

/** An order of all rows depends on all of them: whole on every rank. */
const randperm = defineOp('aten.randperm.default', {
  schema: 'int n, *, ScalarType? dtype=None, Any layout=None, Any device=None, Any pin_memory=None',
  cls: 'random',
  aliases: ['aten.randperm.generator'],
  infer: (ctx) => [{ dtype: ctx.dtype('dtype') ?? 'i64', shape: [ctx.int('n')] }],
  flops: (ctx) => ({ matrix: 0, vector: 8 * elements(ctx.outputs[0]?.shape ?? []) }),
});

/** Draws places with the weights of a row; rows are independent. */
const multinomial = defineOp('aten.multinomial.default', {
  schema: 'Tensor self, int num_samples, bool replacement=False',
  cls: 'random',
  infer: (ctx) => {
    const { shape } = ctx.inputs[0];
    const [wanted, there] = [ctx.int('num_samples'), shape[shape.length - 1]];
    if (shape.length < 1 || shape.length > 2)
      ctx.fail(`needs one row of weights or several, got [${shape.join(', ')}]`);
    if (!ctx.bool('replacement') && wanted > there)
      ctx.fail(`cannot draw ${wanted} of ${there} without replacement`);
    return [{ dtype: 'i64', shape: [...shape.slice(0, -1), wanted] }];
  },
  shard: (ctx) =>
    cuttable(ctx.inputs[0].shape)
      .filter((d) => d < ctx.inputs[0].shape.length - 1)
      .map((d) => rule([S(d)], [S(d)], OFFSET)),
  flops: (ctx) => ({ matrix: 0, vector: 8 * elements(ctx.inputs[0].shape) }),
});

/** Reductions that pass where the same number is added to every part. */
const SHIFTED_KINDS = ['avg', 'max', 'min'] as const;

/**
 * Counts with the rate of each element; whole on every rank, since PyTorch takes more random
 * numbers for some rates than for others, so that those of a part are not those of the whole.
 */
const poisson = defineOp('aten.poisson.default', {
  schema: 'Tensor self, Any generator=None',
  cls: 'random',
  infer: (ctx) => [ctx.inputs[0]],
  flops: (ctx) => ({ matrix: 0, vector: 16 * elements(ctx.inputs[0].shape) }),
});

/**
 * `mean + std * noise`, where every rank of a pending mean draws the same noise: averages and
 * extremes of the mean pass. Parts of a pending deviation may be negative, which is refused.
 */
const normalOf = (name: string, schema: string): OperatorRecord =>
  defineOp(`aten.normal.${name}`, {
    schema: `${schema}, Any generator=None`,
    cls: 'random',
    infer: (ctx) => [
      {
        dtype: ctx.inputs[0].dtype,
        shape: broadcastAll(
          ctx,
          ctx.inputs.map((x) => x.shape),
        ),
      },
    ],
    shard: (ctx) =>
      keyed([
        ...pointwiseRules(ctx),
        ...(ctx.indexOf('mean') < 0 ? [] : SHIFTED_KINDS).map((kind) =>
          onePartial(ctx, ctx.indexOf('mean'), kind, kind, 'ext'),
        ),
      ]),
    flops: (ctx) => ({ matrix: 0, vector: 10 * elements(ctx.outputs[0]?.shape ?? []) }),
  });

const likeInput = (
  name: string,
  range = '',
  typed: (dtype: DType) => DType = floatResult,
): OperatorRecord =>
  defineOp(`aten.${name}`, {
    schema: `Tensor self, ${range}${TAIL}, Any memory_format=None`,
    cls: 'random',
    infer: (ctx) => [
      { dtype: ctx.dtype('dtype') ?? typed(ctx.inputs[0].dtype), shape: ctx.inputs[0].shape },
    ],
    shard: (ctx) => keyed(pointwiseRules(ctx)),
    bytes: (ctx) => bytesWritten(ctx),
  });

function bytesWritten(ctx: TypedContext): number {
  return ctx.outputs.reduce((sum, out) => sum + (out === null ? 0 : metaBytes(out)), 0);
}

export const randomOps: readonly OperatorRecord[] = [
  dropout,
  nativeDropout,
  nativeDropoutBackward,
  ...overwritten('bernoulli.default', ''),
  ...overwritten('bernoulli.p bernoulli_.float', ', float p=0.5'),
  ...overwritten('normal_.default normal_functional.default', ', float mean=0.0, float std=1.0'),
  ...overwritten('uniform_.default uniform.default', ', float from=0.0, float to=1.0'),
  ...overwritten('exponential_.default exponential.default', ', float lambd=1.0'),
  ...overwritten('log_normal_.default log_normal.default', ', float mean=1.0, float std=2.0'),
  ...overwritten('geometric_.default geometric.default', ', float p'),
  ...overwritten('cauchy_.default cauchy.default', ', float median=0.0, float sigma=1.0'),
  randperm,
  multinomial,
  poisson,
  normalOf('Tensor_Tensor', 'Tensor mean, Tensor std'),
  normalOf('Tensor_float', 'Tensor mean, float std=1.0'),
  normalOf('float_Tensor', 'float mean, Tensor std'),
  created('rand.default', 'int[] size'),
  created('randn.default', 'int[] size'),
  created('normal.float_float', 'float mean, float std, int[] size'),
  created('randint.default', 'int high, int[] size', 'i64'),
  created('randint.low', 'int low, int high, int[] size', 'i64'),
  likeInput('randint_like.default', 'int high, ', (dtype) => dtype),
  likeInput('randint_like.low_dtype', 'int low, int high, ', (dtype) => dtype),
  likeInput('rand_like.default'),
  likeInput('randn_like.default'),
];
