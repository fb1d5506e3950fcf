/** Discrete Fourier transforms by their definition, dim by dim: small sizes only. */

import { ShardwrightError } from '../errors.ts';
import { type ElementType, flat, fromFlat, type NDArray, sizeOf } from './array.ts';
import { complexOf, isComplexType, partsOf, partType } from './complex.ts';

/** Rows of `length` numbers in the last dim, transformed; `sign` of the exponent. */
function rows(
  re: Float64Array,
  im: Float64Array,
  length: number,
  sign: number,
): [Float64Array, Float64Array] {
  const [outRe, outIm] = [new Float64Array(re.length), new Float64Array(re.length)];
  const cosines = Float64Array.from({ length }, (_, k) => Math.cos((2 * Math.PI * k) / length));
  const sines = Float64Array.from(
    { length },
    (_, k) => sign * Math.sin((2 * Math.PI * k) / length),
  );
  for (let start = 0; start < re.length; start += length)
    for (let k = 0; k < length; k++)
      for (let t = 0; t < length; t++) {
        const w = (k * t) % length;
        outRe[start + k] += re[start + t] * cosines[w] - im[start + t] * sines[w];
        outIm[start + k] += re[start + t] * sines[w] + im[start + t] * cosines[w];
      }
  return [outRe, outIm];
}

/** The dim `d` last, `f` on its rows, and back. */
function along(
  parts: [Float64Array, Float64Array],
  shape: readonly number[],
  d: number,
  sign: number,
): [Float64Array, Float64Array] {
  const inner = sizeOf(shape.slice(d + 1));
  const length = shape[d];
  const place = (i: number): number => {
    const [outer, rest] = [Math.floor(i / (inner * length)), i % (inner * length)];
    return outer * inner * length + (rest % length) * inner + Math.floor(rest / length);
  };
  const moved = parts.map((part) => part.map((_, i) => part[place(i)]));
  const made = rows(moved[0], moved[1], length, sign);
  return made.map((part) => {
    const out = new Float64Array(part.length);
    part.forEach((v, i) => (out[place(i)] = v));
    return out;
  }) as [Float64Array, Float64Array];
}

/**
 * The transform of the last dims: `FFT`, `IFFT` complex to complex, `RFFT` of real numbers (the
 * last dim keeps `length / 2 + 1` of them), `IRFFT` its inverse.
 *
 * @param lengths sizes of the transformed dims in time
 */
export function fourier(
  x: NDArray,
  kind: string,
  lengths: readonly number[],
  type: ElementType,
): NDArray {
  const inverse = kind === 'IFFT' || kind === 'IRFFT';
  if (!['FFT', 'IFFT', 'RFFT', 'IRFFT'].includes(kind))
    throw new ShardwrightError(
      'E_VALUE',
      `'${kind}' is not a Fourier transform; expected FFT, IFFT, RFFT or IRFFT`,
    );
  const shape = [...x.shape];
  const first = shape.length - lengths.length;
  const [real, imaginary] = partsOf(x);
  let parts: [Float64Array, Float64Array] = [
    Float64Array.from(flat(real)),
    imaginary === undefined ? new Float64Array(x.size) : Float64Array.from(flat(imaginary)),
  ];
  const last = shape.length - 1;
  const dims = lengths.map((_, k) => first + k);
  const sign = inverse ? 1 : -1;
  if (kind === 'IRFFT') {
    for (const d of dims.slice(0, -1)) parts = along(parts, shape, d, sign);
    const full = [...shape.slice(0, -1), lengths[lengths.length - 1]];
    parts = along(mirrored(parts, shape[last], full), full, last, sign);
    shape[last] = full[last];
  } else for (const d of dims) parts = along(parts, shape, d, sign);
  const count = inverse ? sizeOf(lengths) : 1;
  let made = parts.map((part) => part.map((v) => v / count));
  if (kind === 'RFFT') {
    const kept = Math.floor(shape[last] / 2) + 1;
    const whole = shape[last];
    made = made.map((part) => part.filter((_, i) => i % whole < kept));
    shape[last] = kept;
  }
  const arrays = made.map((part) => fromFlat(shape, part, partType(type)));
  return isComplexType(type) ? complexOf(arrays[0], arrays[1], type) : arrays[0];
}

/** The second half of a row of frequencies of real numbers: the first one backwards, conjugated. */
function mirrored(
  [re, im]: [Float64Array, Float64Array],
  stored: number,
  full: readonly number[],
): [Float64Array, Float64Array] {
  const length = full[full.length - 1];
  const out: [Float64Array, Float64Array] = [
    new Float64Array(sizeOf(full)),
    new Float64Array(sizeOf(full)),
  ];
  for (let row = 0; row < out[0].length / length; row++)
    for (let k = 0; k < length; k++) {
      const from = row * stored + (k < stored ? k : length - k);
      out[0][row * length + k] = re[from];
      out[1][row * length + k] = k < stored ? im[from] : -im[from];
    }
  return out;
}
