import { expect, test } from 'vitest';

import { flat, fromList, type NDArray } from '../../src/ndarray/array.ts';
import { partsOf } from '../../src/ndarray/complex.ts';
import { fourier } from '../../src/ndarray/fourier.ts';

/** Real and imaginary parts, rounded. */
function parts(x: NDArray): number[][] {
  return partsOf(x).map((part) =>
    Array.from(part === undefined ? [] : flat(part), (v) => Math.round(v * 1e9) / 1e9 + 0),
  );
}

test('the transforms are those of the definition, by hand', () => {
  const x = fromList([4], [1, 2, 3, 4]);
  expect(parts(fourier(x, 'RFFT', [4], 'c128'))).toEqual([
    [10, -2, -2],
    [0, 2, 0],
  ]);
  // A pulse at the first place has every frequency alike.
  const pulse = fromList([3], [5, 0, 0]);
  expect(parts(fourier(pulse, 'FFT', [3], 'c128'))).toEqual([
    [5, 5, 5],
    [0, 0, 0],
  ]);
  const there = fourier(x, 'FFT', [4], 'c128');
  expect(parts(fourier(there, 'IFFT', [4], 'c128'))[0]).toEqual([1, 2, 3, 4]);
});
