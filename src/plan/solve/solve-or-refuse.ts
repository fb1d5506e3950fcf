/**
 * Solves a prepared problem once within a deadline. Where the solver cannot finish in the time or
 * size given, the answer is the greedy choice or an error for the user.
 */
import { defined } from '../../defined.ts';
import { interrupted, ShardwrightError } from '../../errors.ts';
import { TooLargeForLibrary } from '../../solver/milp/verdict.ts';
import { NoChoiceInTime, solve } from '../../solver/solve.ts';
import type { Certificate, Problem, Solution, SolveOptions } from '../../solver/types.ts';
import type { Prepared } from '../prepare/prepared.ts';
import { withMemoryBound } from '../record/certificate.ts';
import type { Deadline } from '../request/deadline.ts';
import { greedily } from './greedy.ts';
import { provenLeastMemory } from './least-memory.ts';

/** Undefined when no choice was found in time. */
export async function solveUnlessLate(
  problem: Problem,
  options: SolveOptions,
): Promise<Solution | undefined> {
  return solve(problem, options).catch((error: unknown) => {
    if (error instanceof NoChoiceInTime) return undefined;
    throw error;
  });
}

/**
 * With the objective `parameter-memory` the least memory of parameters is found first and becomes
 * the bound of the memory row; time is then minimised among the plans that reach it.
 */
export async function lexicographic(
  {
    left: {
      compact: { problem },
    },
    question: { request },
  }: Pick<Prepared, 'left' | 'question'>,
  deadline: Deadline,
): Promise<{ readonly problem: Problem; readonly leastBytes?: Certificate }> {
  if (request.objective !== 'parameter-memory') return { problem };
  const least = await provenLeastMemory(problem, deadline.solveOptions);
  if (least === undefined) return { problem };
  if (least === 'open')
    throw tooLate(deadline, 'the least memory of parameters was not proven in time');
  const { bytes, certificate } = least;
  return {
    problem: withMemoryBound(problem, bytes),
    ...defined({ leastBytes: certificate }),
  };
}

/** Solves; what the solver cannot do in the time or size given becomes an error for the user. */
export async function solveOrRefuse(
  prepared: Pick<Prepared, 'model' | 'left'>,
  problem: Problem,
  options: SolveOptions,
  deadline: Deadline,
): Promise<Solution> {
  try {
    return await solve(problem, options);
  } catch (error) {
    if (error instanceof NoChoiceInTime) {
      const greedy = greedily(prepared, problem);
      if (greedy !== undefined) return greedy;
      throw tooLate(deadline, error.message);
    }
    if (error instanceof TooLargeForLibrary)
      throw new ShardwrightError('E_LIMIT', error.message, {
        hint: 'use --solver auto, or a smaller mesh.',
      });
    throw error;
  }
}

function tooLate(deadline: Deadline, message: string): ShardwrightError {
  return deadline.isInterrupted
    ? interrupted()
    : new ShardwrightError('E_TIME_LIMIT', message, { hint: 'raise --time-limit or --memory.' });
}
