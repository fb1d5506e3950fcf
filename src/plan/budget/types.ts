/**
 * Types of the search for a plan whose peak memory is constrained: its options, its effort and its
 * result.
 */
import type { Progress } from '../../solver/types.ts';
import type { PlanCertificate } from '../record/certificate.ts';
import type { Deadline } from '../request/deadline.ts';
import type { FittingPlan } from './attempt.ts';
import type { PeakProblems } from './rows/peak-problems.ts';

export interface MemoryPlanResult {
  /** Undefined when none was found. */
  readonly plan: FittingPlan | undefined;
  /**
   * Sharding first, checkpointing after, for comparison; undefined when that finds no plan or was
   * not asked for.
   */
  readonly twoStage: FittingPlan | undefined;
  /** Lower bound on the seconds of every plan within the budget. */
  readonly boundSeconds: number;
  /** Lower bound on the budget of any plan; only when none was found. */
  readonly neededBytes?: number;
  /** True if the bound was replayed by the checker. */
  readonly certified: boolean;
  /** Its proof, and the nodes at which memory is a row of the problem that it is about. */
  readonly proof?: NonNullable<PlanCertificate['within']>;
  /** Subproblems solved. */
  readonly rounds: number;
  /** True if the time limit ended the search. */
  readonly isOutOfTime: boolean;
}

export interface MemoryPlanOptions {
  /** True if forward results may be recomputed. */
  readonly recompute: boolean;
  /**
   * `two-stage`: placements are those of the first stage; `joint`: both are chosen at once, from
   * there.
   */
  readonly mode: 'joint' | 'two-stage';
  /** The problems of this request, where somebody has asked them already. */
  readonly problems?: PeakProblems;
  readonly signal?: AbortSignal;
  readonly onProgress?: (event: Progress) => void;
  /**
   * The deadline of the whole solve that this is a stage of. Default: the request's time limit,
   * from now on.
   */
  readonly deadline?: Deadline;
}

/**
 * Limits on the work of problems, and the work so far: the one record that the steps of a search
 * write.
 */
export interface Effort {
  /** Share of the usual work that a problem may take. */
  readonly workShare: number;
  /**
   * Problems end before their expensive steps where their gap is one with which the request could
   * live.
   */
  readonly endsEarly: boolean;
  /** Problems that stay above the gap of the request are searched further. */
  readonly improves: boolean;
  /** Rounds of solving and following. */
  rounds: number;
  /** Problems left open because their work was done. */
  open: number;
}
