/** Choices that take little of a row, against the least amount over all choices. */
import { expect, test } from 'vitest';

import { rowAsCost } from '../../../src/solver/problem/recost.ts';
import { choiceOfLeastRow } from '../../../src/solver/search/least-row.ts';
import { PreparedProblem } from '../../../src/solver/search/prepared.ts';
import { solveNow } from '../../../src/solver/solve.ts';
import type { LinearRow, Problem } from '../../../src/solver/types.ts';
import { layered } from '../layered.ts';
import { build, mulberry32, randomProblem } from '../support.ts';

/**
 * A row over some variables, each with amounts that its values take; equal layers take equal
 * amounts.
 */
function rowOf({ domains }: Problem, seed: number, width: number): LinearRow {
  const next = mulberry32(seed);
  const kinds = Array.from({ length: width }, () =>
    Array.from({ length: 8 }, () => Math.floor(next() * 20)),
  );
  const variables = Int32Array.from(domains.keys()).filter((v) => v % width !== 1);
  const amounts = Array.from(variables, (v) =>
    Float64Array.from(kinds[v % width].slice(0, domains[v])),
  );
  return { name: 'row', variables, amounts, bound: Infinity };
}

test('takes the least of small problems, and says nothing where no choice is left', () => {
  for (let seed = 0; seed < 40; seed++) {
    const problem = build(randomProblem(seed, { most: 7, values: 4 }));
    const row = rowOf(problem, seed, 3);
    const least = solveNow(rowAsCost(problem, row));
    const found = choiceOfLeastRow(new PreparedProblem(problem), row, () => false);
    if (least.status === 'infeasible') expect(found, `seed ${seed}`).toBeUndefined();
    else expect(found?.amount, `seed ${seed}`).toBe(least.objective);
  }
});

test('of equal layers it is a choice of the whole problem, of the amount that it says', () => {
  let some = 0;
  for (let seed = 0; seed < 6; seed++) {
    const { plain, width } = layered(seed, 800);
    const problem = build(plain);
    const row = rowOf(problem, seed, width);
    const prepared = new PreparedProblem(problem);
    expect(prepared.fold, `seed ${seed}`).toBeDefined();
    const found = choiceOfLeastRow(prepared, row, () => false);
    const least = solveNow(rowAsCost(problem, row)).objective;
    if (found === undefined) continue;
    some++;
    expect(prepared.cost(found.choice), `seed ${seed}`).toBeLessThan(Infinity);
    expect(row.variables.reduce((sum, v, k) => sum + row.amounts[k][found.choice[v]], 0)).toBe(
      found.amount,
    );
    expect(found.amount, `seed ${seed}`).toBeGreaterThanOrEqual(least);
  }
  expect(some).toBeGreaterThan(2);
});
