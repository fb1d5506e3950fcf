/** The search for the price of one row, against all crossings of all choices. */
import fc from 'fast-check';
import { expect, it } from 'vitest';

import { bracketOf, type SupportingLine } from '../../../src/solver/dual/multipliers.ts';

const UNIT = 2 ** 20;
type Line = Omit<SupportingLine, 'bound'>;
const least = (lines: readonly Line[], unit: number): number =>
  Math.min(...lines.map(({ cost, over }) => cost + unit * over));

/** The largest value of the least line: it lies at zero or where two lines cross. */
function highest(lines: readonly Line[]): number {
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
});
const lists = fc
  .array(line, { minLength: 2, maxLength: 12 })
  .filter((lines) => lines.some(({ over }) => over > 0) && lines.some(({ over }) => over <= -1));

it('the search meets the breakpoint of all choices though it sees only the cheapest at the prices it asks for', () => {
  fc.assert(
    fc.property(lists, (lines) => {
      let asked = 0;
      const cheapestAt = (price: bigint): SupportingLine => {
        asked++;
        const unit = Number(price) / UNIT;
        const best = lines.reduce((a, b) =>
          b.cost + unit * b.over < a.cost + unit * a.over ? b : a,
        );
        return { ...best, bound: least(lines, unit) };
      };
      const bracket = bracketOf(cheapestAt, () => false, 2000);
      const free = cheapestAt(0n);
      if (free.over <= 0) {
        expect(bracket).toBeUndefined();
        return;
      }
      expect(bracket).toBeDefined();
      const { low, high, breakpoint } = bracket ?? {
        low: 0n,
        high: 0n,
        breakpoint: { price: 0n, top: 0 },
      };
      expect(low < high).toBe(true);
      const unit = Number(breakpoint.price) / UNIT;
      const best = highest(lines);
      expect(least(lines, unit)).toBeGreaterThan(best - 1e-3 * Math.abs(best) - 1);
      expect(breakpoint.top).toBeGreaterThan(best - 1e-6 * Math.abs(best) - 1);
      expect(asked).toBeLessThan(60);
    }),
  );
});

it('where choices are not the best at their prices, the bounds lead to the best price among those seen', () => {
  const picks = fc.array(fc.nat({ max: 11 }), { minLength: 60, maxLength: 60 });
  fc.assert(
    fc.property(lists, picks, (lines, picked) => {
      const units: number[] = [];
      const someAt = (price: bigint): SupportingLine => {
        const unit = Number(price) / UNIT;
        const cheapest = lines.reduce((a, b) => (b.cost < a.cost ? b : a));
        const pick = units.length === 0 ? cheapest : lines[picked[units.length] % lines.length];
        units.push(unit);
        return { ...pick, bound: least(lines, unit) };
      };
      const bracket = bracketOf(someAt, () => false, 2000);
      expect(units.length).toBeLessThan(60);
      if (bracket === undefined) return;
      // A choice that keeps the row ends the growth of prices, the best one or not: beyond that
      // nothing is known.
      const last = Math.max(...units);
      const best = least(lines, Number(bracket.breakpoint.price) / UNIT);
      for (let k = 0; k <= 100; k++)
        expect(least(lines, (last * k) / 100)).toBeLessThanOrEqual(
          best + 1e-3 * Math.abs(best) + 1,
        );
    }),
  );
});
