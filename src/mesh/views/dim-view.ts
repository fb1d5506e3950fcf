/**
 * Between the mesh view (one placement per mesh dim) and the dim view (a PartitionSpec). The dim
 * view states the order of mesh dims on each tensor dim, so every spec has one sharding; a sharding
 * has a spec unless it holds cuts or pending reductions that the closed dim view has no words for
 * (placements spec, section 3).
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import type { DeviceMesh } from '../devices/mesh.ts';
import { Partial } from '../placements/partials/partial.ts';
import type { Placement, ReduceOp } from '../placements/placement.ts';
import { REPLICATE } from '../placements/replicate.ts';
import { Shard } from '../placements/shards/shard.ts';
import { StridedShard } from '../placements/shards/strided.ts';
import { fromMeshView } from '../sharding/mesh-view.ts';
import { evenlyShardable, isPending, Sharding } from '../sharding/sharding.ts';
import { PartitionSpec } from './partition-spec.ts';

/**
 * A sharding by tensor dim, as JAX writes it. `shape` is the global shape in elements; what a
 * PartitionSpec cannot say is refused with the reason.
 *
 * @param shape global sizes of the tensor
 * @param reduced mesh dims of replicated values whose gradient is pending; the mesh view does not
 *   tell them apart
 * @returns the spec, or the reason why there is none
 * @throws E_PLACEMENT when a dim is cut that the tensor lacks, or a `reduced` mesh dim is not
 *   replicated
 */
export function toDimView(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
  reduced: readonly string[] = [],
): { readonly spec: PartitionSpec } | { readonly refused: string } {
  checkKinds('toDimView', {
    sharding: [sharding, 'sharding'],
    mesh: [mesh, 'mesh'],
    shape: [shape, 'integers'],
    reduced: [reduced, 'names', 'undefined'],
  });
  const decoded = decode(sharding, mesh, shape);
  if ('refused' in decoded) return decoded;
  const { placements } = decoded.sharding;
  const dims = shape.map((): string[] => []);
  for (const [dim, order] of decoded.sharding.orders) {
    if (dim >= shape.length)
      throw new ShardwrightError(
        'E_PLACEMENT',
        `${sharding.text} cuts dim ${dim} of a ${shape.length}-D tensor`,
      );
    for (const m of order) {
      const p = placements[m];
      if (!(p instanceof Shard))
        return { refused: `mesh dim '${mesh.names[m]}' is ${p.text}: ${whyNot(p)}` };
      dims[dim].push(mesh.names[m]);
    }
  }
  const unreduced: [string, ReduceOp][] = [];
  for (const [m, p] of placements.entries()) {
    if (!isPending(p)) continue;
    if (!(p instanceof Partial))
      return { refused: `mesh dim '${mesh.names[m]}' is ${p.text}: ${whyNot(p)}` };
    unreduced.push([mesh.names[m], p.op]);
  }
  for (const axis of reduced) {
    const p = placements[mesh.indexOf(axis)];
    if (p.kind !== 'replicate')
      throw new ShardwrightError(
        'E_PLACEMENT',
        `mesh dim '${axis}' is ${p.text}, so its values are not reduced`,
      );
  }
  const inMeshOrder = mesh.names.filter((name) => reduced.includes(name));
  return { spec: new PartitionSpec(dims, { unreduced, reduced: inMeshOrder }) };
}

/** Strides that are an order of mesh dims, as that order. */
function decode(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
): { readonly sharding: Sharding } | { readonly refused: string } {
  if (!sharding.inMeshOrder || !sharding.placements.some((p) => p instanceof StridedShard))
    return { sharding };
  const plain = fromMeshView(sharding.placements, mesh);
  if (plain.text === sharding.text || evenlyShardable(sharding, mesh, shape))
    return { sharding: plain };
  return {
    refused:
      `${sharding.text} cuts [${shape.join(', ')}] unevenly, where strided pieces differ from ` +
      `those of ${plain.text}`,
  };
}

function whyNot(p: Placement): string {
  if (p instanceof StridedShard)
    return (
      'its stride is not an order of mesh dims (as after a flatten), which a PartitionSpec ' +
      'cannot say'
    );
  return 'a PartitionSpec has plain cuts and plain reductions only';
}

/**
 * The sharding of a spec: plain shards with the order of the spec. For StridedShard texts, go on
 * with `toMeshView`.
 *
 * @returns the sharding, and the mesh dims marked reduced, which it does not hold
 * @throws E_MESH for a mesh dim that the mesh lacks
 */
export function fromDimView(
  spec: PartitionSpec,
  mesh: DeviceMesh,
): { readonly sharding: Sharding; readonly reduced: readonly string[] } {
  checkKinds('fromDimView', {
    spec: [spec, ['dims', 'unreduced', 'reduced']],
    mesh: [mesh, 'mesh'],
  });
  const placements = new Array<Placement>(mesh.rank).fill(REPLICATE);
  const orders = new Map<number, readonly number[]>();
  spec.dims.forEach((axes, dim) => {
    if (axes.length === 0) return;
    const order = axes.map((axis) => mesh.indexOf(axis));
    for (const m of order) placements[m] = Shard.of(dim);
    orders.set(dim, order);
  });
  for (const [axis, op] of spec.unreduced) placements[mesh.indexOf(axis)] = Partial.of(op);
  for (const axis of spec.reduced) mesh.indexOf(axis);
  return { sharding: new Sharding(placements, orders), reduced: spec.reduced };
}
