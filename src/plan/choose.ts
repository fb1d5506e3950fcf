/** The plans that answer a solved request, the preferred one first. */
import type { Problem, Solution } from '../solver/types.ts';
import { askedTimeline, type Candidate } from './choice/result.ts';
import type { Prepared } from './prepare/prepared.ts';
import type { Deadline } from './request/deadline.ts';
import { peakBinds } from './request/request.ts';
import type { Solved } from './solve/least-seconds.ts';
import { brokenTies, TIE_BREAK, TIES_LEFT } from './solve/ties.ts';

/**
 * Yields the candidates in order. Where no row of memory limits a proven optimum, its twin that
 * ties prefer comes first, if there is time to look for it.
 */
export function* candidatesOf(
  prepared: Prepared,
  { best, problem }: Pick<Solved, 'best' | 'problem'>,
  deadline: Deadline,
): Generator<Candidate> {
  const mayTie = best.status === 'optimal' && !peakBinds(prepared.question.request);
  const isLate = deadline.isOver;
  if (mayTie && !isLate) {
    const twin = preferred(prepared, best, problem.rows);
    if (twin !== best)
      yield {
        prepared: noting(prepared, TIE_BREAK),
        solution: twin,
        ...timelineOf(prepared, twin),
      };
  }
  const said = mayTie && isLate ? noting(prepared, TIES_LEFT) : prepared;
  yield { prepared: said, solution: best, ...timelineOf(prepared, best) };
}

function noting(prepared: Prepared, note: string): Prepared {
  return { ...prepared, notes: [...prepared.notes, note] };
}

function timelineOf(prepared: Prepared, { choice }: Solution): Pick<Candidate, 'memory'> {
  return { memory: askedTimeline(prepared, choice) };
}

/** An optimum, or the choice of equal cost that is preferred to it. */
function preferred(
  { model, left: { problem } }: Prepared,
  solution: Solution,
  rows: Problem['rows'],
): Solution {
  const bounded =
    problem.rows?.map((row, r) => ({ ...row, bound: rows?.[r].bound ?? row.bound })) ?? [];
  const found = brokenTies(
    model,
    { ...problem, rows: bounded },
    solution.choice,
    solution.objective,
  );
  const isSame = found === undefined || found.every((a, v) => a === solution.choice[v]);
  return isSame ? solution : { ...solution, choice: found };
}
