/** Views, indexing and movement as methods of traced tensors, with symbolic sizes. */

import type { Size } from '../sizes/sizes.ts';
import type { TensorCore } from './core.ts';
import { listOf, ReducedTensor } from './reduce.ts';

/** The end that PyTorch writes for a slice without an end: the largest 64-bit integer. */
const TO_THE_END = 9223372036854775807n;

/** Views, indexing and movement. Sizes may be symbolic; negative dims count from the end. */
export abstract class ShapedTensor extends ReducedTensor {
  /** The elements in another shape; one size may be -1. */
  view(...shape: readonly Size[] | readonly [readonly Size[]]): this {
    return this.op('aten.view.default', [this, sizesOf(shape)]);
  }
  reshape(...shape: readonly Size[] | readonly [readonly Size[]]): this {
    return this.op('aten.reshape.default', [this, sizesOf(shape)]);
  }
  /** Dims `start` to `end` (inclusive) as one. */
  flatten(start = 0, end = -1): this {
    return this.op('aten.flatten.using_ints', [this, start, end]);
  }
  unflatten(dim: number, sizes: readonly Size[]): this {
    return this.op('aten.unflatten.int', [this, dim, sizes]);
  }
  permute(...dims: readonly number[] | readonly [readonly number[]]): this {
    return this.op('aten.permute.default', [this, dims.flat()]);
  }
  transpose(dim0: number, dim1: number): this {
    return this.op('aten.transpose.int', [this, dim0, dim1]);
  }
  /** Transpose of a matrix. */
  t(): this {
    return this.op('aten.t.default', [this]);
  }
  /** Broadcast to this shape; -1 keeps a size. */
  expand(...shape: readonly Size[] | readonly [readonly Size[]]): this {
    return this.op('aten.expand.default', [this, sizesOf(shape)]);
  }
  unsqueeze(dim: number): this {
    return this.op('aten.unsqueeze.default', [this, dim]);
  }
  squeeze(dim?: number | readonly number[]): this {
    if (dim === undefined) return this.op('aten.squeeze.default', [this]);
    return typeof dim === 'number'
      ? this.op('aten.squeeze.dim', [this, dim])
      : this.op('aten.squeeze.dims', [this, dim]);
  }
  contiguous(): this {
    return this.op('aten.contiguous.default', [this]);
  }
  /** The whole tensor repeated along each dim. */
  repeat(...times: readonly number[]): this {
    return this.op('aten.repeat.default', [this, times]);
  }
  /** Each element repeated along a dim. */
  repeatInterleave(times: number, dim: number): this {
    return this.op('aten.repeat_interleave.self_int', [this, times, dim]);
  }
  flip(dims: number | readonly number[]): this {
    return this.op('aten.flip.default', [this, listOf(dims)]);
  }
  roll(shifts: number | readonly number[], dims: number | readonly number[]): this {
    return this.op('aten.roll.default', [this, listOf(shifts), listOf(dims)]);
  }
  /** Zeros (or `value`) around the dims, last dim first: `[left, right, top, bottom, ...]`. */
  pad(widths: readonly number[], value = 0): this {
    return this.op('aten.constant_pad_nd.default', [this, widths, value]);
  }
  /** The lower triangle, zero above diagonal `diagonal`. */
  tril(diagonal = 0): this {
    return this.op('aten.tril.default', [this, diagonal]);
  }
  /** The upper triangle, zero below diagonal `diagonal`. */
  triu(diagonal = 0): this {
    return this.op('aten.triu.default', [this, diagonal]);
  }

  /** One entry of a dim, which disappears. */
  select(dim: number, index: number): this {
    return this.op('aten.select.int', [this, dim, index]);
  }
  /** Entries `start` to `end` (exclusive, to the end by default) of a dim. */
  slice(dim: number, start: Size, end: Size | null = null, step = 1): this {
    const args = [this, dim, start, end ?? TO_THE_END];
    return this.op('aten.slice.Tensor', step === 1 ? args : [...args, step]);
  }
  narrow(dim: number, start: number, length: Size): this {
    return this.op('aten.narrow.default', [this, dim, start, length]);
  }
  /** Pieces of `size` along a dim, the last one smaller; or of the given sizes. */
  split(size: number | readonly number[], dim = 0): this[] {
    return this.ops(
      typeof size === 'number' ? 'aten.split.Tensor' : 'aten.split_with_sizes.default',
      [this, size, dim],
    );
  }
  /** At most `count` equal pieces along a dim. */
  chunk(count: number, dim = 0): this[] {
    return this.ops('aten.chunk.default', [this, count, dim]);
  }
  /** The entries of a dim as tensors without it. */
  unbind(dim = 0): this[] {
    return this.ops('aten.unbind.int', [this, dim]);
  }

  /** `out[i][j] = this[index[i][j]][j]` for dim 0; other dims the same way. */
  gather(dim: number, index: TensorCore): this {
    return this.op('aten.gather.default', [this, dim, index]);
  }
  /** A copy where `out[index[i][j]][j] = source[i][j]`; a number is written everywhere. */
  scatter(dim: number, index: TensorCore, source: TensorCore | number): this {
    return this.op(typeof source === 'number' ? 'aten.scatter.value' : 'aten.scatter.src', [
      this,
      dim,
      index,
      source,
    ]);
  }
  /** Scatters as `scatter` does, and adds. */
  scatterAdd(dim: number, index: TensorCore, source: TensorCore): this {
    return this.op('aten.scatter_add.default', [this, dim, index, source]);
  }
  indexSelect(dim: number, index: TensorCore): this {
    return this.op('aten.index_select.default', [this, dim, index]);
  }
  /** Indexing with tensors, null for a dim taken whole: `x[rows, :, columns]`. */
  index(...indices: readonly (TensorCore | null)[]): this {
    return this.op('aten.index.Tensor', [this, indices]);
  }
  /** A copy with `values` at the indexed places; added to what is there with `accumulate`. */
  indexPut(indices: readonly (TensorCore | null)[], values: TensorCore, accumulate = false): this {
    return this.op('aten.index_put.default', [
      this,
      indices,
      values,
      ...(accumulate ? [true] : []),
    ]);
  }
  /** Rows of a one-hot matrix for integer classes. */
  oneHot(classes: Size): this {
    return this.op('aten.one_hot.default', [this, classes]);
  }
}

function sizesOf(shape: readonly Size[] | readonly [readonly Size[]]): readonly Size[] {
  const [first] = shape;
  return Array.isArray(first) ? (first as readonly Size[]) : (shape as readonly Size[]);
}
