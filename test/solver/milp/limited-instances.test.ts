import { describe, expect, it } from 'vitest';

import { evaluate } from '../../../src/solver/check/verify.ts';
import { HIGHS } from '../../../src/solver/milp/highs.ts';
import { JSLP } from '../../../src/solver/milp/jslp.ts';
import { consult } from '../../../src/solver/milp/verdict.ts';
import { solve } from '../../../src/solver/solve.ts';
import { FULL } from '../../support/full.ts';
import { build, exhaust, limitedInstance } from '../support.ts';

// The sixteen limited instances, as an exhaustive search solved them:
// [seed, n, edges, limit, optimum, choice, free optimum, free choice, least peak].
const TABLE: readonly (readonly [
  number,
  number,
  number,
  number,
  number,
  string,
  number,
  string,
  number,
])[] = [
  [1, 7, 10, 137, 694, '0012210', 487, '1011011', 122],
  [2, 7, 10, 103, 606, '1001121', 580, '1301121', 81],
  [3, 7, 5, 103, 483, '1032122', 307, '1012103', 71],
  [4, 8, 11, 118, 641, '10111130', 579, '10111330', 81],
  [5, 7, 11, 93, 837, '1200223', 653, '3000112', 62],
  [6, 7, 14, 97, 743, '1101130', 662, '1101230', 85],
  [7, 5, 1, 82, 228, '10201', 165, '10212', 49],
  [8, 5, 4, 67, 280, '12101', 245, '12121', 33],
  [9, 5, 2, 62, 292, '21300', 235, '21111', 46],
  [10, 7, 8, 69, 474, '1230210', 474, '1220110', 31],
  [11, 7, 8, 102, 545, '1101000', 545, '1101000', 85],
  [12, 6, 6, 44, 427, '023110', 405, '011000', 21],
  [13, 7, 11, 60, 702, '0100111', 574, '0020111', 59],
  [14, 6, 5, 72, 314, '102012', 291, '202012', 17],
  [15, 5, 5, 53, 284, '21113', 284, '21113', 22],
  [16, 7, 9, 68, 565, '0011231', 486, '0021232', 37],
];

describe('the sixteen random instances', () => {
  // Every fourth of them daily.
  it.each(FULL ? TABLE : TABLE.filter(([seed]) => seed % 4 === 1))(
    'seed %i',
    async (seed, n, edges, limit, optimum, choice, free, freeChoice, leastPeak) => {
      const plain = limitedInstance(seed);
      expect([plain.unary.length, plain.edges.length, plain.limit]).toEqual([n, edges, limit]);
      const all = exhaust(plain);
      expect([all.objective, all.free, all.leastPeak]).toEqual([optimum, free, leastPeak]);
      expect(all.choices[0].join('')).toBe(choice);
      expect(all.freeChoices.map((c) => c.join(''))).toContain(freeChoice);

      const problem = build(plain);
      const limited = await solve(problem);
      expect(limited).toMatchObject({
        status: 'optimal',
        objective: optimum,
        bound: optimum,
        gap: 0,
      });
      expect(all.choices.map((c) => c.join(''))).toContain(limited.choice.join(''));
      if (all.choices.length === 1) expect(limited.choice.join('')).toBe(choice);
      expect(evaluate(problem, limited.choice)).toMatchObject({
        violations: [],
        cost: BigInt(optimum),
      });

      const { limit: _limit, pieces: _pieces, ...unlimited } = plain;
      const freely = await solve(build(unlimited));
      expect(freely).toMatchObject({ status: 'optimal', objective: free });
      expect(all.freeChoices.map((c) => c.join(''))).toContain(freely.choice.join(''));

      // L*: with this limit a choice exists, one less and none does.
      expect((await solve(build({ ...plain, limit: leastPeak }))).status).toBe('optimal');
      expect((await solve(build({ ...plain, limit: leastPeak - 1 }))).status).toBe('infeasible');

      for (const backend of [HIGHS, JSLP]) {
        expect((await consult(problem, backend)).objective, backend.library).toBe(optimum);
        expect((await consult(build(unlimited), backend)).objective, backend.library).toBe(free);
      }
    },
  );
});
