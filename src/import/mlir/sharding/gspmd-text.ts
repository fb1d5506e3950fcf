/** Prints a sharding in the notation of GSPMD. */

import { ShardwrightError } from '../../../errors.ts';
import type { DeviceMesh } from '../../../mesh/devices/mesh.ts';
import { isPending, type Sharding } from '../../../mesh/sharding/sharding.ts';

/**
 * The GSPMD string of a sharding: the tiles of each tensor dim, then the mesh dims in the order in which they cut the dims
 * (the unused ones behind, in mesh order). Mesh dims that stay neighbours are one factor, and an order that moves nothing is
 * left out, as XLA prints it: `{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}`.
 *
 * @param rank dims of the tensor
 * @throws E_UNSUPPORTED for a pending reduction, which these strings cannot say
 */
export function gspmdText(sharding: Sharding, mesh: DeviceMesh, rank: number): string {
  const pending = sharding.placements.find(isPending);
  if (pending !== undefined)
    throw new ShardwrightError('E_UNSUPPORTED', `a GSPMD sharding cannot say that ${pending.text} is pending`, {
      hint: 'reduce the value before, or write Shardy',
    });
  const size = (axes: readonly number[]): number => axes.reduce((n, axis) => n * mesh.sizes[axis], 1);
  const cuts = Array.from({ length: rank }, (_, dim) => sharding.orderOf(dim).filter((axis) => mesh.sizes[axis] > 1));
  const used = cuts.flat();
  if (used.length === 0) return '{replicated}';
  const unused = mesh.sizes.flatMap((n, axis) => (n > 1 && !used.includes(axis) ? [axis] : []));
  const tiles = [...cuts.map(size), ...(unused.length > 0 ? [size(unused)] : [])];
  return `{devices=[${tiles.join(',')}]${orderText([...used, ...unused], mesh.sizes)}${unused.length > 0 ? ' last_tile_dim_replicate' : ''}}`;
}

/** `<=[2,4]T(1,0)`: the devices counted in mesh order, read in this order of the mesh dims. */
function orderText(axes: readonly number[], sizes: readonly number[]): string {
  const inOrder = [...axes].sort((a, b) => a - b);
  const next = new Map(inOrder.map((axis, i) => [axis, inOrder[i + 1]]));
  const factors: { first: number; size: number }[] = [];
  axes.forEach((axis, i) => {
    if (i > 0 && next.get(axes[i - 1]) === axis) factors[factors.length - 1].size *= sizes[axis];
    else factors.push({ first: axis, size: sizes[axis] });
  });
  const shape = [...factors].sort((a, b) => a.first - b.first);
  const order = factors.map((factor) => shape.indexOf(factor));
  return `<=[${shape.map((factor) => factor.size).join(',')}]${shape.length > 1 ? `T(${order.join(',')})` : ''}`;
}
