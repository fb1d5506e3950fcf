/**
 * Attention of packed sequences and its gradients as they are written: scores of all pairs, minus
 * infinity where two rows belong to different sequences or lie outside of the window. Windows and
 * causal masks are counted from the ends of both sequences. Rows behind the last sequence, and rows
 * that read nothing, give zeros.
 */

import { build, flat, full, type NDArray } from '../../../ndarray/array.ts';
import { map2, multiply, scale, subtract } from '../../../ndarray/elementwise.ts';
import { matmul } from '../../../ndarray/matmul.ts';
import { logSumExpOf, reduce, sum } from '../../../ndarray/reduce.ts';
import { reshape, transpose } from '../../../ndarray/views.ts';
import { type KernelCall, type Kernels, optional, tensor } from '../../record/kernel.ts';
import { safeSoftmax } from '../reductions/softmax.ts';
import { foldHeads, repeatHeads } from './attention.ts';

/** The sequence of each row by its number, and how far behind the row it ends. */
function places(starts: NDArray, rows: number): (readonly [sequence: number, left: number])[] {
  const ends = flat(starts).slice(1);
  return Array.from({ length: rows }, (_, row) => {
    const sequence = ends.findIndex((end) => row < end);
    return [row < flat(starts)[0] ? -1 : sequence, (ends[sequence] ?? 0) - row];
  });
}

interface Scores {
  /** Scaled, minus infinity where a row does not read another, [heads, queries, keys]. */
  readonly scores: NDArray;
  readonly factor: number;
  /** Tensors with the heads in front: [heads, rows, channels]. */
  readonly query: NDArray;
  readonly key: NDArray;
  readonly value: NDArray;
}

const headsFirst = (x: NDArray): NDArray => transpose(x, 0, 1);

function scoresOf(call: KernelCall): Scores {
  const { ctx } = call;
  const query = headsFirst(tensor(call, 'query'));
  const [heads, queries, channels] = query.shape;
  const [key, value] = ['key', 'value'].map((name) =>
    repeatHeads(headsFirst(tensor(call, name)), heads),
  );
  const [, keys] = key.shape;
  const factor = ctx.optionalNumber('scale') ?? 1 / Math.sqrt(channels);
  const own = tensor(call, 'cu_seq_q');
  const rows = places(own, queries);
  const columns = places(optional(call, 'cu_seq_k') ?? own, keys);
  const [left, right] = ctx.optionalInts('window_size') ?? [-1, -1];
  const last = ctx.bool('is_causal') ? 0 : right;
  const reads = (row: number, column: number): boolean => {
    const [[sequence, behind], [other, after]] = [rows[row], columns[column]];
    const ahead = behind - after;
    if (sequence < 0 || sequence !== other) return false;
    return (left < 0 || ahead >= -left) && (last < 0 || ahead <= last);
  };
  const mask = build([queries, keys], (i) => Number(reads(Math.floor(i / keys), i % keys)));
  const all = scale(matmul(query, transpose(key, -1, -2)), factor);
  const scores = map2(all, mask, (s, m) => (m === 0 ? -Infinity : s));
  return { scores, factor, query, key, value };
}

function forward(call: KernelCall): readonly NDArray[] {
  const { scores, value } = scoresOf(call);
  return [
    headsFirst(matmul(safeSoftmax(scores, -1), value)),
    reduce(scores, [2], false, logSumExpOf),
    full([2], 0, 'u64'),
  ];
}

function backward(call: KernelCall): readonly NDArray[] {
  const { scores, factor, query, key, value } = scoresOf(call);
  const [grad, out] = ['grad_out', 'out'].map((name) => headsFirst(tensor(call, name)));
  const lse = reshape(tensor(call, 'lse'), [...scores.shape.slice(0, 2), 1]);
  const shares = map2(scores, lse, (s, l) => (s === -Infinity ? 0 : Math.exp(s - l)));
  const inner = sum(multiply(grad, out), [2], true);
  const ofShares = matmul(grad, transpose(value, -1, -2));
  const ofScores = scale(multiply(shares, subtract(ofShares, inner)), factor);
  const heads = tensor(call, 'key').shape[1];
  return [
    matmul(ofScores, key),
    foldHeads(matmul(transpose(ofScores, -1, -2), query), heads),
    foldHeads(matmul(transpose(shares, -1, -2), grad), heads),
  ].map(headsFirst);
}

export const varlenAttentionKernels: Kernels = {
  'torch_attn._varlen_attn.default': forward,
  'torch_attn._varlen_attn_backward.default': backward,
};
