/**
 * Finds the least memory of a problem with a memory row: a bound by sums of minima, and the exact
 * minimum with its proof.
 */
import { defined } from '../../defined.ts';
import { rowAsCost } from '../../solver/problem/recost.ts';
import type { AllowedValues } from '../../solver/problem/restrict.ts';
import { NoChoiceInTime, solve } from '../../solver/solve.ts';
import type { Certificate, Problem, Solution, SolveOptions } from '../../solver/types.ts';

/**
 * Sum over the memory row of the least bytes of each placement: no plan needs less.
 *
 * @param kept values that are left of each variable, undefined where all are
 */
export function leastMemoryBound(
  problem: Problem,
  kept: readonly (AllowedValues | undefined)[] = [],
): number {
  let total = 0;
  problem.rows?.[0]?.amounts.forEach((amounts, k) => {
    const values = kept[problem.rows?.[0]?.variables[k] ?? -1]?.values;
    total +=
      values === undefined
        ? amounts.reduce((a, b) => Math.min(a, b), Infinity)
        : values.reduce((least, a) => Math.min(least, amounts[a]), Infinity);
  });
  return total;
}

/** The bytes of a choice in the memory row. */
export function memoryOf(problem: Problem, choice: Int32Array): number {
  const [row] = problem.rows ?? [];
  let total = 0;
  row?.amounts.forEach((amounts, k) => (total += amounts[choice[row.variables[k]]]));
  return total;
}

/**
 * The least bytes of the memory row over all plans: the same problem with bytes for costs, solved
 * exactly.
 *
 * @returns undefined when the problem has no plan even without a limit, or the limits came before
 *   the proof
 */
export async function leastMemory(
  problem: Problem,
  limits: SolveLimits = {},
): Promise<number | undefined> {
  const least = await provenLeastMemory(problem, limits);
  return least === 'open' ? undefined : least?.bytes;
}

/** Limits that may end a solve before its proof. */
type SolveLimits = Pick<SolveOptions, 'signal' | 'timeLimitSeconds'>;

/**
 * The same with its proof; absent for a problem without a memory row, where 0 needs none. `open`:
 * the limits came before the proof.
 */
export async function provenLeastMemory(
  problem: Problem,
  limits: SolveLimits = {},
): Promise<{ readonly bytes: number; readonly certificate?: Certificate } | 'open' | undefined> {
  const [row] = problem.rows ?? [];
  if (row === undefined) return { bytes: 0 };
  let least: Solution;
  try {
    least = await solve(rowAsCost(problem, row), { engine: 'exact', ...limits });
  } catch (error) {
    if (error instanceof NoChoiceInTime) return 'open';
    throw error;
  }
  if (least.status === 'infeasible') return undefined;
  if (least.status !== 'optimal') return 'open';
  return {
    bytes: least.objective,
    ...defined({ certificate: least.certificate }),
  };
}
