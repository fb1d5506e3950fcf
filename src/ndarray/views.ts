/** Views: other sizes and strides over the same storage. Dims may be counted from the end. */

import { internalError, ShardwrightError } from '../errors.ts';
import { copyFlat, fromFlat, isContiguous, NDArray, sizeOf, stridesOf } from './array.ts';

/** A dim counted from the front; a scalar has a dim 0. */
export function dimOf(dim: number, rank: number): number {
  const size = Math.max(rank, 1);
  if (!Number.isInteger(dim) || dim < -size || dim >= size)
    throw new ShardwrightError('E_VALUE', `dim ${dim} does not exist in an array of ${rank} dims`);
  return dim < 0 ? dim + size : dim;
}

export function permute(x: NDArray, order: readonly number[]): NDArray {
  const dims = order.map((d) => dimOf(d, x.rank));
  if (dims.length !== x.rank || new Set(dims).size !== dims.length)
    throw internalError(`[${order.join(', ')}] is not an order of ${x.rank} dims`);
  return new NDArray(
    x.dtype,
    dims.map((d) => x.shape[d]),
    dims.map((d) => x.strides[d]),
    x.offset,
    x.storage,
  );
}

/**
 * Tells whether the dims go from the slowest to the fastest in memory in this order; dims of one
 * element and dims that repeat their elements may be anywhere.
 */
export function liesIn({ shape, strides, size }: NDArray, order: readonly number[]): boolean {
  if (size === 0) return true;
  const steps = order.filter((d) => shape[d] > 1 && strides[d] !== 0).map((d) => strides[d]);
  return steps.every((step, i) => i === 0 || step <= steps[i - 1]);
}

/**
 * The dims from the slowest to the fastest in memory. A dim that repeats its elements (stride 0)
 * comes before the next one that does not: a copy has it there.
 */
export function memoryOrder(strides: readonly number[]): number[] {
  const dims = strides.map((_, dim) => dim);
  const order = dims
    .filter((dim) => strides[dim] !== 0)
    .sort((a, b) => strides[b] - strides[a] || a - b);
  for (const dim of dims.filter((d) => strides[d] === 0).reverse()) {
    const next = order.indexOf(dim + 1);
    order.splice(next < 0 ? order.length : next, 0, dim);
  }
  return order;
}

/** The same elements with the dims in this order in memory: a copy where they do not lie so. */
export function laidIn(x: NDArray, order: readonly number[]): NDArray {
  if (liesIn(x, order)) return x;
  const rows = fromFlat(
    order.map((d) => x.shape[d]),
    copyFlat(permute(x, order)),
    x.dtype,
  );
  return permute(
    rows,
    order.map((_, d) => order.indexOf(d)),
  );
}

export function transpose(x: NDArray, a: number, b: number): NDArray {
  if (x.rank === 0) return x;
  const order = x.shape.map((_, d) => d);
  const [p, q] = [dimOf(a, x.rank), dimOf(b, x.rank)];
  order[p] = q;
  order[q] = p;
  return permute(x, order);
}

/** Dim `from` in the place `to`, the others in their order. */
export function moveDim(x: NDArray, from: number, to: number): NDArray {
  const order = x.shape.map((_, d) => d);
  const [moved] = order.splice(dimOf(from, x.rank), 1);
  order.splice(dimOf(to, x.rank), 0, moved);
  return permute(x, order);
}

/** Rows `start`, `start + step`, .. of a dim, `count` of them. */
export function rows(x: NDArray, dim: number, start: number, count: number, step = 1): NDArray {
  const d = dimOf(dim, x.rank);
  if (count > 0 && (start < 0 || start + (count - 1) * step >= x.shape[d] || step < 1))
    throw internalError(`rows ${start}, step ${step}, ${count} of them, of a dim of ${x.shape[d]}`);
  return new NDArray(
    x.dtype,
    x.shape.map((n, i) => (i === d ? count : n)),
    x.strides.map((s, i) => (i === d ? s * step : s)),
    count === 0 ? x.offset : x.offset + start * x.strides[d],
    x.storage,
  );
}

/** Python's `x[start:end:step]` on a dim: ends may be negative or past the end. */
export function slice(
  x: NDArray,
  dim: number,
  start: number | undefined,
  end: number | undefined,
  step = 1,
): NDArray {
  const size = x.shape[dimOf(dim, x.rank)];
  const bound = (v: number): number => Math.max(0, Math.min(size, v < 0 ? v + size : v));
  const first = bound(start ?? 0);
  const count = Math.max(0, Math.ceil((bound(end ?? size) - first) / step));
  return rows(x, dim, first, count, step);
}

export function select(x: NDArray, dim: number, index: number): NDArray {
  const d = dimOf(dim, x.rank);
  const size = x.shape[d];
  if (x.rank === 0 || index < -size || index >= size)
    throw new ShardwrightError('E_VALUE', `index ${index} is outside of a dim of ${size}`);
  const at = index < 0 ? index + size : index;
  return new NDArray(
    x.dtype,
    x.shape.filter((_, i) => i !== d),
    x.strides.filter((_, i) => i !== d),
    x.offset + at * x.strides[d],
    x.storage,
  );
}

/** A new dim of size 1. */
export function unsqueeze(x: NDArray, dim: number): NDArray {
  const d = dimOf(dim, x.rank + 1);
  const insert = <T>(list: readonly T[], value: T): T[] => [
    ...list.slice(0, d),
    value,
    ...list.slice(d),
  ];
  return new NDArray(x.dtype, insert(x.shape, 1), insert(x.strides, 0), x.offset, x.storage);
}

/** Without the named dims, those of size 1. */
export function squeeze(x: NDArray, dims: readonly number[] = x.shape.map((_, d) => d)): NDArray {
  if (x.rank === 0) return x;
  const gone = new Set(dims.map((d) => dimOf(d, x.rank)));
  const keep = (_: unknown, d: number): boolean => !gone.has(d) || x.shape[d] !== 1;
  return new NDArray(x.dtype, x.shape.filter(keep), x.strides.filter(keep), x.offset, x.storage);
}

/**
 * Sizes of 1, and leading dims that are missing, read repeatedly. @throws E_VALUE when a size does
 * not fit
 */
export function expand(x: NDArray, shape: readonly number[]): NDArray {
  const extra = shape.length - x.rank;
  const strides = shape.map((size, d) => {
    const own = d - extra;
    if (own < 0 || (x.shape[own] === 1 && size !== 1)) return 0;
    if (x.shape[own] === size) return x.strides[own];
    throw new ShardwrightError(
      'E_VALUE',
      `shape [${x.shape.join(', ')}] does not expand to [${shape.join(', ')}]`,
    );
  });
  if (extra < 0)
    throw new ShardwrightError(
      'E_VALUE',
      `shape [${x.shape.join(', ')}] does not expand to [${shape.join(', ')}]`,
    );
  return new NDArray(x.dtype, shape, strides, x.offset, x.storage);
}

/**
 * Same elements in row-major order under another shape; copies only where the strides force it. One
 * size may be -1.
 */
export function reshape(x: NDArray, shape: readonly number[]): NDArray {
  let known = 1;
  for (const size of shape) if (size !== -1) known *= size;
  const target = shape.map((size) => (size === -1 ? x.size / known : size));
  if (sizeOf(target) !== x.size)
    throw new ShardwrightError(
      'E_VALUE',
      `shape [${x.shape.join(', ')}] does not become [${shape.join(', ')}]`,
    );
  if (x.size === 0 || !isContiguous(x)) return fromFlat(target, copyFlat(x), x.dtype);
  return new NDArray(x.dtype, target, stridesOf(target), x.offset, x.storage);
}

/** The diagonal of two dims as a new last dim; `offset` > 0 is above the main one. */
export function diagonal(x: NDArray, offset = 0, dim1 = 0, dim2 = 1): NDArray {
  const [a, b] = [dimOf(dim1, x.rank), dimOf(dim2, x.rank)];
  const length = Math.max(
    0,
    Math.min(x.shape[a] + Math.min(offset, 0), x.shape[b] - Math.max(offset, 0)),
  );
  const start =
    length === 0 ? 0 : Math.max(-offset, 0) * x.strides[a] + Math.max(offset, 0) * x.strides[b];
  const keep = (_: unknown, d: number): boolean => d !== a && d !== b;
  return new NDArray(
    x.dtype,
    [...x.shape.filter(keep), length],
    [...x.strides.filter(keep), x.strides[a] + x.strides[b]],
    x.offset + start,
    x.storage,
  );
}

/** Dims read backwards. */
export function flip(x: NDArray, dims: readonly number[]): NDArray {
  const turned = new Set(dims.map((d) => dimOf(d, x.rank)));
  let offset = x.offset;
  const strides = x.strides.map((s, d) => {
    if (!turned.has(d)) return s;
    if (x.size > 0) offset += s * (x.shape[d] - 1);
    return -s;
  });
  return new NDArray(x.dtype, x.shape, strides, offset, x.storage);
}

/** Shape that all broadcast to. @throws E_VALUE when two sizes differ and neither is 1 */
export function broadcastShape(shapes: readonly (readonly number[])[]): number[] {
  const rank = Math.max(0, ...shapes.map((s) => s.length));
  const out = new Array<number>(rank).fill(1);
  for (const shape of shapes)
    shape.forEach((size, i) => {
      const at = rank - shape.length + i;
      if (size === 1 || size === out[at]) return;
      if (out[at] !== 1)
        throw new ShardwrightError(
          'E_VALUE',
          `shapes ${shapes.map((s) => `[${s.join(', ')}]`).join(' and ')} do not broadcast`,
        );
      out[at] = size;
    });
  return out;
}

/** Arrays joined along a dim; equal sizes elsewhere. */
export function concat(parts: readonly NDArray[], dim: number): NDArray {
  const [first] = parts;
  const d = dimOf(dim, first.rank);
  const total = parts.reduce((sum, p) => sum + p.shape[d], 0);
  const shape = first.shape.map((n, i) => (i === d ? total : n));
  const outer = sizeOf(shape.slice(0, d));
  const inner = sizeOf(shape.slice(d + 1));
  const data = new Float64Array(sizeOf(shape));
  let start = 0;
  for (const part of parts) {
    const block = part.shape[d] * inner;
    const source = copyFlat(part);
    if (source.length !== outer * block) throw internalError('joined arrays differ in a size');
    for (let o = 0; o < outer; o++)
      data.set(source.subarray(o * block, (o + 1) * block), o * total * inner + start * inner);
    start += part.shape[d];
  }
  return fromFlat(shape, data, first.dtype);
}

/**
 * A copy of `x` with `part` written over the rows that `window` names (a view of an array of x's
 * shape).
 */
export function overwrite(x: NDArray, window: (whole: NDArray) => NDArray, part: NDArray): NDArray {
  const data = copyFlat(x);
  const positions = window(fromFlat(x.shape, Float64Array.from(data.keys()), 'i64'));
  const at = copyFlat(positions);
  const values = copyFlat(expand(part, positions.shape));
  for (let i = 0; i < at.length; i++) data[at[i]] = values[i];
  return fromFlat(x.shape, data, x.dtype);
}
