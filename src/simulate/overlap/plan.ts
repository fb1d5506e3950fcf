/**
 * Takes a plan of summed costs and gives the plan that `searchOverlap` finds, with what is proven
 * of its step.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { type LeastCostResult, planOfChoice } from '../../plan/choice/result.ts';
import type { PlanRequest } from '../../plan/request/request.ts';
import { percentText, secondsText } from '../../units.ts';
import { type OverlapOptions, searchOverlap } from './search.ts';

type Planned = Extract<LeastCostResult, { readonly status: 'planned' }>;

/** The plan chosen for its overlapped step, with the plan that is cheapest by summed costs. */
export interface OverlapPlan {
  readonly result: Planned;
  /** True if it is another plan than the one given. */
  readonly changed: boolean;
  /** Step time of the plan to take when it is simulated, and of the plan without overlap. */
  readonly simulatedSeconds: number;
  readonly baseSimulatedSeconds: number;
  /** No plan has a shorter simulated step; and 1 - bound / simulated step. */
  readonly boundSeconds: number;
  readonly gap: number;
  /** Every cost one after another: of the plan to take, and of the plan without overlap. */
  readonly serialSeconds: number;
  readonly baseSerialSeconds: number;
  /** Plans that were simulated. */
  readonly rounds: number;
}

/** @throws E_USAGE where the objective is not time, or the plan is not an optimum's */
export function checkOverlap(request: PlanRequest): void {
  const other =
    request.objective !== 'time'
      ? `--objective ${request.objective}`
      : request.solver === 'propagate'
        ? '--solver propagate'
        : undefined;
  if (other === undefined) return;
  throw new ShardwrightError('E_USAGE', `--overlap is not looked for together with ${other}`, {
    hint: 'leave one of them out; simulate shows what overlaps in any plan.',
  });
}

/**
 * Looks for a plan whose simulated step is shorter (`searchOverlap`). The proof of the plan stays
 * that of costs one after another: its gap is then the distance of the plan from the cheapest. The
 * bound on the overlapped step is a field of its own.
 *
 * @param result the plan without overlap
 * @throws what `checkOverlap` throws
 */
export async function overlapPlan(
  result: Planned,
  options: OverlapOptions = {},
): Promise<OverlapPlan> {
  checkKinds('overlapPlan', {
    result: [result, 'planned'],
    options: [options, 'record', 'undefined'],
  });
  const { prepared, plan, choice } = result;
  checkOverlap(prepared.question.request);
  const { base, best, candidates, gap, ...bound } = await searchOverlap(prepared, choice, options);
  // The search is about one pass, the answer about the step.
  const { accumulate: passes = 1 } = prepared.question.request;
  const boundSeconds = passes * bound.boundSeconds;
  const found = {
    changed: best !== base,
    simulatedSeconds: passes * best.simulatedSeconds,
    boundSeconds,
    gap,
    baseSimulatedSeconds: passes * base.simulatedSeconds,
    serialSeconds: passes * best.serialSeconds,
    baseSerialSeconds: passes * base.serialSeconds,
    rounds: candidates.length,
  };
  if (best === base) return { ...found, result };
  const word =
    `chosen for its simulated step: ${secondsText(found.simulatedSeconds)}, ` +
    `${percentText(1 - best.simulatedSeconds / base.simulatedSeconds)} less than that of the ` +
    'plan of least seconds one after another; no plan takes less than ' +
    `${secondsText(boundSeconds)}`;
  return {
    ...found,
    result: planOfChoice(prepared, best.choice, plan, result.certificate, [
      ...plan.proof.evidence,
      word,
    ]),
  };
}
