/**
 * Checks the problems and choices that public functions are given: the solver knows no errors of
 * other rooms, and JavaScript lets everything through.
 */
import { checkKinds } from '../../arguments.ts';
import { messageOf, ShardwrightError, wrongArgument } from '../../errors.ts';
import { checkProblem, MalformedProblem } from '../../solver/problem/check-problem.ts';
import type { Problem } from '../../solver/types.ts';

/** @throws E_USAGE for a list that is no choice of the problem: one value of each domain */
export function checkChoice(
  call: string,
  { domains }: Pick<Problem, 'domains'>,
  choice: ArrayLike<unknown>,
): void {
  const isChoice =
    choice.length === domains.length &&
    domains.every((size, variable) => {
      const value = choice[variable];
      return Number.isInteger(value) && Number(value) >= 0 && Number(value) < size;
    });
  if (!isChoice)
    throw wrongArgument(
      call,
      'choice',
      'no choice of the problem',
      `it has ${domains.length} values, one of each domain.`,
    );
}

/** Problems that were found in order; their fields are read-only. */
const readableProblems = new WeakSet<Problem>();

/** @throws E_USAGE saying what no solver can read, and where */
export function readableProblem(call: string, problem: Problem): void {
  checkKinds(call, { problem: [problem, 'problem'] });
  if (readableProblems.has(problem)) return;
  refusedProblem(call, () => {
    checkProblem(problem);
  });
  readableProblems.add(problem);
}

/** @throws E_USAGE saying what is malformed, or cannot be read at all */
export function refusedProblem<T>(call: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    const fault = error instanceof MalformedProblem ? error.fault : messageOf(error);
    throw new ShardwrightError('E_USAGE', `${call}: the problem is malformed: ${fault}`, {
      hint: 'ProblemBuilder makes a problem of variables, edges and rows.',
    });
  }
}
