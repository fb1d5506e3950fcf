/**
 * The choice of a recipe that a user names: takes a prepared problem and a name, gives the cheapest
 * choice that the recipe admits.
 */

import { defined } from '../defined.ts';
import { interrupted, ShardwrightError, suggestion } from '../errors.ts';
import type { DeviceMesh } from '../mesh/devices/mesh.ts';
import type { Deadline } from '../plan/request/deadline.ts';
import { type Priced, priceRestriction, type Solvable } from './compare/price.ts';
import { matchAxes } from './mesh-axes.ts';
import type { Recipe } from './parts.ts';
import { applyRecipe, meshRecipes } from './recipes.ts';
import {
  isRecipeName,
  NAMED_RECIPES,
  type NamedRecipe,
  namedRecipe,
  recipeOf,
} from './registry.ts';

/** The choice of a recipe with its price, and what to say of how it was read. */
interface RecipeChoice extends Priced {
  readonly notes: readonly string[];
}

const OPEN = 'the recipe leaves some placements open; they are as cheap as the recipe admits';

/**
 * Prices the recipe of this name on a problem.
 *
 * @param name a name of `recipes list` such as `fsdp+tp`, or of the table that `plan` prints, such
 *   as `FSDP (dp)`
 * @throws E_USAGE for a name that no recipe has and a mesh without its axes, E_PLAN for a model
 *   that does not admit the recipe, E_TIME_LIMIT where the deadline comes before the price
 */
export async function recipeChoice(
  prepared: Solvable,
  name: string,
  deadline: Deadline,
): Promise<RecipeChoice> {
  const { model } = prepared;
  const { mesh } = model.space;
  const { recipe, notes } = recipeOnMesh(prepared, name);
  const applied = applyRecipe(model, recipe);
  const priced =
    'refused' in applied
      ? applied
      : await priceRestriction(prepared, applied.restriction, deadline);
  if ('isLate' in priced) throw late(deadline);
  if ('refused' in priced)
    throw new ShardwrightError(
      'E_PLAN',
      `the model does not admit '${recipe.name}' on ${mesh.text}: ${priced.refused}`,
    );
  return { ...priced, notes: [OPEN, ...notes] };
}

/**
 * The recipe of this name, with a part for each dim of the mesh.
 *
 * @throws E_USAGE as `recipeChoice`
 */
export function recipeOnMesh(
  { model }: Solvable,
  name: string,
): { readonly recipe: Recipe; readonly notes: readonly string[] } {
  const { mesh } = model.space;
  if (!isRecipeName(name)) {
    const known = meshRecipes(model);
    const recipe = known.find((one) => one.name === name);
    if (recipe !== undefined) return { recipe, notes: [] };
    const names = [...NAMED_RECIPES.map((one) => one.name), ...known.map((one) => one.name)];
    throw new ShardwrightError('E_USAGE', `there is no recipe '${name}'`, {
      hint: suggestion(name, names, 'recipes'),
    });
  }
  const named = namedRecipe(name);
  const recipe = recipeOf(named);
  if (recipe === undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `'${name}' is not a choice of placements: ${named.outside ?? 'it is not planned'}`,
      defined({ hint: outsideHint(named) }),
    );
  const matched = matchAxes(named, mesh.names);
  if ('refused' in matched)
    throw new ShardwrightError('E_USAGE', `--mesh ${mesh.text}: ${matched.refused}`, {
      hint: waysOut(named, mesh),
    });
  const axes = named.axes.map((axis, a) => `${axis} is ${mesh.names[matched.dims[a]]}`).join(', ');
  return {
    recipe: { ...recipe, parts: mesh.dims.map((_, d) => recipe.parts[matched.dims.indexOf(d)]) },
    notes:
      matched.by === 'position'
        ? [
            `no mesh dim has the name of an axis of '${named.name}', so they were taken in ` +
              `order: ${axes}`,
          ]
        : [],
  };
}

/** The nearest recipes that a plan states, and the command that writes this one. */
function outsideHint({ name, nearest = [] }: NamedRecipe): string | undefined {
  if (nearest.length === 0) return undefined;
  return (
    `the nearest that are: ${nearest.join(', ')}; or price it with ` +
    `compare MODEL --plans ${name}, which writes the configuration of its trainer with -o DIR.`
  );
}

/** The recipes whose axes the mesh has, and the mesh that this recipe has. */
function waysOut(named: NamedRecipe, mesh: DeviceMesh): string {
  const fitting = NAMED_RECIPES.filter(
    (other) => other.parts !== undefined && 'dims' in matchAxes(other, mesh.names),
  );
  const names = fitting.map(({ name, axes }) => `${name} (${axes.join(', ')})`).join(', ');
  const own =
    named.axes.length === 1
      ? `--mesh ${named.axes[0]}=${mesh.size}`
      : `--mesh ${named.axes.map((axis) => `${axis}=N`).join(',')}`;
  const others = names === '' ? '' : `, or a recipe of this mesh: ${names}`;
  return `give it a mesh of its axes, ${own}${others}.`;
}

/** There is nothing to answer with: the recipe has no price yet. */
function late(deadline: Deadline): ShardwrightError {
  return deadline.isInterrupted
    ? interrupted()
    : new ShardwrightError('E_TIME_LIMIT', 'the time limit came before the plan was priced', {
        hint: 'raise --time-limit.',
      });
}
