/**
 * The mesh view writes an order that is not mesh order with StridedShard, as DTensor and FSDP2 do.
 * DTensor reads strides that are an order of mesh dims as that order, whatever the sizes. Strides
 * that are applied one after another cut the same pieces where the dim divides evenly.
 */

import { checkKinds } from '../../arguments.ts';
import type { DeviceMesh } from '../devices/mesh.ts';
import type { Placement } from '../placements/placement.ts';
import { Shard } from '../placements/shards/shard.ts';
import { StridedShard } from '../placements/shards/strided.ts';
import { evenlyShardable, Sharding } from './sharding.ts';

/**
 * Placements applied in mesh order that cut like the ordered sharding.
 *
 * @param shape when given, uneven dims are refused: the pieces would differ
 * @returns the placements, or the reason why there are none
 */
export function toMeshView(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape?: readonly number[],
): { placements: readonly Placement[] } | { refused: string } {
  checkKinds('toMeshView', {
    sharding: [sharding, 'sharding'],
    mesh: [mesh, 'mesh'],
    shape: [shape, 'integers', 'undefined'],
  });
  if (sharding.inMeshOrder) return { placements: sharding.placements };
  if (shape !== undefined && !evenlyShardable(sharding, mesh, shape))
    return {
      refused:
        `${sharding.text} cuts [${shape.join(', ')}] unevenly, where strided pieces differ ` +
        'from ordered ones; the order is kept',
    };
  return { placements: dtensorPlacements(sharding, mesh) };
}

/**
 * The placements that DTensor writes for an ordered sharding: mesh dim `a` gets the stride factor
 * that is the product of the sizes of mesh dims before `a` in the order but after it in the mesh.
 */
export function dtensorPlacements(sharding: Sharding, mesh: DeviceMesh): readonly Placement[] {
  const out = [...sharding.placements];
  for (const [dim, order] of sharding.orders) {
    order.forEach((a, i) => {
      let factor = 1;
      for (const b of order.slice(0, i)) if (b > a) factor *= mesh.sizes[b];
      if (factor > 1) {
        if (!(out[a] instanceof Shard)) return;
        out[a] = new StridedShard(dim, factor);
      }
    });
  }
  return out;
}

/**
 * Reads a mesh-view list back into an ordered sharding. Strides that are not an order of mesh dims
 * (such as those of a flatten) stay as they are: the result then still holds StridedShard
 * placements, in mesh order.
 */
export function fromMeshView(placements: readonly Placement[], mesh: DeviceMesh): Sharding {
  checkKinds('fromMeshView', { placements: [placements, 'placements'], mesh: [mesh, 'mesh'] });
  const orders = new Map<number, readonly number[]>();
  const plain = [...placements];
  const dims = new Set<number>();
  for (const p of placements) if (p.dim !== undefined) dims.add(p.dim);
  for (const dim of dims) {
    const factors = placements.map((p) => (p.dim !== dim ? 0 : factorOf(p)));
    const order = decodeOrder(factors, mesh.sizes);
    if (order === undefined) continue;
    for (const m of order) plain[m] = Shard.of(dim);
    orders.set(dim, order);
  }
  return new Sharding(plain, orders);
}

/** Stride factor of a slicing placement: 1 for Shard, NaN for kinds that have none. */
function factorOf(p: Placement): number {
  if (p instanceof Shard) return 1;
  return p instanceof StridedShard ? p.factor : NaN;
}

/**
 * The order of mesh dims behind a list of stride factors, or undefined if there is none. Walks the
 * mesh dims last to first; one with factor f goes right after the shortest prefix of the order
 * whose sizes multiply to f.
 *
 * @param factors factor of each mesh dim, 0 for those that do not cut the tensor dim
 */
export function decodeOrder(
  factors: readonly number[],
  sizes: readonly number[],
): number[] | undefined {
  const order: number[] = [];
  for (let m = factors.length - 1; m >= 0; m--) {
    const factor = factors[m];
    if (factor === 0) continue;
    let product = 1;
    let at = 0;
    while (product !== factor && at < order.length) product *= sizes[order[at++]];
    if (product !== factor) return undefined;
    order.splice(at, 0, m);
  }
  return order;
}
