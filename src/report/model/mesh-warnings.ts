/**
 * Warns where the devices of a plan do not suit it: devices that no cut of a tensor gives a part of
 * their own, groups of tp or sp across hosts whose devices stay idle, and a budget that no device
 * has.
 */

import { type Cluster, usableMemoryBytes } from '../../cost/hardware/cluster.ts';
import { allocationOf, hostSize, tornWarning } from '../../cost/hardware/topology.ts';
import type { Graph } from '../../graph/types.ts';
import { itemAt } from '../../item-at.ts';
import { DeviceMesh, meshSize } from '../../mesh/devices/mesh.ts';
import type { Plan } from '../../plan/record/types.ts';
import { bytesText, countText } from '../../units.ts';

/** Devices for each piece of the tensor that is cut most, from which a mesh is called too large. */
const DEVICES_PER_PIECE = 64;
/** Mesh dims whose collectives stand between calls of every layer. */
const IN_EVERY_LAYER: ReadonlySet<string> = new Set(['tp', 'sp']);

/** One sentence or two for each warning. @param graph absent: cuts are not looked at */
export function meshWarnings(
  plan: Pick<Plan, 'mesh' | 'nodes' | 'request'>,
  cluster: Cluster,
  graph: Graph | undefined,
): string[] {
  return [
    ...(graph === undefined ? [] : tooLarge(plan, graph)),
    ...acrossHosts(plan, cluster),
    ...aboveDevice(plan, cluster),
  ];
}

function aboveDevice(
  { request: { memoryBytes } }: Pick<Plan, 'request'>,
  cluster: Cluster,
): string[] {
  const usable = usableMemoryBytes(cluster);
  if (memoryBytes === undefined || memoryBytes <= usable) return [];
  return [
    `The budget of ${bytesText(memoryBytes)} is more than a device of ${cluster.id} has: ` +
      `${bytesText(usable)} are usable. Leave out --memory, or name the cluster that has it.`,
  ];
}

function tooLarge({ mesh, nodes }: Pick<Plan, 'mesh' | 'nodes'>, graph: Graph): string[] {
  const devices = meshSize(mesh);
  const local = new Map(nodes.map((node) => [node.name, node.local]));
  let most = 1;
  for (const { name, type } of graph.nodes) {
    const types = type.kind === 'tuple' ? type.items : [type];
    types.forEach((each, k) => {
      const sizes = local.get(name)?.[k];
      if (each.kind !== 'tensor' || sizes === undefined || sizes === null) return;
      most = Math.max(most, piecesOf(each.shape.map(Number), sizes));
    });
  }
  if (devices < DEVICES_PER_PIECE * most) return [];
  const cuts = most === 1 ? 'cuts no tensor' : `cuts no tensor into more than ${most} pieces`;
  return [
    `The mesh has ${countText(devices)} devices, and the plan ${cuts}: the others repeat work or ` +
      'have none. Give fewer devices, or a larger batch.',
  ];
}

/** Devices that hold some of a tensor which is cut into pieces of at most these sizes. */
function piecesOf(shape: readonly number[], local: readonly number[]): number {
  return shape.reduce((pieces, size, d) => {
    const rows = itemAt(local, d);
    return rows > 0 ? pieces * Math.ceil(size / rows) : pieces;
  }, 1);
}

function acrossHosts({ mesh }: Pick<Plan, 'mesh'>, cluster: Cluster): string[] {
  const devices = meshSize(mesh);
  const held = allocationOf(cluster, devices, hostSize(cluster, new DeviceMesh(mesh)));
  return mesh.flatMap((dim) => (IN_EVERY_LAYER.has(dim.name) ? tornWarning(dim, held) : []));
}
