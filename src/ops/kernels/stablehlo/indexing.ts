/**
 * `gather` and `scatter` by their dimension numbers. A gather's windows are moved
 * inside of the operand; a scatter drops those that do not lie in it, whole, as XLA does.
 */

import {
  copyFlat,
  flat,
  fromFlat,
  type NDArray,
  sizeOf,
  stridesOf,
} from '../../../ndarray/array.ts';
import {
  advance,
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  resultShape,
  tensor,
  tensors,
} from '../../record/kernel.ts';
import { reducerOf } from './products.ts';

interface Indices {
  readonly values: Float64Array;
  readonly strides: readonly number[];
  readonly vector: number;
  /** Stride from one entry of an index vector to the next. */
  readonly step: number;
}

function indicesOf(call: KernelCall, name: string): Indices {
  const x = tensor(call, name);
  const vector = call.ctx.int('index_vector_dim');
  const strides = stridesOf(x.shape);
  return { values: flat(x), strides, vector, step: vector < x.rank ? strides[vector] : 0 };
}

/**
 * Position of the first entry of the index vector at an index over the other dims of the indices.
 */
function vectorAt(indices: Indices, batch: readonly number[]): number {
  let position = 0;
  let k = 0;
  indices.strides.forEach((stride, d) => {
    if (d !== indices.vector) position += stride * batch[k++];
  });
  return position;
}

/** The place of a dim of the indices among those that are not the index vector. */
const without = (vector: number, dim: number): number => (dim > vector ? dim - 1 : dim);

interface Numbers {
  /** Result (or update) dims that run over windows, and operand dims that they run over. */
  readonly windows: readonly number[];
  readonly windowDims: readonly number[];
  readonly indexMap: readonly number[];
  readonly batching: readonly number[];
  readonly indexBatching: readonly number[];
}

/** Splits an index into its window part, by operand dim, and its batch part. */
function split(
  at: readonly number[],
  n: Numbers,
  rank: number,
): { offset: number[]; batch: number[] } {
  const offset = new Array<number>(rank).fill(0);
  const batch: number[] = [];
  at.forEach((i, d) => {
    const k = n.windows.indexOf(d);
    if (k < 0) batch.push(i);
    else offset[n.windowDims[k]] = i;
  });
  return { offset, batch };
}

/** Start of the window in every operand dim. */
function startOf(indices: Indices, batch: readonly number[], n: Numbers, rank: number): number[] {
  const start = new Array<number>(rank).fill(0);
  const first = vectorAt(indices, batch);
  n.indexMap.forEach((dim, k) => (start[dim] = indices.values[first + k * indices.step]));
  n.batching.forEach((dim, k) => (start[dim] = batch[without(indices.vector, n.indexBatching[k])]));
  return start;
}

function numbers(
  call: KernelCall,
  rank: number,
  names: readonly [string, string, string, string, string],
): Numbers {
  const [windows, gone, indexMap, batching, indexBatching] = names.map((name) =>
    call.ctx.ints(name),
  );
  const windowDims = Array.from({ length: rank }, (_, d) => d).filter(
    (d) => !gone.includes(d) && !batching.includes(d),
  );
  return { windows, windowDims, indexMap, batching, indexBatching };
}

const gather: Kernel = one((call) => {
  const x = tensor(call, 'operand');
  const indices = indicesOf(call, 'start_indices');
  const n = numbers(call, x.rank, [
    'offset_dims',
    'collapsed_slice_dims',
    'start_index_map',
    'operand_batching_dims',
    'start_indices_batching_dims',
  ]);
  const sizes = call.ctx.ints('slice_sizes');
  const shape = resultShape(call);
  const [data, strides, out] = [flat(x), stridesOf(x.shape), new Float64Array(sizeOf(shape))];
  const at = new Array<number>(shape.length).fill(0);
  for (let k = 0; k < out.length; k++) {
    const { offset, batch } = split(at, n, x.rank);
    const start = startOf(indices, batch, n, x.rank);
    let position = 0;
    for (let d = 0; d < x.rank; d++)
      position += strides[d] * (Math.min(Math.max(start[d], 0), x.shape[d] - sizes[d]) + offset[d]);
    out[k] = data[position];
    advance(at, shape);
  }
  return fromFlat(shape, out, x.dtype);
});

const scatter: Kernel = one((call) => {
  const [inputs, updates] = [tensors(call, 'inputs'), tensors(call, 'updates')];
  const [x, update] = [inputs[0], updates[0]];
  if (inputs.length !== 1 || x === null || update === null)
    return call.ctx.fail('is evaluated with one input only');
  return written(call, x, update);
});

function written(call: KernelCall, x: NDArray, update: NDArray): NDArray {
  const indices = indicesOf(call, 'scatter_indices');
  const n = numbers(call, x.rank, [
    'update_window_dims',
    'inserted_window_dims',
    'scatter_dims_to_operand_dims',
    'input_batching_dims',
    'scatter_indices_batching_dims',
  ]);
  const f = reducerOf(call, x.kind === 'bool');
  const [values, strides, out] = [flat(update), stridesOf(x.shape), copyFlat(x)];
  const sizes = split(update.shape, n, x.rank).offset.map((size, d) =>
    n.windowDims.includes(d) ? size : 1,
  );
  const at = new Array<number>(update.rank).fill(0);
  for (const value of values) {
    const { offset, batch } = split(at, n, x.rank);
    const start = startOf(indices, batch, n, x.rank);
    if (start.every((first, d) => first >= 0 && first + sizes[d] <= x.shape[d])) {
      const position = start.reduce((sum, first, d) => sum + (first + offset[d]) * strides[d], 0);
      out[position] = f(out[position], value);
    }
    advance(at, update.shape);
  }
  return fromFlat(x.shape, out, x.dtype);
}

export const stablehloIndexingKernels: Kernels = {
  'stablehlo.gather': gather,
  'stablehlo.scatter': scatter,
};
