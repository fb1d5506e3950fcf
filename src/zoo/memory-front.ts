import { ShardwrightError } from '../errors.ts';
import { solveNow } from '../solver/solve.ts';
import type { Problem } from '../solver/types.ts';

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

export interface MemoryFront {
  /** Falling amounts, rising costs, both strictly: of equal costs the least amount. */
  readonly points: readonly FrontChoice[];
  /** The least amount of any choice, where the walk came to its end; below it nothing is feasible. */
  readonly leastAmount?: number;
  /** Problems that were solved. */
  readonly solved: number;
}

/**
 * Cost against one row of a problem (bytes of states): solved without a limit, then with the limit one below what the answer
 * takes, until nothing is left. The first point within a limit is the answer to that limit, ties by amount.
 *
 * @param row the row's name; its own bound is not looked at
 * @param most problems that may be solved; default 1,000
 * @throws E_USAGE where the problem has no such row
 */
export function memoryFront(problem: Problem, row: string, most = 1000): MemoryFront {
  const rows = problem.rows ?? [];
  const limited = rows.find((r) => r.name === row);
  if (limited === undefined)
    throw new ShardwrightError('E_USAGE', `the problem has no row '${row}'`, {
      hint: rows.length === 0 ? 'it has none.' : `it has ${rows.map((r) => r.name).join(', ')}.`,
    });
  const { variables, amounts } = limited;
  const whole = amounts.reduce((sum, list) => sum + Math.max(...list), 0);
  const points: FrontChoice[] = [];
  let bound = whole;
  for (let solved = 1; solved <= most; solved++) {
    const found = solveNow({ ...problem, rows: rows.map((r) => (r === limited ? { ...r, bound } : r)) });
    if (found.status === 'infeasible') {
      const least = points.at(-1)?.amount;
      return { points, solved, ...(least === undefined ? {} : { leastAmount: least }) };
    }
    const amount = amounts.reduce((sum, list, k) => sum + list[found.choice[variables[k]]], 0);
    // As cheap with less: the one before is no point of the front.
    if (points.at(-1)?.cost === found.objective) points.pop();
    points.push({ cost: found.objective, bound: found.bound, gap: found.gap, amount, choice: found.choice });
    bound = amount - 1;
  }
  return { points, solved: most };
}
