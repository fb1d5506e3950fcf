/**
 * Makes the answer of planning from a prepared request and a choice with its bound: the plan with
 * the data that it was made from, or the reason why there is none.
 */
import { defined } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { evaluate } from '../../solver/check/verify.ts';
import { gapOf } from '../../solver/problem/cost.ts';
import type { Solution } from '../../solver/types.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { PlanCertificate } from '../record/certificate.ts';
import type { Plan } from '../record/types.ts';
import { hasTimeline, holdsPeak } from '../request/request.ts';
import { type PlanMemoryTimeline, planMemoryTimeline, timelinePeakBytes } from './timeline.ts';
import { writePlan } from './write.ts';

/**
 * No plan exists: which demands contradict each other, and the smallest budget that admits a plan.
 */
export interface Infeasible {
  readonly status: 'infeasible';
  readonly conflict: readonly string[];
  /** Bytes per device; absent when memory is not what is in the way. */
  readonly smallestBudgetBytes?: number;
  /**
   * Bytes per device below which no plan exists, activations included; a lower bound, not always
   * reached.
   */
  readonly neededBytes?: number;
  /**
   * A budget that admits a plan, activations included: the peak of one that is known. Where the
   * least budget was looked for (`findsBudget`), that of the leanest plan that was found.
   */
  readonly enoughBytes?: number;
  readonly budgetBytes: number;
}

/** No plan exists, before it is known which budget would do. */
export interface Impossible {
  readonly status: 'impossible';
  /** Demands that contradict each other, in words of the program. */
  readonly conflict: readonly string[];
  /** Which memory is in the way; absent: none is. */
  readonly memory?: {
    readonly of: 'states' | 'peak';
    /** The least bytes of it that are known; absent: they are to be found. */
    readonly leastBytes?: number;
  };
}

/** A plan with what it was made from. */
export interface PlannedResult {
  readonly status: 'planned';
  readonly plan: Plan;
  /**
   * The program that was planned: the given one with views of weights taken again in the backward
   * pass. `prepared.model.graph` lists the bodies of its loops and branches in line.
   */
  readonly graph: Graph;
  readonly choice: Int32Array;
  /**
   * The request that the choice belongs to: the given one, or, with recomputed nodes in the graph,
   * that of the new graph.
   */
  readonly prepared: Prepared;
  /** `Solution.secondOpinion`: the plan does not have it. */
  readonly secondOpinion?: string;
  /** The proof of the plan's bound, for `checkPlan`. */
  readonly certificate: PlanCertificate;
}

/** A plan; or what contradicts, and the smallest budget in bytes that works. */
export type LeastCostResult = PlannedResult | Infeasible;

/** The memory curve of a choice, where the request wants to know it. */
export function askedTimeline(
  { model, question: { request } }: Pick<Prepared, 'model' | 'question'>,
  choice: Int32Array,
): PlanMemoryTimeline | undefined {
  return hasTimeline(request) ? planMemoryTimeline(model, choice) : undefined;
}

/** A choice that is not proven to be the best; its gap is that to the bound. */
export function feasible(
  found: Pick<Solution, 'choice' | 'objective' | 'bound' | 'solver' | 'seconds'> &
    Pick<Partial<Solution>, 'evidence' | 'gap'>,
): Solution & { readonly status: 'feasible' } {
  return {
    status: 'feasible',
    gap: gapOf(found.objective, found.bound),
    statistics: {},
    ties: 'engine',
    ...found,
  };
}

/** A choice with what it is a choice of, and its memory curve where the request wants it. */
export interface Candidate {
  readonly prepared: Prepared;
  /** Its choice is one of the whole prepared problem. */
  readonly solution: Solution;
  readonly memory: PlanMemoryTimeline | undefined;
}

/** Tells whether the peak is within the budget, where the budget limits it. */
export function keepsBudget({ prepared, memory }: Candidate): boolean {
  const { request, budgetBytes } = prepared.question;
  return !holdsPeak(request) || memory === undefined || timelinePeakBytes(memory) <= budgetBytes;
}

/** Writes the plan of a candidate. */
export function planned(
  { prepared, solution, memory }: Candidate,
  certificate: PlanCertificate,
): PlannedResult {
  const plan = writePlan(prepared, solution, memory);
  const { choice, secondOpinion } = solution;
  return {
    status: 'planned',
    plan,
    graph: prepared.question.program,
    choice,
    prepared,
    certificate,
    ...defined({ secondOpinion }),
  };
}

/**
 * The plan of another choice of the same problem. Its bound is the one that was proven for the
 * problem, so its gap is what the choice gives away.
 *
 * @throws E_INTERNAL for a choice that the problem does not admit
 */
export function planOfChoice(
  prepared: Prepared,
  choice: Int32Array,
  { proof }: Plan,
  certificate: PlanCertificate,
  evidence: readonly string[],
): PlannedResult {
  const {
    model,
    left: { problem },
  } = prepared;
  const { cost, violations } = evaluate(problem, choice);
  if (violations.length > 0) throw internalError('a choice to plan is none of the problem');
  const objective = Number(cost);
  const bound = Math.min(objective, proof.bound * model.unitsPerSecond);
  const solution = feasible({
    choice,
    objective,
    bound,
    solver: proof.solver,
    evidence,
    seconds: proof.solveSeconds ?? 0,
  });
  return planned({ prepared, solution, memory: askedTimeline(prepared, choice) }, certificate);
}

/** No proof of a bound. */
export const NO_CERTIFICATE: PlanCertificate = { version: 1 };
