/**
 * Elementwise functions of one, two and three arrays, which broadcast; and conversions of element
 * types.
 */

import { ShardwrightError } from '../errors.ts';
import { type ElementType, flat, fromFlat, full, kindOf, type NDArray } from './array.ts';
import { broadcastShape, expand } from './views.ts';

export function map(x: NDArray, f: (v: number) => number, dtype: ElementType = x.dtype): NDArray {
  // One stored element read everywhere stays one.
  if (x.size > 0 && x.strides.every((s, d) => s === 0 || x.shape[d] === 1))
    return full(x.shape, f(x.storage[x.offset]), dtype);
  const source = flat(x);
  const out = new Float64Array(source.length);
  for (let i = 0; i < out.length; i++) out[i] = f(source[i]);
  return fromFlat(x.shape, out, dtype);
}

export function map2(
  a: NDArray,
  b: NDArray,
  f: (a: number, b: number) => number,
  dtype: ElementType = a.dtype,
): NDArray {
  const shape = broadcastShape([a.shape, b.shape]);
  if (b.size === 1 && a.rank === shape.length) {
    const v = b.item();
    return map(a, (u) => f(u, v), dtype);
  }
  const p = flat(expand(a, shape));
  const q = flat(expand(b, shape));
  const out = new Float64Array(p.length);
  for (let i = 0; i < out.length; i++) out[i] = f(p[i], q[i]);
  return fromFlat(shape, out, dtype);
}

export function map3(
  a: NDArray,
  b: NDArray,
  c: NDArray,
  f: (a: number, b: number, c: number) => number,
  dtype: ElementType = a.dtype,
): NDArray {
  const shape = broadcastShape([a.shape, b.shape, c.shape]);
  const p = flat(expand(a, shape));
  const q = flat(expand(b, shape));
  const r = flat(expand(c, shape));
  const out = new Float64Array(p.length);
  for (let i = 0; i < out.length; i++) out[i] = f(p[i], q[i], r[i]);
  return fromFlat(shape, out, dtype);
}

export const add = (a: NDArray, b: NDArray): NDArray => map2(a, b, (u, v) => u + v);
export const subtract = (a: NDArray, b: NDArray): NDArray => map2(a, b, (u, v) => u - v);
export const multiply = (a: NDArray, b: NDArray): NDArray => map2(a, b, (u, v) => u * v);
export const scale = (a: NDArray, by: number): NDArray => (by === 1 ? a : map(a, (u) => u * by));

const BITS: Partial<Record<ElementType, number>> = {
  i8: 8,
  i16: 16,
  i32: 32,
  u8: 8,
  u16: 16,
  u32: 32,
};

/** Bits of an integer element type. */
export function bitsOf(dtype: ElementType): number {
  return BITS[dtype] ?? 64;
}

/** An integer as its type holds it: narrow types wrap around. */
export function wrapInteger(value: number, dtype: ElementType): number {
  const bits = BITS[dtype];
  if (bits === undefined) return value;
  const span = 2 ** bits;
  const low = ((value % span) + span) % span;
  return dtype.startsWith('i') && low >= span / 2 ? low - span : low;
}

/**
 * The values as another element type: floats lose their fraction on the way to integers, everything
 * but zero is true. Floating-point types are not rounded. The logarithm of zero becomes the least
 * integer, as positions that a mask drops later have it.
 *
 * @throws E_VALUE where another float has no integer value that float64 holds exactly
 */
export function cast(x: NDArray, dtype: ElementType): NDArray {
  const to = kindOf(dtype);
  if (to === 'float' || x.dtype === dtype || x.kind === 'bool') return x.as(dtype);
  if (to === 'bool') return map(x, (v) => (v !== 0 ? 1 : 0), dtype);
  return map(
    x,
    (v) => {
      // PyTorch and XLA agree on this one; on other values without a counterpart they do not.
      if (v === -Infinity && (dtype === 'i64' || dtype === 'i32'))
        return dtype === 'i64' ? -(2 ** 63) : -(2 ** 31);
      const whole = Math.trunc(v);
      if (!(Math.abs(whole) <= Number.MAX_SAFE_INTEGER))
        throw new ShardwrightError('E_VALUE', `${v} does not convert to ${dtype} exactly`);
      return wrapInteger(whole, dtype) + 0;
    },
    dtype,
  );
}
