import { cuttable, need } from '../dims.ts';
import { linearIn, nonDecreasingExt } from '../partials.ts';
import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../record.ts';
import { rule, S, type Rule } from '../rule.ts';

/** Pooling over the last two dims: batch and channels follow, on inputs and results alike. */

/** Rules for every dim but the two pooled ones. */
function followRules(ctx: TypedContext): Rule[] {
  const rank = ctx.inputs[0].shape.length;
  return cuttable(ctx.inputs[0].shape)
    .filter((d) => d < rank - 2)
    .map((d) =>
      rule(
        ctx.inputs.map(() => S(d)),
        ctx.outputs.map(() => S(d)),
      ),
    );
}

/**
 * A pooled dim cut between windows: where windows lie side by side without padding, a rank that holds whole windows pools
 * them alone.
 */
function windowRules(ctx: TypedContext): Rule[] {
  const { shape } = need(ctx, 'self');
  const kernel = pair(ctx.ints('kernel_size'));
  const given = ctx.ints('stride');
  const stride = given.length === 0 ? kernel : pair(given);
  return [0, 1].flatMap((i) => {
    const d = shape.length - 2 + i;
    const beside = stride[i] === kernel[i] && pair(ctx.ints('padding'))[i] === 0 && shape[d] % kernel[i] === 0;
    if (!beside || shape[d] === kernel[i]) return [];
    const cut = { slicing: 'contiguous', even: true, scaled: true } as const;
    return [rule([S(d, { ...cut, unit: kernel[i] })], [S(d, cut)], { origin: 'ext' })];
  });
}

const pair = (values: readonly number[]): readonly [number, number] => [values[0], values[1] ?? values[0]];

function pooledShape(ctx: OpContext, dilated: boolean): readonly number[] {
  const { shape } = need(ctx, 'self');
  if (shape.length < 3) ctx.fail(`needs an input of 3 or 4 dims, got [${shape.join(', ')}]`);
  const kernel = pair(ctx.ints('kernel_size'));
  const given = ctx.ints('stride');
  const stride = given.length === 0 ? kernel : pair(given);
  const padding = pair(ctx.ints('padding'));
  const dilation = dilated ? pair(ctx.ints('dilation')) : [1, 1];
  const sizes = shape.slice(-2).map((size, i) => {
    const span = size + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
    if (!ctx.bool('ceil_mode')) return Math.floor(span / stride[i]) + 1;
    const steps = Math.ceil(span / stride[i]);
    // A window that starts in the right padding is dropped.
    return (steps * stride[i] >= size + padding[i] ? steps - 1 : steps) + 1;
  });
  return [...shape.slice(0, -2), ...sizes];
}

const windowWork = (ctx: TypedContext): { matrix: number; vector: number } => {
  const [a, b] = pair(ctx.ints('kernel_size'));
  return { matrix: 0, vector: a * b * elements(ctx.outputs[0]?.shape ?? []) };
};

const WINDOW = 'int[] kernel_size, int[] stride=[], int[] padding=[0]';
const MAX_WINDOW = `${WINDOW}, int[] dilation=[1], bool ceil_mode=False`;
const AVG_WINDOW = `${WINDOW}, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None`;

function gradient(name: string, schema: string): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'reduction',
    infer: (ctx) => [need(ctx, 'self')],
    shard: (ctx) => [...followRules(ctx), ...linearIn('grad_output')(ctx)],
  });
}

function adaptive(name: string): OperatorRecord {
  return defineOp(name, {
    schema: 'Tensor self, int[] output_size',
    cls: 'reduction',
    infer(ctx) {
      const self = need(ctx, 'self');
      return [{ dtype: self.dtype, shape: [...self.shape.slice(0, -2), ...pair(ctx.ints('output_size'))] }];
    },
    shard: (ctx) => [...followRules(ctx), ...linearIn()(ctx)],
    flops: (ctx) => ({ matrix: 0, vector: elements(ctx.inputs[0].shape) }),
  });
}

const pooled = (ctx: OpContext, dilated: boolean): TensorMeta => ({
  dtype: need(ctx, 'self').dtype,
  shape: pooledShape(ctx, dilated),
});

export const poolOps: readonly OperatorRecord[] = [
  defineOp('aten.max_pool2d.default', {
    schema: `Tensor self, ${MAX_WINDOW}`,
    cls: 'reduction',
    infer: (ctx) => [pooled(ctx, true)],
    // The largest value of a window of maxima over ranks is the maximum of the ranks' largest.
    shard: (ctx) => [
      ...followRules(ctx),
      ...nonDecreasingExt(ctx).filter((r) => r.inputs[0]?.kind === 'partial' && r.inputs[0].op === 'max'),
      ...(ctx.ints('dilation').every((n) => n === 1) ? windowRules(ctx) : []),
    ],
    flops: windowWork,
  }),
  defineOp('aten.max_pool2d_with_indices.default', {
    schema: `Tensor self, ${MAX_WINDOW}`,
    cls: 'reduction',
    results: 'tuple',
    infer(ctx) {
      const values = pooled(ctx, true);
      return [values, { dtype: 'i64', shape: values.shape }];
    },
    shard: followRules,
    flops: windowWork,
  }),
  gradient(
    'aten.max_pool2d_with_indices_backward.default',
    'Tensor grad_output, Tensor self, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode, Tensor indices',
  ),
  defineOp('aten.avg_pool2d.default', {
    schema: `Tensor self, ${AVG_WINDOW}`,
    cls: 'reduction',
    infer: (ctx) => [pooled(ctx, false)],
    shard: (ctx) => [...followRules(ctx), ...linearIn()(ctx), ...windowRules(ctx)],
    flops: windowWork,
  }),
  gradient(
    'aten.avg_pool2d_backward.default',
    'Tensor grad_output, Tensor self, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, bool count_include_pad, int? divisor_override',
  ),
  adaptive('aten.adaptive_avg_pool2d.default'),
  adaptive('aten._adaptive_avg_pool2d.default'),
  gradient('aten._adaptive_avg_pool2d_backward.default', 'Tensor grad_output, Tensor self'),
];
