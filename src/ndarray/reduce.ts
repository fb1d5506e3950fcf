/** Reductions over dims and functions along one dim. */

import { ShardwrightError } from '../errors.ts';
import { copyFlat, type ElementType, flat, fromFlat, type NDArray, sizeOf } from './array.ts';
import { dimOf, moveDim, permute } from './views.ts';

/** Reduces a run of values, `data[start]` to `data[end - 1]`. */
export type RowReduction = (data: Float64Array, start: number, end: number) => number;

/** Dims of a reduction, counted from the front; none given means all. */
export function reducedDims(dims: readonly number[] | undefined, rank: number): number[] {
  if (dims === undefined || dims.length === 0) return Array.from({ length: rank }, (_, d) => d);
  return [...new Set(dims.map((d) => dimOf(d, rank)))]
    .filter((d) => d < rank)
    .sort((a, b) => a - b);
}

/** Each result is the reduction of one run over the named dims. */
export function reduce(
  x: NDArray,
  dims: readonly number[],
  keepdim: boolean,
  reduction: RowReduction,
  dtype: ElementType = x.dtype,
): NDArray {
  const gone = new Set(dims);
  const kept = x.shape.flatMap((_, d) => (gone.has(d) ? [] : [d]));
  const data = flat(permute(x, [...kept, ...dims]));
  const length = sizeOf(dims.map((d) => x.shape[d]));
  const shape = keepdim
    ? x.shape.map((n, d) => (gone.has(d) ? 1 : n))
    : kept.map((d) => x.shape[d]);
  const out = new Float64Array(sizeOf(shape));
  for (let i = 0; i < out.length; i++) out[i] = reduction(data, i * length, (i + 1) * length);
  return fromFlat(shape, out, dtype);
}

export const sumOf: RowReduction = (data, start, end) => {
  let total = 0;
  for (let i = start; i < end; i++) total += data[i];
  return total;
};
export const meanOf: RowReduction = (data, start, end) => sumOf(data, start, end) / (end - start);
export const productOf: RowReduction = (data, start, end) => {
  let total = 1;
  for (let i = start; i < end; i++) total *= data[i];
  return total;
};
/** NaN wins. @throws E_VALUE for no values */
export const maximumOf: RowReduction = (data, start, end) =>
  data[argmaxOf(data, start, end) + start];
export const minimumOf: RowReduction = (data, start, end) =>
  data[argminOf(data, start, end) + start];
/** Position of the first largest value, or of the first NaN. */
export const argmaxOf: RowReduction = (data, start, end) =>
  bestOf(data, start, end, (v, best) => v > best);
export const argminOf: RowReduction = (data, start, end) =>
  bestOf(data, start, end, (v, best) => v < best);

function bestOf(
  data: Float64Array,
  start: number,
  end: number,
  better: (v: number, best: number) => boolean,
): number {
  if (start === end)
    throw new ShardwrightError('E_VALUE', 'the largest or smallest of no values does not exist');
  let best = start;
  for (let i = start; i < end; i++) {
    if (Number.isNaN(data[i])) return i - start;
    if (better(data[i], data[best])) best = i;
  }
  return best - start;
}

/** Sum of squared distances from the mean over `length - correction`. */
export const varianceOf =
  (correction: number): RowReduction =>
  (data, start, end) => {
    const mean = meanOf(data, start, end);
    let total = 0;
    for (let i = start; i < end; i++) total += (data[i] - mean) ** 2;
    return total / Math.max(0, end - start - correction);
  };

/** log of the sum of exponentials, taken relative to the largest value. */
export const logSumExpOf: RowReduction = (data, start, end) => {
  if (start === end) return -Infinity;
  const largest = maximumOf(data, start, end);
  const base = Number.isFinite(largest) ? largest : 0;
  let total = 0;
  for (let i = start; i < end; i++) total += Math.exp(data[i] - base);
  return Math.log(total) + base;
};

/** The p-norm: p = 0 counts, infinities take extremes. */
export const normOf =
  (p: number): RowReduction =>
  (data, start, end) => {
    if (p === Infinity || p === -Infinity) {
      if (start === end && p > 0) return 0;
      let best = p > 0 ? 0 : Infinity;
      for (let i = start; i < end; i++) {
        const v = Math.abs(data[i]);
        if (Number.isNaN(v)) return v;
        best = p > 0 ? Math.max(best, v) : Math.min(best, v);
      }
      return best;
    }
    let total = 0;
    for (let i = start; i < end; i++) {
      const v = Math.abs(data[i]);
      total += p === 0 ? (v !== 0 ? 1 : 0) : p === 1 ? v : p === 2 ? v * v : Math.pow(v, p);
    }
    return p === 0 || p === 1 ? total : p === 2 ? Math.sqrt(total) : Math.pow(total, 1 / p);
  };

/**
 * Fills one run of each result from one run of the input: `input[start]` on, `results[k][out]` on.
 */
type RowFunction = (
  input: Float64Array,
  start: number,
  length: number,
  results: readonly Float64Array[],
  out: number,
) => void;

/**
 * Runs along one dim turned into runs of `resultLength`, in the place of that dim; one array per
 * element type given. A scalar is one run of one value.
 */
export function along(
  x: NDArray,
  dim: number,
  dtypes: readonly ElementType[],
  f: RowFunction,
  resultLength = x.rank === 0 ? 1 : x.shape[dimOf(dim, x.rank)],
): NDArray[] {
  const d = dimOf(dim, x.rank);
  const length = x.rank === 0 ? 1 : x.shape[d];
  const moved = x.rank === 0 ? x : moveDim(x, d, -1);
  const input = copyFlat(moved);
  const outer = moved.shape.slice(0, -1);
  const runs = sizeOf(outer);
  const results = dtypes.map(() => new Float64Array(runs * resultLength));
  for (let r = 0; r < runs; r++) f(input, r * length, length, results, r * resultLength);
  return results.map((data, k) => {
    if (x.rank === 0) return fromFlat([], data, dtypes[k]);
    return moveDim(fromFlat([...outer, resultLength], data, dtypes[k]), -1, d);
  });
}

/** `along` with one result of the input's element type. */
export function alongOne(
  x: NDArray,
  dim: number,
  f: (
    input: Float64Array,
    start: number,
    length: number,
    result: Float64Array,
    out: number,
  ) => void,
): NDArray {
  return along(x, dim, [x.dtype], (input, start, length, [result], out) =>
    f(input, start, length, result, out),
  )[0];
}

export function sum(x: NDArray, dims: readonly number[], keepdim = false): NDArray {
  return reduce(x, dims, keepdim, sumOf);
}

/** Sums over what was broadcast, so that the result has the given shape. */
export function sumTo(x: NDArray, shape: readonly number[]): NDArray {
  const extra = x.rank - shape.length;
  const leading = Array.from({ length: extra }, (_, d) => d);
  const repeated = shape.flatMap((size, d) =>
    size === 1 && x.shape[d + extra] !== 1 ? [d + extra] : [],
  );
  const summed = repeated.length > 0 ? sum(x, repeated, true) : x;
  return leading.length > 0 ? sum(summed, leading) : summed;
}
