import { gunzipSync, gzipSync, strFromU8, strToU8 } from 'fflate';

import { type ElementType, fromFlat, type NDArray } from '../../../src/ndarray/array.ts';
import { complexOf, isComplexType, numbersOf } from '../../../src/ndarray/complex.ts';

/**
 * Results that PyTorch gave, as they are kept in a file: values are little-endian float64 in
 * base64, of complex numbers the real parts first.
 */
export interface RecordedArray {
  readonly dtype: ElementType;
  readonly shape: readonly number[];
  readonly data: string;
}
export type RecordedResult =
  { readonly refused: string } | { readonly results: readonly (RecordedArray | null)[] };

export interface Recording {
  readonly torch: string;
  /** By the text of the call. */
  readonly calls: Readonly<Record<string, RecordedResult>>;
}

export function encode(x: NDArray): RecordedArray {
  const data = Float64Array.from(numbersOf(x));
  return { dtype: x.dtype, shape: x.shape, data: Buffer.from(data.buffer).toString('base64') };
}

export function decode(recorded: RecordedArray): NDArray {
  const bytes = Uint8Array.from(Buffer.from(recorded.data, 'base64'));
  const { shape, dtype } = recorded;
  const data = new Float64Array(bytes.buffer);
  if (!isComplexType(dtype)) return fromFlat(shape, data, dtype);
  const half = data.length / 2;
  return complexOf(fromFlat(shape, data.slice(0, half)), fromFlat(shape, data.slice(half)), dtype);
}

export function readRecording(bytes: Uint8Array): Recording {
  return JSON.parse(strFromU8(gunzipSync(bytes))) as Recording;
}

export function writeRecording(recording: Recording): Uint8Array {
  return gzipSync(strToU8(JSON.stringify(recording)), { level: 9, mtime: 0 });
}

/**
 * Largest |difference| allowed is this times |wanted|, and a hundredth of it where the wanted value
 * is near zero. Integers that become floats are float32 in PyTorch, which rounds.
 */
const RELATIVE: Readonly<Partial<Record<ElementType, number>>> = {
  f64: 1e-9,
  f32: 2e-6,
  c128: 1e-9,
};

/** Why two arrays are not the same, or undefined. Integers and bools are compared exactly. */
export function difference(got: NDArray, want: NDArray, tolerance?: number): string | undefined {
  const type = `${got.dtype}[${got.shape.join(',')}] for ${want.dtype}[${want.shape.join(',')}]`;
  if (got.dtype !== want.dtype || got.shape.join() !== want.shape.join()) return type;
  const [a, b] = [numbersOf(got), numbersOf(want)];
  for (let i = 0; i < a.length; i++) {
    if (Object.is(a[i], b[i]) || a[i] === b[i]) continue;
    const relative = tolerance ?? RELATIVE[want.dtype];
    if (
      relative === undefined ||
      !(Math.abs(a[i] - b[i]) <= relative * Math.abs(b[i]) + relative / 100)
    )
      return `element ${i} is ${a[i]}, PyTorch has ${b[i]}`;
  }
  return undefined;
}
