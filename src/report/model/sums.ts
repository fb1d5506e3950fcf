/** Adds up parameters, operators and collectives by kind from a plan alone, for the report. */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { innerProducts, usedPerHost } from '../../cost/hardware/topology.ts';
import { ShardwrightError } from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import { DTYPE_BYTES, type Graph } from '../../graph/types.ts';
import { parseMesh } from '../../mesh/devices/mesh.ts';
import { ShardingSpace } from '../../mesh/sharding/space.ts';
import { type CollectiveSum, sumCollectives } from '../../plan/record/diff.ts';
import type { Plan } from '../../plan/record/types.ts';
import { product } from '../../product.ts';
import { ringBytes } from '../../step/traffic.ts';
import { axesKey, type Streams } from '../analysis/streams.ts';
import { foldParameters } from './parameters.ts';

export interface ReportParameter {
  readonly name: string;
  readonly count: number;
  readonly shape: readonly number[];
  readonly placement: string;
  /**
   * Bytes of one of them on the device with the largest shard; null where the graph is not there.
   */
  readonly localBytes: number | null;
}

/** All nodes of one operator. */
export interface OperatorSum {
  readonly target: string;
  readonly count: number;
  readonly computeSeconds: number;
  /** Redistributions of their inputs, and collectives inside them. */
  readonly communicationSeconds: number;
}

/** Collectives of one kind over the same mesh dims. */
export interface ReportCollective extends CollectiveSum {
  readonly groupSize: number;
  readonly hosts: number;
  /** Bytes that each device sends in a ring. */
  readonly sentBytes: number;
  /**
   * Share of the seconds that overlaps with compute when the step is simulated; null where it was
   * not.
   */
  readonly overlappedShare: number | null;
}

/** Collectives of the plan, largest first. */
export function collectivesOf(
  plan: Plan,
  cluster: Cluster,
  streams: Streams | null,
): ReportCollective[] {
  const shares = new Map(
    (streams?.overlapped ?? []).map((o) => [
      `${o.kind} ${o.axes}`,
      o.overlappedSeconds / o.seconds,
    ]),
  );
  return sumCollectives(plan).map((c) => {
    const group = groupOf(plan, c.axes, cluster);
    return {
      ...c,
      ...group,
      sentBytes: ringBytes(c.kind, c.bytes, group.groupSize),
      overlappedShare: shares.get(`${c.kind} ${axesKey(c.axes.split(','))}`) ?? null,
    };
  });
}

/** Parameters with equal layers folded. @throws E_PLAN for a placement that is none of the mesh */
export function parametersOf(plan: Plan, graph: Graph | undefined): ReportParameter[] {
  const itemBytes = new Map<string, number>();
  for (const node of graph?.nodes ?? [])
    if (
      node.kind === 'placeholder' &&
      node.meta.role === 'parameter' &&
      node.type.kind === 'tensor'
    )
      itemBytes.set(roleName(node), DTYPE_BYTES[node.type.dtype]);
  const space = new ShardingSpace(parseMesh(plan.request.mesh));
  const rows = new Map<string, number | null>();
  for (const p of plan.parameters) {
    const bytes = itemBytes.get(p.name);
    const local = placedShape(space, p.placement, p.shape, p.name);
    rows.set(p.name, bytes === undefined ? null : bytes * product(local));
  }
  const first = new Map(
    plan.parameters.map((p) => [`${p.shape.join()}|${p.placement}|${fold(p.name)}`, p.name]),
  );
  return foldParameters(plan).map((row) => {
    const name = first.get(`${row.shape.join()}|${row.placement}|${fold(row.name)}`);
    return { ...row, localBytes: name === undefined ? null : (rows.get(name) ?? null) };
  });
}

function fold(name: string): string {
  return name.replace(/(^|[._])\d+(?=[._]|$)/g, '$1*');
}

/** @throws E_PLAN for a placement that is none of the mesh: the file was edited */
function placedShape(
  space: ShardingSpace,
  placement: string,
  shape: readonly number[],
  name: string,
): readonly number[] {
  try {
    return space.localShape(space.parse(placement), shape);
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    throw new ShardwrightError(
      'E_PLAN',
      `parameter '${name}' is placed ${placement}: ${error.message}`,
    );
  }
}

/** Operators, largest first. */
export function operatorsOf(plan: Plan): OperatorSum[] {
  const sums = new Map<
    string,
    { target: string; count: number; computeSeconds: number; communicationSeconds: number }
  >();
  for (const node of plan.nodes) {
    const times = node.times ?? 1;
    let sum = sums.get(node.target);
    if (sum === undefined)
      sums.set(
        node.target,
        (sum = { target: node.target, count: 0, computeSeconds: 0, communicationSeconds: 0 }),
      );
    sum.count++;
    sum.computeSeconds += node.seconds * times;
    sum.communicationSeconds += (node.internalSeconds ?? 0) * times;
    for (const r of node.redistributions) sum.communicationSeconds += r.seconds * (r.times ?? 1);
  }
  let returned = 0;
  for (const output of plan.outputs)
    for (const r of output.redistributions) returned += r.seconds * (r.times ?? 1);
  if (returned > 0)
    sums.set('return', {
      target: 'return',
      count: plan.outputs.length,
      computeSeconds: 0,
      communicationSeconds: returned,
    });
  const total = (s: OperatorSum): number => s.computeSeconds + s.communicationSeconds;
  return [...sums.values()]
    .filter((s) => total(s) > 0)
    .sort((a, b) => total(b) - total(a) || (a.target < b.target ? -1 : 1));
}

/**
 * Devices in a group of these mesh dims, and the hosts that it touches (devices are row-major,
 * hosts whole runs of them).
 */
function groupOf(plan: Plan, axes: string, cluster: Cluster): { groupSize: number; hosts: number } {
  const taking = new Set(axes.split(','));
  let ids = [0];
  let stride = 1;
  for (const dim of [...plan.mesh].reverse()) {
    if (taking.has(dim.name)) {
      const step = stride;
      ids = Array.from({ length: dim.size }, (_, k) => k).flatMap((k) =>
        ids.map((id) => id + k * step),
      );
    }
    stride *= dim.size;
  }
  const used =
    usedPerHost(cluster, innerProducts(plan.mesh.map((dim) => dim.size))) ?? cluster.devicesPerHost;
  return { groupSize: ids.length, hosts: new Set(ids.map((id) => Math.floor(id / used))).size };
}
