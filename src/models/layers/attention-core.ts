/**
 * The attention products of the families: fused where the softmax sees plain scores, written out
 * where it does not.
 */

import { defined } from '../../defined.ts';
import type { DType } from '../../graph/types.ts';
import { arange, cat, scaledDotProductAttention } from '../../trace/tensor/functional.ts';
import type { Tensor } from '../../trace/tensor/tensor.ts';

/** [batch, length, heads * width] to [batch, heads, length, width]. */
export function splitHeads(x: Tensor, width: number): Tensor {
  return x.view(x.size(0), x.size(1), -1, width).transpose(1, 2);
}

/** [batch, heads, length, width] to [batch, length, heads * width]. */
export function joinHeads(x: Tensor): Tensor {
  return x.transpose(1, 2).reshape(x.size(0), x.size(2), -1);
}

/**
 * True where query row i may see key row j: j <= i, and i - j < window, or both in one chunk of
 * `window` rows. [length, length].
 */
export function causalMask(length: number, window?: number, chunked = false): Tensor {
  const row = arange(length).unsqueeze(1);
  const column = arange(length).unsqueeze(0);
  const past = column.le(row);
  if (window === undefined) return past;
  return past.logicalAnd(
    chunked ? row.floordiv(window).eq(column.floordiv(window)) : row.sub(column).lt(window),
  );
}

/** The most negative number that still is one in this dtype: a score that the softmax makes 0. */
function lowestOf(dtype: DType): number {
  return dtype === 'f16' ? -65504 : -3.38e38;
}

/** Each key head once for every query head that uses it. */
function repeated(x: Tensor, heads: number, keyHeads: number): Tensor {
  if (heads === keyHeads) return x;
  const [batch, , length, width] = x.shape;
  const times = heads / keyHeads;
  return x
    .unsqueeze(2)
    .expand(batch, keyHeads, times, length, width)
    .reshape(batch, heads, length, width);
}

interface WrittenOut {
  readonly heads: number;
  readonly keyHeads: number;
  readonly scale: number;
  /** Bool, true = attend. */
  readonly mask?: Tensor;
  /** Added to the scores. */
  readonly bias?: Tensor;
  /** cap * tanh(scores / cap). */
  readonly cap?: number;
  /** One score a head that takes a share of the softmax and gives nothing: [heads]. */
  readonly sinks?: Tensor;
}

/** Attention with its scores in sight, softmax in float32; [batch, heads, length, width]. */
export function writtenOutAttention(q: Tensor, k: Tensor, v: Tensor, options: WrittenOut): Tensor {
  const { heads, keyHeads, scale, mask, bias, cap, sinks } = options;
  const products = q.matmul(repeated(k, heads, keyHeads).transpose(2, 3));
  const scaled = scale === 1 ? products : products.mul(scale);
  const capped = cap === undefined ? scaled : scaled.div(cap).tanh().mul(cap);
  const biased = bias === undefined ? capped : capped.add(bias);
  const seen = mask === undefined ? biased : mask.where(biased, lowestOf(q.dtype));
  const values = repeated(v, heads, keyHeads);
  if (sinks === undefined) return seen.softmax(-1, 'f32').to(q.dtype).matmul(values);
  const [batch, , rows, columns] = seen.shape;
  const drain = sinks.view(1, heads, 1, 1).expand(batch, heads, rows, 1);
  const shares = cat([seen, drain], -1).softmax(-1, 'f32').to(q.dtype);
  return shares.slice(3, 0, columns).matmul(values);
}

/** The fused form; `mask` (bool) replaces the causal one. */
export function fusedAttention(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  options: {
    readonly mask?: Tensor;
    readonly causal: boolean;
    readonly scale?: number;
    readonly grouped?: boolean;
  },
): Tensor {
  const { mask, causal, scale, grouped = false } = options;
  return scaledDotProductAttention(q, k, v, {
    ...(mask === undefined ? { causal } : { mask }),
    ...defined({ scale }),
    groupedQueries: grouped,
  });
}
