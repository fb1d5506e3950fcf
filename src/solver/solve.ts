/**
 * The entry of the solver, `solve(problem, options)`. A problem is MAP inference in a pairwise
 * Markov random field with linear rows and usage over time. The answer is a choice that the checker
 * evaluated, a lower bound, and the certificate of that bound.
 */
import { solveWithLibrary, withSecondOpinion } from './milp/dispatch.ts';
import { solveNow } from './prove.ts';
import type { Problem, Solution, SolveOptions } from './types.ts';

export { NoChoiceInTime, solveNow } from './prove.ts';

/**
 * Solves a problem exactly, or returns the best choice and bound within the limits. Never throws on
 * infeasible problems; throws `NoChoiceInTime` when time ran out before it is known whether there
 * is any choice, and the library engines throw `TooLargeForLibrary` beyond their size guard.
 */
export async function solve(problem: Problem, options: SolveOptions = {}): Promise<Solution> {
  const { engine = 'auto' } = options;
  if (engine === 'highs' || engine === 'javascript-lp-solver')
    return solveWithLibrary(engine, problem, options, solveNow);
  const solution = solveNow(problem, options);
  return engine === 'auto' ? withSecondOpinion(problem, solution, options.signal) : solution;
}
