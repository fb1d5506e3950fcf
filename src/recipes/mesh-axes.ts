/**
 * Matches the axes of a recipe with the dims of a mesh: takes both lists of names, gives the mesh
 * dim of each axis, by name where the names tell it and by position where they say nothing.
 */

import { NAMED_RECIPES, type NamedRecipe } from './registry.ts';

/** The mesh dim of each axis of a recipe, in the order of its axes. */
interface MatchedAxes {
  readonly dims: readonly number[];
  /** `position` where no mesh dim has the name of an axis. */
  readonly by: 'name' | 'position';
}

/** Why the mesh cannot be that of the recipe. */
interface RefusedAxes {
  readonly refused: string;
}

/** Every axis name that some recipe has: a mesh dim of such a name says what it is for. */
const ROLES: ReadonlySet<string> = new Set(NAMED_RECIPES.flatMap((recipe) => recipe.axes));

/** Names that people give to one data axis, and that are one where a recipe has no second. */
const DATA = ['dp', 'dp_shard'] as const;

/**
 * Matches by name, and by position where the mesh says nothing. A mesh of other rank, or with a dim
 * named as an axis that the recipe does not have, is refused.
 *
 * @param names of the mesh dims, outermost first
 */
export function matchAxes(
  recipe: NamedRecipe,
  names: readonly string[],
): MatchedAxes | RefusedAxes {
  const { axes } = recipe;
  const own = `'${recipe.name}' has axes ${axes.join(', ')}`;
  if (names.length !== axes.length)
    return {
      refused:
        `${own}, the mesh has ${names.length} dim${names.length === 1 ? '' : 's'}: ` +
        `${names.join(', ')}`,
    };
  const told = names.map((name) => asAxis(name, axes));
  const strange = names.find((_, d) => ROLES.has(told[d]) && !axes.includes(told[d]));
  if (strange !== undefined) return { refused: `${own}, and none is the mesh dim '${strange}'` };
  const isNamed = told.some((name) => axes.includes(name));
  // Dims whose names say nothing take the axes that are left, outermost first.
  const free = names.flatMap((_, d) => (axes.includes(told[d]) ? [] : [d]));
  const dims = axes.map((axis) => (told.includes(axis) ? told.indexOf(axis) : free.shift()!));
  return { dims, by: isNamed ? 'name' : 'position' };
}

/**
 * The axis that a mesh dim's name means: `dp` is `dp_shard` where a recipe has only that one, and
 * the reverse.
 */
function asAxis(name: string, axes: readonly string[]): string {
  if (axes.includes(name) || !DATA.some((d) => d === name)) return name;
  return DATA.find((d) => axes.includes(d)) ?? name;
}
