/** Softmax along a dim, its logarithm, and their gradients. */

import type { NDArray } from '../../../ndarray/array.ts';
import { map, map2, multiply, subtract } from '../../../ndarray/elementwise.ts';
import { alongOne, maximumOf, reduce, sum } from '../../../ndarray/reduce.ts';
import { dimOf } from '../../../ndarray/views.ts';
import { type KernelCall, type Kernels, named, one, tensor } from '../../record/kernel.ts';

/** Relative to the largest value of each run. A run of minus infinities gives NaN. */
function softmax(x: NDArray, dim: number): NDArray {
  return alongOne(x, dim, (input, start, length, result, out) => {
    if (length === 0) return;
    const largest = maximumOf(input, start, start + length);
    let total = 0;
    for (let i = 0; i < length; i++)
      total += result[out + i] = Math.exp(input[start + i] - largest);
    for (let i = 0; i < length; i++) result[out + i] /= total;
  });
}

/** As `softmax`: a run with an infinity that decides it gives NaN throughout, as in PyTorch. */
export function logSoftmax(x: NDArray, dim: number): NDArray {
  return alongOne(x, dim, (input, start, length, result, out) => {
    if (length === 0) return;
    const largest = maximumOf(input, start, start + length);
    let total = 0;
    for (let i = 0; i < length; i++) total += Math.exp(input[start + i] - largest);
    const log = Math.log(total);
    for (let i = 0; i < length; i++) result[out + i] = input[start + i] - largest - log;
  });
}

/** Zero where a whole run is masked out. */
export function safeSoftmax(x: NDArray, dim: number): NDArray {
  const dims = x.rank === 0 ? [] : [dimOf(dim, x.rank)];
  if (x.size === 0) return x;
  const masked = map(reduce(x, dims, true, maximumOf), (v) => (v === -Infinity ? 1 : 0));
  return map2(masked, softmax(x, dim), (m, v) => (m !== 0 ? 0 : v));
}

const dimsOf = (call: KernelCall, x: NDArray): number[] =>
  x.rank === 0 ? [] : [dimOf(call.ctx.int('dim'), x.rank)];

export const softmaxKernels: Kernels = {
  ...named(
    '_softmax.default softmax.int',
    one((call) => softmax(tensor(call, 'self'), call.ctx.int('dim'))),
  ),
  ...named(
    '_log_softmax.default log_softmax.int',
    one((call) => logSoftmax(tensor(call, 'self'), call.ctx.int('dim'))),
  ),
  'aten._safe_softmax.default': one((call) =>
    safeSoftmax(tensor(call, 'self'), call.ctx.int('dim')),
  ),
  'aten._softmax_backward_data.default': one((call) => {
    const [grad, output] = [tensor(call, 'grad_output'), tensor(call, 'output')];
    const total = sum(multiply(grad, output), dimsOf(call, grad), true);
    return multiply(output, subtract(grad, total));
  }),
  'aten._log_softmax_backward_data.default': one((call) => {
    const [grad, output] = [tensor(call, 'grad_output'), tensor(call, 'output')];
    const total = sum(grad, dimsOf(call, grad), true);
    return subtract(grad, multiply(map(output, Math.exp), total));
  }),
};
