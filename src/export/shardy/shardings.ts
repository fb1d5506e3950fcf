/**
 * Writes a sharding on a mesh in the words of Shardy and of GSPMD, or gives the reason why there is
 * no such text. Source: the Shardy dialect (axes of each dim, major first); XLA's HloSharding
 * (`devices=[2,4]<=[8]`).
 */
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { isPending, type Sharding } from '../../mesh/sharding/sharding.ts';
import { toDimView } from '../../mesh/views/dim-view.ts';
import type { ShardingText } from '../hlo/constraints.ts';
import { mlirString } from './text.ts';

/** Mesh dims of each tensor dim; refused for what neither notation cuts. */
function axesOf(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
): { readonly axes: readonly (readonly string[])[] } | { readonly refused: string } {
  if (sharding.placements.some(isPending))
    return { refused: `${sharding.text} is a pending reduction` };
  const view = toDimView(sharding, mesh, shape);
  return 'refused' in view ? view : { axes: view.spec.forRank(shape.length).dims };
}

/** `<@mesh, [{"dp"}, {}]>`. */
export function shardyText(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
): ShardingText {
  const found = axesOf(sharding, mesh, shape);
  if ('refused' in found) return found;
  return {
    text:
      '<@mesh, ' +
      `[${found.axes.map((axes) => `{${axes.map(mlirString).join(', ')}}`).join(', ')}]>`,
  };
}

/** `{devices=[2,1,4]<=[8] last_tile_dim_replicate}`. */
export function gspmdText(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
): ShardingText {
  const found = axesOf(sharding, mesh, shape);
  if ('refused' in found) return found;
  const dims = found.axes.map((axes) =>
    axes.map((axis) => mesh.indexOf(axis)).filter((m) => mesh.sizes[m] > 1),
  );
  const used = dims.flat();
  if (used.length === 0) return { text: '{replicated}' };
  const rest = mesh.sizes.flatMap((size, m) => (size > 1 && !used.includes(m) ? [m] : []));
  const order = [...used, ...rest];
  const tiles = dims.map((axes) => mesh.sizeOf(axes));
  const replicas = mesh.sizeOf(rest);
  const shown = [...tiles, ...(replicas > 1 ? [replicas] : [])].join(',');
  const { sizes, permutation } = merged(order, mesh);
  const identity = permutation.every((p, i) => p === i);
  const devices = identity ? `[${mesh.size}]` : `[${sizes.join(',')}]T(${permutation.join(',')})`;
  return {
    text: `{devices=[${shown}]<=${devices}${replicas > 1 ? ' last_tile_dim_replicate' : ''}}`,
  };
}

/** The mesh with dims joined that stay neighbours, and the order in which its dims are taken. */
function merged(
  order: readonly number[],
  mesh: DeviceMesh,
): { readonly sizes: number[]; readonly permutation: number[] } {
  const cutting = mesh.sizes.flatMap((size, m) => (size > 1 ? [m] : []));
  const place = new Map(cutting.map((m, i) => [m, i]));
  const groups: number[][] = [];
  for (const m of order) {
    const last = groups.at(-1);
    if (last !== undefined && (place.get(last.at(-1) ?? -1) ?? -2) + 1 === place.get(m))
      last.push(m);
    else groups.push([m]);
  }
  const inMesh = [...groups].sort((a, b) => a[0] - b[0]);
  return {
    sizes: inMesh.map((group) => mesh.sizeOf(group)),
    permutation: groups.map((group) => inMesh.indexOf(group)),
  };
}
