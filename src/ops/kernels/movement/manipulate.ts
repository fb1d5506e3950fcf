/** Joining, scattering into slices, rearranging, padding, repeating and sorting. */

import { build, contiguous, flat, full, type NDArray } from '../../../ndarray/array.ts';
import { cast } from '../../../ndarray/elementwise.ts';
import { sort } from '../../../ndarray/sort.ts';
import {
  concat,
  dimOf,
  expand,
  flip,
  overwrite,
  reshape,
  rows,
  select,
  unsqueeze,
} from '../../../ndarray/views.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  resultShape,
  resultType,
  tensor,
  tensors,
} from '../../record/kernel.ts';
import { sliced } from './view.ts';

const self = (call: KernelCall): NDArray => tensor(call, 'self');

const cat: Kernel = one((call) => {
  const dtype = resultType(call);
  const list = tensors(call, 'tensors').filter((x) => x !== null);
  // An empty vector joins with anything.
  const real = list.filter((x) => !(x.rank === 1 && x.size === 0));
  const parts = real.length === 0 ? list.slice(0, 1) : real;
  return concat(
    parts.map((x) => cast(x, dtype)),
    call.ctx.int('dim'),
  );
});

const stack: Kernel = one((call) => {
  const list = tensors(call, 'tensors').filter((x) => x !== null);
  const dim = dimOf(call.ctx.int('dim'), list[0].rank + 1);
  return concat(
    list.map((x) => unsqueeze(cast(x, resultType(call)), dim)),
    dim,
  );
});

/** Zeros with the gradient written over the window that was read. */
const windowGradient = (window: (call: KernelCall, x: NDArray) => NDArray): Kernel =>
  one((call) =>
    overwrite(
      full(call.ctx.ints('input_sizes'), 0),
      (x) => window(call, x),
      tensor(call, 'grad_output'),
    ),
  );

const windowWrite = (window: (call: KernelCall, x: NDArray) => NDArray): Kernel =>
  one((call) => overwrite(self(call), (x) => window(call, x), tensor(call, 'src')));

const selected = (call: KernelCall, x: NDArray): NDArray =>
  select(x, call.ctx.int('dim'), call.ctx.int('index'));

/** Rows moved on by `shift`, the last ones to the front. */
function rolled(x: NDArray, shift: number, dim: number): NDArray {
  const size = x.shape[dim];
  const cut = size === 0 ? 0 : ((-shift % size) + size) % size;
  return cut === 0 ? x : concat([rows(x, dim, cut, size - cut), rows(x, dim, 0, cut)], dim);
}

const roll: Kernel = one((call) => {
  const x = self(call);
  const [shifts, dims] = [call.ctx.ints('shifts'), call.ctx.ints('dims')];
  if (dims.length === 0) return reshape(rolled(reshape(x, [x.size]), shifts[0], 0), x.shape);
  return dims.reduce((turned, dim, i) => rolled(turned, shifts[i], dimOf(dim, x.rank)), x);
});

const triangle = (keeps: (column: number, edge: number) => boolean): Kernel =>
  one((call) => {
    const x = self(call);
    const [height, width] = x.shape.slice(-2);
    const offset = call.ctx.int('diagonal');
    const data = flat(x);
    return build(
      x.shape,
      (i) => (keeps(i % width, (Math.floor(i / width) % height) + offset) ? data[i] : 0),
      x.dtype,
    );
  });

/** Pairs of sizes before and after, from the last dim on; a negative one cuts. */
const constantPad: Kernel = one((call) => {
  const pad = call.ctx.ints('pad');
  let x = self(call);
  const last = x.rank - 1;
  const shape = resultShape(call);
  let out = cast(full(shape, call.ctx.number('value')), resultType(call));
  const starts: number[] = new Array<number>(x.rank).fill(0);
  for (let k = 0; k < pad.length / 2; k++) {
    const [before, after, dim] = [pad[2 * k], pad[2 * k + 1], last - k];
    const cut = Math.max(0, -before);
    x = rows(x, dim, cut, Math.max(0, x.shape[dim] - cut - Math.max(0, -after)));
    starts[dim] = Math.max(0, before);
  }
  if (x.size > 0)
    out = overwrite(
      out,
      (whole) => starts.reduce((view, start, dim) => rows(view, dim, start, x.shape[dim]), whole),
      x,
    );
  return out;
});

/** Every dim of the result is a dim of repeats times a dim of the input. */
const repeat: Kernel = one((call) => {
  const x = self(call);
  const times = call.ctx.ints('repeats');
  const sizes = [...new Array<number>(times.length - x.rank).fill(1), ...x.shape];
  const apart = reshape(
    x,
    sizes.flatMap((n) => [1, n]),
  );
  return reshape(
    expand(
      apart,
      sizes.flatMap((n, d) => [times[d], n]),
    ),
    resultShape(call),
  );
});

const repeatInterleave: Kernel = one((call) => {
  const times = call.ctx.int('repeats');
  const dim = call.ctx.optionalInt('dim');
  const x = dim === undefined ? reshape(self(call), [self(call).size]) : self(call);
  const at = dimOf(dim ?? 0, x.rank);
  const apart = unsqueeze(x, at + 1);
  return reshape(
    expand(
      apart,
      apart.shape.map((n, d) => (d === at + 1 ? times : n)),
    ),
    resultShape(call),
  );
});

const sorting: Kernel = (call) =>
  sort(self(call), call.ctx.int('dim'), call.ctx.bool('descending'));

export const manipulateKernels: Kernels = {
  'aten.cat.default': cat,
  'aten.stack.default': stack,
  'aten.slice_backward.default': windowGradient(sliced),
  'aten.slice_scatter.default': windowWrite(sliced),
  'aten.select_backward.default': windowGradient(selected),
  'aten.select_scatter.default': windowWrite(selected),
  'aten.flip.default': one((call) => contiguous(flip(self(call), call.ctx.ints('dims')))),
  'aten.roll.default': roll,
  'aten.tril.default': triangle((column, edge) => column <= edge),
  'aten.triu.default': triangle((column, edge) => column >= edge),
  'aten.constant_pad_nd.default': constantPad,
  'aten.repeat.default': repeat,
  'aten.repeat_interleave.self_int': repeatInterleave,
  'aten.sort.default': sorting,
  'aten.sort.stable': sorting,
  'aten.argsort.default': (call) => sorting(call).slice(1),
  'aten.topk.default': (call) =>
    sort(self(call), call.ctx.int('dim'), call.ctx.bool('largest'), call.ctx.int('k')),
};
