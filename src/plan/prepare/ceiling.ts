/**
 * Finds the seconds of a known plan, above which no single price can be part of an optimal plan. It
 * serves models whose prices are so far apart that whole units cannot tell the cheap ones apart.
 */
import { leastTotal } from '../../solver/problem/cost.ts';
import { NoChoiceInTime, solveNow } from '../../solver/solve.ts';
import type { Problem, Solution } from '../../solver/types.ts';
import type { Model } from '../model/model.ts';
import { MOST_ROUNDING, unitsBelow } from '../model/tables.ts';
import { workOn } from '../request/efforts.ts';

/**
 * Undefined where rounding is negligible, and where no plan is known that costs less than the
 * present ceiling.
 */
export function ceilingOf(model: Model, problem: Problem): number | undefined {
  const { unitsPerSecond, roundingSeconds, ceilingSeconds = Infinity } = model;
  const leastSeconds = leastTotal(problem) / unitsPerSecond;
  if (roundingSeconds <= (MOST_ROUNDING / 2) * leastSeconds) return undefined;
  // No plan takes less than the sum of all least prices: where even that as a ceiling makes no unit
  // finer, none does.
  if (unitsBelow(model, leastSeconds) <= unitsPerSecond) return undefined;
  const known = choiceOf(problem);
  if (known === undefined || known.status === 'infeasible') return undefined;
  // Units round: the plan may cost so much more.
  const seconds = known.objective / unitsPerSecond + roundingSeconds;
  return seconds < ceilingSeconds ? seconds : undefined;
}

/** A good choice of a problem; undefined when none is found with little work. */
function choiceOf(problem: Problem): Solution | undefined {
  try {
    return solveNow(problem, { certify: false, workLimit: workOn(problem) });
  } catch (error) {
    if (error instanceof NoChoiceInTime) return undefined;
    throw error;
  }
}
