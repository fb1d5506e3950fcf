/**
 * Mesh dims may be used together, also those of different meshes over the same devices, only if
 * they are orthogonal: no two coordinates of all of them reach one device. Dims of one mesh always
 * are.
 */

import { checkItems, checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { offsets } from './coordinates.ts';
import type { Layout } from './layout.ts';
import { deviceLayout } from './mesh-layout.ts';

/** A named axis: lex layout of the devices it reaches from one of them. */
export interface MeshAxis {
  readonly name: string;
  readonly layout: Layout;
}

/**
 * A dim, or several flattened, as an axis of device ids.
 *
 * @throws E_MESH when the table of the mesh spaces the devices of different groups differently, so
 *   that no layout is the axis
 */
export function meshAxis(
  mesh: DeviceMesh,
  dims: readonly (number | string)[],
  name?: string,
): MeshAxis {
  checkKinds('meshAxis', {
    mesh: [mesh, 'mesh'],
    dims: [dims, 'places'],
    name: [name, 'string', 'undefined'],
  });
  const label =
    name ??
    mesh
      .resolve(dims)
      .map((d) => mesh.names[d])
      .join('_');
  const layout = deviceLayout(mesh, dims);
  if (layout === undefined)
    throw new ShardwrightError(
      'E_MESH',
      `the table of ${mesh.toString()} makes '${label}' no even axis of device ids`,
      {
        hint: 'compare its groups instead (groupsMeet)',
      },
    );
  return { name: label, layout };
}

/** Tells whether axes can be used together. */
export function areOrthogonal(axes: readonly MeshAxis[]): boolean {
  checkKinds('areOrthogonal', { axes: [axes, 'list'] });
  checkItems('areOrthogonal', 'axes', axes, ['name', 'layout']);
  return culprits(axes) === undefined;
}

/**
 * Refuses axes that cannot be used together.
 *
 * @throws E_MESH naming the axes that meet, with the rank that they both reach
 */
export function checkOrthogonal(axes: readonly MeshAxis[]): void {
  checkKinds('checkOrthogonal', { axes: [axes, 'list'] });
  checkItems('checkOrthogonal', 'axes', axes, ['name', 'layout']);
  const found = culprits(axes);
  if (found === undefined) return;
  const named = found.axes.map((a) => `'${a.name}' (${a.layout.text})`);
  const list = `${named.slice(0, -1).join(', ')} and ${named[named.length - 1]}`;
  const place = `they reach rank ${found.rank} in two ways`;
  throw new ShardwrightError(
    'E_MESH',
    named.length === 1
      ? `mesh axis ${named[0]} meets itself: it reaches rank ${found.rank} twice`
      : `mesh axes ${list} are not orthogonal: ${place}`,
    { hint: 'use axes that share no rank but 0, such as dims of one mesh' },
  );
}

/**
 * Tells whether two axes of any meshes over the same devices meet: some group of one shares two
 * devices with a group of the other. Needs no layout, so it holds for every table.
 */
export function groupsMeet(
  a: DeviceMesh,
  aDims: readonly (number | string)[],
  b: DeviceMesh,
  bDims: readonly (number | string)[],
): boolean {
  checkKinds('groupsMeet', {
    a: [a, 'mesh'],
    aDims: [aDims, 'places'],
    b: [b, 'mesh'],
    bDims: [bDims, 'places'],
  });
  const groupOf = new Map<number, number>();
  a.groups(aDims).forEach((group, g) => group.forEach((id) => groupOf.set(id, g)));
  return b.groups(bDims).some((group) => {
    const seen = new Set<number>();
    return group.some((id) => {
      const g = groupOf.get(id);
      if (g === undefined) return false;
      if (seen.has(g)) return true;
      seen.add(g);
      return false;
    });
  });
}

const MAX_REACH = 1 << 22;

/**
 * The smallest early set of axes that collide: one that meets itself, else the first pair, else the
 * first prefix.
 */
function culprits(
  axes: readonly MeshAxis[],
): { axes: readonly MeshAxis[]; rank: number } | undefined {
  for (const axis of axes) {
    const rank = meeting([axis]);
    if (rank !== undefined) return { axes: [axis], rank };
  }
  for (let j = 1; j < axes.length; j++)
    for (let i = 0; i < j; i++) {
      const rank = meeting([axes[i], axes[j]]);
      if (rank !== undefined) return { axes: [axes[i], axes[j]], rank };
    }
  for (let n = 3; n <= axes.length; n++) {
    const rank = meeting(axes.slice(0, n));
    if (rank !== undefined) return { axes: axes.slice(0, n), rank };
  }
  return undefined;
}

/** A rank that two coordinates of the axes reach. */
function meeting(axes: readonly MeshAxis[]): number | undefined {
  let reached = [0];
  for (const { name, layout } of axes) {
    if (reached.length * layout.size > MAX_REACH)
      throw new ShardwrightError(
        'E_LIMIT',
        `the axes up to '${name}' reach more than ${MAX_REACH} ranks`,
      );
    const own = offsets(layout, 'lex');
    const next: number[] = [];
    const seen = new Set<number>();
    for (const base of reached)
      for (const o of own) {
        const rank = base + o;
        if (seen.has(rank)) return rank;
        seen.add(rank);
        next.push(rank);
      }
    reached = next;
  }
  return undefined;
}
