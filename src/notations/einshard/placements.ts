/** einshard, placements and specs: the same sharding in each notation. */

import { checkKinds } from '../../arguments.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { REPLICATE } from '../../mesh/placements/replicate.ts';
import { Shard } from '../../mesh/placements/shards/shard.ts';
import { isPending, type Sharding } from '../../mesh/sharding/sharding.ts';
import type { Einshard } from './resolve.ts';
import {
  type EinshardExpression,
  formatEinshard,
  parseEinshard,
  type RightElement,
} from './syntax.ts';

interface AxisOptions {
  /** Leave out mesh dims of size 1: they carry no data. Default false. */
  readonly dropUnit?: boolean;
}

/** One placement per mesh dim: S(d) for a named element, R for the others. */
export function toPlacements(einshard: Einshard, options: AxisOptions = {}): Placement[] {
  checkKinds('toPlacements', {
    einshard: [einshard, 'einshard'],
    options: [options, 'record', 'undefined'],
  });
  const dimOfAxis = new Map(einshard.axisOfDim.map((axis, dim) => [axis, dim]));
  const out: Placement[] = [];
  einshard.axes.forEach(({ name, size }, a) => {
    if (options.dropUnit === true && size === 1) return;
    const dim = name === null ? undefined : dimOfAxis.get(a);
    out.push(dim === undefined ? REPLICATE : Shard.of(dim));
  });
  return out;
}

/**
 * Names of the mesh dims that belong to each tensor dim: one for a named dim, none for those of an
 * ellipsis.
 */
export function toSpec(input: Einshard): string[][] {
  checkKinds('toSpec', { input: [input, 'einshard'] });
  const { axes, axisOfDim } = input;
  return axisOfDim.map((a) => {
    const { name } = axes[a];
    return name === null ? [] : [name];
  });
}

/**
 * The mesh of an expression: ids 0..N-1, row-major. A mesh dim takes the name of its element; one
 * without a name, or whose name a mesh cannot carry, is `axis0`, `axis1` ... by its place (no
 * element can be called so).
 */
export function einshardMesh(input: Einshard, options: AxisOptions = {}): DeviceMesh {
  checkKinds('einshardMesh', {
    input: [input, 'einshard'],
    options: [options, 'record', 'undefined'],
  });
  const { axes } = input;
  const dims = axes.map(({ name, size }, a) => ({
    name: name !== null && /^[A-Za-z_]+$/.test(name) ? name : `axis${a}`,
    size,
  }));
  return new DeviceMesh(options.dropUnit === true ? dims.filter((d) => d.size > 1) : dims);
}

/**
 * The expression of a sharding, if it has one: every mesh dim replicates or cuts a tensor dim of
 * its own, and the ids of the mesh count up. Mesh dims of size 1 are left out. A scalar is an
 * ellipsis.
 *
 * @param shape global shape of the tensor; einshard cuts dims evenly only
 * @param own what its dims are called, letters only; by default a, b, c ...
 * @returns the expression, or the reason why there is none
 */
export function fromPlacements(
  sharding: Sharding,
  mesh: DeviceMesh,
  shape: readonly number[],
  own?: readonly string[],
): { expression: EinshardExpression } | { refused: string } {
  checkKinds('fromPlacements', {
    sharding: [sharding, 'sharding'],
    mesh: [mesh, 'mesh'],
    shape: [shape, 'integers'],
    own: [own, 'names', 'undefined'],
  });
  const names = own ?? shape.map((_, d) => dimName(d));
  const refused = (why: string): { refused: string } => ({
    refused: `${sharding.text} on ${mesh.text} has no einshard text: ${why}`,
  });
  if (names.length !== shape.length)
    return refused(`${names.length} names for ${shape.length} dims`);
  if (mesh.devices.some((id, rank) => id !== rank))
    return refused('the device ids of the mesh do not count up from 0');
  const right: RightElement[] = [];
  const cutBy = new Map<number, string>();
  for (const [m, p] of sharding.placements.entries()) {
    const base = mesh.sizes[m];
    if (base === 1) continue;
    const axis = mesh.names[m];
    if (isPending(p)) return refused(`${p.text} on '${axis}' is a pending reduction`);
    if (p.kind !== 'replicate' && !(p instanceof Shard))
      return refused(`${p.text} on '${axis}' is not a cut into consecutive pieces`);
    if (p instanceof Shard) {
      const other = cutBy.get(p.dim);
      if (other !== undefined)
        return refused(`'${other}' and '${axis}' cut the same tensor dim ${p.dim}`);
      if (p.dim >= shape.length)
        return refused(`it cuts dim ${p.dim} of a ${shape.length}-D tensor`);
      if (shape[p.dim] % base !== 0)
        return refused(`dim ${p.dim} of size ${shape[p.dim]} is not divisible by ${base}`);
      cutBy.set(p.dim, axis);
    }
    right.push({
      kind: 'factor',
      name: p instanceof Shard ? names[p.dim] : null,
      base,
      starred: false,
      at: 0,
    });
  }
  shape.forEach((_, d) => {
    if (!cutBy.has(d))
      right.push({ kind: 'factor', name: names[d], base: 1, starred: false, at: 0 });
  });
  if (shape.length === 0) right.push({ kind: 'ellipsis', at: 0 });
  const left =
    shape.length === 0
      ? [{ kind: 'ellipsis' as const, at: 0 }]
      : names.map((name) => ({ kind: 'name' as const, name, at: 0 }));
  // Read once more, so that positions point into the text.
  return { expression: parseEinshard(formatEinshard({ left, right })) };
}

/** a .. z, then aa, ab ...: names are letters only. */
function dimName(dim: number): string {
  const last = String.fromCharCode(97 + (dim % 26));
  return dim < 26 ? last : dimName(Math.floor(dim / 26) - 1) + last;
}
