/** The figure of live bytes draws the budget where it is near the peak, and names it where it is far. */

import { expect, test } from 'vitest';

import { memoryFigure } from '../../src/report/figures/memory-curve.ts';
import { render } from '../../src/report/markup.ts';

const MIB = 2 ** 20;
const curve = {
  moments: 4,
  peakBytes: 10 * MIB,
  peakMoment: 2,
  peakNode: 'mm',
  phase: 'backward',
  backwardAt: 2,
  kinds: ['parameters', 'activations'],
  points: [
    [2, 0],
    [2, 4],
    [2, 8],
    [2, 1],
  ].map((point) => point.map((n) => n * MIB)),
  largest: [],
} as const;

/** Heights of the lines of a class, in pixels from the top. */
function heights(svg: string, name: string): readonly number[] {
  return [...svg.matchAll(/<line ([^>]*)>/g)]
    .filter(([, attributes]) => attributes.includes(`class="${name}"`))
    .map(([, attributes]) => Number(/y1="([\d.]+)"/.exec(attributes)?.[1]));
}

test('a budget of twice the peak is a line above the curve', () => {
  const svg = render(memoryFigure(curve, 20 * MIB));
  const [budget, ...others] = heights(svg, 'limit');
  expect(others).toEqual([]);
  const peak = Number(/cy="([\d.]+)"/.exec(svg)?.[1]);
  expect(budget).toBeLessThan(peak);
  expect(svg).toContain('budget 20.0 MiB');
  expect(svg).not.toContain('above the drawing');
});

test('a budget of three times the peak is written below the figure, and the curve keeps its height', () => {
  const svg = render(memoryFigure(curve, 30 * MIB));
  expect(heights(svg, 'limit')).toEqual([]);
  expect(svg).toContain('budget 30.0 MiB, above the drawing');
  // The peak lies at 1 / 1.06 of the height between 276 and 46 pixels.
  expect(Number(/cy="([\d.]+)"/.exec(svg)?.[1])).toBeCloseTo(276 - 230 / 1.06, 0);
});
