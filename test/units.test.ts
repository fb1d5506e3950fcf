/** Numbers as people read them: what `src/units.ts` prints. */
import { expect, test } from 'vitest';

import { differenceText, slowerText } from '../src/units.ts';

test.each([
  [0, '+0 %'],
  [0.164, '+16.4 %'],
  [-0.164, '-16.4 %'],
  [3e-5, '+0.00 %'],
  [-6e-5, '-0.01 %'],
  [2.5, '+250 %'],
])('a difference of %f is printed as %s', (fraction, text) => {
  expect(differenceText(fraction)).toBe(text);
});

test('a plan is slower than another by its excess, and equal to the last digit by nothing', () => {
  expect(slowerText(1.2, 1)).toBe('+20.0 %');
  expect(slowerText(0.8, 1)).toBe('-20.0 %');
  expect(slowerText(1 + 1e-12, 1)).toBe('+0 %');
  expect(slowerText(0, 0)).toBe('+0 %');
});
