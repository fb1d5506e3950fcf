/**
 * Places the devices of a mesh on the hosts of a cluster: the number of devices that the mesh uses
 * on each host (or rack), those that stay idle, and the hosts that its groups touch. A rack of 72
 * that is asked for 256 devices lends 64 of each of four racks, so that no group of a mesh dim is
 * torn.
 */

import { type CollectiveKind } from '../../mesh/collective-kinds.ts';
import { groupLevels, hostLevel } from '../../mesh/devices/levels.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { product } from '../../product.ts';
import { countedText } from '../../units.ts';
import { type GroupTopology, groupTopology } from '../collective-model.ts';
import type { Cluster } from './cluster.ts';

/** The facts about a cluster that packing needs. */
export type Hosts = Pick<Cluster, 'devicesPerHost' | 'devicesPerTray' | 'usedPerHost'>;

/**
 * Devices of each host that a mesh uses: the most whose hosts its groups fit. The devices of the
 * inner dims together must divide them or fill whole hosts of them. All of a host, unless the
 * devices asked for leave a part of it over: then no more hosts are taken than they need, or, where
 * a rack is made of trays, whole trays of it.
 *
 * @param inners for each mesh over the devices: products of its inner sizes; the largest is the
 *   number of devices
 * @returns undefined where no part of the hosts fits the mesh
 */
export function usedPerHost(
  { devicesPerHost, devicesPerTray, usedPerHost: given }: Hosts,
  inners: readonly number[],
): number | undefined {
  const devices = Math.max(...inners);
  const fits = (used: number): boolean => inners.every((n) => used % n === 0 || n % used === 0);
  if (given !== undefined) return fits(given) || devices <= given ? given : undefined;
  if (devices <= devicesPerHost) return devicesPerHost;
  const least = Math.ceil(devices / devicesPerHost);
  for (let used = devicesPerHost; used >= 1; used--) {
    if (devices % used !== 0) continue;
    const taken =
      devices / used === least || (devicesPerTray !== undefined && used % devicesPerTray === 0);
    if (taken && fits(used)) return used;
  }
  return undefined;
}

/** Products of the innermost sizes of a mesh: of all dims, of all but the outermost, and so on. */
export function innerProducts(sizes: readonly number[]): number[] {
  return sizes.map((_, d) => product(sizes.slice(d)));
}

/**
 * Devices of each host that a mesh uses; all of them where no part fits, and its groups are torn.
 */
export function hostSize(cluster: Hosts, mesh: DeviceMesh): number {
  return usedPerHost(cluster, innerProducts(mesh.sizes)) ?? cluster.devicesPerHost;
}

/** Hosts that the flattened group of some mesh dims touches on a cluster. */
export function clusterTopology(
  cluster: Hosts,
  mesh: DeviceMesh,
  meshDims: readonly number[],
): GroupTopology {
  return groupTopology(mesh, hostSize(cluster, mesh), meshDims);
}

/** Why a mesh is refused. */
export function tornText({ devicesPerHost }: Hosts, inners: readonly number[]): string {
  const bad = inners.find((n) => devicesPerHost % n !== 0 && n % devicesPerHost !== 0) ?? inners[0];
  return `${bad} inner devices neither divide a host of ${devicesPerHost} nor fill whole ones`;
}

/** The part of a cluster that a job holds. */
export interface Allocation {
  readonly hosts: number;
  readonly usedPerHost: number;
  readonly devicesPerHost: number;
  /** Devices of the hosts that the job does not use. */
  readonly idleDevices: number;
  /** Devices that are paid for: those of all trays, or hosts, that the job uses. */
  readonly heldDevices: number;
}

/** Hosts and idle devices of so many devices, `used` of each host. */
export function allocationOf(
  cluster: Hosts,
  devices: number,
  used = cluster.devicesPerHost,
): Allocation {
  const { devicesPerHost, devicesPerTray = devicesPerHost } = cluster;
  const inOne = Math.min(devices, used);
  const hosts = Math.ceil(devices / inOne);
  return {
    hosts,
    usedPerHost: inOne,
    devicesPerHost,
    idleDevices: hosts * devicesPerHost - devices,
    heldDevices: hosts * Math.ceil(inOne / devicesPerTray) * devicesPerTray,
  };
}

/**
 * `64 of the 72 devices of each of 4 hosts, 32 idle`; undefined where nothing that is held is idle.
 */
export function allocationText({
  hosts,
  usedPerHost: used,
  devicesPerHost,
  idleDevices,
  heldDevices,
}: Allocation): string | undefined {
  // A part of one host in whole trays, such as a slice of a TPU pod, is rented by itself.
  if (idleDevices === 0 || (hosts === 1 && heldDevices === used)) return undefined;
  const of = hosts === 1 ? 'one host' : `each of ${countedText(hosts, 'host')}`;
  return `${used} of the ${devicesPerHost} devices of ${of}, ${idleDevices} idle`;
}

/**
 * A warning about groups of an axis that needs links inside hosts, where they cross hosts whose
 * devices stay idle; none where they do not.
 */
export function tornWarning(
  {
    name,
    size,
    hosts: touched,
  }: { readonly name: string; readonly size: number; readonly hosts: number },
  { hosts, usedPerHost: used, devicesPerHost, idleDevices }: Allocation,
): string[] {
  if (touched <= 1 || idleDevices === 0) return [];
  return [
    `${name}=${size} crosses ${countedText(touched, 'host')} while ` +
      `${countedText(idleDevices, 'device')} of ${countedText(hosts, 'host')} stay idle ` +
      `(${used} of ${devicesPerHost} are used), so its collectives take the links between ` +
      `hosts. Give ${name} ` +
      `the innermost place and a size that divides ${devicesPerHost}.`,
  ];
}

/**
 * The cluster as a collective over one group of mesh dims sees it: the links between hosts carry
 * what the narrowest level that the group crosses leaves it. A unit is joined to others of its
 * level by links of all its devices over the oversubscription, and every group that leaves the unit
 * sends at the same time: a ring passes a link for each of its members on a host, a message one, an
 * exchange those of all members outside. Groups with one member in each host, all at the same
 * place, do not pass the shared part of a network that is wired in rails.
 */
export function clusterOfGroup(
  cluster: Cluster,
  mesh: DeviceMesh,
  meshDims: readonly number[],
  kind: CollectiveKind,
): Cluster {
  const { levels = [], inter } = cluster;
  if (levels.length === 0) return cluster;
  const used = hostSize(cluster, mesh);
  const scaled = levels.map(({ name, devices }) => ({
    name,
    devices: (devices / cluster.devicesPerHost) * used,
  }));
  const { devices, spans, rail } = groupLevels(mesh, meshDims, [...hostLevel(used), ...scaled]);
  const [host] = spans;
  let { latencySeconds } = inter;
  let rate = inter.bytesPerSecond * inter.efficiency;
  // Links of a level join the units of the level below it.
  levels.forEach((level, k) => {
    const below = spans[k];
    if (below.units === 1) return;
    const { oversubscription, rails } = level;
    const share =
      rails && rail
        ? 1
        : Math.min(1, crossing(kind, devices, host.members, below.members) / oversubscription);
    rate = Math.min(rate, level.bytesPerSecond * level.efficiency * share);
    latencySeconds = Math.max(latencySeconds, level.latencySeconds);
  });
  return {
    ...cluster,
    inter: { ...inter, bytesPerSecond: rate / inter.efficiency, latencySeconds },
  };
}

/**
 * Links of a unit for each link on which a group leaves it, where every device of the unit has one.
 */
function crossing(kind: CollectiveKind, devices: number, inHost: number, inUnit: number): number {
  if (kind === 'collective_permute') return inUnit;
  return kind === 'all_to_all' ? (devices - inHost) / (devices - inUnit) : inUnit / inHost;
}
