/**
 * Ties: among all choices of least cost, the lexicographically smallest in the caller's order of variables.
 */
import type { Solver } from './conflicts.ts';
import type { Problem, SolveOptions } from '../types.ts';

/**
 * Goes through the variables in order and lowers each as far as the optimum allows: one exact solve per attempt, each on a
 * problem whose earlier variables are fixed. Undefined when the clock ran out. Costs are never touched.
 */
export function smallestOptimum(
  problem: Problem,
  optimum: Int32Array,
  objective: number,
  solver: Solver,
  options: SolveOptions,
): Int32Array | undefined {
  let choice: Int32Array = optimum.slice();
  const vectors: Float64Array[] = Array.from(problem.unary, (u) => problem.vectors[u].slice());
  const fixed: Problem = { ...problem, vectors, unary: Int32Array.from(vectors.keys()) };
  for (let i = 0; i < choice.length; i++) {
    while (choice[i] > 0) {
      const whole = vectors[i];
      vectors[i] = whole.map((c, a) => (a < choice[i] ? c : Infinity));
      const { status, ...lower } = solver(fixed, { ...options, starts: [] });
      vectors[i] = whole;
      if (status === 'feasible') return undefined;
      if (status === 'infeasible' || lower.objective > objective) break;
      choice = lower.choice;
    }
    vectors[i] = vectors[i].map((c, a) => (a === choice[i] ? c : Infinity));
  }
  return choice;
}
