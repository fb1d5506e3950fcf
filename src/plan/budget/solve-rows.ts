/**
 * Solves one problem with memory rows of a search under a peak memory budget, within counted work,
 * and gives a choice, a bound and, if asked for, its proof. Where the gap stays open, neighbourhood
 * search looks for a better choice, and the proof runs again from there with more work.
 */
import { defined } from '../../defined.ts';
import { rowAsCost } from '../../solver/problem/recost.ts';
import type { PreparedProblem } from '../../solver/search/prepared.ts';
import type { LinearRow, Problem, Solution } from '../../solver/types.ts';
import { type Effort, gapOnTheWay, LATER_PROOF_SHARE, workOn } from '../request/efforts.ts';
import { gapUnderMemory } from '../request/request.ts';
import { neighbourhoodStart } from '../solve/neighbourhood-start.ts';
import { solveUnlessLate } from '../solve/solve-or-refuse.ts';
import type { BudgetSearch } from './types.ts';

/** A problem, and how it is to be solved. */
interface RowsQuestion {
  readonly problem: Problem;
  readonly effort: Pick<Effort, 'workShare' | 'endsEarly' | 'improves'>;
  readonly starts?: readonly Int32Array[];
  readonly certify?: boolean;
  readonly shared?: PreparedProblem;
}

/** Undefined when the work was done before any choice was found. */
export async function solveRows(
  search: BudgetSearch,
  question: RowsQuestion,
): Promise<Solution | undefined> {
  const solution = await improved(search, question);
  const gap = gapOnTheWay(search.prepared.question.request);
  if (solution === undefined || solution.gap > gap) search.seen.open++;
  return solution;
}

/** The least amount of a row over all choices; Infinity when there is none. */
export async function leastOfRow(
  search: BudgetSearch,
  { problem, effort }: Pick<RowsQuestion, 'problem' | 'effort'>,
  row: LinearRow,
): Promise<number> {
  const solution = await solveRows(search, {
    problem: rowAsCost(problem, row),
    // The user sees this number, so the solve ends at the least gap.
    effort: { ...effort, endsEarly: false },
    certify: true,
  });
  if (solution === undefined) return 0;
  return solution.status === 'infeasible' ? Infinity : solution.bound;
}

async function improved(
  search: BudgetSearch,
  question: RowsQuestion,
): Promise<Solution | undefined> {
  const { deadline, onProgress } = search.run;
  const { request } = search.prepared.question;
  const { problem, effort } = question;
  const found = await proven(search, question);
  if (!effort.improves || deadline.isOver || found?.status === 'infeasible') return found;
  if (found !== undefined && found.gap <= gapUnderMemory(request)) return found;
  const starts = [...(question.starts ?? []), ...(found === undefined ? [] : [found.choice])];
  const known = { starts, bound: found?.bound };
  const better = await neighbourhoodStart(problem, known, request, deadline, onProgress);
  if (better === undefined || deadline.isOver) return found;
  const again = await proven(search, { ...question, starts: [better, ...starts] }, true);
  return again === undefined || (found !== undefined && again.gap > found.gap) ? found : again;
}

/** @param isSecond whether neighbourhood search came before */
async function proven(
  { prepared, run: { deadline, onProgress } }: BudgetSearch,
  { problem, effort, starts = [], certify = false, shared }: RowsQuestion,
  isSecond = false,
): Promise<Solution | undefined> {
  const { request } = prepared.question;
  const { workShare, endsEarly } = effort;
  return solveUnlessLate(problem, {
    engine: 'exact',
    certify,
    gap: gapOnTheWay(request),
    ...(endsEarly ? { enough: gapUnderMemory(request) } : {}),
    workLimit: (isSecond ? LATER_PROOF_SHARE : 1) * workShare * workOn(problem),
    starts,
    searchesWide: isSecond,
    seed: request.seed,
    ...deadline.solveOptions,
    ...defined({ onProgress, prepared: shared }),
  });
}
