/** The plans that answer a solved request, the preferred one first. */
import type { Problem, Solution } from '../solver/types.ts';
import { askedTimeline, type Candidate } from './choice/result.ts';
import type { Prepared } from './prepare/prepared.ts';
import { peakBinds } from './request/request.ts';
import type { Solved } from './solve/least-seconds.ts';
import { brokenTies, TIE_BREAK } from './solve/ties.ts';

/**
 * Yields the candidates in order. Where no row of memory limits a proven optimum, its twin that
 * ties prefer comes first.
 */
export function* candidatesOf(
  prepared: Prepared,
  { best, problem }: Pick<Solved, 'best' | 'problem'>,
): Generator<Candidate> {
  if (best.status === 'optimal' && !peakBinds(prepared.question.request)) {
    const twin = preferred(prepared, best, problem.rows);
    const notes = [...prepared.notes, TIE_BREAK];
    if (twin !== best)
      yield { prepared: { ...prepared, notes }, solution: twin, ...timelineOf(prepared, twin) };
  }
  yield { prepared, solution: best, ...timelineOf(prepared, best) };
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
