/** Complex arrays: made of a real and an imaginary part, and taken apart into them. */

import { internalError } from '../errors.ts';
import { type ElementType, flat, NDArray } from './array.ts';

export type ComplexType = 'c64' | 'c128';

/** The type of the parts of a complex type. */
export function partType(dtype: ElementType): ElementType {
  return dtype === 'c128' ? 'f64' : dtype === 'c64' ? 'f32' : dtype;
}

export function isComplexType(dtype: string): dtype is ComplexType {
  return dtype === 'c64' || dtype === 'c128';
}

/** An array of complex numbers over two real ones of one shape. */
export function complexOf(real: NDArray, imaginary: NDArray, dtype: ComplexType): NDArray {
  if (real.shape.join() !== imaginary.shape.join())
    throw internalError('parts of a complex array differ in shape');
  return new NDArray(
    dtype,
    real.shape,
    real.strides,
    real.offset,
    real.storage,
    imaginary.as(partType(dtype)),
  );
}

/** The real part; a real array is its own. */
export function realPart(x: NDArray): NDArray {
  if (x.imaginary === undefined) return x;
  return new NDArray(partType(x.dtype), x.shape, x.strides, x.offset, x.storage);
}

/** Real and imaginary part; a real array alone. */
export function partsOf(x: NDArray): readonly NDArray[] {
  return x.imaginary === undefined ? [x] : [realPart(x), x.imaginary];
}

/** The array whose parts these are. */
export function ofParts(parts: readonly NDArray[], dtype: ElementType): NDArray {
  return isComplexType(dtype) ? complexOf(parts[0], parts[1], dtype) : parts[0].as(dtype);
}

/**
 * A function of real arrays on the parts of complex ones, one after the other. Linear functions and
 * moves work so.
 */
export function byParts(
  arrays: readonly NDArray[],
  f: (parts: readonly NDArray[]) => NDArray,
): NDArray {
  if (arrays.every((x) => x.imaginary === undefined)) return f(arrays);
  const made = [0, 1].map((k) => f(arrays.map((x) => partsOf(x)[k] ?? x)));
  return ofParts(made, arrays.find((x) => x.imaginary !== undefined)?.dtype ?? 'c64');
}

/** All numbers of an array: those of the real part, then those of the imaginary one. */
export function numbersOf(x: NDArray): Float64Array {
  if (x.imaginary === undefined) return flat(x);
  const out = new Float64Array(2 * x.size);
  partsOf(x).forEach((part, k) => out.set(flat(part), k * x.size));
  return out;
}
