import fc from 'fast-check';
import { expect, test } from 'vitest';

test('random tests draw the same examples in every run, those of FAST_CHECK_SEED where it is given', () => {
  const drawn = (): readonly number[] => fc.sample(fc.nat(), 5);
  expect(drawn()).toEqual(drawn());
  const asked = process.env.FAST_CHECK_SEED ?? '';
  if (asked !== '')
    expect(drawn()).toEqual(fc.sample(fc.nat(), { numRuns: 5, seed: Number(asked) }));
});
