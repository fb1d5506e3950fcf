/** Records of the search for a plan whose peak memory is constrained. */
import type { Problem, Solution } from '../../solver/types.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { PlanCertificate } from '../record/certificate.ts';
import { gapUnderMemory } from '../request/request.ts';
import type { Run } from '../request/run.ts';
import type { FittingPlan, PeakEvaluator } from './attempt.ts';
import type { PeakProblems } from './rows/peak-problems.ts';

/** The start of a search under the peak: a plan whose states fit and whose peak does not. */
export interface OverBudget {
  /** A choice of `problem`. */
  readonly free: Solution;
  readonly problem: Problem;
  readonly certificate: PlanCertificate;
  /** A choice of `problem`, perhaps a slower one, whose peak is within the budget, where known. */
  readonly fits?: Int32Array | undefined;
  /** Problems of the search that were made already; in them nothing is recomputed. */
  readonly problems?: PeakProblems | undefined;
}

/** The input of every step of a search, with the record that the steps write for later ones. */
export interface BudgetSearch {
  /** The request, prepared for the program without recomputation. */
  readonly prepared: Prepared;
  readonly over: Pick<OverBudget, 'problem'> & { readonly free: Pick<Solution, 'choice'> };
  /** True if forward results may be recomputed. */
  readonly recompute: boolean;
  readonly problems: PeakProblems;
  readonly evaluator: PeakEvaluator;
  readonly run: Run;
  readonly seen: Seen;
}

/** Counts of a search, the one record that its steps write. */
interface Seen {
  /** Rounds of solving and following. */
  rounds: number;
  /** Problems of the current effort left open because their work was done. */
  open: number;
  /** Program points whose row a choice over the budget kept. */
  readonly undercounted: Set<number>;
}

/** A plan that fits, and the choice of the whole rematerialization problem that it came from. */
export interface Fitted {
  readonly plan: FittingPlan;
  /** Absent where only a part of the rematerialization problem was asked. */
  readonly choice?: Int32Array;
}

export interface Proven {
  /** Lower bound on the seconds of every plan within the budget. */
  readonly boundSeconds: number;
  /** True if the bound was replayed by the checker. */
  readonly certified: boolean;
  /** Its proof, and the nodes at which memory is a row of the problem that it is about. */
  readonly proof?: NonNullable<PlanCertificate['within']>;
}

/** The result of a search so far. */
export interface Found {
  /** Program points of the rows; the first is that of the peak of the plan over the budget. */
  readonly points: readonly number[];
  /** Sharding first, then checkpointing. */
  readonly stage?: Fitted | undefined;
  /** Both at once. */
  readonly joint?: Fitted | undefined;
  readonly proven: Proven;
  /**
   * The last answer of the search of this effort to the very problem that the bound is about:
   * nothing recomputed, nothing tightened.
   */
  readonly whole?: WholeAnswer | undefined;
  /** True if the time limit ended the search. */
  readonly isOutOfTime: boolean;
  /** Lower bound on the budget of any plan; only when none was found. */
  readonly neededBytes?: number | undefined;
}

export interface WholeAnswer {
  readonly points: readonly number[];
  readonly solution: Solution;
}

/** The plan of fewer seconds; the first of equals. */
export function quicker(a: Fitted | undefined, b: Fitted | undefined): Fitted | undefined {
  return a === undefined || (b !== undefined && b.plan.seconds < a.plan.seconds) ? b : a;
}

export function bestOf({ joint, stage }: Pick<Found, 'joint' | 'stage'>): FittingPlan | undefined {
  return quicker(joint, stage)?.plan;
}

/** Tells whether the best plan is within the gap asked for of the bound. */
export function isGood({ prepared }: BudgetSearch, found: Found): boolean {
  const best = bestOf(found);
  const { boundSeconds } = found.proven;
  // The gaps of bound and plan add up.
  return best === undefined
    ? boundSeconds === Infinity
    : best.seconds * (1 - gapUnderMemory(prepared.question.request)) <= boundSeconds;
}
