/**
 * Operators as functions: those that take several tensors as equals, make a tensor from none, or
 * need a random key.
 *
 * @module
 */

import { checkKinds } from '../../arguments.ts';
import { defined } from '../../defined.ts';
import type { DType } from '../../graph/types.ts';
import { sourcePosition } from '../errors/position.ts';
import { refusal } from '../errors/refusal.ts';
import { stopping } from '../record/recorder.ts';
import { type Size, sizes } from '../sizes/sizes.ts';
import { needTensor, type TensorCore } from './core.ts';
import type { Operand } from './pointwise.ts';
import type { Ranked } from './reduce.ts';
import { apply, type Tensor } from './tensor.ts';

/** The first operand of a function, which JavaScript may leave out or misspell. */
const of = (x: Tensor, call: string): Tensor => needTensor(x, `the first operand of ${call}`);

/** The matrix product, batched over leading dims: [..., m, k] x [..., k, n]. `torch.matmul`. */
export const matmul = (a: Tensor, b: Tensor): Tensor => of(a, 'matmul').matmul(b);
export const linear = (x: Tensor, weight: Tensor, bias?: Tensor): Tensor =>
  of(x, 'linear').linear(weight, bias);
export const add = (a: Tensor, b: Operand): Tensor => of(a, 'add').add(b);
export const sub = (a: Tensor, b: Operand): Tensor => of(a, 'sub').sub(b);
export const mul = (a: Tensor, b: Operand): Tensor => of(a, 'mul').mul(b);
export const div = (a: Tensor, b: Operand): Tensor => of(a, 'div').div(b);
export const pow = (a: Tensor, b: Operand): Tensor => of(a, 'pow').pow(b);
export const maximum = (a: Tensor, b: Operand): Tensor => of(a, 'maximum').maximum(b);
export const minimum = (a: Tensor, b: Operand): Tensor => of(a, 'minimum').minimum(b);
export const exp = (x: Tensor): Tensor => of(x, 'exp').exp();
export const log = (x: Tensor): Tensor => of(x, 'log').log();
export const sqrt = (x: Tensor): Tensor => of(x, 'sqrt').sqrt();
export const sin = (x: Tensor): Tensor => of(x, 'sin').sin();
export const cos = (x: Tensor): Tensor => of(x, 'cos').cos();
export const tanh = (x: Tensor): Tensor => of(x, 'tanh').tanh();
export const relu = (x: Tensor): Tensor => of(x, 'relu').relu();
export const gelu = (x: Tensor, approximate: 'none' | 'tanh' = 'none'): Tensor =>
  of(x, 'gelu').gelu(approximate);
export const silu = (x: Tensor): Tensor => of(x, 'silu').silu();
export const sigmoid = (x: Tensor): Tensor => of(x, 'sigmoid').sigmoid();
export const eq = (a: Tensor, b: Operand): Tensor => of(a, 'eq').eq(b);
export const ne = (a: Tensor, b: Operand): Tensor => of(a, 'ne').ne(b);
export const lt = (a: Tensor, b: Operand): Tensor => of(a, 'lt').lt(b);
export const le = (a: Tensor, b: Operand): Tensor => of(a, 'le').le(b);
export const gt = (a: Tensor, b: Operand): Tensor => of(a, 'gt').gt(b);
export const ge = (a: Tensor, b: Operand): Tensor => of(a, 'ge').ge(b);
/** `a` where `condition` holds, else `b`; both are computed. */
export const where = (condition: Tensor, a: Operand, b: Operand): Tensor =>
  needTensor(condition, 'the condition of where').where(a, b);
export const sum = (x: Tensor, dims?: number | readonly number[], keepdim = false): Tensor =>
  of(x, 'sum').sum(dims, keepdim);
export const mean = (x: Tensor, dims?: number | readonly number[], keepdim = false): Tensor =>
  of(x, 'mean').mean(dims, keepdim);
export const softmax = (x: Tensor, dim: number): Tensor => of(x, 'softmax').softmax(dim);
export const logSoftmax = (x: Tensor, dim: number): Tensor => of(x, 'logSoftmax').logSoftmax(dim);
export const cumsum = (x: Tensor, dim: number): Tensor => of(x, 'cumsum').cumsum(dim);
export const sort = (x: Tensor, dim = -1, descending = false): Ranked<Tensor> =>
  of(x, 'sort').sort(dim, descending);
export const topk = (x: Tensor, k: number, dim = -1): Ranked<Tensor> => of(x, 'topk').topk(k, dim);
export const gather = (x: Tensor, dim: number, index: Tensor): Tensor =>
  of(x, 'gather').gather(dim, index);
export const scatter = (x: Tensor, dim: number, index: Tensor, source: Tensor | number): Tensor =>
  of(x, 'scatter').scatter(dim, index, source);
export const layerNorm = (
  x: Tensor,
  normalized: readonly number[],
  weight?: Tensor,
  bias?: Tensor,
  eps = 1e-5,
): Tensor => of(x, 'layerNorm').layerNorm(normalized, weight, bias, eps);
export const rmsNorm = (
  x: Tensor,
  normalized: readonly number[],
  weight?: Tensor,
  eps?: number,
): Tensor => of(x, 'rmsNorm').rmsNorm(normalized, weight, eps);
/** The tensor without its gradient. */
export const stopGradient = (x: Tensor): Tensor =>
  needTensor(x, 'the operand of stopGradient').detach();

/** Tensors end to end along a dim. */
export function cat(tensors: readonly Tensor[], dim = 0): Tensor {
  return apply('aten.cat.default', [tensors, dim]);
}
/** Tensors of one shape along a new dim. */
export function stack(tensors: readonly Tensor[], dim = 0): Tensor {
  return apply('aten.stack.default', [tensors, dim]);
}

/** Rows of `table` ([rows, width]) for integer ids of any shape. */
export function embedding(table: Tensor, ids: Tensor): Tensor {
  return apply('aten.embedding.default', [table, ids]);
}

/**
 * Mask, causality, scale and grouped queries of an attention, as
 * `torch.nn.functional.scaled_dot_product_attention` has them.
 */
export interface AttentionOptions {
  /** Bool (true = attend) or added to the scores; broadcast to [..., queries, keys]. */
  readonly mask?: Tensor;
  /** Each query sees the keys up to its own position. */
  readonly causal?: boolean;
  /** Scale of the scores, 1 / sqrt(width) by default. */
  readonly scale?: number;
  /** Fewer key heads than query heads: each is shared by a group. */
  readonly groupedQueries?: boolean;
}

/** Attention, `softmax(q k^T * scale + mask) v`, of `[batch, heads, length, width]`. */
export function scaledDotProductAttention(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  options: AttentionOptions = {},
): Tensor {
  checkKinds('scaledDotProductAttention', { options: [options, 'record'] });
  const { mask, causal = false, scale, groupedQueries = false } = options;
  return apply('aten.scaled_dot_product_attention.default', [q, k, v, mask ?? null, 0, causal], {
    ...defined({ scale }),
    ...(groupedQueries ? { enable_gqa: true } : {}),
  });
}

/** How the losses of single elements become one: as `reduction` of PyTorch's losses. */
export type Reduction = 'mean' | 'sum' | 'none';
const REDUCTIONS: Readonly<Record<Reduction, number>> = { none: 0, mean: 1, sum: 2 };

/** Cross entropy of logits `[batch, classes, ...]` and integer targets `[batch, ...]`. */
export function crossEntropy(
  logits: Tensor,
  target: Tensor,
  options: {
    readonly reduction?: Reduction;
    readonly ignoreIndex?: number;
    readonly labelSmoothing?: number;
  } = {},
): Tensor {
  checkKinds('crossEntropy', { options: [options, 'record'] });
  const { reduction = 'mean', ignoreIndex = -100, labelSmoothing = 0 } = options;
  const smoothing = labelSmoothing === 0 ? [] : [labelSmoothing];
  const rest = ignoreIndex === -100 && smoothing.length === 0 ? [] : [ignoreIndex, ...smoothing];
  const kind = reduction === 'mean' && rest.length === 0 ? [] : [REDUCTIONS[reduction]];
  return apply(
    'aten.cross_entropy_loss.default',
    kind.length === 0 ? [logits, target] : [logits, target, null, ...kind, ...rest],
  );
}

/** Squared error, its mean by default. */
export function mseLoss(x: Tensor, target: Tensor, reduction: Reduction = 'mean'): Tensor {
  checkKinds('mseLoss', { reduction: [reduction, 'string'] });
  return apply(
    'aten.mse_loss.default',
    reduction === 'mean' ? [x, target] : [x, target, REDUCTIONS[reduction]],
  );
}

const typed = (dtype: DType): Record<string, { readonly kind: 'dtype'; readonly dtype: DType }> => {
  checkKinds('a tensor of this dtype', { dtype: [dtype, 'string'] });
  return { dtype: { kind: 'dtype', dtype } };
};

/** A tensor of zeros of this shape. `torch.zeros`. */
export function zeros(shape: readonly Size[], dtype: DType = 'f32'): Tensor {
  return apply('aten.zeros.default', [shape], typed(dtype));
}
export function ones(shape: readonly Size[], dtype: DType = 'f32'): Tensor {
  return apply('aten.ones.default', [shape], typed(dtype));
}
export function full(shape: readonly Size[], value: number, dtype: DType = 'f32'): Tensor {
  return apply('aten.full.default', [shape, value], typed(dtype));
}
export function zerosLike(x: TensorCore): Tensor {
  return apply('aten.zeros_like.default', [x]);
}
export function onesLike(x: TensorCore): Tensor {
  return apply('aten.ones_like.default', [x]);
}
/** 0, 1, ..., end - 1; or from `start`. */
export function arange(
  end: Size,
  options: { readonly start?: Size; readonly dtype?: DType } = {},
): Tensor {
  checkKinds('arange', {
    end: [end, 'number', ['sym', 'example', 'expression']],
    options: [options, 'record', 'undefined'],
  });
  const { start, dtype = 'i64' } = options;
  return start === undefined
    ? apply('aten.arange.default', [end], typed(dtype))
    : apply('aten.arange.start', [start, end], typed(dtype));
}

/**
 * `count` independent keys from one: Lehmer's generator over the prime 2^31 - 1 steps the seed to a
 * multiple of its own, and each key is that plus its number.
 */
export function splitKey(key: Tensor, count: number): Tensor[] {
  checkKinds('splitKey', { count: [count, 'integer'] });
  const stepped = of(needKey(key, 'splitKey'), 'splitKey').mul(48271);
  return Array.from({ length: count }, (_, i) => stepped.add(i + 1).remainder(2147483647));
}

/**
 * Elements set to zero with probability `p`, the others divided by 1 - p.
 *
 * @param key an input described by `randomKey()`, or one that `splitKey` derived; each draw needs
 *   its own
 * @throws E_TRACE_IMPURE without a key
 */
export function dropout(x: Tensor, p: number, key?: Tensor): Tensor {
  checkKinds('dropout', { p: [p, 'number'] });
  needTensor(x, 'the operand of dropout');
  const kept = bernoulli(x.shape, 1 - p, needKey(key, 'dropout'), x.dtype);
  return x.mul(kept).div(1 - p);
}

/** Ones with probability `p`, else zeros. @throws E_TRACE_IMPURE without a key */
export function bernoulli(
  shape: readonly Size[],
  p: number,
  key?: Tensor,
  dtype: DType = 'f32',
): Tensor {
  return apply('aten.bernoulli.p', [zeros(shape, dtype), p], {
    generator: needKey(key, 'bernoulli'),
  });
}
/** Uniform in [0, 1). @throws E_TRACE_IMPURE without a key */
export function rand(shape: readonly Size[], key?: Tensor, dtype: DType = 'f32'): Tensor {
  return apply('aten.rand.default', [shape], { generator: needKey(key, 'rand'), ...typed(dtype) });
}
/** Normal with mean 0 and variance 1. @throws E_TRACE_IMPURE without a key */
export function randn(shape: readonly Size[], key?: Tensor, dtype: DType = 'f32'): Tensor {
  return apply('aten.randn.default', [shape], {
    generator: needKey(key, 'randn'),
    ...typed(dtype),
  });
}

function needKey(key: Tensor | undefined, what: string): Tensor {
  if (key !== undefined) return key;
  throw stopping(
    refusal(
      'E_TRACE_IMPURE',
      `${what} draws random numbers and was given no key`,
      { source: sourcePosition() },
      {
        hint:
          'describe an input with randomKey() and hand it on; splitKey(key, n) makes one for ' +
          'each draw.',
      },
    ),
  );
}

/** Sum of `values` over rows of equal `ids`: `out[ids[i]] += values[i]`, `[rows, width]`. */
export function segmentSum(values: Tensor, ids: Tensor, rows: Size): Tensor {
  const width = of(values, 'segmentSum').shape.slice(1);
  needTensor(ids, 'the second operand of segmentSum');
  const index = ids.view([...ids.shape, ...width.map(() => 1)]).expand([...ids.shape, ...width]);
  return zeros([rows, ...width], values.dtype).scatterAdd(0, index, values);
}

/** Number of elements of a tensor. */
export function elementsOf(x: TensorCore): Size {
  return sizes.product(needTensor(x, 'the operand of elementsOf').shape);
}
