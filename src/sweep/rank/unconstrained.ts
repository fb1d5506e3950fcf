/** Solves the placement of a data rank's program without a memory bound. */

import type { ProblemInUnits } from '../../plan/model/tables.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import type { Deadline } from '../../plan/request/deadline.ts';
import { conflictOf } from '../../plan/restrict/conflict.ts';
import { withoutFixed } from '../../solver/problem/condition.ts';
import { solve } from '../../solver/solve.ts';

/**
 * The cheapest placements of a program, whatever they need; the states that they need are compared
 * with the budget later.
 *
 * @param problem the program's own, or the same with other costs
 */
export async function solveFree(
  prepared: Pick<Prepared, 'left' | 'model' | 'question'>,
  { problem, unitsPerSecond }: ProblemInUnits = {
    problem: prepared.left.compact.problem,
    unitsPerSecond: prepared.model.unitsPerSecond,
  },
  deadline?: Deadline,
): Promise<
  | {
      readonly choice: Int32Array;
      readonly seconds: number;
      readonly proof: {
        readonly status: string;
        readonly bound: number;
        readonly gap: number;
        readonly objective: number;
      };
    }
  | { readonly refused: string }
> {
  const {
    model,
    left: { compact, contradictions },
  } = prepared;
  if (contradictions.length > 0) return { refused: contradictions.join('; ') };
  const free = withoutFixed({ ...problem, rows: [] });
  const solution = await solve(free.problem, {
    engine: 'exact',
    seed: prepared.question.request.seed,
    ...deadline?.solveOptions,
  });
  if (solution.status === 'infeasible')
    return {
      refused:
        conflictOf(model, solution, free.variableOf).join(', ') ||
        'no placement of every node fits it',
    };
  const per = unitsPerSecond;
  return {
    choice: compact.expand(free.expand(solution.choice)),
    seconds: solution.objective / per,
    proof: {
      status: solution.status,
      bound: solution.bound / per,
      gap: solution.gap,
      objective: solution.objective / per,
    },
  };
}
