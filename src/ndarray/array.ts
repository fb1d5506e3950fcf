/**
 * Small strided arrays for verification. Every value is kept in float64 whatever the element type
 * says: floating-point types are never rounded, integers are exact up to 2^53, a bool is 0 or 1.
 * The element type decides meaning (integer division, logical negation, wrap-around of narrow
 * integers) and nothing else. Arrays are values: no function here writes into one that it was
 * given, so views may share storage. A complex array is two real ones, its real part being the
 * array itself; only `complex.ts` makes and takes apart such arrays, and no other function here
 * accepts one.
 */

import { checkKinds } from '../arguments.ts';
import { internalError, ShardwrightError } from '../errors.ts';

export const ELEMENT_TYPES = [
  'f64',
  'f32',
  'bf16',
  'f16',
  'f8e4m3fn',
  'f8e5m2',
  'f8e8m0fnu',
  'i64',
  'i32',
  'i16',
  'i8',
  'u64',
  'u32',
  'u16',
  'u8',
  'b8',
  'c64',
  'c128',
] as const;
export type ElementType = (typeof ELEMENT_TYPES)[number];

type ElementKind = 'float' | 'integer' | 'bool' | 'complex';

export function kindOf(dtype: ElementType): ElementKind {
  if (dtype === 'b8') return 'bool';
  if (dtype === 'c64' || dtype === 'c128') return 'complex';
  return dtype.startsWith('i') || dtype.startsWith('u') ? 'integer' : 'float';
}

/** Elements of the largest array that will be made: 1 GiB of storage. */
export const MAX_ELEMENTS = 2 ** 27;

/** A small array in float64 or integers, with strides: what verification runs on. */
export class NDArray {
  /** Number of elements. */
  readonly size: number;

  /**
   * Element `[i, j]` is at `offset + i * strides[0] + j * strides[1]` of `storage`, which must not
   * be written.
   */
  constructor(
    readonly dtype: ElementType,
    readonly shape: readonly number[],
    readonly strides: readonly number[],
    readonly offset: number,
    readonly storage: Float64Array,
    /** The imaginary part of a complex array, of the same shape. */
    readonly imaginary?: NDArray,
  ) {
    checkKinds('NDArray', {
      dtype: [dtype, 'string'],
      shape: [shape, 'numbers'],
      strides: [strides, 'list'],
      offset: [offset, 'number'],
      storage: [storage, 'list'],
      imaginary: [imaginary, ['size', 'dtype', 'shape'], 'undefined'],
    });
    // A function for real arrays that is handed a complex one ends here, instead of dropping the
    // half of it.
    if ((kindOf(dtype) === 'complex') !== (imaginary !== undefined))
      throw internalError(
        `an array of ${dtype} ${imaginary === undefined ? 'without' : 'with'} an imaginary part`,
      );
    if (strides.length !== shape.length)
      throw internalError(`${shape.length} sizes with ${strides.length} strides`);
    this.size = sizeOf(shape);
  }

  get rank(): number {
    return this.shape.length;
  }

  get kind(): ElementKind {
    return kindOf(this.dtype);
  }

  /** The element at these indices, counted from 0. */
  at(...indices: readonly number[]): number {
    if (indices.length !== this.rank)
      throw internalError(`${indices.length} indices for ${this.rank} dims`);
    let at = this.offset;
    indices.forEach((i, d) => {
      if (i < 0 || i >= this.shape[d])
        throw internalError(`index ${i} of a dim of ${this.shape[d]}`);
      at += i * this.strides[d];
    });
    return this.storage[at];
  }

  /** The one element of an array of size 1. @throws E_VALUE for any other size */
  item(): number {
    if (this.size !== 1)
      throw new ShardwrightError(
        'E_VALUE',
        `an array of shape [${this.shape.join(', ')}] has no single value`,
      );
    return this.storage[this.offset];
  }

  /** Elements in row-major order, as a list of its own. */
  toArray(): number[] {
    return Array.from(flat(this));
  }

  /** The same values called another element type. No value changes: see `cast` for conversions. */
  as(dtype: ElementType): NDArray {
    if (dtype === this.dtype) return this;
    return new NDArray(dtype, this.shape, this.strides, this.offset, this.storage, this.imaginary);
  }
}

/**
 * Product of sizes. @throws E_VALUE for a negative or fractional size, or more than `MAX_ELEMENTS`
 * elements
 */
export function sizeOf(shape: readonly number[]): number {
  let n = 1;
  for (const size of shape) {
    if (!Number.isInteger(size) || size < 0)
      throw new ShardwrightError(
        'E_VALUE',
        `[${shape.join(', ')}] is not a shape: ${size} is not a size`,
      );
    n *= size;
  }
  if (n > MAX_ELEMENTS)
    throw new ShardwrightError(
      'E_VALUE',
      `an array of shape [${shape.join(', ')}] has more than ${MAX_ELEMENTS} elements`,
      {
        hint: 'evaluate the graph at smaller sizes; evaluation is for checking, not for training',
      },
    );
  return n;
}

/** Row-major strides. */
export function stridesOf(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length);
  let step = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    strides[d] = step;
    step *= Math.max(shape[d], 1);
  }
  return strides;
}

/** An array over these row-major values, which it keeps: do not write them afterwards. */
export function fromFlat(
  shape: readonly number[],
  data: Float64Array,
  dtype: ElementType = 'f64',
): NDArray {
  if (data.length !== sizeOf(shape))
    throw internalError(`${data.length} values for an array of shape [${shape.join(', ')}]`);
  return new NDArray(dtype, shape, stridesOf(shape), 0, data);
}

/** An array of this shape from its elements in row-major order. */
export function fromList(
  shape: readonly number[],
  values: readonly number[],
  dtype: ElementType = 'f64',
): NDArray {
  checkKinds('fromList', {
    shape: [shape, 'numbers'],
    values: [values, 'list'],
    dtype: [dtype, 'string', 'undefined'],
  });
  if (values.length !== sizeOf(shape))
    throw new ShardwrightError(
      'E_USAGE',
      `fromList: ${values.length} values for an array of shape [${shape.join(', ')}]`,
      { hint: `give ${sizeOf(shape)}, row by row.` },
    );
  return fromFlat(shape, Float64Array.from(values), dtype);
}

/** Element by row-major position. */
export function build(
  shape: readonly number[],
  value: (flat: number) => number,
  dtype: ElementType = 'f64',
): NDArray {
  const data = new Float64Array(sizeOf(shape));
  for (let i = 0; i < data.length; i++) data[i] = value(i);
  return fromFlat(shape, data, dtype);
}

/** One stored element, read everywhere: costs no memory at any shape. */
export function full(shape: readonly number[], value: number, dtype: ElementType = 'f64'): NDArray {
  return new NDArray(
    dtype,
    shape,
    shape.map(() => 0),
    0,
    Float64Array.of(value),
  );
}

export function scalar(value: number, dtype: ElementType = 'f64'): NDArray {
  return full([], value, dtype);
}

export function isContiguous(x: NDArray): boolean {
  let step = 1;
  for (let d = x.shape.length - 1; d >= 0; d--) {
    if (x.shape[d] !== 1 && x.strides[d] !== step) return false;
    step *= x.shape[d];
  }
  return true;
}

/** Elements in row-major order; shares storage where it can, so it must not be written. */
export function flat(x: NDArray): Float64Array {
  if (x.imaginary !== undefined) throw internalError('a complex array is read as if it were real');
  if (x.size === 0) return new Float64Array(0);
  if (isContiguous(x))
    return x.offset === 0 && x.size === x.storage.length
      ? x.storage
      : x.storage.subarray(x.offset, x.offset + x.size);
  return copyFlat(x);
}

/** Elements in row-major order in storage of their own. */
export function copyFlat(x: NDArray): Float64Array {
  if (x.imaginary !== undefined)
    throw internalError('a complex array is copied as if it were real');
  const out = new Float64Array(x.size);
  if (x.size === 0) return out;
  if (isContiguous(x)) {
    out.set(x.storage.subarray(x.offset, x.offset + x.size));
    return out;
  }
  const { shape, strides } = joined(x);
  const inner = shape.length - 1;
  if (inner === 1 && strides[0] === 1) {
    copyTransposed(out, x.storage, x.offset, shape[0], shape[1], strides[1]);
    return out;
  }
  const length = shape[inner];
  const step = strides[inner];
  const source = x.storage;
  const index = new Int32Array(inner);
  let from = x.offset;
  for (let to = 0; to < out.length;) {
    for (let k = 0, at = from; k < length; k++, at += step) out[to++] = source[at];
    for (let d = inner - 1; d >= 0; d--) {
      from += strides[d];
      if (++index[d] < shape[d]) break;
      from -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
  return out;
}

/**
 * Copies a matrix whose columns are stored as rows, in tiles, so that both sides stay in the cache.
 */
function copyTransposed(
  out: Float64Array,
  source: Float64Array,
  offset: number,
  height: number,
  width: number,
  step: number,
): void {
  const TILE = 32;
  for (let r = 0; r < height; r += TILE)
    for (let c = 0; c < width; c += TILE)
      for (let i = r; i < Math.min(r + TILE, height); i++)
        for (let j = c; j < Math.min(c + TILE, width); j++)
          out[i * width + j] = source[offset + i + j * step];
}

/**
 * Sizes and strides with dims of size 1 left out and neighbours with one step joined; at least one
 * dim.
 */
function joined(x: NDArray): { shape: number[]; strides: number[] } {
  const shape: number[] = [];
  const strides: number[] = [];
  x.shape.forEach((size, d) => {
    if (size === 1) return;
    const last = shape.length - 1;
    if (last >= 0 && strides[last] === size * x.strides[d]) {
      shape[last] *= size;
      strides[last] = x.strides[d];
    } else {
      shape.push(size);
      strides.push(x.strides[d]);
    }
  });
  return shape.length === 0 ? { shape: [1], strides: [0] } : { shape, strides };
}

/** The same array in row-major storage. */
export function contiguous(x: NDArray): NDArray {
  return isContiguous(x) ? x : fromFlat(x.shape, copyFlat(x), x.dtype);
}
