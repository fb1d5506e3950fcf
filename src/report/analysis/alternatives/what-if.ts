/**
 * Solves the request of a plan again without its memory budget, for the least memory, and on other
 * links.
 */

import type { Graph } from '../../../graph/types.ts';
import { itemAt } from '../../../item-at.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { leastCostPlanOf } from '../../../plan/least-cost-plan.ts';
import { prepare } from '../../../plan/prepare/prepare.ts';
import type { Reopened } from '../../../plan/questions/explain.ts';
import { changeRequest } from '../../../plan/questions/what-if.ts';
import { restrictionOf } from '../../../plan/restrict/pins.ts';
import { leastMemory } from '../../../plan/solve/least-memory.ts';
import { solveRestricted } from '../../../recipes/compare/price.ts';
import type { Compared } from './recipes.ts';
import { linkChanges, type Sensitivity, withLinks } from './sensitivity.ts';

/**
 * The value of more memory, and the least memory that is enough; states only, activations are not
 * part of these budgets.
 */
export interface MemoryBounds {
  /** The best plan without any limit on states. */
  readonly unlimited: { readonly peakBytes: number; readonly seconds: number } | null;
  /** The smallest budget that admits a plan. */
  readonly smallestBudgetBytes: number | null;
}

/** Solves the request without its memory budget, and for the least memory. */
export async function memoryBounds({ prepared }: Reopened): Promise<MemoryBounds> {
  const {
    model,
    question: { request, given },
    left: { compact },
  } = prepared;
  const { restriction } = restrictionOf(model, request, given);
  const found = await solveRestricted(prepared, restriction, Infinity);
  const least = await leastMemory(compact.problem);
  return {
    unlimited: 'conflict' in found ? null : { peakBytes: found.peakBytes, seconds: found.seconds },
    smallestBudgetBytes: least ?? null,
  };
}

/**
 * Seconds that are paid, at most, for less memory: between neighbours on the front of plans that
 * are known.
 */
export interface PriceStep {
  readonly fromBytes: number;
  readonly toBytes: number;
  readonly deltaSeconds: number;
}

export function priceSteps(frontier: Compared['frontier']): PriceStep[] {
  const down = [...frontier].sort((a, b) => b.peakBytes - a.peakBytes);
  const [widest, ...others] = down;
  if (widest === undefined) return [];
  const out: PriceStep[] = [];
  let from = widest;
  for (const to of others) {
    // A few bytes less, as of padding, are not a step: nobody pays for them.
    if (from.peakBytes - to.peakBytes < LEAST_STEP * widest.peakBytes) continue;
    out.push({
      fromBytes: from.peakBytes,
      toBytes: to.peakBytes,
      deltaSeconds: to.seconds - from.seconds,
    });
    from = to;
  }
  return out;
}

/** Least share of the largest plan's memory that is worth a price. */
const LEAST_STEP = 0.01;

/** The best plan on faster and slower links, solved again with this plan as a start. */
export async function bestOnOtherLinks(
  { prepared, plan, choice }: Reopened,
  program: Graph,
  operators: OperatorTable,
  priced: readonly Sensitivity[],
): Promise<Sensitivity[]> {
  const out: Sensitivity[] = [];
  for (const [k, change] of linkChanges(plan).entries()) {
    const { request } = changeRequest(prepared.question.request, (draft) => {
      draft.cluster = withLinks(draft.cluster, change);
    });
    const result = await leastCostPlanOf(prepare(program, request, operators), {
      starts: [choice],
    });
    out.push({
      ...itemAt(priced, k),
      bestSeconds: result.status === 'infeasible' ? null : result.plan.objective.seconds,
    });
  }
  return out;
}
