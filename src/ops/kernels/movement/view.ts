/** Views: other sizes over the same values. */

import type { NDArray } from '../../../ndarray/array.ts';
import {
  broadcastShape,
  diagonal,
  dimOf,
  expand,
  moveDim,
  permute,
  reshape,
  rows,
  select,
  slice,
  squeeze,
  transpose,
  unsqueeze,
} from '../../../ndarray/views.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  named,
  one,
  resultShape,
  tensor,
  tensors,
} from '../../record/kernel.ts';

const self = (call: KernelCall): NDArray => tensor(call, 'self');

/** The result's shape says it all. */
const reshaped = one((call) => reshape(self(call), resultShape(call)));

/** Dims of `source` at the places `destination`, the rest in order. */
function movedTo(x: NDArray, source: readonly number[], destination: readonly number[]): NDArray {
  const from = source.map((d) => dimOf(d, x.rank));
  const order = new Array<number>(x.rank).fill(-1);
  destination.forEach((d, i) => (order[dimOf(d, x.rank)] = from[i]));
  const rest = x.shape.map((_, d) => d).filter((d) => !from.includes(d));
  return permute(
    x,
    order.map((d) => (d < 0 ? (rest.shift() ?? 0) : d)),
  );
}

/** Consecutive runs of rows, as long as the results are. */
const splitUp: Kernel = (call) => {
  const x = self(call);
  const dim = dimOf(call.ctx.int('dim'), x.rank);
  let start = 0;
  return call.ctx.outputs.map((_, k) => {
    const count = resultShape(call, k)[dim];
    start += count;
    return rows(x, dim, start - count, count);
  });
};

/** The rows that the arguments `start`, `end` and `step` of a call name, of any array. */
export const sliced = (call: KernelCall, x: NDArray): NDArray => {
  const { ctx } = call;
  return slice(
    x,
    ctx.int('dim'),
    ctx.optionalInt('start'),
    ctx.optionalInt('end'),
    ctx.int('step'),
  );
};

export const viewKernels: Kernels = {
  ...named(
    'view.default _unsafe_view.default reshape.default flatten.using_ints unflatten.int',
    reshaped,
  ),
  'aten.t.default': one((call) => (self(call).rank < 2 ? self(call) : transpose(self(call), 0, 1))),
  'aten.transpose.int': one((call) =>
    transpose(self(call), call.ctx.int('dim0'), call.ctx.int('dim1')),
  ),
  'aten.permute.default': one((call) => permute(self(call), call.ctx.ints('dims'))),
  'aten.movedim.int': one((call) =>
    moveDim(self(call), call.ctx.int('source'), call.ctx.int('destination')),
  ),
  'aten.movedim.intlist': one((call) =>
    movedTo(self(call), call.ctx.ints('source'), call.ctx.ints('destination')),
  ),
  'aten.numpy_T.default': one((call) =>
    permute(
      self(call),
      self(call)
        .shape.map((_, d) => d)
        .reverse(),
    ),
  ),
  'aten.mT.default': one((call) => transpose(self(call), -1, -2)),
  ...named(
    'expand.default expand_as.default',
    one((call) => expand(self(call), resultShape(call))),
  ),
  'aten.broadcast_tensors.default': (call) => {
    const list = tensors(call, 'tensors').filter((x) => x !== null);
    const shape = broadcastShape(list.map((x) => x.shape));
    return list.map((x) => expand(x, shape));
  },
  'aten.unsqueeze.default': one((call) => unsqueeze(self(call), call.ctx.int('dim'))),
  'aten.diagonal.default': one((call) =>
    diagonal(self(call), call.ctx.int('offset'), call.ctx.int('dim1'), call.ctx.int('dim2')),
  ),
  'aten.squeeze.default': one((call) => squeeze(self(call))),
  'aten.squeeze.dim': one((call) => squeeze(self(call), [call.ctx.int('dim')])),
  'aten.squeeze.dims': one((call) => squeeze(self(call), call.ctx.ints('dim'))),
  ...named('split.Tensor split.sizes split_with_sizes.default chunk.default', splitUp),
  'aten.unbind.int': (call) => {
    const x = self(call);
    const dim = dimOf(call.ctx.int('dim'), x.rank);
    return Array.from({ length: x.shape[dim] }, (_, i) => select(x, dim, i));
  },
  'aten.slice.Tensor': one((call) => sliced(call, self(call))),
  'aten.narrow.default': one((call) => {
    const x = self(call);
    const dim = dimOf(call.ctx.int('dim'), x.rank);
    const start = call.ctx.int('start');
    return rows(x, dim, start < 0 ? start + x.shape[dim] : start, call.ctx.int('length'));
  }),
  'aten.select.int': one((call) => select(self(call), call.ctx.int('dim'), call.ctx.int('index'))),
};
