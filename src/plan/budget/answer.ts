/**
 * The answer of a search under a peak memory budget: the plan with its bound and evidence, or why
 * there is none.
 */
import { defined } from '../../defined.ts';
import { interrupted, ShardwrightError } from '../../errors.ts';
import { printGraph } from '../../graph/text/write.ts';
import { evaluate } from '../../solver/check/verify.ts';
import type { Solution } from '../../solver/types.ts';
import { bytesText, countedText } from '../../units.ts';
import { feasible, type Impossible, planned, type PlannedResult } from '../choice/result.ts';
import { choicePeakBytes, planMemoryTimeline } from '../choice/timeline.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { PlanCertificate } from '../record/certificate.ts';
import { gapUnderMemory, isGapGiven } from '../request/request.ts';
import type { FittingPlan } from './attempt.ts';
import { bestOf, type BudgetSearch, type Found, type OverBudget } from './types.ts';

/**
 * The quickest of the plan that the search found, the known choices and that of a quick solve.
 *
 * @throws E_TIME_LIMIT, E_LIMIT where there is none and it is not proven that none exists
 */
export function answerOf(
  search: BudgetSearch,
  over: OverBudget,
  found: Found,
  seconds: number,
): PlannedResult | Impossible {
  const { prepared, recompute } = search;
  const { free } = over;
  const best = quickestFitting(search, over, found);
  if (best === undefined) {
    if (found.proven.boundSeconds === Infinity) return impossible(found);
    throw notFound(search, found);
  }
  const { plan } = best;
  const boundSeconds = Math.min(
    plan.seconds,
    Math.max(found.proven.boundSeconds, free.bound / prepared.model.unitsPerSecond),
  );
  const units = plan.prepared.model.unitsPerSecond;
  const solution = feasible({
    choice: plan.choice,
    objective: plan.seconds * units,
    bound: boundSeconds * units,
    gap: (plan.seconds - boundSeconds) / plan.seconds,
    solver: recompute ? 'joint' : 'memory rows',
    evidence: evidenceOf(search, found, best.isKnown),
    seconds: free.seconds + seconds,
  });
  return written(prepared, plan, solution, {
    ...over.certificate,
    ...defined({ within: found.proven.proof }),
  });
}

function quickestFitting(
  { prepared, run: { starts = [] } }: BudgetSearch,
  { fits }: OverBudget,
  searched: Found,
): { readonly plan: FittingPlan; readonly isKnown: boolean } | undefined {
  const found = bestOf(searched);
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

function impossible({ neededBytes }: Found): Impossible {
  return {
    status: 'impossible',
    conflict: ['activation memory'],
    memory: { of: 'peak', ...defined({ leastBytes: neededBytes }) },
  };
}

function notFound(
  { prepared, recompute, run }: BudgetSearch,
  { isOutOfTime }: Found,
): ShardwrightError {
  if (run.deadline.isInterrupted) return interrupted();
  const budget = bytesText(prepared.question.budgetBytes);
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
  { prepared, run, seen }: BudgetSearch,
  { proven, stage }: Found,
  isKnown: boolean,
): string[] {
  const { request } = prepared.question;
  return [
    `${countedText(seen.rounds, 'problem')} solved for the peak ` +
      `memory${proven.certified ? '; the bound was replayed' : ''}`,
    `a gap of ${(100 * gapUnderMemory(request)).toPrecision(2)} % is good ` +
      `enough${isGapGiven(request) ? '' : ' under a peak memory budget, the default'} (--gap)`,
    ...(isKnown ? ['a recipe that fits is the best plan found'] : []),
    ...(run.deadline.isInterrupted ? ['the search was interrupted'] : []),
    ...(stage === undefined
      ? []
      : [
          'sharding first and checkpointing after takes ' +
            `${stage.plan.seconds.toPrecision(4)} s within the same budget`,
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
