/**
 * Prices the recipes of one mesh on the problem of a plan; each price is that of a choice of the
 * full problem.
 */

import { checkKinds } from '../../arguments.ts';
import type { Deadline } from '../../plan/request/deadline.ts';
import { leastMemoryBound } from '../../plan/solve/least-memory.ts';
import { inputRoles } from '../inputs/roles.ts';
import { applyRecipe, meshRecipes } from '../recipes.ts';
import { weightRoles } from '../weights.ts';
import { LATE, type Solvable, solveRestricted } from './price.ts';

/**
 * A recipe priced on the same problem, or the reason why the mesh or the budget does not admit it.
 */
export type RecipeResult =
  | {
      readonly status: 'priced';
      readonly name: string;
      readonly seconds: number;
      readonly peakBytes: number;
      readonly choice: Int32Array;
    }
  | { readonly status: 'refused'; readonly name: string; readonly reason: string };

/**
 * Prices the recipes of the mesh. Each is a choice of the full problem, so none can be cheaper than
 * the optimum.
 */
export async function priceRecipes(
  prepared: Solvable,
  deadline?: Deadline,
): Promise<RecipeResult[]> {
  checkKinds('priceRecipes', {
    prepared: [prepared, 'prepared'],
    deadline: [deadline, ['signal', 'leftSeconds', 'usedSeconds'], 'undefined'],
  });
  checkKinds('priceRecipes', { solver: [prepared.solver, ['solve', 'prepared']] });
  const found = await pricedOn(prepared, deadline);
  if (prepared.allPrices === undefined || found.every((r) => r.status === 'priced')) return found;
  // A recipe may need a price that was left out.
  const expensive = await pricedOn({ ...prepared, ...prepared.allPrices }, deadline);
  return found.map((r, k) => (r.status === 'priced' ? r : expensive[k]));
}

async function pricedOn(
  prepared: Solvable,
  deadline: Deadline | undefined,
): Promise<RecipeResult[]> {
  const { model } = prepared;
  const results: RecipeResult[] = [];
  const roles = weightRoles(model.graph, model.flow);
  const inputs = inputRoles(model);
  for (const recipe of meshRecipes(model, inputs)) {
    if (deadline?.isOver === true) {
      results.push({ status: 'refused', name: recipe.name, reason: LATE });
      continue;
    }
    const applied = applyRecipe(model, recipe, roles, inputs);
    if ('refused' in applied) {
      results.push({ status: 'refused', name: recipe.name, reason: applied.refused });
      continue;
    }
    // A recipe fixes every parameter, so what it needs is known before it is solved.
    const needed = leastMemoryBound(model.problem, applied.restriction.kept());
    const found: Awaited<ReturnType<typeof solveRestricted>> =
      needed > prepared.question.budgetBytes
        ? { conflict: [], smallestBudget: needed }
        : await solveRestricted(
            prepared,
            applied.restriction,
            prepared.question.budgetBytes,
            deadline,
          );
    if ('conflict' in found) {
      const { conflict, smallestBudget, isLate } = found;
      const reason =
        isLate === true
          ? LATE
          : smallestBudget === undefined
            ? `${recipe.name} cannot be completed: ${conflict.join(', ')}`
            : overText(smallestBudget, prepared.question.budgetBytes);
      results.push({ status: 'refused', name: recipe.name, reason });
      continue;
    }
    const { seconds, peakBytes, choice } = found;
    results.push({ status: 'priced', name: recipe.name, seconds, peakBytes, choice });
  }
  return results;
}

function overText(neededBytes: number, budgetBytes: number): string {
  const gib = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
  return `needs ${gib(neededBytes)} per device for states alone, the budget is ${gib(budgetBytes)}`;
}
