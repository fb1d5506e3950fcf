/**
 * The plan whose peak is within the budget, from one whose peak is not: peak memory becomes a
 * constraint, and recomputation a choice if asked. One loop tries the efforts of the request in
 * turn until a plan is good enough for the bound.
 *
 * Bounds come from rows at the full budget and all decisions that may fit, so they stay valid
 * whatever the search leaves out. Every problem has a work limit, counted in steps, not seconds, so
 * that the same request has the same answer everywhere.
 */
import type { Impossible, PlannedResult } from '../choice/result.ts';
import type { Prepared } from '../prepare/prepared.ts';
import { type Effort, effortsOf } from '../request/efforts.ts';
import { recomputesUnderBudget } from '../request/request.ts';
import type { Run } from '../request/run.ts';
import { answerOf } from './answer.ts';
import { PeakEvaluator } from './attempt.ts';
import { leastBytesAt, withBound } from './bound.ts';
import { withJointSearch } from './joint-search.ts';
import { PeakProblems } from './rows/peak-problems.ts';
import { withTwoStages } from './two-stages.ts';
import {
  bestOf,
  type BudgetSearch,
  type Found,
  isGood,
  type OverBudget,
  type Proven,
} from './types.ts';

/**
 * Searches the plan of fewest seconds whose peak is within the budget.
 *
 * @param given a request that says that the peak binds
 * @throws E_TIME_LIMIT, E_LIMIT where neither a plan was found nor its absence proven
 */
export async function holdBudget(
  given: Prepared,
  over: OverBudget,
  run: Run,
): Promise<PlannedResult | Impossible> {
  const started = performance.now();
  const search = budgetSearch(given, over, run);
  const found = await searchWithin(search);
  return answerOf(search, over, found, (performance.now() - started) / 1000);
}

/** A search that has found nothing yet. */
export function budgetSearch(
  given: Prepared,
  over: BudgetSearch['over'] & Pick<OverBudget, 'problems'>,
  run: Run,
): BudgetSearch {
  // What an earlier search recomputes is part of the program by now.
  const { recomputation: _, ...request } = given.question.request;
  const prepared = { ...given, question: { ...given.question, request } };
  // A graph with its bodies in line, in which nodes are recomputed, is not a program, and has no
  // trips.
  const recompute = recomputesUnderBudget(request) && prepared.model.opened === undefined;
  const problems = (recompute ? undefined : over.problems) ?? new PeakProblems(prepared, recompute);
  const evaluator = new PeakEvaluator(prepared, problems.live);
  const seen = { rounds: 0, open: 0, undercounted: new Set<number>() };
  return { prepared, over, recompute, problems, evaluator, run, seen };
}

/** The loop of the budget. */
export async function searchWithin(search: BudgetSearch): Promise<Found> {
  const { prepared, over, recompute, evaluator, run } = search;
  const { request } = prepared.question;
  const { point } = evaluator.plain(prepared.left.compact.expand(over.free.choice));
  let found: Found = { points: [point], proven: NOTHING, isOutOfTime: false };
  const nodes = prepared.model.graph.nodes.length;
  const efforts = effortsOf(request, { recompute, nodes });
  let [last] = efforts;
  for (const effort of efforts) {
    if (effort.ifOpen && !isOpen(search, found)) continue;
    found = await withEffort(search, found, effort);
    last = effort;
  }
  const isOutOfTime = run.deadline.isOver;
  const neededBytes =
    bestOf(found) === undefined ? await leastBytesAt(search, found.points, last) : undefined;
  return { ...found, isOutOfTime, neededBytes };
}

/** A search that has proven nothing yet. */
const NOTHING: Proven = { boundSeconds: -Infinity, certified: false };

async function withEffort(search: BudgetSearch, given: Found, effort: Effort): Promise<Found> {
  const { problems, seen } = search;
  let found = given;
  if (effort.ifOpen) {
    // Rows that a choice over the budget kept count shared storages from now on.
    for (const m of seen.undercounted) problems.countStorages(m);
    seen.open = 0;
    found = { ...found, whole: undefined };
  }
  for (const step of effort.steps) {
    if (step === 'bound') found = await withBound(search, found, effort);
    else if (step === 'two stages') found = await withTwoStages(search, found, effort);
    else if (!isGood(search, found)) found = await withJointSearch(search, found, effort);
  }
  return found;
}

/** Tells whether more work may help. */
function isOpen(search: BudgetSearch, found: Found): boolean {
  const { problems, run, seen } = search;
  return (
    !isGood(search, found) &&
    !run.deadline.isOver &&
    (seen.open > 0 || [...seen.undercounted].some((m) => problems.sharesStorages(m)))
  );
}
