/**
 * Compares a plan with the recipes that were priced on its problem: it gives the reasons for which
 * a recipe may take less time than the plan, and refuses a plan that is called optimal although a
 * recipe beats it.
 */

import { ShardwrightError } from '../../errors.ts';
import type { Plan } from '../../plan/record/types.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../plan/request/request.ts';
import type { GivenPins } from '../../plan/restrict/given-pins.ts';
import type { RecipeResult } from './compare.ts';

/**
 * Demands on the plan that recipes do not meet: flags on placements, an objective other than time.
 */
function notOfRecipes(request: PlanRequest, given: GivenPins): string[] {
  const { pins, inputs, outputs, objective, shardings } = request;
  return [
    ...(pins.length > 0 ? ['--pin'] : []),
    ...(shardings !== 'ignore' && given.pins.length + given.outputs.length > 0
      ? ['the shardings of the program']
      : []),
    ...(inputs !== DEFAULT_REQUEST.inputs ? ['--inputs'] : []),
    ...(outputs !== DEFAULT_REQUEST.outputs ? ['--outputs'] : []),
    ...(objective === 'parameter-memory' ? ['the least memory of parameters'] : []),
  ];
}

/** Why a recipe may take less time than the plan; undefined where none does. */
export function whyRecipesAreCheaper(
  given: GivenPins,
  plan: Plan,
  recipes: readonly RecipeResult[],
): string | undefined {
  const { seconds } = plan.objective;
  const isBetter = (r: RecipeResult): boolean =>
    r.status === 'priced' &&
    r.seconds < seconds * (1 - 1e-9) &&
    r.peakBytes <= plan.memory.budgetBytes;
  if (!recipes.some(isBetter)) return undefined;
  const free = notOfRecipes(plan.request, given);
  return free.length === 0
    ? undefined
    : `Recipes ignore ${free.join(', ')}; so a recipe may take less time than the plan.`;
}

/** No recipe may beat a plan that is proven optimal: both are choices of one problem. */
export function checkRecipes(given: GivenPins, plan: Plan, recipes: readonly RecipeResult[]): void {
  if (plan.proof.status !== 'optimal' || notOfRecipes(plan.request, given).length > 0) return;
  for (const r of recipes) {
    if (
      r.status === 'priced' &&
      r.seconds < plan.objective.seconds * (1 - 1e-12) &&
      r.peakBytes <= plan.memory.budgetBytes
    )
      throw new ShardwrightError(
        'E_INTERNAL',
        `internal: recipe '${r.name}' costs less than the plan called optimal`,
      );
  }
}
