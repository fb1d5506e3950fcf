/** Parses a sharding text of a given mesh in any notation: placements, einshard, PartitionSpec. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError, valueText, wrongArgument } from '../../errors.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { REPLICATE } from '../../mesh/placements/replicate.ts';
import { toMeshView } from '../../mesh/sharding/mesh-view.ts';
import { type ParseOptions, parseSharding } from '../../mesh/sharding/parse.ts';
import { evenlyShardable, Sharding } from '../../mesh/sharding/sharding.ts';
import { fromDimView } from '../../mesh/views/dim-view.ts';
import {
  isPartitionSpec,
  parsePartitionSpec,
  type PartitionSpec,
} from '../../mesh/views/partition-spec.ts';
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
  options: Omit<ParseOptions, 'rank'> = {},
): Sharding {
  const other = parseNamed(text, mesh, shape);
  if (other !== undefined) return other;
  const sharding = parseSharding(text, mesh, { ...options, rank: shape.length });
  const strided = !/\)\s*\[\s*\d+\s*\]/.test(text);
  if (sharding.inMeshOrder || !strided || evenlyShardable(sharding, mesh, shape)) return sharding;
  const view = toMeshView(sharding, mesh);
  return 'refused' in view ? sharding : new Sharding(view.placements);
}

/** The tensor and mesh for which a sharding text in any notation is read. */
export interface AnyParseOptions extends ParseOptions {
  /** Global shape of the tensor; einshard texts want it. */
  readonly shape?: readonly number[];
}

/**
 * A sharding text in any notation that the commands take: placements (`S(0)R`), a PartitionSpec
 * (`P("dp", None)`), and einshard (`a b -> a8 b 8`) of a tensor whose shape is given.
 *
 * @throws E_SYNTAX, E_PLACEMENT, E_MESH; E_EINSHARD, also where the shape is missing
 */
export function parseAnySharding(
  text: string,
  mesh: DeviceMesh,
  options: AnyParseOptions = {},
): Sharding {
  if (typeof text !== 'string')
    throw wrongArgument(
      'parseSharding',
      'text',
      valueText(text),
      "give parseSharding('S(0)R', parseMesh('dp=2,tp=4')).",
    );
  checkKinds('parseSharding', { mesh: [mesh, 'mesh'], options: [options, 'record'] });
  const { shape, ...rest } = options;
  if (shape !== undefined) return parseShardingFor(text, mesh, shape, rest);
  if (isEinshard(text))
    throw new ShardwrightError('E_EINSHARD', `'${text}' needs the shape of its tensor`, {
      hint: 'give it as { shape: [128, 256] }.',
    });
  if (!isPartitionSpec(text)) return parseSharding(text, mesh, rest);
  const spec = parsePartitionSpec(text);
  return ofSpec(text, rest.rank === undefined ? spec : spec.forRank(rest.rank), mesh);
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
  return ofSpec(text, parsePartitionSpec(text).forRank(shape.length), mesh);
}

function ofSpec(text: string, spec: PartitionSpec, mesh: DeviceMesh): Sharding {
  const { sharding, reduced } = fromDimView(spec, mesh);
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
