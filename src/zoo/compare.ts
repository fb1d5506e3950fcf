import { stateMemory } from '../plan/decode.ts';
import { withoutFixed } from '../plan/fixed.ts';
import { leastMemoryBound } from '../plan/least-memory.ts';
import type { Prepared } from '../plan/prepare.ts';
import { solve } from '../solver/solve.ts';
import { applyRecipe, plainRecipes } from './recipes.ts';
import { weightRoles } from './weights.ts';

/** A recipe priced on the same problem, or the reason why the mesh or the budget does not admit it. */
export type RecipeResult =
  | {
      readonly status: 'priced';
      readonly name: string;
      readonly seconds: number;
      readonly peakBytes: number;
      readonly choice: Int32Array;
    }
  | { readonly status: 'refused'; readonly name: string; readonly reason: string };

/** Prices the plain recipes of the mesh. Each is a choice of the full problem, so none can be cheaper than the optimum. */
export async function priceRecipes(prepared: Prepared, signal?: AbortSignal): Promise<RecipeResult[]> {
  const { model } = prepared;
  const results: RecipeResult[] = [];
  const roles = weightRoles(model.graph, model.flow);
  for (const recipe of plainRecipes(model)) {
    const applied = applyRecipe(model, recipe, roles);
    if ('refused' in applied) {
      results.push({ status: 'refused', name: recipe.name, reason: applied.refused });
      continue;
    }
    const compact = applied.restriction.compact();
    // A recipe fixes every parameter, so what it needs is known before it is solved.
    const needed = leastMemoryBound(compact.problem);
    if (needed > prepared.budgetBytes) {
      const reason = infeasibleReason({ smallestBudget: needed }, prepared.budgetBytes);
      results.push({ status: 'refused', name: recipe.name, reason });
      continue;
    }
    const free = withoutFixed(compact.problem);
    const solution = await solve(free.problem, {
      engine: 'exact',
      certify: false,
      seed: prepared.request.seed,
      ...(signal !== undefined ? { signal } : {}),
    });
    if (solution.status === 'infeasible') {
      results.push({ status: 'refused', name: recipe.name, reason: infeasibleReason(solution, prepared.budgetBytes) });
      continue;
    }
    const choice = compact.expand(free.expand(solution.choice));
    results.push({
      status: 'priced',
      name: recipe.name,
      seconds: solution.objective / model.unitsPerSecond,
      peakBytes: stateMemory(model, choice).peakBytes,
      choice,
    });
  }
  return results;
}

function infeasibleReason(
  solution: { readonly smallestBudget?: number; readonly conflict?: readonly string[] },
  budgetBytes: number,
): string {
  const gib = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(1)} GiB`;
  if (solution.smallestBudget !== undefined)
    return `needs ${gib(solution.smallestBudget)} per device, the budget is ${gib(budgetBytes)}`;
  return `no placement of every node fits it${solution.conflict === undefined ? '' : ` (${solution.conflict.join(', ')})`}`;
}
