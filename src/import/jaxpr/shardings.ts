/** Meshes and PartitionSpecs in the parameters of jaxpr text. */

import { Partial } from '../../mesh/placements/partials/partial.ts';
import type { Placement } from '../../mesh/placements/placement.ts';
import { REPLICATE } from '../../mesh/placements/replicate.ts';
import { Shard } from '../../mesh/placements/shards/shard.ts';
import { Sharding } from '../../mesh/sharding/sharding.ts';
import { type Literal, parseLiteral } from './text/literal.ts';
import type { Jaxpr } from './text/syntax.ts';

export interface JaxMesh {
  readonly axes: readonly { readonly name: string; readonly size: number }[];
}

/** Meshes that the parameters of a program name, in the order of the text, each once. */
export function meshesOf(root: Jaxpr): JaxMesh[] {
  const found = new Map<string, JaxMesh>();
  const seen = new Set<Jaxpr>();
  const work: Jaxpr[] = [root];
  for (let jaxpr = work.pop(); jaxpr !== undefined; jaxpr = work.pop()) {
    if (seen.has(jaxpr)) continue;
    seen.add(jaxpr);
    for (const { parameters } of jaxpr.equations)
      for (const { text, bodies } of parameters.values()) {
        if (bodies.length > 0) work.push(...bodies);
        else if (text.includes('Mesh(')) {
          const value = parseLiteral(text);
          const mesh = value === undefined ? undefined : meshIn(value);
          if (mesh !== undefined) found.set(meshText(mesh), mesh);
        }
      }
  }
  return [...found.values()];
}

export function meshText(mesh: JaxMesh): string {
  return mesh.axes.map(({ name, size }) => `${name}=${size}`).join(',');
}

/** The first mesh with axes in a value. */
function meshIn(value: Literal): JaxMesh | undefined {
  if (
    value === null ||
    typeof value !== 'object' ||
    value.kind === 'name' ||
    value.kind === 'string'
  )
    return undefined;
  if (value.kind === 'call' && /(^|\.)(Abstract)?Mesh$/.test(value.name)) {
    const axes = [...value.named].flatMap(([name, size]) =>
      typeof size === 'number' ? [{ name, size }] : [],
    );
    const plain = axes.every(
      ({ name, size }) =>
        /^[A-Za-z_][A-Za-z0-9_.-]*$/.test(name) && Number.isSafeInteger(size) && size > 0,
    );
    return axes.length > 0 && plain ? { axes } : undefined;
  }
  const inner = value.kind === 'call' ? [...value.items, ...value.named.values()] : value.items;
  for (const item of inner) {
    const mesh = meshIn(item);
    if (mesh !== undefined) return mesh;
  }
  return undefined;
}

/** The PartitionSpec in a `NamedSharding(...)`, or the value itself. */
function specIn(value: Literal | undefined): Literal | undefined {
  if (value === undefined || value === null || typeof value !== 'object' || value.kind !== 'call')
    return undefined;
  if (/(^|\.)(P|PartitionSpec)$/.test(value.name)) return value;
  return specIn(value.named.get('spec') ?? value.items.find((item) => specIn(item) !== undefined));
}

interface StatedSpec {
  readonly sharding: string;
  readonly strength: 'pin' | 'hint';
}

/**
 * Placements of a PartitionSpec for a tensor; undefined where it is none, or names axes that the
 * mesh does not have.
 */
export function specPlacements(
  value: Literal | undefined,
  mesh: JaxMesh | undefined,
  rank: number,
): StatedSpec | undefined {
  const spec = specIn(value);
  if (
    mesh === undefined ||
    spec === undefined ||
    spec === null ||
    typeof spec !== 'object' ||
    spec.kind !== 'call'
  )
    return undefined;
  const placements: Placement[] = mesh.axes.map(() => REPLICATE);
  const used = new Set<number>();
  const orders = new Map<number, readonly number[]>();
  let open = false;
  if (spec.items.length > rank) return undefined;
  const use = (names: readonly string[], placement: Placement): number[] | undefined => {
    const at = names.map((name) => mesh.axes.findIndex((axis) => axis.name === name));
    if (at.some((i) => i < 0 || used.has(i)) || new Set(at).size !== at.length) return undefined;
    for (const i of at) {
      used.add(i);
      placements[i] = placement;
    }
    return at;
  };
  for (const [dim, item] of spec.items.entries()) {
    if (item === null) continue;
    if (typeof item === 'object' && item.kind === 'name') {
      open = true;
      continue;
    }
    const at = use(namesIn(item), Shard.of(dim));
    if (at === undefined) return undefined;
    if (at.length > 1) orders.set(dim, at);
  }
  const unreduced = spec.named.get('unreduced');
  if (unreduced !== undefined && use(namesIn(unreduced), Partial.of('sum')) === undefined)
    return undefined;
  return { sharding: new Sharding(placements, orders).text, strength: open ? 'hint' : 'pin' };
}

function namesIn(value: Literal): string[] {
  if (value === null || typeof value !== 'object') return [];
  if (value.kind === 'string') return [value.value];
  return value.kind === 'list' || value.kind === 'call' ? value.items.flatMap(namesIn) : [];
}
