/**
 * The plan whose peak is within the budget, from one whose peak is not: peak memory becomes a
 * constraint, and recomputation a choice if asked.
 */
import { defined } from '../../defined.ts';
import { interrupted, ShardwrightError } from '../../errors.ts';
import { printGraph } from '../../graph/text/write.ts';
import { evaluate } from '../../solver/check/verify.ts';
import type { Problem, Solution } from '../../solver/types.ts';
import { bytesText } from '../../units.ts';
import { feasible, type Impossible, planned, type PlannedResult } from '../choice/result.ts';
import { choicePeakBytes, planMemoryTimeline } from '../choice/timeline.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { PlanCertificate } from '../record/certificate.ts';
import type { Deadline } from '../request/deadline.ts';
import { gapUnderMemory, isGapGiven, recomputesUnderBudget } from '../request/request.ts';
import type { Run } from '../request/run.ts';
import type { FittingPlan } from './attempt.ts';
import { PeakMemoryPlanner } from './row-generation.ts';
import type { PeakProblems } from './rows/peak-problems.ts';
import type { MemoryPlanResult } from './types.ts';

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

/**
 * @param given a request that says that the peak binds
 * @throws E_TIME_LIMIT, E_LIMIT where neither a plan was found nor its absence proven
 */
export async function holdBudget(
  given: Prepared,
  over: OverBudget,
  run: Run,
): Promise<PlannedResult | Impossible> {
  const prepared = withoutRecomputation(given);
  const { request } = prepared.question;
  const { free, problem, problems } = over;
  const { deadline, onProgress } = run;
  const started = performance.now();
  // A graph with its bodies in line, in which nodes are recomputed, is no program, and has no
  // trips.
  const recompute = recomputesUnderBudget(request) && prepared.model.opened === undefined;
  const planner = new PeakMemoryPlanner(
    prepared,
    { choice: free.choice, problem },
    {
      recompute,
      mode: request.checkpoint === 'two-stage' ? 'two-stage' : 'joint',
      deadline,
      ...(problems === undefined || recompute ? {} : { problems }),
      ...defined({ onProgress }),
    },
  );
  const found = await planner.run();
  const best = quickestFitting(prepared, found.plan, over, run);
  if (best === undefined) {
    if (found.boundSeconds === Infinity) return impossible(found);
    throw notFound(prepared, found, recompute, deadline);
  }
  const { plan } = best;
  const boundSeconds = Math.min(
    plan.seconds,
    Math.max(found.boundSeconds, free.bound / prepared.model.unitsPerSecond),
  );
  const units = plan.prepared.model.unitsPerSecond;
  const solution = feasible({
    choice: plan.choice,
    objective: plan.seconds * units,
    bound: boundSeconds * units,
    gap: (plan.seconds - boundSeconds) / plan.seconds,
    solver: recompute ? 'joint' : 'memory rows',
    evidence: evidenceOf(prepared, found, best.isKnown, deadline),
    seconds: free.seconds + (performance.now() - started) / 1000,
  });
  return written(prepared, plan, solution, {
    ...over.certificate,
    ...defined({ within: found.proof }),
  });
}

/** The same without the word of an earlier search, whose recomputed nodes are given by now. */
function withoutRecomputation(prepared: Prepared): Prepared {
  const { recomputation: _, ...request } = prepared.question.request;
  return { ...prepared, question: { ...prepared.question, request } };
}

/** The quickest of the plan that the search found, known choices and the one of a quick solve. */
function quickestFitting(
  prepared: Prepared,
  found: FittingPlan | undefined,
  { fits }: OverBudget,
  { starts = [] }: Run,
): { readonly plan: FittingPlan; readonly isKnown: boolean } | undefined {
  const known = fittingStart(prepared, starts, found?.seconds);
  const first = fits === undefined ? [] : [prepared.left.compact.expand(fits)];
  const quick = fittingStart(prepared, first, (known ?? found)?.seconds);
  const plan = quick ?? known ?? found;
  return plan === undefined ? undefined : { plan, isKnown: plan === known };
}

/**
 * The cheapest choice of those known beforehand that fits at its peak and takes less than so many
 * seconds.
 */
function fittingStart(
  prepared: Prepared,
  starts: readonly Int32Array[],
  belowSeconds = Infinity,
): FittingPlan | undefined {
  const { model, left, question } = prepared;
  let best: FittingPlan | undefined;
  for (const choice of starts) {
    const { cost, violations } = evaluate(left.problem, choice);
    const seconds = Number(cost) / model.unitsPerSecond;
    if (violations.length > 0 || seconds >= (best?.seconds ?? belowSeconds)) continue;
    const peakBytes = choicePeakBytes(model, choice);
    if (peakBytes <= question.budgetBytes)
      best = { prepared, choice, seconds, peakBytes, recomputed: [] };
  }
  return best;
}

function impossible({ neededBytes }: MemoryPlanResult): Impossible {
  return {
    status: 'impossible',
    conflict: ['activation memory'],
    memory: { of: 'peak', ...defined({ leastBytes: neededBytes }) },
  };
}

function notFound(
  { question: { budgetBytes } }: Prepared,
  { isOutOfTime }: MemoryPlanResult,
  recompute: boolean,
  deadline: Deadline,
): ShardwrightError {
  if (deadline.isInterrupted) return interrupted();
  const budget = bytesText(budgetBytes);
  if (isOutOfTime)
    return new ShardwrightError('E_TIME_LIMIT', `no plan within ${budget} was found in time`, {
      hint: 'raise --time-limit.',
    });
  return new ShardwrightError(
    'E_LIMIT',
    `no plan within ${budget} was found, and none was proven impossible`,
    {
      hint: recompute
        ? 'raise --memory a little.'
        : 'raise --memory, or allow recomputation with --checkpoint auto.',
    },
  );
}

function evidenceOf(
  { question: { request } }: Prepared,
  { rounds, certified, twoStage }: MemoryPlanResult,
  isKnown: boolean,
  deadline: Deadline,
): string[] {
  return [
    `${rounds} problems solved for the peak ` +
      `memory${certified ? '; the bound was replayed' : ''}`,
    `a gap of ${(100 * gapUnderMemory(request)).toPrecision(2)} % is good ` +
      `enough${isGapGiven(request) ? '' : ' under a peak memory budget, the default'} (--gap)`,
    ...(isKnown ? ['a recipe that fits is the best plan found'] : []),
    ...(deadline.isInterrupted ? ['the search was interrupted'] : []),
    ...(twoStage === undefined
      ? []
      : [
          'sharding first and checkpointing after takes ' +
            `${twoStage.seconds.toPrecision(4)} s within the same budget`,
        ]),
  ];
}

/** The plan with recomputed nodes in its program, and the program that it was made from. */
function written(
  { question: { program } }: Prepared,
  { prepared, choice, recomputed }: FittingPlan,
  solution: Solution,
  certificate: PlanCertificate,
): PlannedResult {
  const isRecomputed = recomputed.length > 0;
  const notes = [...prepared.notes, KEPT_AS_MADE, ...(isRecomputed ? [RECOMPUTED_LIKE_FIRST] : [])];
  const memory = planMemoryTimeline(prepared.model, choice);
  return planned(
    { prepared: { ...prepared, notes }, solution, memory },
    { ...certificate, ...(isRecomputed ? { program: printGraph(program) } : {}) },
  );
}

/** Assumptions of such plans, as they are printed. */
export const KEPT_AS_MADE =
  "The bound under the memory budget assumes that tensors keep their producer's placement " +
  'until last use.';
export const RECOMPUTED_LIKE_FIRST =
  'Recomputed nodes keep the placements of their first run; the bound covers such plans.';
