/**
 * Enumerates the choices of a problem in the order of their cost (Lawler, Management Science 18,
 * 1972), for problems of at most 200 variables.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { readableProblem } from '../../plan/choice/solver-arguments.ts';
import { solveNow } from '../../solver/solve.ts';
import type { Problem } from '../../solver/types.ts';

/** A choice and its cost in the problem's units. */
export interface RankedChoice {
  readonly cost: number;
  readonly choice: Int32Array;
}

/**
 * A part of the choices: the first `fixed` variables are as in `like`, and the one after them
 * avoids some values.
 */
interface Part extends RankedChoice {
  readonly like: Int32Array;
  readonly fixed: number;
  readonly avoided: readonly number[];
}

/**
 * Choices in the order of their cost, the optimum first: the best of all, then the best of what is
 * left, by splitting what is left on the first variable that differs (Lawler, Management Science
 * 18, 1972). Each takes as many solves as the problem has variables, so this is for small or folded
 * problems. Choices of equal cost come in no stated order.
 *
 * @throws E_LIMIT beyond 200 variables
 */
export function rankedChoices(problem: Problem): Generator<RankedChoice> {
  readableProblem('rankedChoices', problem);
  return ranked(problem);
}

function* ranked(problem: Problem): Generator<RankedChoice> {
  const n = problem.domains.length;
  if (n > MOST_VARIABLES)
    throw new ShardwrightError(
      'E_LIMIT',
      `${n} variables, choices of at most ${MOST_VARIABLES} are ranked`,
    );
  const open: Part[] = [];
  const offer = (like: Int32Array, fixed: number, avoided: readonly number[]): void => {
    const solution = solveNow(restricted(problem, like, fixed, avoided), {
      engine: 'exact',
      certify: false,
    });
    if (solution.status === 'infeasible') return;
    open.push({ cost: solution.objective, choice: solution.choice, like, fixed, avoided });
  };
  offer(new Int32Array(n), 0, []);
  while (open.length > 0) {
    const at = open.reduce((best, part, i) => (part.cost < open[best].cost ? i : best), 0);
    const [part] = open.splice(at, 1);
    yield { cost: part.cost, choice: part.choice };
    for (let i = part.fixed; i < n; i++)
      offer(
        part.choice,
        i,
        i === part.fixed ? [...part.avoided, part.choice[i]] : [part.choice[i]],
      );
  }
}

const MOST_VARIABLES = 200;

/**
 * The cheapest choices that are not the optimum: their common cost, and all of them up to `most`.
 *
 * @returns undefined where the optimum is the only choice, or none is
 */
export function nextBest(
  problem: Problem,
  most = 16,
):
  | { readonly cost: number; readonly delta: number; readonly choices: readonly Int32Array[] }
  | undefined {
  checkKinds('nextBest', {
    problem: [problem, 'problem'],
    most: [most, 'number', 'undefined'],
  });
  const choices: Int32Array[] = [];
  let optimum: number | undefined;
  let cost = Infinity;
  for (const found of rankedChoices(problem)) {
    if (optimum === undefined) {
      optimum = found.cost;
      continue;
    }
    if (choices.length > 0 && found.cost > cost) break;
    cost = found.cost;
    choices.push(found.choice);
    if (choices.length === most) break;
  }
  return optimum === undefined || choices.length === 0
    ? undefined
    : { cost, delta: cost - optimum, choices };
}

function restricted(
  problem: Problem,
  like: Int32Array,
  fixed: number,
  avoided: readonly number[],
): Problem {
  const vectors = [...problem.vectors];
  const unary = problem.unary.slice();
  for (let i = 0; i <= fixed && i < unary.length; i++) {
    const allowed = (value: number): boolean =>
      i < fixed ? value === like[i] : !avoided.includes(value);
    unary[i] = vectors.length;
    vectors.push(
      problem.vectors[problem.unary[i]].map((cost, value) => (allowed(value) ? cost : Infinity)),
    );
  }
  return { ...problem, vectors, unary };
}
