/**
 * `--target einshard`: `placements.einshard.json` with one einshard expression for each parameter.
 * A dim that adjacent mesh dims cut in mesh order counts as cut by one; any other order of devices
 * is a loss, because the order of devices is part of the meaning.
 */
import type {
  ExportFile,
  ExportLoss,
  ExportResult,
  ExportSource,
  ExportTarget,
  ReadPlacements,
} from '../backend/target.ts';
import { ShardwrightError } from '../errors.ts';
import { DeviceMesh } from '../mesh/devices/mesh.ts';
import type { Placement } from '../mesh/placements/placement.ts';
import { REPLICATE } from '../mesh/placements/replicate.ts';
import { Shard } from '../mesh/placements/shards/shard.ts';
import { parseSharding } from '../mesh/sharding/parse.ts';
import { Sharding } from '../mesh/sharding/sharding.ts';
import { fromPlacements, toPlacements } from '../notations/einshard/placements.ts';
import { resolveEinshard } from '../notations/einshard/resolve.ts';
import { formatEinshard, parseEinshard } from '../notations/einshard/syntax.ts';

/** The sharding on a mesh in which neighbours that cut one dim in mesh order are one. */
function joined(
  sharding: Sharding,
  mesh: DeviceMesh,
): { readonly sharding: Sharding; readonly mesh: DeviceMesh } {
  const dims: { name: string; size: number }[] = [];
  const placements: Placement[] = [];
  const order = (m: number, d: number): number => sharding.orderOf(d).indexOf(m);
  sharding.placements.forEach((p, m) => {
    if (mesh.sizes[m] === 1) return;
    const last = dims.at(-1);
    const before = placements.at(-1);
    const neighbour =
      p instanceof Shard &&
      before instanceof Shard &&
      before.dim === p.dim &&
      order(m, p.dim) > 0 &&
      sharding.inMeshOrder;
    if (last !== undefined && neighbour) last.size *= mesh.sizes[m];
    else {
      dims.push({ name: mesh.names[m], size: mesh.sizes[m] });
      placements.push(p);
    }
  });
  return { sharding: new Sharding(placements), mesh: new DeviceMesh(dims, mesh.devices) };
}

function write(source: ExportSource): ExportResult {
  const { mesh, plan, table, planHash } = source;
  const losses: ExportLoss[] = [];
  const expressions: { name: string; shape: readonly number[]; einshard: string }[] = [];
  for (const { name, shape, placement } of plan.parameters) {
    const own = parseSharding(placement, mesh, { kinds: table.kinds });
    const lost = (instead: string): void =>
      void losses.push({ item: name, planned: placement, instead });
    if (!own.inMeshOrder) {
      lost('no expression says that order of devices');
      continue;
    }
    const on = joined(own, mesh);
    const found = fromPlacements(on.sharding, on.mesh, shape);
    if ('refused' in found) lost(found.refused);
    else expressions.push({ name, shape, einshard: formatEinshard(found.expression) });
  }
  const record = { plan: planHash, mesh: mesh.text, parameters: expressions, losses };
  const text = `${JSON.stringify(record, null, 1)}\n`;
  return { files: [{ name: 'placements.einshard.json', text }], losses };
}

/** Each expression on a mesh of its own, put back on the mesh of the plan. */
function readBack(files: readonly ExportFile[], mesh: DeviceMesh): ReadPlacements {
  const value: unknown = JSON.parse(files[0]?.text ?? 'null');
  const list =
    typeof value === 'object' && value !== null && 'parameters' in value
      ? value.parameters
      : undefined;
  if (!Array.isArray(list))
    throw new ShardwrightError('E_SYNTAX', 'the file has no list of parameters');
  const parameters = new Map<string, string>();
  for (const { name, shape, einshard } of list as {
    name: string;
    shape: number[];
    einshard: string;
  }[]) {
    const resolved = resolveEinshard(parseEinshard(einshard), { shape, devices: mesh.size });
    const placements = mesh.sizes.map((): Placement => REPLICATE);
    let at = 0;
    for (const [k, p] of toPlacements(resolved).entries()) {
      let left = resolved.axes[k].size;
      while (left > 1 && at < mesh.rank) {
        placements[at] = mesh.sizes[at] === 1 ? REPLICATE : p;
        left /= mesh.sizes[at++];
      }
    }
    parameters.set(name, new Sharding(placements).text);
  }
  return { parameters };
}

export const einshardTarget: ExportTarget = {
  name: 'einshard',
  summary: 'one einshard expression for each parameter',
  triedWith: [],
  write,
  readBack,
};
