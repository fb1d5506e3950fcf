import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { LabelFront } from '../../../src/solver/eliminate/labels.ts';

/** A label as its numbers: reduced cost, priced part of it, amounts. */
type Label = readonly number[];

/**
 * What the definition says: sums of a label of each list within the limits that no other sum beats;
 * by true cost, then amounts.
 */
function frontByDefinition(
  lists: readonly (readonly Label[])[],
  slack: number,
  budget: readonly number[],
): Label[] {
  let sums: Label[] = [[0, 0, ...budget.map(() => 0)]];
  for (const list of lists) sums = sums.flatMap((a) => list.map((b) => a.map((x, i) => x + b[i])));
  const within = sums.filter((l) => l[0] <= slack && budget.every((most, r) => l[2 + r] <= most));
  const keyOf = (l: Label): Label => [l[0] - l[1], ...l.slice(2)];
  const beats = (a: Label, b: Label): boolean => {
    const [x, y] = [keyOf(a), keyOf(b)];
    return x.every((n, i) => n <= y[i]) && x.some((n, i) => n < y[i]);
  };
  const best = within.filter((l) => !within.some((other) => beats(other, l)));
  const unique = new Map(best.map((l) => [keyOf(l).join(), l]));
  return [...unique.values()].map(keyOf).sort((a, b) => {
    const first = a.findIndex((n, i) => n !== b[i]);
    return first < 0 ? 0 : a[first] - b[first];
  });
}

const numbers = fc.integer({ min: 0, max: 9 });

describe('fronts of labels', () => {
  it.each([0, 1, 2, 3])('are those of the definition under %i rows', (rows) => {
    // The priced part is what the amounts cost, so that what beats a label is within the slack if
    // that is.
    const label = fc
      .tuple(numbers, fc.array(numbers, { minLength: rows, maxLength: rows }))
      .map(([cost, amounts]) => {
        const priced = amounts.reduce((sum, amount) => sum + 2 * amount, 0);
        return [cost + priced, priced, ...amounts];
      });
    const list = fc.array(label, { minLength: 1, maxLength: 8 });
    fc.assert(
      fc.property(
        fc.array(list, { minLength: 1, maxLength: 3 }),
        fc.integer({ min: 0, max: 40 }),
        (lists, slack) => {
          const budget = new Float64Array(rows).fill(15);
          const front = new LabelFront({ slack, budget, work: Infinity, most: Infinity });
          front.append(new Float64Array(2 + rows), 0, 1);
          for (const list of lists) front.addLabels(Float64Array.from(list.flat()), 0, list.length);
          const width = 2 + rows;
          const found = Array.from({ length: front.count }, (_, l) => {
            const [cost, priced, ...amounts] = front.data.subarray(l * width, (l + 1) * width);
            return [cost - priced, ...amounts];
          });
          expect(found).toEqual(frontByDefinition(lists, slack, [...budget]));
        },
      ),
      { seed: 7, numRuns: 200 },
    );
  });

  it('keep the ends of a front, and as many labels as are asked for, however long the list is', () => {
    const front = new LabelFront({
      slack: Infinity,
      budget: Float64Array.of(1000),
      work: Infinity,
      most: 5,
    });
    // Backwards, and each beside one that it beats.
    const labels = Array.from({ length: 400 }, (_, k) => [400 - k, 0, k, 400 - k, 0, k + 1]).flat();
    front.append(Float64Array.from(labels), 0, 800);
    front.reduce();
    const amounts = Array.from({ length: front.count }, (_, l) => front.data[3 * l + 2]);
    expect(amounts).toEqual([399, 299, 199, 100, 0]);
  });

  it('end with an error as soon as combining them is more work than the limit', () => {
    const front = new LabelFront({
      slack: Infinity,
      budget: Float64Array.of(100),
      work: 10,
      most: Infinity,
    });
    front.append(Float64Array.of(0, 0, 2, 1, 0, 1, 2, 0, 0), 0, 3);
    front.addLabels(Float64Array.of(0, 0, 2, 1, 0, 1, 2, 0, 0), 0, 3);
    expect(() => front.addLabels(Float64Array.of(0, 0, 0), 0, 1)).toThrow();
    expect(front.work).toBeGreaterThan(10);
  });
});
