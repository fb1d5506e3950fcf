/**
 * Takes two shardings with equal tiles and gives the sender and the receiver of every tile, for
 * `collective_permute`.
 */

import { internalError } from '../../errors.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { Sharding } from '../../mesh/sharding/sharding.ts';

/** A message of a permutation: places in the mesh (ranks), not device ids. */
export type SourceTarget = readonly [source: number, target: number];

/**
 * Who sends its tile to whom in a permutation: every rank sends once and receives once, inside its
 * group of `meshDims`. Ranks that hold the right tile already keep it (`3 -> 3`); else the lowest
 * free holder sends, so the list is the same every time.
 *
 * @param meshDims mesh dims whose share of the tile number changes
 * @returns by source, ascending
 * @throws E_INTERNAL when the shardings are not a permutation of each other: the planner makes only
 *   such that are
 */
export function permutationPairs(
  from: Sharding,
  to: Sharding,
  mesh: DeviceMesh,
  meshDims: readonly number[],
): SourceTarget[] {
  const fixed = mesh.sizes.map((_, m) => m).filter((m) => !meshDims.includes(m));
  const nameOf = (sharding: Sharding, rank: number): string => {
    const at = mesh.coordinates(rank);
    const tile = [...sharding.orders].flatMap(([dim, order]) => {
      // Mesh dims of one device cut nothing.
      const real = order.filter((m) => mesh.sizes[m] > 1);
      return real.length > 0 ? [`${dim}:${tileNumber(sharding, mesh, real, at)}`] : [];
    });
    // Equal tiles of different groups are not the same; mesh dims with pending operands never take
    // part.
    return `${tile.join(' ')}|${fixed.map((m) => at[m]).join(' ')}`;
  };
  const holders = new Map<string, number[]>();
  const wanted: string[] = [];
  const sourceOf = new Array<number>(mesh.size).fill(-1);
  for (let rank = 0; rank < mesh.size; rank++) {
    const has = nameOf(from, rank);
    wanted.push(nameOf(to, rank));
    if (has === wanted[rank]) {
      sourceOf[rank] = rank;
      continue;
    }
    const list = holders.get(has);
    if (list === undefined) holders.set(has, [rank]);
    else list.push(rank);
  }
  for (let rank = 0; rank < mesh.size; rank++) {
    if (sourceOf[rank] >= 0) continue;
    const source = holders.get(wanted[rank])?.shift();
    if (source === undefined)
      throw internalError(
        `${from.text} is not a permutation of ${to.text}: nobody sends to rank ${rank}`,
      );
    sourceOf[rank] = source;
  }
  const pairs = sourceOf.map((source, target): SourceTarget => [source, target]);
  return pairs.sort((a, b) => a[0] - b[0]);
}

/**
 * Number of the tile of a tensor dim: coordinates in the order of the cuts; of other cuts than
 * shards with their kind.
 */
function tileNumber(
  sharding: Sharding,
  mesh: DeviceMesh,
  order: readonly number[],
  at: readonly number[],
): string {
  let number = 0;
  let kinds = '';
  for (const m of order) {
    number = number * mesh.sizes[m] + at[m];
    if (sharding.placements[m].kind !== 'shard') kinds += sharding.placements[m].text;
  }
  return `${number}${kinds}`;
}
