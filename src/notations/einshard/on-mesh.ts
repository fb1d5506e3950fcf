/** Parses a sharding text of a given mesh in any notation: placements, einshard, PartitionSpec. */

import { ShardwrightError } from '../../errors.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { REPLICATE } from '../../mesh/placements/replicate.ts';
import { toMeshView } from '../../mesh/sharding/mesh-view.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import { evenlyShardable, Sharding } from '../../mesh/sharding/sharding.ts';
import { fromDimView } from '../../mesh/views/dim-view.ts';
import { isPartitionSpec, parsePartitionSpec } from '../../mesh/views/partition-spec.ts';
import { toPlacements } from './placements.ts';
import { resolveEinshard } from './resolve.ts';
import { isEinshard } from './syntax.ts';

/**
 * A sharding text of a given mesh in any notation: placements (`S(0)R`), with an arrow einshard (`a
 * b -> a8 b 8`), or a PartitionSpec (`P("dp", None)`). A strided list such as `_S(0, 2)S(0)` is
 * read as the order of mesh dims that it is where the dim divides; where it does not, the two cut
 * differently (ceil chunks) and the strides are kept as they stand.
 *
 * @param shape global shape of the tensor
 * @throws E_SYNTAX, E_PLACEMENT, E_EINSHARD; E_MESH when an einshard text makes another mesh than
 *   the given one
 */
export function parseShardingFor(
  text: string,
  mesh: DeviceMesh,
  shape: readonly number[],
): Sharding {
  const other = parseNamed(text, mesh, shape);
  if (other !== undefined) return other;
  const sharding = parseSharding(text, mesh, { rank: shape.length });
  const strided = !/\)\s*\[\s*\d+\s*\]/.test(text);
  if (sharding.inMeshOrder || !strided || evenlyShardable(sharding, mesh, shape)) return sharding;
  const view = toMeshView(sharding, mesh);
  return 'refused' in view ? sharding : new Sharding(view.placements);
}

/**
 * The sharding of a text that names dims, einshard or a PartitionSpec; undefined for a text of
 * placements.
 *
 * @throws as `parseShardingFor`
 */
export function parseNamed(
  text: string,
  mesh: DeviceMesh,
  shape: readonly number[],
): Sharding | undefined {
  if (isEinshard(text)) return einshardOnMesh(text, mesh, shape);
  if (!isPartitionSpec(text)) return undefined;
  const { sharding, reduced } = fromDimView(parsePartitionSpec(text).forRank(shape.length), mesh);
  if (reduced.length > 0)
    throw new ShardwrightError(
      'E_PLACEMENT',
      `${text}: 'reduced' says of the gradient where it is pending, not of the value`,
      {
        hint: 'leave reduced={...} out, and place the gradient itself: P(unreduced={...}).',
      },
    );
  return sharding;
}

/**
 * The sharding that an einshard text means on a given mesh. Both must have the same dims in the
 * same order, but for dims of size 1, which carry no data.
 */
export function einshardOnMesh(text: string, mesh: DeviceMesh, shape: readonly number[]): Sharding {
  const einshard = resolveEinshard(text, { devices: mesh.size, shape });
  const made = einshard.axes.map((a) => a.size).filter((n) => n > 1);
  const wanted = mesh.sizes.filter((n) => n > 1);
  if (made.length !== wanted.length || made.some((n, i) => n !== wanted[i]))
    throw new ShardwrightError(
      'E_MESH',
      `'${text}' makes the mesh (${made.join(', ')}), but the mesh is ${mesh.text}, that is ` +
        `(${wanted.join(', ')})`,
      {
        hint:
          `write the right side with one element for each of ${mesh.text}, in this order; dims ` +
          'of size 1 do not count',
        excerpt: text,
      },
    );
  const placements = toPlacements(einshard, { dropUnit: true });
  let next = 0;
  return new Sharding(mesh.sizes.map((n): Placement => (n > 1 ? placements[next++] : REPLICATE)));
}
