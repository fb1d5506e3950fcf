/** Pooling over the last two or three dims: batch and channels follow, on inputs and results. */

import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { type Rule, rule, S } from '../../record/rule.ts';
import { cuttable, movedKinds, need } from '../../rules/dims.ts';
import { linearIn, nonDecreasingExt, onePartial } from '../../rules/partials.ts';

/** Rules for every dim but the pooled ones. */
function followRules(ctx: TypedContext, dims: number): Rule[] {
  const rank = ctx.inputs[0].shape.length;
  return cuttable(ctx.inputs[0].shape)
    .filter((d) => d < rank - dims)
    .map((d) =>
      rule(
        ctx.inputs.map(() => S(d)),
        ctx.outputs.map(() => S(d)),
      ),
    );
}

const spread = (values: readonly number[], dims: number): readonly number[] =>
  Array.from({ length: dims }, (_, d) => values[d] ?? values[0]);

interface Windows {
  readonly kernel: readonly number[];
  readonly stride: readonly number[];
  readonly padding: readonly number[];
}

function windowsOf(ctx: OpContext, dims: number): Windows {
  const kernel = spread(ctx.ints('kernel_size'), dims);
  const given = ctx.ints('stride');
  const stride = given.length === 0 ? kernel : spread(given, dims);
  return { kernel, stride, padding: spread(ctx.ints('padding'), dims) };
}

/**
 * A pooled dim cut between windows: where windows lie side by side without padding, a rank that
 * holds whole windows pools them alone.
 */
function windowRules(ctx: TypedContext, dims: number): Rule[] {
  const { shape } = need(ctx, 'self');
  const { kernel, stride, padding } = windowsOf(ctx, dims);
  return kernel.flatMap((size, i) => {
    const d = shape.length - dims + i;
    const beside = stride[i] === size && padding[i] === 0 && shape[d] % size === 0;
    if (!beside || shape[d] === size) return [];
    const cut = { slicing: 'contiguous', even: true, scaled: true } as const;
    return [rule([S(d, { ...cut, unit: size })], [S(d, cut)], { origin: 'ext' })];
  });
}

function imageShape(ctx: OpContext, dims: number): readonly number[] {
  const { shape } = need(ctx, 'self');
  if (shape.length < dims + 1 || shape.length > dims + 2)
    ctx.fail(`needs an input of ${dims + 1} or ${dims + 2} dims, got [${shape.join(', ')}]`);
  return shape;
}

function pooledShape(ctx: OpContext, dims: number, dilated: boolean): readonly number[] {
  const shape = imageShape(ctx, dims);
  const { kernel, stride, padding } = windowsOf(ctx, dims);
  const dilation = dilated ? spread(ctx.ints('dilation'), dims) : spread([1], dims);
  const sizes = shape.slice(-dims).map((size, i) => {
    const span = size + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
    if (!ctx.bool('ceil_mode')) return Math.floor(span / stride[i]) + 1;
    const steps = Math.ceil(span / stride[i]);
    // A window that starts in the right padding is dropped.
    return (steps * stride[i] >= size + padding[i] ? steps - 1 : steps) + 1;
  });
  return [...shape.slice(0, -dims), ...sizes];
}

const windowWork =
  (dims: number) =>
  (ctx: TypedContext): { matrix: number; vector: number } => {
    const size = elements(spread(ctx.ints('kernel_size'), dims));
    return { matrix: 0, vector: size * elements(ctx.outputs[0]?.shape ?? []) };
  };

const WINDOW = 'int[] kernel_size, int[] stride=[], int[] padding=[0]';
const MAX_WINDOW = `${WINDOW}, int[] dilation=[1], bool ceil_mode=False`;
const AVG_WINDOW =
  `${WINDOW}, bool ceil_mode=False, bool count_include_pad=True, ` + 'int? divisor_override=None';

function gradient(name: string, schema: string, dims: number): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'reduction',
    infer: (ctx) => [need(ctx, 'self')],
    shard: (ctx) => [...followRules(ctx, dims), ...linearIn('grad_output')(ctx)],
  });
}

/** The sizes of the pooled dims are in `output_size`. */
function resized(ctx: OpContext, dims: number): TensorMeta {
  const shape = imageShape(ctx, dims);
  return {
    dtype: need(ctx, 'self').dtype,
    shape: [...shape.slice(0, -dims), ...spread(ctx.ints('output_size'), dims)],
  };
}

const places = (values: TensorMeta): TensorMeta[] => [
  values,
  { dtype: 'i64', shape: values.shape },
];

function adaptive(name: string, dims: number): OperatorRecord {
  return defineOp(name, {
    schema: 'Tensor self, int[] output_size',
    cls: 'reduction',
    infer: (ctx) => [resized(ctx, dims)],
    shard: (ctx) => [...followRules(ctx, dims), ...linearIn()(ctx)],
    flops: (ctx) => ({ matrix: 0, vector: elements(ctx.inputs[0].shape) }),
  });
}

const pooled = (ctx: OpContext, dims: number, dilated: boolean): TensorMeta => ({
  dtype: need(ctx, 'self').dtype,
  shape: pooledShape(ctx, dims, dilated),
});

/**
 * Windows that random numbers place, a row of them for each plane: batch and channels follow on
 * both.
 */
function fractional(dims: number): OperatorRecord {
  return defineOp(`aten.fractional_max_pool${dims}d.default`, {
    schema: 'Tensor self, int[] kernel_size, int[] output_size, Tensor random_samples',
    cls: 'reduction',
    results: 'tuple',
    infer: (ctx) => places(resized(ctx, dims)),
    shard: (ctx) => {
      const { shape } = need(ctx, 'self');
      // An image without batch has no first dim, its numbers have one.
      const first = shape.length - dims - 2;
      return cuttable(shape)
        .filter((d) => d < shape.length - dims)
        .map((d) => rule([S(d), S(d - first)], [S(d), S(d)]));
    },
    flops: windowWork(dims),
  });
}

/** Values at the places that a pooling remembers, zero elsewhere: whatever is pending stays so. */
function unpool(dims: number): OperatorRecord {
  const rest = dims === 3 ? ', int[] stride, int[] padding' : '';
  return defineOp(`aten.max_unpool${dims}d.default`, {
    schema: `Tensor self, Tensor indices, int[] output_size${rest}`,
    cls: 'other',
    infer: (ctx) => [resized(ctx, dims)],
    shard: (ctx) => [
      ...followRules(ctx, dims),
      ...movedKinds(ctx.inputs[0].dtype).map((kind) => onePartial(ctx, 0, kind, kind, 'ext')),
    ],
    flops: (ctx) => ({ matrix: 0, vector: elements(ctx.inputs[0].shape) }),
  });
}

/** Pools over windows of a stated size, with the gradients of these. */
const overWindows = (dims: number): readonly OperatorRecord[] => [
  defineOp(`aten.max_pool${dims}d.default`, {
    schema: `Tensor self, ${MAX_WINDOW}`,
    cls: 'reduction',
    infer: (ctx) => [pooled(ctx, dims, true)],
    // The largest value of a window of maxima over ranks is the maximum of the ranks' largest.
    shard: (ctx) => [
      ...followRules(ctx, dims),
      ...nonDecreasingExt(ctx).filter(
        (r) => r.inputs[0]?.kind === 'partial' && r.inputs[0].op === 'max',
      ),
      ...(ctx.ints('dilation').every((n) => n === 1) ? windowRules(ctx, dims) : []),
    ],
    flops: windowWork(dims),
  }),
  defineOp(`aten.max_pool${dims}d_with_indices.default`, {
    schema: `Tensor self, ${MAX_WINDOW}`,
    cls: 'reduction',
    results: 'tuple',
    infer: (ctx) => places(pooled(ctx, dims, true)),
    shard: (ctx) => followRules(ctx, dims),
    flops: windowWork(dims),
  }),
  gradient(
    `aten.max_pool${dims}d_with_indices_backward.default`,
    'Tensor grad_output, Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] ' +
      'dilation, bool ceil_mode, Tensor indices',
    dims,
  ),
  unpool(dims),
  fractional(dims),
  defineOp(`aten.avg_pool${dims}d.default`, {
    schema: `Tensor self, ${AVG_WINDOW}`,
    cls: 'reduction',
    infer: (ctx) => [pooled(ctx, dims, false)],
    shard: (ctx) => [...followRules(ctx, dims), ...linearIn()(ctx), ...windowRules(ctx, dims)],
    flops: windowWork(dims),
  }),
  gradient(
    `aten.avg_pool${dims}d_backward.default`,
    'Tensor grad_output, Tensor self, int[] kernel_size, int[] stride, int[] padding, bool ' +
      'ceil_mode, bool count_include_pad, int? divisor_override',
    dims,
  ),
];

/** Pools to a stated size of the result, with the gradients of these. */
const toSizes = (dims: number): readonly OperatorRecord[] => [
  defineOp(`aten.adaptive_max_pool${dims}d.default`, {
    schema: 'Tensor self, int[] output_size',
    cls: 'reduction',
    results: 'tuple',
    infer: (ctx) => places(resized(ctx, dims)),
    shard: (ctx) => followRules(ctx, dims),
    flops: (ctx) => ({ matrix: 0, vector: elements(ctx.inputs[0].shape) }),
  }),
  gradient(
    `aten.adaptive_max_pool${dims}d_backward.default`,
    'Tensor grad_output, Tensor self, Tensor indices',
    dims,
  ),
  gradient(
    `aten.fractional_max_pool${dims}d_backward.default`,
    'Tensor grad_output, Tensor self, int[] kernel_size, int[] output_size, Tensor indices',
    dims,
  ),
  adaptive(`aten.adaptive_avg_pool${dims}d.default`, dims),
  adaptive(`aten._adaptive_avg_pool${dims}d.default`, dims),
  gradient(
    `aten._adaptive_avg_pool${dims}d_backward.default`,
    'Tensor grad_output, Tensor self',
    dims,
  ),
];

export const poolOps: readonly OperatorRecord[] = [2, 3].flatMap((dims) => [
  ...overWindows(dims),
  ...toSizes(dims),
]);

/** Sample calls in addition to those of the two-dim pools, which are listed with the products. */
export const poolSamples: readonly string[] = [
  'max_unpool2d(x[5,6,4,4], index64[5,6,4,4], [8,8])',
  'max_unpool2d(x[6,3,3], index36[6,3,3], [6,6])',
  'max_unpool3d(x[6,5,2,3,2], index48[6,5,2,3,2], [3,4,4], [2,2,2], [0,0,0])',
  'fractional_max_pool2d(x[6,5,7,8], [2,3], [3,4], unit[6,5,2])',
  'fractional_max_pool2d(x[5,9,8], [2,2], [4,1], unit[1,5,2])',
  'fractional_max_pool3d(x[5,6,5,6,7], [2,2,2], [2,3,4], unit[5,6,3])',
  'adaptive_max_pool2d(x[5,6,7,8], [3,2])',
  'adaptive_max_pool2d_backward(x[5,6,3,2], x[5,6,4,4], index16[5,6,3,2])',
  'adaptive_max_pool3d_backward(x[6,5,2,1,2], x[6,5,3,2,2], index12[6,5,2,1,2])',
  'fractional_max_pool2d_backward(x[6,5,2,2], x[6,5,4,4], [2,2], [2,2], index16[6,5,2,2])',
  'fractional_max_pool3d_backward(x[5,6,1,2,2], x[5,6,2,3,3], [2,2,2], [1,2,2], ' +
    'index18[5,6,1,2,2])',
  'adaptive_max_pool3d(x[6,5,4,5,3], [2,3,2])',
  'max_pool3d(x[5,6,4,6,4], [2,2,2])',
  'max_pool3d(x[6,5,7,5,6], [3,3,3], [2,2,2], [1,1,1], [1,1,1], True)',
  'max_pool3d_with_indices(x[6,5,5,4,6], [3,2,3], [2,2,2], [1,1,1])',
  'max_pool3d_with_indices_backward(x[5,6,2,2,2], x[5,6,4,4,4], [2,2,2], [2,2,2], [0,0,0], ' +
    '[1,1,1], False, index64[5,6,2,2,2])',
  'avg_pool3d(x[5,6,4,6,4], [2,2,2])',
  'avg_pool3d(x[6,5,7,5,6], [3,3,3], [2,2,2], [1,1,1], True, False)',
  'avg_pool3d(x[6,5,5,5], [3,3,3], [2,2,2], [1,1,1], False, True, 5)',
  'avg_pool3d_backward(x[5,6,2,2,2], x[5,6,4,4,4], [2,2,2], [2,2,2], [0,0,0], False, True, None)',
  'adaptive_avg_pool3d(x[5,6,4,5,3], [1,1,1])',
  '_adaptive_avg_pool3d(x[6,5,4,5,3], [2,3,2])',
  '_adaptive_avg_pool3d_backward(x[5,6,2,3,2], x[5,6,4,5,3])',
];
