/**
 * Meshes made of a mesh: fewer dims, dims in another order, several dims as one, one dim as
 * several. Devices keep their ids.
 */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { product } from '../../product.ts';
import { DeviceMesh, type MeshDim } from './mesh.ts';

/**
 * The mesh of some dims, in the order listed, at fixed coordinates of all others (dims of size 1
 * may be left out).
 *
 * @throws E_MESH for an unknown dim, one that is both kept and fixed or neither, and a coordinate
 *   outside its dim
 */
export function submesh(
  mesh: DeviceMesh,
  dims: readonly (number | string)[],
  at: Readonly<Record<string, number>> = {},
): DeviceMesh {
  checkKinds('submesh', {
    mesh: [mesh, 'mesh'],
    dims: [dims, 'places'],
    at: [at, 'record', 'undefined'],
  });
  const kept = mesh.resolve(dims);
  let base = 0;
  const fixed = new Set<number>();
  for (const [name, coordinate] of Object.entries(at)) {
    const d = mesh.indexOf(name);
    if (kept.includes(d))
      throw new ShardwrightError('E_MESH', `mesh dim '${name}' is both kept and fixed`);
    if (!Number.isInteger(coordinate) || coordinate < 0 || coordinate >= mesh.sizes[d])
      throw new ShardwrightError(
        'E_MESH',
        `coordinate ${coordinate} of mesh dim '${name}' is outside 0..${mesh.sizes[d] - 1}`,
      );
    fixed.add(d);
    base += coordinate * mesh.strides[d];
  }
  mesh.dims.forEach(({ name, size }, d) => {
    if (size > 1 && !kept.includes(d) && !fixed.has(d))
      throw new ShardwrightError('E_MESH', `mesh dim '${name}' is neither kept nor fixed`, {
        hint: `add a coordinate for it, such as ${name}: 0`,
      });
  });
  return new DeviceMesh(
    kept.map((d) => mesh.dims[d]),
    placed(mesh, kept, base),
  );
}

/**
 * The same devices with the dims in another order. @throws E_MESH unless every dim is listed once
 */
export function permuteDims(mesh: DeviceMesh, dims: readonly (number | string)[]): DeviceMesh {
  checkKinds('permuteDims', { mesh: [mesh, 'mesh'], dims: [dims, 'places'] });
  const order = mesh.resolve(dims);
  const missing = mesh.names.filter((_, d) => !order.includes(d));
  if (missing.length > 0)
    throw new ShardwrightError(
      'E_MESH',
      `mesh dim${missing.length > 1 ? 's' : ''} '${missing.join("', '")}' missing`,
      {
        hint: `list every dim of ${mesh.text} once`,
      },
    );
  return new DeviceMesh(
    order.map((d) => mesh.dims[d]),
    placed(mesh, order, 0),
  );
}

/**
 * The same devices with some dims as one, the last listed fastest, at the place of the first
 * listed. Its groups are those of the dims together. The table is permuted where the dims do not
 * lie side by side.
 *
 * @throws E_MESH for an unknown dim, one listed twice, no dims, or a name that is taken
 */
export function flattenDims(
  mesh: DeviceMesh,
  dims: readonly (number | string)[],
  name?: string,
): DeviceMesh {
  checkKinds('flattenDims', {
    mesh: [mesh, 'mesh'],
    dims: [dims, 'places'],
    name: [name, 'string', 'undefined'],
  });
  const merged = mesh.resolve(dims);
  if (merged.length === 0) throw new ShardwrightError('E_MESH', 'no mesh dims to flatten');
  const label = name ?? merged.map((d) => mesh.names[d]).join('_');
  const order: number[] = [];
  const out: MeshDim[] = [];
  for (let d = 0; d < mesh.rank; d++) {
    if (d === merged[0]) {
      order.push(...merged);
      out.push({ name: label, size: mesh.sizeOf(merged) });
    } else if (!merged.includes(d)) {
      order.push(d);
      out.push(mesh.dims[d]);
    }
  }
  return new DeviceMesh(out, placed(mesh, order, 0));
}

/**
 * The same devices with one dim as several, outermost first: the inverse of flattening.
 *
 * @throws E_MESH naming the dim when the sizes do not multiply to it
 */
export function unflattenDim(
  mesh: DeviceMesh,
  dim: number | string,
  into: readonly MeshDim[],
): DeviceMesh {
  checkKinds('unflattenDim', {
    mesh: [mesh, 'mesh'],
    dim: [dim, 'string', 'number'],
    into: [into, 'meshDims'],
  });
  const [d] = mesh.resolve([dim]);
  const { name, size } = mesh.dims[d];
  const total = product(into.map((part) => part.size));
  if (total !== size)
    throw new ShardwrightError(
      'E_MESH',
      `mesh dim '${name}' has size ${size}, but ` +
        `${into.map((p) => `${p.name}=${p.size}`).join(' x ')} makes ${total}`,
    );
  return new DeviceMesh(
    [...mesh.dims.slice(0, d), ...into, ...mesh.dims.slice(d + 1)],
    mesh.devices,
  );
}

/** Tells whether two meshes hold the same devices, in whatever order. */
export function sameDevices(a: DeviceMesh, b: DeviceMesh): boolean {
  checkKinds('sameDevices', { a: [a, 'mesh'], b: [b, 'mesh'] });
  if (a.size !== b.size) return false;
  const ids = new Set(a.devices);
  return b.devices.every((id) => ids.has(id));
}

/**
 * The coarsest mesh in which every dim of both meshes is a run of whole dims: two meshes over one
 * table that can be used side by side. Undefined when there is none: (2, 3) and (3, 2) do not
 * factor each other. Dims take the names of the mesh dims they are part of, joined by `_`: dense
 * `dp=4,cp=2` with expert `efsdp=2,ep=4` gives `dp_efsdp=2,dp_ep=2,cp_ep=2`.
 *
 * @throws E_MESH when the tables differ
 */
export function commonRefinement(a: DeviceMesh, b: DeviceMesh): DeviceMesh | undefined {
  checkKinds('commonRefinement', { a: [a, 'mesh'], b: [b, 'mesh'] });
  if (a.size !== b.size || !a.devices.every((id, rank) => id === b.devices[rank]))
    throw new ShardwrightError(
      'E_MESH',
      `${a.toString()} and ${b.toString()} do not have the same table of devices`,
    );
  const steps = (mesh: DeviceMesh): number[] => mesh.strides.filter((_, d) => mesh.sizes[d] > 1);
  const bounds = [...new Set([1, ...steps(a), ...steps(b), a.size])].sort((x, y) => x - y);
  const holder = (mesh: DeviceMesh, step: number): string =>
    mesh.names.find(
      (_, d) =>
        mesh.sizes[d] > 1 && step >= mesh.strides[d] && step < mesh.strides[d] * mesh.sizes[d],
    ) ?? '';
  const dims: MeshDim[] = [];
  for (let i = bounds.length - 2; i >= 0; i--) {
    if (bounds[i + 1] % bounds[i] !== 0) return undefined;
    const names = [holder(a, bounds[i]), holder(b, bounds[i])];
    dims.push({ name: [...new Set(names)].join('_'), size: bounds[i + 1] / bounds[i] });
  }
  return new DeviceMesh(dims, a.devices);
}

/** Device ids of all coordinates of `dims`, the last listed fastest, from rank `base` on. */
function placed(mesh: DeviceMesh, dims: readonly number[], base: number): number[] {
  let out = [base];
  for (const d of dims) {
    const next: number[] = [];
    for (const rank of out)
      for (let c = 0; c < mesh.sizes[d]; c++) next.push(rank + c * mesh.strides[d]);
    out = next;
  }
  return out.map((rank) => mesh.devices[rank]);
}
