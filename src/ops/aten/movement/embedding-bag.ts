/**
 * Bags of rows of a table, each added up, averaged, or its largest values taken. A bag ends where
 * the next one starts, so a rank needs all indices; columns of the table may be cut, and pending
 * sums of it pass where bags are linear in it.
 */

import { type DType, DTYPE_BYTES } from '../../../graph/types.ts';
import { flat, fromFlat, type NDArray } from '../../../ndarray/array.ts';
import { isIntegral } from '../../record/dtypes.ts';
import {
  type Kernel,
  type KernelCall,
  one,
  optional,
  tensor,
  valueError,
} from '../../record/kernel.ts';
import {
  defineOp,
  elements,
  metaBytes,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import { linearKinds, need, pendingRules } from '../../rules/dims.ts';

const SUM = 0;
const MAX = 2;

interface Bags {
  readonly weight: TensorMeta;
  readonly count: number;
  readonly indices: number;
  readonly mode: number;
}

function bagsOf(ctx: OpContext): Bags {
  const [weight, indices, offsets] = ['weight', 'indices', 'offsets'].map((name) =>
    need(ctx, name),
  );
  if (weight.shape.length !== 2) ctx.fail(`weight has ${weight.shape.length} dims, expected 2`);
  for (const meta of [indices, offsets])
    if (meta.shape.length !== 1 || !isIntegral(meta.dtype))
      ctx.fail('indices and offsets must be lists of integers');
  const count = offsets.shape[0] - (ctx.bool('include_last_offset') ? 1 : 0);
  return { weight, count, indices: indices.shape[0], mode: ctx.int('mode') };
}

/**
 * The results on a CPU: the bags, the bag of each index, sizes of the bags, places of the largest.
 * Only the backward reads the bag of each index, and not of plain sums: their kernel leaves it out.
 * It takes tables whose rows lie in one piece; others have it for plain sums, too.
 */
function resultsOnCpu(ctx: OpContext, inOnePiece: boolean): TensorMeta[] {
  const { weight, count, indices, mode } = bagsOf(ctx);
  const { dtype } = need(ctx, 'offsets');
  const plain =
    inOnePiece &&
    mode === SUM &&
    ctx.int('padding_idx') < 0 &&
    ['f32', 'f16', 'bf16'].includes(weight.dtype);
  return [
    { dtype: weight.dtype, shape: [count, weight.shape[1]] },
    { dtype, shape: [plain ? 0 : indices] },
    { dtype, shape: [count] },
    { dtype, shape: mode === MAX ? [count, weight.shape[1]] : [count] },
  ];
}

function resultsOnGpu(ctx: OpContext): TensorMeta[] {
  const { weight, count, indices, mode } = bagsOf(ctx);
  const { dtype, shape } = need(ctx, 'offsets');
  return [
    { dtype: weight.dtype, shape: [count, weight.shape[1]] },
    { dtype, shape: [indices] },
    { dtype, shape },
    { dtype, shape: mode === MAX ? [count, weight.shape[1]] : [0] },
  ];
}

const columns = (dim: number): RuleSlot => S(dim, { slicing: 'any' });

function bagRules(ctx: TypedContext): Rule[] {
  const { weight, mode } = bagsOf(ctx);
  const places = mode === MAX ? columns(1) : R;
  const rest = ctx.inputs.slice(1).map((): RuleSlot => R);
  const cut = weight.shape[1] > 1 ? [rule([columns(1), ...rest], [columns(1), R, R, places])] : [];
  if (mode === MAX) return cut;
  return [...cut, ...linearRules(ctx, weight.dtype, ['pending', 'plain', 'plain', 'plain'])];
}

/** Bags are linear in the table (or in their gradient) and in the factors of the indices. */
function linearRules(
  ctx: TypedContext,
  dtype: DType,
  results: readonly ('pending' | 'plain')[],
): Rule[] {
  const factors = ctx.indexOf('per_sample_weights');
  return [0, ...(factors < 0 ? [] : [factors])].flatMap((i) =>
    pendingRules(ctx.inputs.length, [i], results, linearKinds(dtype), 'ext'),
  );
}

/** First and last index of each bag; the last bag has all that are left. */
function spans(call: KernelCall): (readonly [number, number])[] {
  const starts = flat(tensor(call, 'offsets'));
  const total = tensor(call, 'indices').size;
  const count =
    starts.length -
    (call.ctx.target.includes('backward') ? 0 : call.ctx.bool('include_last_offset') ? 1 : 0);
  return Array.from({ length: count }, (_, i) => {
    const [start, end] = [starts[i], i + 1 < count ? starts[i + 1] : total];
    if (start < 0 || start > end)
      valueError(call, `a bag starts at ${start} and ends at ${end} of ${total} indices`);
    return [start, end] as const;
  });
}

const bagKernel: Kernel = (call) => {
  const { ctx } = call;
  const weight = tensor(call, 'weight');
  const [rows, width] = weight.shape;
  const [table, indices] = [flat(weight), flat(tensor(call, 'indices'))];
  const scales = optional(call, 'per_sample_weights');
  const factors = scales === undefined ? undefined : flat(scales);
  const [mode, padding] = [ctx.int('mode'), ctx.int('padding_idx')];
  const bags = spans(call);
  const out = new Float64Array(bags.length * width);
  const sizes = new Float64Array(bags.length);
  const owner = new Float64Array(indices.length);
  const largest = new Float64Array(bags.length * width);
  bags.forEach(([start, end], bag) => {
    for (let i = start; i < end; i++) {
      const row = indices[i];
      owner[i] = bag;
      if (row < 0 || row >= rows)
        valueError(call, `index ${row} is outside of a table of ${rows} rows`);
      if (row === padding) continue;
      sizes[bag]++;
      for (let c = 0; c < width; c++) {
        const value = table[row * width + c] * (factors?.[i] ?? 1);
        const at = bag * width + c;
        if (mode !== MAX) out[at] += value;
        else if (sizes[bag] === 1 || value > out[at]) [out[at], largest[at]] = [value, row];
      }
    }
    if (mode === 1 && sizes[bag] > 0)
      for (let c = 0; c < width; c++) out[bag * width + c] /= sizes[bag];
  });
  // Sums do not ask how many they add: PyTorch leaves the sizes at zero.
  if (mode === SUM) sizes.fill(0);
  const shapes = ctx.outputs.map((meta) => meta?.shape ?? []);
  const fitted = (values: Float64Array, k: number): NDArray =>
    fromFlat(
      shapes[k],
      Float64Array.from({ length: elements(shapes[k]) }, (_, i) => values[i] ?? 0),
      'i64',
    );
  return [
    fromFlat(shapes[0], out, weight.dtype),
    fitted(owner, 1),
    fitted(sizes, 2),
    fitted(mode === MAX ? largest : sizes, 3),
  ];
};

const embeddingBag = (name: string): OperatorRecord =>
  defineOp(name, {
    schema:
      'Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int ' +
      'mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool ' +
      'include_last_offset=False, int padding_idx=-1',
    cls: 'other',
    results: 'tuple',
    infer: (ctx) => resultsOnCpu(ctx, true),
    variants: (ctx) => [resultsOnCpu(ctx, false), resultsOnGpu(ctx)],
    shard: bagRules,
    flops: (ctx) => ({ matrix: 0, vector: bagsOf(ctx).indices * need(ctx, 'weight').shape[1] }),
    // The rows looked up are read, not the table.
    bytes: (ctx) => bagBytes(ctx, 'weight'),
    kernel: bagKernel,
  });

function bagBytes(ctx: TypedContext, table: string): number {
  const { dtype, shape } = need(ctx, table);
  const width = DTYPE_BYTES[dtype] * (shape.at(-1) ?? 1);
  const indices = need(ctx, 'indices');
  return (
    (indices.shape[0] + (ctx.outputs[0]?.shape[0] ?? 0)) * width +
    metaBytes(indices) +
    metaBytes(need(ctx, 'offsets'))
  );
}

/** The gradient of each bag added to the rows that it read. */
const backwardKernel: Kernel = one((call) => {
  const { ctx } = call;
  const grad = tensor(call, 'grad');
  const width = grad.shape[1];
  const [g, indices] = [flat(grad), flat(tensor(call, 'indices'))];
  const scales = optional(call, 'per_sample_weights');
  const factors = scales === undefined ? undefined : flat(scales);
  const [rows, mode, padding] = [ctx.int('num_weights'), ctx.int('mode'), ctx.int('padding_idx')];
  const out = new Float64Array(rows * width);
  if (mode === MAX) {
    const places = flat(tensor(call, 'maximum_indices'));
    places.forEach((row, at) => (out[row * width + (at % width)] += g[at]));
    return fromFlat([rows, width], out, grad.dtype);
  }
  const times = new Map<number, number>();
  for (const row of indices) times.set(row, (times.get(row) ?? 0) + 1);
  const sizes = flat(tensor(call, 'bag_size'));
  spans(call).forEach(([start, end], bag) => {
    for (let i = start; i < end; i++) {
      const row = indices[i];
      if (row === padding) continue;
      const share =
        (factors?.[i] ?? 1) /
        (mode === 1 ? sizes[bag] : 1) /
        (ctx.bool('scale_grad_by_freq') ? (times.get(row) ?? 1) : 1);
      for (let c = 0; c < width; c++) out[row * width + c] += g[bag * width + c] * share;
    }
  });
  return fromFlat([rows, width], out, grad.dtype);
});

const backward = (name: string, sparse: string): OperatorRecord =>
  defineOp(name, {
    schema:
      'Tensor grad, Tensor indices, Tensor offsets, Tensor offset2bag, Tensor bag_size, Tensor ' +
      `maximum_indices, int num_weights, bool scale_grad_by_freq, int mode, ${sparse}Tensor? ` +
      'per_sample_weights, int padding_idx=-1',
    cls: 'other',
    infer: (ctx) => {
      const { dtype, shape } = need(ctx, 'grad');
      return [{ dtype, shape: [ctx.int('num_weights'), shape[1]] }];
    },
    shard: (ctx) => {
      const { dtype, shape } = need(ctx, 'grad');
      const places = ctx.int('mode') === MAX ? columns(1) : R;
      const rest = ctx.inputs.slice(6).map((): RuleSlot => R);
      const cut =
        shape[1] > 1 ? [rule([columns(1), R, R, R, R, places, ...rest], [columns(1)])] : [];
      return ctx.int('mode') === MAX ? cut : [...cut, ...linearRules(ctx, dtype, ['pending'])];
    },
    flops: (ctx) => ({
      matrix: 0,
      vector: need(ctx, 'indices').shape[0] * need(ctx, 'grad').shape[1],
    }),
    kernel: backwardKernel,
  });

export const embeddingBagOps: readonly OperatorRecord[] = [
  embeddingBag('aten._embedding_bag.default'),
  embeddingBag('aten._embedding_bag_forward_only.default'),
  backward('aten._embedding_bag_backward.default', 'bool sparse, '),
];

export const embeddingBagSamples: readonly string[] = [
  '_embedding_bag(x[9,6], index9[12], starts12[5])',
  '_embedding_bag(x[9,5], index9[12], starts12[6], False, 1)',
  '_embedding_bag(x[9,6], index9[12], starts12[5], False, 2)',
  '_embedding_bag(x[9,6], index9[12], starts12[5], False, 0, False, x[12])',
  '_embedding_bag(x[9,6], index9[12], starts12[5], False, 1, False, None, False, 3)',
  '_embedding_bag(x[9,6], index9[12], starts12[5], False, 0, False, None, True, 3)',
  '_embedding_bag_forward_only(x[9,6], index9[12], starts12[5])',
  '_embedding_bag_backward(x[5,6], index9[12], starts12[5], index9[0], index9[0], index9[0], ' +
    '9, False, 0, False, None)',
  '_embedding_bag_backward(x[6,5], index9[12], starts12[6], index9[0], index9[0], index9[0], ' +
    '9, False, 0, False, x[12])',
  '_embedding_bag_backward(x[5,6], index9[12], starts12[5], index9[0], seven[5], index9[0], ' +
    '9, False, 1, False, None)',
];
