/** Until when and how hard a search works, and whom it tells: given together to every step. */
import type { Progress } from '../../solver/types.ts';
import { Deadline } from './deadline.ts';
import type { PlanRequest } from './request.ts';

/** Known choices and limits of a search. */
export interface SearchOptions {
  /**
   * Choices known beforehand, such as recipes: they bound the search and can only make it faster.
   */
  readonly starts?: readonly Int32Array[];
  /**
   * When the search is to end, shared by several solves; default: the request's time limit from the
   * call on.
   */
  readonly deadline?: Deadline;
  /**
   * Most work of the solver, see `SolveOptions.workLimit`: for whoever solves many problems and
   * takes a gap.
   */
  readonly workLimit?: number;
  /**
   * Where the peak is in the way: true if the least budget that has a plan is looked for, which
   * takes some more searches. `answer` asks for it. Default false.
   */
  readonly findsBudget?: boolean;
  readonly signal?: AbortSignal;
  readonly onProgress?: (event: Progress) => void;
}

/** The same with a deadline. */
export interface Run extends Omit<SearchOptions, 'deadline' | 'signal'> {
  readonly deadline: Deadline;
}

/** The run of a request; without a deadline of its own, the time limit counts from now on. */
export function startRun(
  { timeLimitSeconds }: Pick<PlanRequest, 'timeLimitSeconds'>,
  { deadline, signal, ...options }: SearchOptions,
): Run {
  return { ...options, deadline: deadline ?? new Deadline(timeLimitSeconds, { signal }) };
}
