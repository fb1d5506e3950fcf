import { solveNow } from '../../src/solver/solve.ts';
import type { Problem } from '../../src/solver/types.ts';

/**
 * Cost against one row of a problem, one solve a point: without a limit, then with the limit one
 * below what the answer takes, until nothing is left. That is every trade there is, and as slow:
 * programs ask `memoryFrontier`, which looks where least is known.
 */

/** A choice that no other beats in both cost and amount. */
export interface FrontChoice {
  /** In the problem's units, with the proven bound for its limit and the gap between them. */
  readonly cost: number;
  readonly bound: number;
  readonly gap: number;
  /** Of the row. */
  readonly amount: number;
  readonly choice: Int32Array;
}

/**
 * @param name the row's; its own bound is not looked at
 * @returns falling amounts, rising costs, both strictly: of equal costs the least amount
 */
export function memoryFront(problem: Problem, name: string): FrontChoice[] {
  const rows = problem.rows ?? [];
  const row = rows.find((r) => r.name === name);
  if (row === undefined) throw new Error(`no row '${name}'`);
  const points: FrontChoice[] = [];
  let bound = row.amounts.reduce((sum, list) => sum + Math.max(...list), 0);
  for (;;) {
    const found = solveNow({
      ...problem,
      rows: rows.map((r) => (r === row ? { ...r, bound } : r)),
    });
    if (found.status === 'infeasible') return points;
    const amount = row.amounts.reduce(
      (sum, list, k) => sum + list[found.choice[row.variables[k]]],
      0,
    );
    // As cheap with less: the one before is not a point of the front.
    if (points.at(-1)?.cost === found.objective) points.pop();
    points.push({
      cost: found.objective,
      bound: found.bound,
      gap: found.gap,
      amount,
      choice: found.choice,
    });
    bound = amount - 1;
  }
}
