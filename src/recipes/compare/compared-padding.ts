/**
 * Vocabularies that are padded for a comparison, in which tensor parallelism differs from mesh to
 * mesh.
 */

import type { Hosts } from '../../cost/hardware/topology.ts';
import type { ModelConfig } from '../../models/families.ts';
import { vocabularyPadding } from '../../models/vocabulary.ts';
import { NAMED_RECIPES, namedRecipe } from '../registry.ts';
import type { ComparedPadding, Comparison } from './comparison.ts';
import { meshCandidates } from './meshes.ts';

/**
 * The padding of a model for each number of tensor ranks; undefined where none is asked for.
 *
 * @param multiple 1 pads nothing
 */
export function comparedPadding(
  config: ModelConfig,
  multiple: number,
  tensors: readonly number[],
): ComparedPadding | undefined {
  const all = [...new Set(tensors)].sort((a, b) => a - b);
  const byTensor = all.flatMap((tensor) => {
    const padding = vocabularyPadding(config, { multiple, tensor });
    return padding === undefined
      ? []
      : [{ tensor, rows: padding.rows, parameters: padding.parameters }];
  });
  return multiple === 1
    ? undefined
    : { multiple, vocabulary: config.architecture.shape.vocabulary, byTensor };
}

/** The padding of any of the pieces of one comparison. */
export function mergedPadding(
  pieces: readonly Pick<Comparison, 'padding'>[],
): ComparedPadding | undefined {
  const [first] = pieces.flatMap(({ padding }) => padding ?? []);
  const rows = pieces.flatMap(({ padding }) => padding?.byTensor ?? []);
  const one = new Map(rows.map((row) => [row.tensor, row]));
  return first === undefined
    ? undefined
    : { ...first, byTensor: [...one.values()].sort((a, b) => a.tensor - b.tensor) };
}

/**
 * Most ranks of tensor parallelism of any plan that `compare` prices on one graph: one padding
 * serves all of them. The free optimum may cut a vocabulary over any mesh dim.
 *
 * @param plans names of plans; absent: all of them
 * @throws E_USAGE for an unknown recipe, E_MESH for a wrong number of devices
 */
export function mostTensorRanks(
  devices: number,
  hosts: Hosts,
  maxDims: number,
  plans?: readonly string[],
): number {
  const isFree = plans?.includes('optimum') ?? true;
  const wanted = plans?.filter((name) => name !== 'optimum').map((name) => namedRecipe(name).name);
  let most = 1;
  for (const { sizes, refused } of meshCandidates(devices, hosts, maxDims)) {
    if (refused !== undefined) continue;
    if (isFree) most = Math.max(most, ...sizes);
    for (const { name, axes } of NAMED_RECIPES)
      if (axes.length === sizes.length && axes.includes('tp') && (wanted?.includes(name) ?? true))
        most = Math.max(most, sizes[axes.indexOf('tp')]);
  }
  return most;
}
