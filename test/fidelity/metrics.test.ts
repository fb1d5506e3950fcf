import { expect, test } from 'vitest';

import { weightedQuantile } from '../../src/fidelity/metrics.ts';

const of = (...pairs: readonly (readonly [value: number, weight: number])[]) =>
  pairs.map(([value, weight]) => ({ value, weight }));

test('a weighted quantile is linear between the middles of the weights', () => {
  const three = of([3, 1], [1, 1], [2, 1]);
  expect(weightedQuantile(three, 1 / 2)).toBe(2);
  // The middles of the first and the second are at 1/6 and 1/2 of the weight.
  expect(weightedQuantile(three, 1 / 3)).toBeCloseTo(1.5, 12);
  // Below the first middle and above the last there is nothing between.
  expect([weightedQuantile(three, 0.1), weightedQuantile(three, 0.95)]).toEqual([1, 3]);
  // Middles at 1/8 and 5/8.
  expect(weightedQuantile(of([10, 1], [20, 3]), 3 / 8)).toBeCloseTo(15, 12);
});
