/**
 * Ties: among all choices of least cost, the lexicographically smallest in the caller's order of
 * variables.
 */
import { allowOnly, Recosting } from '../../problem/recost.ts';
import type { Problem, SolveOptions } from '../../types.ts';
import type { Solver } from './conflicts.ts';

/**
 * Goes through the variables in order and lowers each as far as the optimum allows: one exact solve
 * per attempt, each on a problem whose earlier variables are fixed. Undefined when the clock ran
 * out. Costs are never touched.
 */
export function smallestOptimum(
  problem: Problem,
  optimum: Int32Array,
  objective: number,
  solver: Solver,
  options: SolveOptions,
): Int32Array | undefined {
  let choice: Int32Array = optimum.slice();
  for (let i = 0; i < choice.length; i++) {
    while (choice[i] > 0) {
      const fixed = new Recosting(problem);
      for (let v = 0; v < i; v++)
        fixed.variable(v, choice[v], (costs) => allowOnly(costs, (a) => a === choice[v]));
      fixed.variable(i, `<${choice[i]}`, (costs) => allowOnly(costs, (a) => a < choice[i]));
      const { status, ...lower } = solver(fixed.problem, { ...options, starts: [] });
      if (status === 'feasible') return undefined;
      if (status === 'infeasible' || lower.objective > objective) break;
      choice = lower.choice;
    }
  }
  return choice;
}
