/** Reading and writing by index, and lookup tables. */

import { copyFlat, flat, fromFlat, full, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import { map, scale } from '../../../ndarray/elementwise.ts';
import {
  gather,
  index,
  indexedBlock,
  indexPut,
  oneDim,
  scatter,
} from '../../../ndarray/indexing.ts';
import { expand } from '../../../ndarray/views.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  resultShape,
  tensor,
  tensors,
  valueError,
} from '../../record/kernel.ts';

const replace = (_: number, value: number): number => value;
const plus = (old: number, value: number): number => old + value;

const scattering = (source: (call: KernelCall) => NDArray, combine: typeof plus): Kernel =>
  one((call) =>
    scatter(
      tensor(call, 'self'),
      call.ctx.int('dim'),
      tensor(call, 'index'),
      source(call),
      combine,
    ),
  );

/** A number read wherever the index asks. */
const valueEverywhere = (call: KernelCall): NDArray =>
  full(tensor(call, 'index').shape, call.ctx.number('value'));

/** Adds where the mask is set; elsewhere the index may be anything. */
const maskedIndexPut: Kernel = one((call) => {
  const self = tensor(call, 'self');
  const wrapped = tensors(call, 'indices').map((at, dim) => {
    if (at === null) return null;
    const size = self.shape[dim];
    return map(at, (i) => ((i % size) + size) % size);
  });
  const { shape, positions } = indexedBlock(self.shape, wrapped);
  const [mask, values] = [
    flat(expand(tensor(call, 'mask'), shape)),
    flat(expand(tensor(call, 'values'), shape)),
  ];
  const out = copyFlat(self);
  positions.forEach((p, i) => {
    if (mask[i] !== 0) out[p] += values[i];
  });
  return fromFlat(self.shape, out, self.dtype);
});

/** Rows of `self` along `dim` that a one-dim index names, replaced by or increased by `source`. */
const rowWrite = (source: (call: KernelCall) => NDArray, accumulate: boolean): Kernel =>
  one((call) => {
    const self = tensor(call, 'self');
    const at = tensor(call, 'index');
    const positions = at.rank === 0 ? fromFlat([1], copyFlat(at), at.dtype) : at;
    if (self.rank === 0) {
      const [value] = flat(source(call));
      return map(self, (old) => (accumulate ? old + value * positions.size : value));
    }
    return indexPut(
      self,
      oneDim(self.rank, call.ctx.int('dim'), positions),
      source(call),
      accumulate,
    );
  });

const embedding: Kernel = one((call) => {
  const [weight, indices] = [tensor(call, 'weight'), tensor(call, 'indices')];
  for (const i of flat(indices)) if (i < 0) valueError(call, `index ${i} is negative`);
  return index(weight, [indices]);
});

/** Rows of the gradient added up by index; the padding index collects nothing. */
const embeddingBackward: Kernel = one((call) => {
  const { ctx } = call;
  const [grad, indices] = [tensor(call, 'grad_output'), flat(tensor(call, 'indices'))];
  const [rows, padding] = [ctx.int('num_weights'), ctx.int('padding_idx')];
  const width = grad.shape[grad.rank - 1];
  const counts = new Float64Array(rows);
  for (const i of indices) {
    if (i < 0 || i >= rows) valueError(call, `index ${i} is not among ${rows} rows`);
    counts[i]++;
  }
  const data = flat(grad);
  const out = new Float64Array(rows * width);
  indices.forEach((row, i) => {
    if (row === padding) return;
    const share = ctx.bool('scale_grad_by_freq') ? 1 / counts[row] : 1;
    for (let j = 0; j < width; j++) out[row * width + j] += data[i * width + j] * share;
  });
  return fromFlat([rows, width], out);
});

const oneHot: Kernel = one((call) => {
  const classes = call.ctx.int('num_classes');
  const labels = flat(tensor(call, 'self'));
  const out = new Float64Array(sizeOf(resultShape(call)));
  labels.forEach((label, i) => {
    if (label < 0 || label >= classes) valueError(call, `${label} is not among ${classes} classes`);
    out[i * classes + label] = 1;
  });
  return fromFlat(resultShape(call), out, 'i64');
});

const source = (call: KernelCall): NDArray => tensor(call, 'source');

export const indexingKernels: Kernels = {
  'aten.index.Tensor': one((call) => index(tensor(call, 'self'), tensors(call, 'indices'))),
  'aten.index_put.default': one((call) =>
    indexPut(
      tensor(call, 'self'),
      tensors(call, 'indices'),
      tensor(call, 'values'),
      call.ctx.bool('accumulate'),
    ),
  ),
  'aten._unsafe_masked_index_put_accumulate.default': maskedIndexPut,
  'aten.gather.default': one((call) =>
    gather(tensor(call, 'self'), call.ctx.int('dim'), tensor(call, 'index')),
  ),
  'aten.scatter.src': scattering((call) => tensor(call, 'src'), replace),
  'aten.scatter.value': scattering(valueEverywhere, replace),
  'aten.scatter_add.default': scattering((call) => tensor(call, 'src'), plus),
  'aten.index_select.default': one((call) => {
    const [self, at] = [tensor(call, 'self'), tensor(call, 'index')];
    if (self.rank === 0) return self;
    const positions = at.rank === 0 ? fromFlat([1], copyFlat(at), at.dtype) : at;
    return index(self, oneDim(self.rank, call.ctx.int('dim'), positions));
  }),
  'aten.index_add.default': rowWrite((call) => scale(source(call), call.ctx.number('alpha')), true),
  'aten.index_copy.default': rowWrite(source, false),
  'aten.index_fill.int_Scalar': rowWrite((call) => full([], call.ctx.number('value')), false),
  'aten.embedding.default': embedding,
  'aten.embedding_dense_backward.default': embeddingBackward,
  'aten.one_hot.default': oneHot,
};
