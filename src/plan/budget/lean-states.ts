/** Placements with lean states, where checkpointing after sharding begins. */
import type { Problem } from '../../solver/types.ts';
import type { Deadline } from '../request/deadline.ts';
import type { PlanRequest } from '../request/request.ts';
import { gapOnTheWay, workOn } from '../request/work-limits.ts';
import { solveUnlessLate } from '../solve/solve-or-refuse.ts';

/** A plan of about the least seconds under the states, and the compact problem that it answers. */
export interface UnderStates {
  readonly choice: Int32Array;
  readonly problem: Problem;
}

/**
 * A choice of about the least seconds whose states take at most a share of the budget; undefined
 * where none is found.
 */
export async function leanStates(
  { choice, problem }: UnderStates,
  share: number,
  request: PlanRequest,
  deadline: Deadline,
): Promise<Int32Array | undefined> {
  if (share === 1) return choice;
  if (deadline.isOver) return undefined;
  const rows = problem.rows?.map((row) => ({ ...row, bound: Math.floor(row.bound * share) })) ?? [];
  const solution = await solveUnlessLate(
    { ...problem, rows },
    {
      engine: 'exact',
      certify: false,
      gap: gapOnTheWay(request),
      workLimit: workOn(problem),
      seed: request.seed,
      ...deadline.solveOptions,
    },
  );
  return solution?.status === 'infeasible' ? undefined : solution?.choice;
}
