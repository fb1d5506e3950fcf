/**
 * Placements and recomputation at once. Where the joint search finds nothing, it searches again
 * with anchors: long chains of recomputed nodes hold more than rows know, and saved checkpoints at
 * every k-th narrow point of the program bound the chains.
 */
import type { Effort } from '../request/efforts.ts';
import { fit } from './fit.ts';
import { type BudgetSearch, type Fitted, type Found, quicker } from './types.ts';

/**
 * Narrow points between two anchors, tried in this order: recomputation from dense anchors costs
 * least, but denser anchors hold more themselves.
 */
const ANCHORS_EVERY = [1, 2, 4, 8, 16, 32];
/**
 * Times that anchors are moved onto what the node at the peak reads. One move brings them to where
 * they were missing; after it the next spacing is tried.
 */
const ANCHOR_MOVES = 1;

/** The same search result, with the rows of one more search and with its plan if it is quicker. */
export async function withJointSearch(
  search: BudgetSearch,
  found: Found,
  effort: Effort,
): Promise<Found> {
  const start = (found.joint ?? found.stage)?.choice;
  const starts = start === undefined ? [] : [start];
  const { fitted, points, whole } = await fit(search, { points: found.points, effort, starts });
  const joint = quicker(found.joint, fitted ?? (await anchored(search, points[0], effort)));
  return { ...found, points, joint, whole: whole ?? found.whole };
}

async function anchored(
  search: BudgetSearch,
  point: number,
  effort: Effort,
): Promise<Fitted | undefined> {
  const { problems, run } = search;
  for (const every of search.recompute ? ANCHORS_EVERY : []) {
    let anchors = problems.anchorsEvery(every);
    if (anchors === undefined) break;
    for (let k = 0; k <= ANCHOR_MOVES && anchors !== undefined && !run.deadline.isOver; k++) {
      const { fitted, unmet } = await fit(search, { points: [point], effort, anchors });
      // Its choice is one of the problem with anchors.
      if (fitted !== undefined) return { plan: fitted.plan };
      anchors = unmet === undefined ? undefined : problems.movedToReadsOf(unmet, anchors);
    }
  }
  return undefined;
}
