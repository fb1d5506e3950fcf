/** Takes a request and gives the plan that `overlapAware` finds, beside the plan of summed costs. */

import { ShardwrightError } from '../../errors.ts';
import type { PlanRequest } from '../../plan/request/request.ts';
import { constrainsPeakMemory, planOfChoice, type ShardResult } from '../../plan/shard.ts';
import { percentText, secondsText } from '../../units.ts';
import { overlapAware, type OverlapOptions } from './overlap-aware.ts';

type Planned = Extract<ShardResult, { readonly status: 'planned' }>;

/** The plan with overlap in view, beside the plan that is cheapest one after another. */
export interface OverlapPlan {
  readonly result: Planned;
  /** Whether it is another plan than the one given. */
  readonly changed: boolean;
  /** Step time of the plan to take when it is simulated, and of the plan without overlap. */
  readonly simulatedSeconds: number;
  readonly baseSimulatedSeconds: number;
  /** Every cost one after another: of the plan to take, and of the plan without overlap. */
  readonly serialSeconds: number;
  readonly baseSerialSeconds: number;
  /** Plans that were simulated. */
  readonly rounds: number;
}

/** @throws E_USAGE where the budget limits peak memory, or the objective is not time */
export function checkOverlap(request: PlanRequest): void {
  const other = constrainsPeakMemory(request)
    ? 'a limit on peak memory (--activations constraint, --checkpoint auto or two-stage)'
    : request.objective !== 'time'
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
 * Looks for a plan whose simulated step is shorter (see `overlapAware`). The proof of the plan stays that of costs one after
 * another: its gap is then what the plan gives away there, at most the stated ratio.
 *
 * @param result the plan without overlap
 * @throws what `checkOverlap` throws
 */
export async function overlapPlan(result: Planned, options: OverlapOptions = {}): Promise<OverlapPlan> {
  const { prepared, plan } = result;
  checkOverlap(prepared.request);
  const { base, best, rounds } = await overlapAware(prepared, options);
  const common = { baseSimulatedSeconds: base.simulatedSeconds, baseSerialSeconds: base.serialSeconds, rounds: rounds.length }; // prettier-ignore
  if (best === base)
    return {
      ...common,
      result,
      changed: false,
      simulatedSeconds: base.simulatedSeconds,
      serialSeconds: base.serialSeconds,
    };
  const word = `chosen for its simulated step: ${secondsText(best.simulatedSeconds)}, ${percentText(1 - best.simulatedSeconds / base.simulatedSeconds)} less than that of the plan of least seconds one after another`;
  return {
    ...common,
    result: planOfChoice(prepared, best.choice, plan, result.certificate, [...plan.proof.evidence, word]),
    changed: true,
    simulatedSeconds: best.simulatedSeconds,
    serialSeconds: best.serialSeconds,
  };
}
