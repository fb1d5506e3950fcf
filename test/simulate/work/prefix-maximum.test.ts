import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { PrefixMaximum } from '../../../src/simulate/work/prefix-maximum.ts';

describe('the greatest of numbers whose first ones grow together', () => {
  it('is that of a plain list, and so is its first place', () => {
    // Whole numbers: sums are exact in any order.
    const step = fc.record({
      value: fc.integer({ min: -50, max: 50 }),
      share: fc.nat(100),
      amount: fc.integer({ min: -9, max: 9 }),
    });
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 40 }), fc.nat(30), (steps, spare) => {
        const tree = new PrefixMaximum(steps.length + spare);
        const list: number[] = [];
        for (const { value, share, amount } of steps) {
          tree.append(value);
          list.push(value);
          const end = Math.round((share / 100) * list.length);
          tree.addBefore(end, amount);
          for (let k = 0; k < end; k++) list[k] += amount;
          expect(tree.value).toBe(Math.max(...list));
          expect(tree.place).toBe(list.indexOf(Math.max(...list)));
        }
      }),
      { numRuns: 200 },
    );
  });
});
