/**
 * Bounds of a search under a peak memory budget: on the seconds of every plan within the budget,
 * and on the bytes that every plan takes.
 */
import type { Effort } from '../request/efforts.ts';
import { leastOfRow, solveRows } from './solve-rows.ts';
import { bestOf, type BudgetSearch, type Found, type Proven } from './types.ts';

/** The same search result, with a sharper bound if this effort proves one. */
export async function withBound(
  search: BudgetSearch,
  found: Found,
  effort: Effort,
): Promise<Found> {
  const sharper = await bound(search, found, effort);
  return sharper.boundSeconds > found.proven.boundSeconds ? { ...found, proven: sharper } : found;
}

/**
 * The bound from rows at the full budget, with the least that recomputed nodes cost in any
 * placement.
 */
async function bound(search: BudgetSearch, found: Found, effort: Effort): Promise<Proven> {
  const { prepared, problems, run } = search;
  const { points } = found;
  const seconds = bestOf(found)?.seconds;
  const open: Proven = { boundSeconds: 0, certified: false };
  if (run.deadline.isOver) return open;
  const problem = problems.ofBound(points);
  const none: Proven = { boundSeconds: Infinity, certified: false };
  for (const row of seconds === undefined ? (problem.rows ?? []) : [])
    if ((await leastOfRow(search, { problem, effort }, row)) > row.bound) return none;
  const solution =
    found.whole?.points.length === points.length
      ? found.whole.solution
      : await solveRows(search, {
          problem,
          effort,
          starts: startsOf(search, found, effort),
          certify: true,
        });
  if (solution === undefined) return open;
  if (solution.status === 'infeasible') return none;
  const { certificate } = solution;
  const boundSeconds = Math.min(
    solution.bound / prepared.model.unitsPerSecond,
    seconds ?? Infinity,
  );
  if (certificate === undefined) return { boundSeconds, certified: false };
  return { boundSeconds, certified: true, proof: { ...problems.named(points), certificate } };
}

/** Known choices, where the problem is searched for as long as it stays open. */
function startsOf({ problems }: BudgetSearch, found: Found, { improves }: Effort): Int32Array[] {
  if (!improves) return [];
  return [found.joint, found.stage].flatMap((fitted) =>
    fitted?.choice === undefined ? [] : [problems.whole.complete(fitted.choice)],
  );
}

/**
 * The bytes that no plan goes below at these program points, whatever it keeps; undefined where
 * they are within the budget.
 */
export async function leastBytesAt(
  search: BudgetSearch,
  points: readonly number[],
  effort: Effort,
): Promise<number | undefined> {
  const { prepared, problems, run } = search;
  const remat = problems.all();
  let neededBytes = 0;
  // The bytes of one node alone may exceed the budget, at a point that no search came to.
  const heaviest = problems.heaviestNode();
  for (const point of new Set(heaviest < 0 ? points : [...points, heaviest])) {
    if (run.deadline.isOver) break;
    const row = problems.row(remat, point, Infinity);
    const bytes = await leastOfRow(search, { problem: remat.problem, effort }, row);
    if (bytes < Infinity) neededBytes = Math.max(neededBytes, bytes);
  }
  return neededBytes > prepared.question.budgetBytes ? neededBytes : undefined;
}
