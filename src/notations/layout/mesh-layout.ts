/**
 * Mesh dims and strided shards as layouts, all of them in lex order (the last mode is the fastest).
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { product } from '../../product.ts';
import { coalesce } from './coalesce.ts';
import { complement } from './complement.ts';
import { offsets } from './coordinates.ts';
import { layoutOfOffsets } from './from-offsets.ts';
import { concat, fromModes, Layout } from './layout.ts';

/**
 * Ranks of the coordinates of mesh dims, the last listed fastest: concatenated and coalesced. Two
 * modes stay where the dims do not lie side by side: dims 0 and 2 of (2,2,2) are `(2,2):(4,1)`.
 *
 * @throws E_MESH for an unknown dim or one listed twice
 */
export function meshLayout(mesh: DeviceMesh, dims: readonly (number | string)[]): Layout {
  checkKinds('meshLayout', { mesh: [mesh, 'mesh'], dims: [dims, 'places'] });
  const modes = mesh.resolve(dims).map((d) => ({ size: mesh.sizes[d], stride: mesh.strides[d] }));
  return coalesce(fromModes(modes), 'lex');
}

/**
 * Like `meshLayout`, of device ids from the first one on: undefined when the mesh's table puts the
 * devices of different groups at different distances, or its ids do not step evenly.
 */
export function deviceLayout(
  mesh: DeviceMesh,
  dims: readonly (number | string)[],
): Layout | undefined {
  const groups = mesh.orderedGroups(dims);
  const first = groups[0].map((id) => id - groups[0][0]);
  const found = layoutOfOffsets(first, 'lex');
  const same = groups.every((g) => g.every((id, i) => id - g[0] === first[i]));
  return same ? found : undefined;
}

/**
 * Groups of an axis among `ranks` ranks: its offsets from every offset of its complement, listed by
 * first member.
 *
 * @throws E_LAYOUT when the axis does not fit into whole groups
 */
export function layoutGroups(axis: Layout, ranks: number): number[][] {
  checkKinds('layoutGroups', { axis: [axis, 'layout'], ranks: [ranks, 'number'] });
  const rest = complement(axis, ranks, 'lex');
  if (axis.size * rest.size !== ranks)
    throw new ShardwrightError(
      'E_LAYOUT',
      `axis ${axis.text} does not divide ${ranks} ranks into whole groups`,
      {
        hint: `its ${axis.size} places and ${rest.size} copies make ${axis.size * rest.size} ranks`,
      },
    );
  const members = offsets(axis, 'lex');
  return offsets(rest, 'lex').map((base) => members.map((o) => base + o));
}

/**
 * An axis taken apart into axes of the given sizes, the last fastest: the inverse of flattening.
 *
 * @throws E_LAYOUT when the sizes do not multiply to the axis, or cut one of its modes unevenly
 */
export function unflattenLayout(axis: Layout, sizes: readonly number[]): Layout[] {
  checkKinds('unflattenLayout', { axis: [axis, 'layout'], sizes: [sizes, 'integers'] });
  const total = product(sizes);
  if (total !== axis.size)
    throw new ShardwrightError(
      'E_LAYOUT',
      `axis ${axis.text} has ${axis.size} places, but sizes ${sizes.join(' x ')} make ${total}`,
    );
  if (sizes.length === 0) return [];
  const at = offsets(axis, 'lex');
  const parts: Layout[] = [];
  let step = 1;
  for (const size of [...sizes].reverse()) {
    const every = Array.from({ length: size }, (_, c) => at[c * step]);
    const part = layoutOfOffsets(every, 'lex');
    if (part !== undefined) parts.unshift(part);
    step *= size;
  }
  const whole = parts.length === sizes.length ? offsets(concat(...parts), 'lex') : [];
  if (!at.every((o, i) => o === whole[i]))
    throw new ShardwrightError(
      'E_LAYOUT',
      `axis ${axis.text} cannot be taken apart into sizes ${sizes.join(' x ')}: they cut its ` +
        'modes unevenly',
    );
  return parts;
}

/** Row numbers of one rank: `offset` plus the offsets of `layout`, in lex order. */
interface RowLayout {
  readonly offset: number;
  readonly layout: Layout;
}

/**
 * Rows that each of `n` ranks holds under StridedShard with `factor` chunks, of a tensor dim that
 * both divide: with L = size / (factor * n), rank r holds r * L plus `(factor, L):(n * L, 1)`.
 *
 * @throws E_LAYOUT when the dim does not divide: uneven pieces are not a layout
 */
export function stridedShardLayout(size: number, factor: number, n: number): RowLayout[] {
  checkKinds('stridedShardLayout', {
    size: [size, 'number'],
    factor: [factor, 'number'],
    n: [n, 'number'],
  });
  for (const [what, value] of [
    ['size', size],
    ['factor', factor],
    ['number of ranks', n],
  ] as const)
    if (!Number.isSafeInteger(value) || value < 1)
      throw new ShardwrightError(
        'E_LAYOUT',
        `the ${what} of a strided shard is ${value}, expected at least 1`,
      );
  if (size % (factor * n) !== 0)
    throw new ShardwrightError(
      'E_LAYOUT',
      `${size} rows in ${factor} chunks of ${n} pieces are uneven: ${size} is not divisible ` +
        `by ${factor * n}`,
    );
  const piece = size / (factor * n);
  const layout = new Layout([factor, piece], [n * piece, 1]);
  return Array.from({ length: n }, (_, r) => ({ offset: r * piece, layout }));
}
