/**
 * Solves of one problem under several rows that share what is prepared, against solves that share
 * nothing and exhaustive elimination.
 */
import { describe, expect, it } from 'vitest';

import { PreparedProblem } from '../../../src/solver/search/prepared.ts';
import { solveNow } from '../../../src/solver/solve.ts';
import type { LinearRow, Problem } from '../../../src/solver/types.ts';
import { FULL } from '../../support/full.ts';
import { build, exhaust, mulberry32, randomProblem } from '../support.ts';

/** A row over all variables with random amounts, of which some share of the most is allowed. */
function randomRow(next: () => number, { domains }: Problem, share: number): LinearRow {
  const amounts = Array.from(domains, (size) =>
    Float64Array.from({ length: size }, () => Math.floor(next() * 20)),
  );
  const most = amounts.reduce((sum, list) => sum + Math.max(...list), 0);
  return {
    name: 'row',
    variables: Int32Array.from(domains.keys()),
    amounts,
    bound: Math.floor(share * most),
  };
}

describe('problems that differ in their rows only share what is prepared of them', () => {
  it.each([true, false])('and have the answers that they have alone; certified: %s', (certify) => {
    let bound = 0;
    const count = FULL ? 25 : 4;
    for (let seed = 0; seed < count; seed++) {
      const plain = { ...randomProblem(seed, { most: 7, values: 4 }), rows: [] };
      const problem = build(plain);
      const shared = new PreparedProblem(problem);
      const next = mulberry32(seed);
      const free = solveNow(problem, { prepared: shared, certify });
      for (const share of [0.9, 0.5, 0.3, 0.6]) {
        const wide = randomRow(next, problem, share);
        // Under a lower bound the same row finds its network presolved.
        for (const row of [wide, { ...wide, bound: Math.floor(0.9 * wide.bound) }]) {
          const asked = { ...problem, rows: [row] };
          const together = solveNow(asked, { prepared: shared, certify });
          const optimum = exhaust({
            ...plain,
            rows: [
              { ...row, variables: [...row.variables], amounts: row.amounts.map((a) => [...a]) },
            ],
          });
          expect(together.objective, `seed ${seed}, ${share}`).toBe(optimum.objective);
          expect(together.objective).toBe(solveNow(asked, { certify }).objective);
          if (together.status !== 'infeasible')
            expect(together.bound).toBeLessThanOrEqual(optimum.objective);
          if (certify && together.status !== 'infeasible') expect(together.status).toBe('optimal');
          if (together.objective > free.objective) bound++;
        }
      }
    }
    expect(bound).toBeGreaterThan(0.8 * count);
  });

  it('a problem of other costs shares nothing', () => {
    const problem = build(randomProblem(3, { most: 7, values: 4 }));
    const other = { ...problem, vectors: problem.vectors.map((v) => v.map((c) => 2 * c)) };
    expect(new PreparedProblem(problem).isOf(other)).toBe(false);
    expect(new PreparedProblem(problem).isOf({ ...problem, rows: [] })).toBe(true);
  });
});
