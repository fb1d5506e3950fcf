/**
 * Takes a call that runs alone, as PyTorch runs a program call by call, and gives what its kernels
 * move and how many they are, where that is more than every tensor once. The forms are those of
 * PyTorch's CUDA sources (2.11: `SoftMax.cu`, `layer_norm_kernel.cu`, `Embedding.cu`,
 * `EmbeddingBackwardKernel.cu`).
 */

import { DTYPE_BYTES } from '../../graph/types.ts';
import {
  elements,
  metaBytes,
  type OperatorRecord,
  type TypedContext,
} from '../../ops/record/record.ts';
import type { BodyTraffic } from '../../ops/record/rule.ts';

/**
 * Shared memory of a block on NVIDIA devices without asking for more: rows that fit are read once
 * by softmax.
 */
const SHARED_BYTES = 48 * 1024;
/**
 * Indices up to which the gradient of a table is one kernel behind its zeros; above, indices are
 * sorted first.
 */
const UNSORTED_INDICES = 3072;
/** Kernels of the gradient of a table with sorted indices, as traces of PyTorch 2.11 have them. */
const SORTED_KERNELS = 31;
/**
 * Time of a cast from 16 to 32 bits over that of other kernels of as many bytes: loads of a cast
 * are as narrow as what it reads. The mean of four calls in `data/calibration/h100-sxm-80gb.json`.
 */
const WIDENING = 1.36;

const SOFTMAX = /^aten\.(_softmax|_log_softmax|softmax|log_softmax|_safe_softmax)\./;
const SOFTMAX_BACKWARD = /^aten\.(_softmax|_log_softmax)_backward_data\./;
const NORM_BACKWARD = /^aten\.(_fused_rms_norm|native_layer_norm)_backward\./;
const CAST = /^aten\.(_to_copy|to)\./;

/** Bytes and kernels of a call that no compiler joins with others. */
export function eagerWork(record: OperatorRecord, ctx: TypedContext): BodyTraffic {
  const { name } = record;
  const bytes = record.bytes(ctx);
  if (SOFTMAX.test(name)) return { bytes: bytes + softmaxAgain(ctx), kernels: 1 };
  if (SOFTMAX_BACKWARD.test(name)) return softmaxBackward(ctx, bytes, name.includes('log'));
  if (NORM_BACKWARD.test(name)) return normBackward(ctx, bytes);
  if (CAST.test(name) && isWidening(ctx)) return { bytes: WIDENING * bytes, kernels: 1 };
  if (name === 'aten.embedding_dense_backward.default')
    return {
      bytes,
      kernels: elements(ctx.inputs[1].shape) > UNSORTED_INDICES ? SORTED_KERNELS : 2,
    };
  return { bytes, kernels: 1 };
}

/**
 * Tells whether a softmax reads its rows from memory in every pass; along an inner dim columns stay
 * in caches.
 */
function hasLongRows(ctx: TypedContext): boolean {
  const { dtype, shape } = ctx.inputs[0];
  if (shape.length === 0) return false;
  const dim = (ctx.int('dim') + shape.length) % shape.length;
  return dim === shape.length - 1 && shape[dim] * DTYPE_BYTES[dtype] > SHARED_BYTES;
}

/** Passes over long rows behind the first: the sum of exponentials, and the result. */
function softmaxAgain(ctx: TypedContext): number {
  return hasLongRows(ctx) ? 2 * metaBytes(ctx.inputs[0]) : 0;
}

/**
 * A softmax first multiplies gradient and result in a kernel whose product replaces the gradient;
 * values that are summed over long rows are read again for the result.
 */
function softmaxBackward(ctx: TypedContext, bytes: number, isLog: boolean): BodyTraffic {
  const gradient = metaBytes(ctx.inputs[0]);
  const again = hasLongRows(ctx) ? gradient : 0;
  if (isLog) return { bytes: bytes + again, kernels: 1 };
  return { bytes: bytes + again + 2 * gradient + metaBytes(ctx.inputs[1]), kernels: 2 };
}

/**
 * Gradients of weights are sums across rows in a kernel of its own, which reads gradient and input
 * again.
 */
function normBackward(ctx: TypedContext, bytes: number): BodyTraffic {
  if (ctx.outputs[0] === null || ctx.outputs.slice(1).every((meta) => meta === null))
    return { bytes, kernels: 1 };
  return { bytes: bytes + metaBytes(ctx.inputs[0]) + metaBytes(ctx.inputs[1]), kernels: 3 };
}

function isWidening(ctx: TypedContext): boolean {
  const [input] = ctx.inputs;
  const [output] = ctx.outputs;
  if (input === undefined || output === undefined || output === null) return false;
  return (input.dtype === 'bf16' || input.dtype === 'f16') && output.dtype === 'f32';
}
