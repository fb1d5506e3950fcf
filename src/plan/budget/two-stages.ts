/**
 * Sharding first, checkpointing after: placements whose states leave much of the budget, and in
 * them the cheapest recomputation that fits.
 */
import { type Effort, gapOnTheWay, workOn } from '../request/efforts.ts';
import { solveUnlessLate } from '../solve/solve-or-refuse.ts';
import { fit } from './fit.ts';
import { bestOf, type BudgetSearch, type Found, isGood, quicker } from './types.ts';

/**
 * Tries the state shares of an effort in turn, where no two stages were found or the best plan is
 * not good enough. The first plan that fits joins what was found.
 */
export async function withTwoStages(
  search: BudgetSearch,
  found: Found,
  effort: Effort,
): Promise<Found> {
  const { prepared, evaluator, run } = search;
  if (found.stage !== undefined && isGood(search, found)) return found;
  const known = bestOf(found)?.seconds ?? Infinity;
  for (const share of effort.stateShares) {
    if (run.deadline.isOver) break;
    // A first stage that was not found is one that is left out.
    const placed = await leanStates(search, share);
    if (placed === undefined) continue;
    // Recomputation only adds seconds.
    const { plan } = evaluator.plain(prepared.left.compact.expand(placed));
    if (plan.seconds >= known) continue;
    const points = found.points.slice(0, 1);
    const { fitted } = await fit(search, { points, effort, placed });
    if (fitted !== undefined) return { ...found, stage: quicker(found.stage, fitted) };
  }
  return found;
}

/**
 * A choice of about the least seconds whose states take at most a share of the budget; undefined
 * where none is found.
 */
async function leanStates(
  { prepared, over: { free, problem }, run: { deadline } }: BudgetSearch,
  share: number,
): Promise<Int32Array | undefined> {
  if (share === 1) return free.choice;
  if (deadline.isOver) return undefined;
  const { request } = prepared.question;
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
