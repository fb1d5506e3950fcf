/**
 * Scaled dot-product attention as it is written: softmax(scale q kᵀ + mask) v over the last two
 * dims, and the gradients that fused kernels compute from the saved log-sum-exp. Key and value
 * heads may be fewer than query heads. Causal means that row i sees the columns up to i.
 */

import { ShardwrightError } from '../../../errors.ts';
import { build, flat, fromList, full, type NDArray, scalar } from '../../../ndarray/array.ts';
import { add, map2, multiply, scale, subtract } from '../../../ndarray/elementwise.ts';
import { matmul } from '../../../ndarray/matmul.ts';
import { type RandomStream, uniform } from '../../../ndarray/random.ts';
import { logSumExpOf, reduce, sum, sumTo } from '../../../ndarray/reduce.ts';
import { concat, expand, reshape, transpose, unsqueeze } from '../../../ndarray/views.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  optional,
  tensor,
} from '../../record/kernel.ts';
import { safeSoftmax } from '../reductions/softmax.ts';

/** Key or value heads repeated to the number of query heads. */
export function repeatHeads(x: NDArray, heads: number): NDArray {
  const own = x.shape[x.rank - 3];
  if (x.rank < 3 || own === heads) return x;
  const times = heads / own;
  const wide = unsqueeze(x, x.rank - 2);
  const shape = wide.shape.map((n, d) => (d === wide.rank - 3 ? times : n));
  return reshape(expand(wide, shape), [...x.shape.slice(0, -3), heads, ...x.shape.slice(-2)]);
}

/** Gradients of repeated heads added up. */
export function foldHeads(x: NDArray, own: number): NDArray {
  const heads = x.shape[x.rank - 3];
  if (x.rank < 3 || own === heads) return x;
  const split = reshape(x, [...x.shape.slice(0, -3), own, heads / own, ...x.shape.slice(-2)]);
  return sum(split, [split.rank - 3]);
}

interface Scores {
  /** Scaled and masked, [.., heads, queries, keys]. */
  readonly scores: NDArray;
  readonly scale: number;
  readonly key: NDArray;
  readonly value: NDArray;
}

function scoresOf(call: KernelCall, maskName: string | undefined): Scores {
  const { ctx } = call;
  const query = tensor(call, 'query');
  const heads = query.shape[query.rank - 3] ?? 1;
  const [key, value] = [
    repeatHeads(tensor(call, 'key'), heads),
    repeatHeads(tensor(call, 'value'), heads),
  ];
  const factor = ctx.optionalNumber('scale') ?? 1 / Math.sqrt(query.shape[query.rank - 1]);
  let scores = scale(matmul(query, transpose(key, -1, -2)), factor);
  const mask = maskName === undefined ? undefined : optional(call, maskName);
  if (mask !== undefined)
    scores =
      mask.kind === 'bool'
        ? map2(scores, mask, (s, m) => (m !== 0 ? s : -Infinity))
        : add(scores, mask);
  if (ctx.bool('is_causal')) {
    const [queries, keys] = scores.shape.slice(-2);
    const future = build([queries, keys], (i) => (i % keys > Math.floor(i / keys) ? -Infinity : 0));
    scores = add(scores, future);
  }
  return { scores, scale: factor, key, value };
}

/** Kept scores as 1 / (1 - p), dropped ones as 0; undefined without dropout. */
function dropoutMask(
  call: KernelCall,
  shape: readonly number[],
  random: RandomStream,
): NDArray | undefined {
  const p = call.ctx.number('dropout_p');
  if (p === 0) return undefined;
  if (random.position !== undefined)
    throw new ShardwrightError(
      'E_NO_KERNEL',
      `${call.ctx.target}: dropout inside of attention cannot be drawn for a part`,
      { hint: 'evaluate the whole call, or set dropout_p to 0' },
    );
  return build(shape, (i) => (p < 1 && uniform(random, i) >= p ? 1 / (1 - p) : 0));
}

interface Forward {
  readonly out: NDArray;
  readonly logSumExp: NDArray;
}

function forward(call: KernelCall, maskName: string | undefined): Forward {
  const { scores, value } = scoresOf(call, maskName);
  const probabilities = safeSoftmax(scores, -1);
  const kept = dropoutMask(call, scores.shape, call.random);
  const out = matmul(kept === undefined ? probabilities : multiply(probabilities, kept), value);
  return { out, logSumExp: reduce(scores, [scores.rank - 1], false, logSumExpOf) };
}

/**
 * Results after output and log-sum-exp: the state of the random numbers, lengths and debug masks of
 * GPU kernels.
 */
function fused(maskName: string | undefined): Kernel {
  return (call) => {
    const { out, logSumExp } = forward(call, maskName);
    const { random } = call;
    // Whichever results hold the random state, they come in the order seed, stream; nothing is
    // drawn without dropout.
    const state = call.ctx.number('dropout_p') > 0 ? [random.seed, random.stream] : [0, 0];
    return call.ctx.outputs.map((meta, i) => {
      if (meta === null) return null;
      if (i === 0) return out;
      if (i === 1) return paddedRows(logSumExp, meta.shape);
      if (meta.shape.length === 1 && meta.shape[0] === 2) return fromList([2], state, 'u64');
      return meta.shape.length === 0 ? scalar(state.shift() ?? 0, 'i64') : full(meta.shape, 0);
    });
  };
}

/**
 * The log-sum-exp as a kernel stores it: rows padded with infinity, none at all, or with a dim of 1
 * at the end.
 */
function paddedRows(x: NDArray, shape: readonly number[]): NDArray {
  if (shape.length > x.rank) return reshape(x, shape);
  const [rows, wanted] = [x.shape[x.rank - 1], shape[shape.length - 1]];
  if (wanted === 0) return full(shape, 0);
  if (wanted === rows) return x;
  return concat([x, full([...shape.slice(0, -1), wanted - rows], Infinity)], -1);
}

/** The seed and stream that the forward call returned. */
function savedRandom(call: KernelCall): RandomStream {
  const state = ['philox_seed', 'philox_offset'].flatMap((name) => {
    const saved = call.ctx.has(name) ? optional(call, name) : undefined;
    return saved === undefined ? [] : [...flat(saved)];
  });
  const [seed, stream] = state;
  return { seed, stream };
}

interface BackwardForm {
  readonly grad: string;
  readonly mask?: string;
  /** True if the call has the state of random numbers. */
  readonly random: boolean;
}

function backward({ grad, mask, random }: BackwardForm): Kernel {
  return (call) => {
    const [g, query, out, saved] = [
      tensor(call, grad),
      tensor(call, 'query'),
      tensor(call, 'out'),
      tensor(call, 'logsumexp'),
    ];
    const { scores, scale: factor, key, value } = scoresOf(call, mask);
    const lse = reshape(rowsOnly(saved, query), [...scores.shape.slice(0, -1), 1]);
    const probabilities = map2(scores, lse, (s, l) => (s === -Infinity ? 0 : Math.exp(s - l)));
    if (call.ctx.number('dropout_p') > 0 && !random)
      call.ctx.fail('has no random state, so dropout_p must be 0');
    const kept = dropoutMask(call, scores.shape, random ? savedRandom(call) : call.random);
    const dropped = (x: NDArray): NDArray => (kept === undefined ? x : multiply(x, kept));
    const gradValue = matmul(transpose(dropped(probabilities), -1, -2), g);
    const inner = sum(multiply(g, out), [out.rank - 1], true);
    const gradScores = multiply(
      probabilities,
      subtract(dropped(matmul(g, transpose(value, -1, -2))), inner),
    );
    const own = tensor(call, 'key').shape[query.rank - 3];
    const results = [
      () => scale(matmul(gradScores, key), factor),
      () => foldHeads(scale(matmul(transpose(gradScores, -1, -2), query), factor), own),
      () => foldHeads(gradValue, own),
      () => sumTo(gradScores, tensor(call, mask ?? '').shape),
    ];
    return call.ctx.outputs.map((meta, i) => (meta === null ? null : results[i]()));
  };
}

/** The log-sum-exp of the query rows alone, without padding and trailing dim. */
function rowsOnly(saved: NDArray, query: NDArray): NDArray {
  const [rows, leading] = [query.shape[query.rank - 2], query.shape.slice(0, -2)];
  const matrix = saved.rank > query.rank - 1 ? reshape(saved, [...leading, rows]) : saved;
  if (matrix.shape[matrix.rank - 1] === rows) return matrix;
  const stored = matrix.shape[matrix.rank - 1];
  const data = flat(matrix);
  return build([...leading, rows], (i) => data[Math.floor(i / rows) * stored + (i % rows)]);
}

/** The CPU's kernel has no dropout. */
const withoutDropout =
  (kernel: Kernel): Kernel =>
  (call) => {
    if (call.ctx.number('dropout_p') > 0) call.ctx.fail('has no dropout: dropout_p must be 0');
    return kernel(call);
  };

const FLASH = 'aten._scaled_dot_product_flash_attention';
const EFFICIENT = 'aten._scaled_dot_product_efficient_attention';
const CUDNN = 'aten._scaled_dot_product_cudnn_attention';

export const attentionKernels: Kernels = {
  'aten.scaled_dot_product_attention.default': one((call) => forward(call, 'attn_mask').out),
  [`${FLASH}_for_cpu.default`]: withoutDropout(fused('attn_mask')),
  [`${FLASH}_for_cpu_backward.default`]: backward({
    grad: 'grad_out',
    mask: 'attn_mask',
    random: false,
  }),
  [`${FLASH}.default`]: fused(undefined),
  [`${FLASH}_backward.default`]: backward({ grad: 'grad_out', random: true }),
  [`${EFFICIENT}.default`]: fused('attn_bias'),
  [`${EFFICIENT}_backward.default`]: backward({
    grad: 'grad_out_',
    mask: 'attn_bias',
    random: true,
  }),
  [`${CUDNN}.default`]: fused('attn_bias'),
  [`${CUDNN}_backward.default`]: backward({ grad: 'grad_out', mask: 'attn_bias', random: true }),
};
