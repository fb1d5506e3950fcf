/**
 * How hard a search under a peak memory budget works: the gap and the work of one problem, and the
 * passes of the whole search. Work is counted in steps, not seconds, so that the same request has
 * the same answer everywhere.
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
/** How much more a problem may take each time that it is solved again. */
const WORK_GROWTH = 8;
/**
 * How often problems get more work where the request gives a gap; twice
 * is 64 times the usual work, for whoever asks for a gap waits for it.
 */
const ASKED_EXTENSIONS = 2;
/**
 * Share of the usual work that a proof from a better choice may take: exact elimination of what
 * such a choice leaves takes most of it.
 */
export const LATER_PROOF_SHARE = 16;
/** Rounds of a neighbourhood search: what its prices need to settle. The proof finds the rest. */
export const NEIGHBOURHOOD_ROUNDS = 5;

/** One pass of the search under a peak memory budget. */
export interface Effort {
  /** The steps of this pass, in their order. */
  readonly steps: readonly ('two stages' | 'search' | 'bound')[];
  /** Runs only where the passes before left the gap open and more work may close it. */
  readonly ifOpen: boolean;
  /** Share of the usual work that a problem may take. */
  readonly workShare: number;
  /**
   * Problems end before their expensive steps where their gap is one with which the request could
   * live.
   */
  readonly endsEarly: boolean;
  /** Problems that stay above the gap of the request are searched further. */
  readonly improves: boolean;
  /**
   * Shares of the budget that the states may take in the first of two stages, tried in this order:
   * checkpointing saves nothing of the states, so leaner ones leave it more.
   */
  readonly stateShares: readonly number[];
}

/** The first stage as it was found, and states that leave half of the budget and more. */
const FOUND = [1];
const LEAN = [0.5, 0.25, 0.125];

const AGAIN: Effort = {
  steps: ['bound', 'search'],
  ifOpen: true,
  workShare: 1,
  endsEarly: false,
  improves: true,
  stateShares: [],
};

/** The passes of the loop of the budget. Each takes more time than those before. */
const EFFORTS = {
  // Most requests end here. The search finds the program points that bind, which the bound needs.
  quick: { ...AGAIN, steps: ['two stages', 'search', 'bound'], ifOpen: false, improves: false },
  // Rows that a choice over the budget kept count shared storages from now on.
  counted: { ...AGAIN, improves: false },
  // Sharding first is never better than the answer, for its leaner states are tried as well.
  lean: { ...AGAIN, steps: ['two stages'], ifOpen: false, improves: false, stateShares: LEAN },
  // Neighbourhood search leaves the second proof fewer values.
  wide: AGAIN,
} as const satisfies Record<string, Effort>;

/**
 * Largest program, in nodes, for which the joint search also asks for lean states: each share is a
 * whole search more, and on larger programs the time goes to the joint one.
 */
const LEAN_NODES = 4000;

/** The passes that a request asks for. */
export function effortsOf(
  request: PlanRequest,
  { recompute, nodes }: { readonly recompute: boolean; readonly nodes: number },
): Effort[] {
  const { quick, counted, lean, wide } = EFFORTS;
  // With recomputation the answer within the gap that comes first may keep more than one that is
  // looked for further.
  const first = { ...quick, endsEarly: !recompute };
  if (request.checkpoint === 'two-stage') {
    const stateShares = recompute ? [...FOUND, ...LEAN] : [];
    return [
      { ...first, steps: ['two stages', 'bound'], stateShares },
      { ...counted, steps: ['bound'] },
    ];
  }
  const extensions = isGapGiven(request) ? ASKED_EXTENSIONS : 0;
  return [
    { ...first, stateShares: recompute ? FOUND : [] },
    counted,
    ...(recompute && nodes <= LEAN_NODES ? [lean] : []),
    wide,
    ...Array.from({ length: extensions }, (_, k) => ({
      ...wide,
      workShare: WORK_GROWTH ** (k + 1),
    })),
  ];
}

/** Relative gap of one subproblem. */
export function gapOnTheWay(request: PlanRequest): number {
  return Math.max(gapUnderMemory(request) / 4, LEAST_GAP);
}

/** Work that one subproblem may take. */
export function workOn({ domains }: Problem): number {
  return WORK + WORK_PER_VARIABLE * domains.length;
}

/**
 * Work that the proof of a plan within the budget may take, which needs no other problems; more
 * where the best choice is far above its bound.
 */
export function workOnProof(
  problem: Problem,
  request: PlanRequest,
  { isFar }: { readonly isFar: boolean },
): number {
  const extensions = (isGapGiven(request) ? ASKED_EXTENSIONS : 1) + (isFar ? 1 : 0);
  return workOn(problem) * WORK_GROWTH ** extensions;
}
