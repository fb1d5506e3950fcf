/**
 * Work limits of the problems that a search under a peak memory budget solves. Work is counted in
 * steps, not seconds, so that the same request has the same answer everywhere.
 */
import type { Problem } from '../../solver/types.ts';
import { gapUnderMemory, isGapGiven, type PlanRequest } from './request.ts';

/**
 * Least relative gap of the subproblems: what copies and rounding add to an answer is more than
 * less would gain.
 */
const LEAST_GAP = 1e-3;
/**
 * Work that a problem may take (`SolveOptions.workLimit`): some for prices and labels, some for the
 * sweeps of every variable.
 */
const WORK = 5e6;
const WORK_PER_VARIABLE = 5000;
/**
 * How much more a problem may take each time that it is solved again, and how often that is where a
 * gap was given.
 */
export const WORK_GROWTH = 8;
export const ASKED_EXTENSIONS = 2;

/** Relative gap of one subproblem. */
export function gapOnTheWay(request: PlanRequest): number {
  return Math.max(gapUnderMemory(request) / 4, LEAST_GAP);
}

/** Work that one subproblem may take. */
export function workOn({ domains }: Problem): number {
  return WORK + WORK_PER_VARIABLE * domains.length;
}

/** Work that the proof of a plan within the budget may take, which needs no other problems. */
export function workOnProof(problem: Problem, request: PlanRequest): number {
  return workOn(problem) * WORK_GROWTH ** (isGapGiven(request) ? ASKED_EXTENSIONS : 1);
}
