/**
 * `flex_attention` and its gradients as they are written: softmax(score_mod(scale q kᵀ)) v over the
 * pairs that `mask_mod` keeps. Bodies that PyTorch runs on single numbers run on whole arrays:
 * batch, head, row and column are arrays of one dim each, which broadcast.
 */

import { build, full, type NDArray } from '../../../ndarray/array.ts';
import { map2, multiply, scale, subtract } from '../../../ndarray/elementwise.ts';
import { indexPut } from '../../../ndarray/indexing.ts';
import { matmul } from '../../../ndarray/matmul.ts';
import { logSumExpOf, maximumOf, reduce, sum, sumTo } from '../../../ndarray/reduce.ts';
import { broadcastShape, expand, reshape, transpose } from '../../../ndarray/views.ts';
import {
  type KernelCall,
  type Kernels,
  one,
  optional,
  tensor,
  tensors,
} from '../../record/kernel.ts';
import { safeSoftmax } from '../reductions/softmax.ts';
import { foldHeads, repeatHeads } from './attention.ts';

/** Results of a body that the call names, on arrays; undefined where it names none. */
function bodyResults(
  call: KernelCall,
  name: string,
  inputs: readonly NDArray[],
): readonly (NDArray | null)[] | undefined {
  const given = call.argument(name);
  if (typeof given !== 'function') return undefined;
  return given.elementwise === undefined ? given(inputs) : given.elementwise(inputs);
}

function buffers(call: KernelCall, name: string): NDArray[] {
  return tensors(call, name).flatMap((x) => x ?? []);
}

/** Numbers along one of the four dims of the scores: those given, or 0, 1, 2 ... */
function numbers(size: number, dim: number, given?: NDArray): NDArray {
  const along = given ?? build([size], (i) => i);
  return reshape(
    along,
    [0, 1, 2, 3].map((d) => (d === dim ? size : 1)),
  ).as('i32');
}

interface Scores {
  /** Scaled, before the bodies, [batch, heads, queries, keys]. */
  readonly raw: NDArray;
  /** The numbers of each pair that the bodies get: batch, head, row, column. */
  readonly places: readonly NDArray[];
  /** After both bodies; minus infinity where a pair is not kept. */
  readonly kept: NDArray;
  /** 1 where a pair is kept. */
  readonly mask: NDArray | undefined;
  readonly key: NDArray;
  readonly value: NDArray;
}

function scoresOf(call: KernelCall): Scores {
  const query = tensor(call, 'query');
  const heads = query.shape[1];
  const key = repeatHeads(tensor(call, 'key'), heads);
  const value = repeatHeads(tensor(call, 'value'), heads);
  const raw = scale(matmul(query, transpose(key, -1, -2)), call.ctx.number('scale')).as(
    query.dtype,
  );
  const places = [
    numbers(raw.shape[0], 0, optional(call, 'rows')),
    numbers(heads, 1, optional(call, 'heads')),
    numbers(raw.shape[2], 2),
    numbers(raw.shape[3], 3),
  ];
  const changed = bodyResults(call, 'score_mod', [
    raw,
    ...places,
    ...buffers(call, 'score_buffers'),
  ]);
  const scores = expand(changed?.[0] ?? raw, raw.shape);
  const mask = bodyResults(call, 'mask_mod', [...places, ...buffers(call, 'mask_buffers')])?.[0];
  const kept =
    mask === undefined || mask === null
      ? scores
      : map2(scores, mask, (s, m) => (m !== 0 ? s : -Infinity));
  return { raw, places, kept, mask: mask ?? undefined, key, value };
}

function forward(call: KernelCall): readonly NDArray[] {
  const { kept, value } = scoresOf(call);
  const out = matmul(safeSoftmax(kept, -1), value);
  const logSumExp = reduce(kept, [3], false, logSumExpOf);
  const largest = reduce(kept, [3], false, maximumOf);
  return [out, scale(logSumExp, 1 / Math.LN2), scale(largest, 1 / Math.LN2)];
}

function backward(call: KernelCall): readonly (NDArray | null)[] {
  const [query, out] = [tensor(call, 'query'), tensor(call, 'out')];
  const { raw, places, kept, mask, key, value } = scoresOf(call);
  const column = [...raw.shape.slice(0, 3), 1];
  const logSumExp = reshape(scale(tensor(call, 'logsumexp'), Math.LN2), column);
  const shares = map2(kept, logSumExp, (s, l) => (s === -Infinity ? 0 : Math.exp(s - l)));
  const grad = optional(call, 'grad_out') ?? full(out.shape, 0);
  const ofLogSumExp = optional(call, 'grad_logsumexp');
  let inner = sum(multiply(grad, out), [3], true);
  if (ofLogSumExp !== undefined)
    inner = subtract(inner, reshape(scale(ofLogSumExp, 1 / Math.LN2), column));
  const ofShares = matmul(grad, transpose(value, -1, -2));
  const ofChanged = multiply(shares, subtract(ofShares, inner)).as(raw.dtype);
  const [ofRaw, ...rest] = bodyResults(call, 'joint_mod', [
    raw,
    ...places,
    ofChanged,
    ...buffers(call, 'score_buffers'),
  ]) ?? [ofChanged];
  const masked =
    mask === undefined
      ? (ofRaw ?? full(raw.shape, 0))
      : map2(expand(ofRaw ?? full([], 0), raw.shape), mask, (s, m) => (m !== 0 ? s : 0));
  const ofScores = scale(expand(masked, raw.shape), call.ctx.number('scale'));
  const own = tensor(call, 'key').shape[1];
  const results = [
    matmul(ofScores, key),
    foldHeads(matmul(transpose(ofScores, -1, -2), query), own),
    foldHeads(matmul(transpose(shares, -1, -2), grad), own),
    // Behind the gradients of batch, head, row and column, which are none.
    ...rest.slice(places.length),
  ];
  return call.ctx.outputs.map((meta, i) =>
    meta === null ? null : sumTo(results[i] ?? full(meta.shape, 0), meta.shape),
  );
}

export const flexAttentionKernels: Kernels = {
  flex_attention: forward,
  flex_attention_backward: backward,
  'flex_lib.zeros_and_scatter.default': one((call) => {
    const [indices, values] = [buffers(call, 'indices'), tensor(call, 'vals')];
    const shape = broadcastShape([values.shape, ...indices.map((index) => index.shape)]);
    return indexPut(
      full(call.ctx.ints('shape'), 0, values.dtype),
      indices.map((index) => expand(index, shape)),
      values,
      true,
    );
  }),
};
