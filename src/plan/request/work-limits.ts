import type { Problem } from '../../solver/types.ts';
import { gapWithin, isGapGiven, type PlanRequest } from './request.ts';

/**
 * How far the problems are solved that a search under a budget over time consists of. Work is counted in steps, not seconds, so
 * that the same request has the same answer everywhere.
 */

/** Least relative gap of the problems on the way: what copies and rounding add to an answer is more than less would gain. */
const LEAST_GAP = 1e-3;
/** Work that a problem may take (`SolveOptions.workLimit`): some for prices and labels, some for the sweeps of every variable. */
const WORK = 5e6;
const WORK_PER_VARIABLE = 5000;
/** How much more a problem may take each time that it is asked again, and how often that is where a gap was given. */
export const WORK_GROWTH = 8;
export const AGAIN_WHEN_ASKED = 2;

/** Relative gap of one problem on the way. */
export function gapOnTheWay(request: PlanRequest): number {
  return Math.max(gapWithin(request) / 4, LEAST_GAP);
}

/** Work that one problem on the way may take. */
export function workOn({ domains }: Problem): number {
  return WORK + WORK_PER_VARIABLE * domains.length;
}

/** Work that the proof of a plan within the budget may take, which needs no other problems. */
export function workOnProof(problem: Problem, request: PlanRequest): number {
  return workOn(problem) * WORK_GROWTH ** (isGapGiven(request) ? AGAIN_WHEN_ASKED : 1);
}
