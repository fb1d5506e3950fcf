/** The search for the price of one row, against all crossings of all choices. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { bracketOf, breakpointOf, type SupportingLine } from '../../../src/solver/dual/multipliers.ts';

const UNIT = 2 ** 20;
const least = (lines: readonly SupportingLine[], unit: number): number =>
  Math.min(...lines.map(({ cost, over }) => cost + unit * over));

/** The largest value of the least line: it lies at zero or where two lines cross. */
function highest(lines: readonly SupportingLine[]): number {
  let best = least(lines, 0);
  for (const a of lines) {
    for (const b of lines) {
      const unit = (b.cost - a.cost) / (a.over - b.over);
      if (unit > 0 && unit < Infinity) best = Math.max(best, least(lines, unit));
    }
  }
  return best;
}

const line = fc.record({
  cost: fc.integer({ min: 0, max: 1_000_000 }),
  over: fc.integer({ min: -1000, max: 1000 }),
  isTight: fc.constant(true),
});
const lists = fc
  .array(line, { minLength: 2, maxLength: 12 })
  .filter((lines) => lines.some(({ over }) => over > 0) && lines.some(({ over }) => over <= -1));

it('the breakpoint of all choices is the best bound that a price can give', () => {
  fc.assert(
    fc.property(lists, (lines) => {
      const free = least(lines, 0);
      const top = Math.max(free, breakpointOf(lines).top);
      // A price is a multiple of 2^-20 of a unit, and a row takes at most 1,000 units more or less.
      expect(Math.abs(top - highest(lines))).toBeLessThan(1e-6 * Math.abs(free) + 0.01);
    }),
  );
});

it('the search meets the breakpoint of all choices though it sees only the cheapest at the prices it asks for', () => {
  fc.assert(
    fc.property(lists, (lines) => {
      let asked = 0;
      const cheapestAt = (price: bigint): SupportingLine => {
        asked++;
        const unit = Number(price) / UNIT;
        return lines.reduce((a, b) => (b.cost + unit * b.over < a.cost + unit * a.over ? b : a));
      };
      const bracket = bracketOf(cheapestAt, () => false, 2000);
      const free = cheapestAt(0n);
      if (free.over <= 0) {
        expect(bracket).toBeUndefined();
        return;
      }
      expect(bracket).toBeDefined();
      const { low, high, breakpoint } = bracket ?? { low: 0n, high: 0n, breakpoint: { price: 0n, top: 0 } };
      expect(low < high).toBe(true);
      const unit = Number(breakpoint.price) / UNIT;
      const best = highest(lines);
      expect(least(lines, unit)).toBeGreaterThan(best - 1e-3 * Math.abs(best) - 1);
      expect(breakpoint.top).toBeGreaterThan(best - 1e-6 * Math.abs(best) - 1);
      expect(asked).toBeLessThan(60);
    }),
  );
});
