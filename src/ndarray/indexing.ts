/** Reading and writing by arrays of indices. Indices may be negative and must be within the dim. */

import { ShardwrightError } from '../errors.ts';
import { copyFlat, flat, fromFlat, NDArray, sizeOf, stridesOf } from './array.ts';
import { broadcastShape, dimOf, expand } from './views.ts';

function within(index: number, size: number): number {
  if (index < -size || index >= size)
    throw new ShardwrightError('E_VALUE', `index ${index} is outside of a dim of ${size}`);
  return index < 0 ? index + size : index;
}

/** Row-major positions in an array of `shape` of the elements that `index` names along `dim`. */
function positionsAlong(shape: readonly number[], dim: number, index: NDArray): Float64Array {
  const strides = stridesOf(shape);
  const values = flat(index);
  const out = new Float64Array(values.length);
  if (shape.length === 0) {
    for (const v of values) within(v, 1);
    return out;
  }
  const at = new Array<number>(index.rank).fill(0);
  for (let i = 0; i < out.length; i++) {
    let position = within(values[i], shape[dim]) * strides[dim];
    for (let d = 0; d < at.length; d++) if (d !== dim) position += at[d] * strides[d];
    out[i] = position;
    for (let d = at.length - 1; d >= 0; d--) {
      if (++at[d] < index.shape[d]) break;
      at[d] = 0;
    }
  }
  return out;
}

/** `result[i, j] = x[i, index[i, j]]` for dim 1. */
export function gather(x: NDArray, dim: number, index: NDArray): NDArray {
  const positions = positionsAlong(x.shape, dimOf(dim, x.rank), index);
  const data = flat(x);
  return fromFlat(
    index.shape,
    positions.map((p) => data[p]),
    x.dtype,
  );
}

/**
 * `x[i, index[i, j]] = combine(old, source[i, j])` for dim 1; `source` may be larger than the
 * index.
 */
export function scatter(
  x: NDArray,
  dim: number,
  index: NDArray,
  source: NDArray,
  combine: (old: number, value: number) => number,
): NDArray {
  const out = copyFlat(x);
  const positions = positionsAlong(x.shape, dimOf(dim, x.rank), index);
  const part = new NDArray(
    source.dtype,
    index.shape,
    source.strides,
    source.offset,
    source.storage,
  );
  const values = flat(part);
  positions.forEach((p, i) => {
    out[p] = combine(out[p], values[i]);
  });
  return fromFlat(x.shape, out, x.dtype);
}

/**
 * The elements that `x[indices]` reads: the shape of the result and for each of its elements the
 * position in `x`.
 */
interface IndexedBlock {
  readonly shape: readonly number[];
  readonly positions: Float64Array;
}

/**
 * Index arrays by dim of `x`, null where the dim is taken whole. They broadcast together; their
 * dims replace the indexed dims if those are neighbours, and come first otherwise.
 */
export function indexedBlock(
  shape: readonly number[],
  indices: readonly (NDArray | null)[],
): IndexedBlock {
  const indexed = indices.flatMap((index, dim) => (index === null ? [] : [dim]));
  const block = broadcastShape(indices.flatMap((index) => (index === null ? [] : [index.shape])));
  const adjacent = indexed.every((dim, i) => i === 0 || dim === indexed[i - 1] + 1);
  const whole = shape.flatMap((_, dim) => (indexed.includes(dim) ? [] : [dim]));
  const insert = indexed.length === 0 || !adjacent ? 0 : indexed[0];
  const strides = stridesOf(shape);
  const sizes = whole.map((dim) => shape[dim]);
  const result = [...sizes.slice(0, insert), ...block, ...sizes.slice(insert)];
  const start = new Float64Array(sizeOf(block));
  for (const dim of indexed) {
    const index = indices[dim];
    if (index === null) continue;
    const values = flat(expand(index, block));
    for (let i = 0; i < start.length; i++) start[i] += within(values[i], shape[dim]) * strides[dim];
  }
  const outer = offsets(whole.slice(0, insert), shape, strides);
  const inner = offsets(whole.slice(insert), shape, strides);
  const positions = new Float64Array(sizeOf(result));
  let k = 0;
  for (const o of outer) for (const s of start) for (const i of inner) positions[k++] = o + s + i;
  return { shape: result, positions };
}

/** Positions of all index tuples over some dims, in row-major order. */
function offsets(
  dims: readonly number[],
  shape: readonly number[],
  strides: readonly number[],
): Float64Array {
  let list = Float64Array.of(0);
  for (const dim of dims) {
    const next = new Float64Array(list.length * shape[dim]);
    let k = 0;
    for (const base of list)
      for (let i = 0; i < shape[dim]; i++) next[k++] = base + i * strides[dim];
    list = next;
  }
  return list;
}

export function index(x: NDArray, indices: readonly (NDArray | null)[]): NDArray {
  const { shape, positions } = indexedBlock(x.shape, indices);
  const data = flat(x);
  return fromFlat(
    shape,
    positions.map((p) => data[p]),
    x.dtype,
  );
}

/**
 * A copy of `x` with `values` written or added where `indices` point; a later write to the same
 * place wins.
 */
export function indexPut(
  x: NDArray,
  indices: readonly (NDArray | null)[],
  values: NDArray,
  accumulate: boolean,
): NDArray {
  const { shape, positions } = indexedBlock(x.shape, indices);
  const out = copyFlat(x);
  const written = flat(expand(values, shape));
  for (let i = 0; i < positions.length; i++)
    out[positions[i]] = accumulate ? out[positions[i]] + written[i] : written[i];
  return fromFlat(x.shape, out, x.dtype);
}

/** Index arrays that take row `index` of one dim and everything of the others. */
export function oneDim(rank: number, dim: number, index: NDArray): (NDArray | null)[] {
  return Array.from({ length: rank }, (_, d) => (d === dimOf(dim, rank) ? index : null));
}
