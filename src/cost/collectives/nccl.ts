/**
 * Takes a cluster and a mesh and gives the collective model `nccl`: measured times inside a
 * scale-up domain, formulas of NCCL's tuning model (src/graph/tuning.cc) elsewhere.
 */

import { type CollectiveKind } from '../../mesh/collective-kinds.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import {
  byMeshDims,
  type CollectiveModel,
  type CostRecord,
  recordOnCurve,
} from '../collective-model.ts';
import type { Cluster } from '../hardware/cluster.ts';
import { hardware } from '../hardware/hardware.ts';
import { loadCluster } from '../hardware/load-cluster.ts';
import { clusterOfGroup, clusterTopology } from '../hardware/topology.ts';
import { torusSeconds } from '../hardware/torus.ts';
import { type MeasuredCollectives, measuredCollectives } from './measured.ts';
import type { NcclGroup, NcclLinks, ReductionKind } from './nccl-algorithms.ts';
import { ncclConstants, ncclFamily } from './nccl-constants.ts';
import { formulaMicros } from './nccl-literal.ts';

/**
 * The preset `nccl`: the times that collectives take on a cluster.
 *
 * - Inside a scale-up domain: measured times where the accelerator's links were measured, else the
 *   formulas.
 * - Across nodes: the least time over NCCL's algorithms and protocols, with the cluster's own link
 *   rates. Every group over nodes is limited by the network cards of its devices, two-node groups
 *   too; no dents of single sizes, no latency apart from the hops: so are NCCL's model and the
 *   measured rows of rings over nodes (`data/nccl.json`, `measuredRows`).
 * - An all_gather or reduce_scatter across nodes is never more expensive than the all_reduce that
 *   could stand in for it, and an all_reduce never more expensive than a reduce_scatter and an
 *   all_gather.
 * - Prices rise with bytes: times are taken at powers of two, made rising, and interpolated between
 *   in log-log.
 * - Slices of a TPU pod are torus rings (`torus.ts`).
 */
export function ncclModel(cluster: Cluster, mesh: DeviceMesh): CollectiveModel {
  const { facts, curves } = curvesOn(cluster);
  const pricesOf = byMeshDims(() => new Map<CollectiveKind, Price>());
  const curveOf = (kind: CollectiveKind, meshDims: readonly number[]): Price => {
    const prices = pricesOf(meshDims);
    let found = prices.get(kind);
    if (found === undefined) prices.set(kind, (found = made(kind, meshDims)));
    return found;
  };
  const made = (kind: CollectiveKind, meshDims: readonly number[]): Price => {
    const { devices, hosts, perHost } = clusterTopology(cluster, mesh, meshDims);
    if (devices === 1) return FREE;
    const group = { n: devices, nodes: hosts, perNode: perHost };
    const seen = clusterOfGroup(cluster, mesh, meshDims, kind);
    if (seen !== cluster) {
      const own = groupPricing(seen);
      const further = furtherSeconds(kind, hosts, seen, cluster);
      return new Curve((bytes) => own.seconds(kind, bytes, group, meshDims.length) + further);
    }
    const key = `${kind} ${devices} ${hosts} ${perHost} ${meshDims.length}`;
    let curve = curves.get(key);
    if (curve === undefined)
      curves.set(
        key,
        (curve = new Curve((bytes) => facts.seconds(kind, bytes, group, meshDims.length))),
      );
    return curve;
  };
  const copyPerByte = 1 / (cluster.memoryBytesPerSecond * cluster.memoryEfficiency);
  return {
    preset: 'nccl',
    mesh,
    byteRule: 'ceil',
    chargesUnitDims: false,
    seconds: (kind, bytes, meshDims) => curveOf(kind, meshDims).seconds(bytes),
    record(kind, bytes, meshDims): CostRecord {
      return {
        ...recordOnCurve(kind, curveOf(kind, meshDims), bytes),
        source:
          `nccl on ${cluster.id}: ` +
          `${facts.source(clusterTopology(cluster, mesh, meshDims).hosts)}`,
      };
    },
    copySeconds: (bytes) => bytes * copyPerByte,
  };
}

/**
 * The prices of groups on one cluster, with their curves. Meshes of any shape have groups of the
 * same few kinds.
 */
interface ClusterCurves {
  readonly facts: GroupPricing;
  readonly curves: Map<string, Curve>;
}
const known = new WeakMap<Cluster, ClusterCurves>();

function curvesOn(cluster: Cluster): ClusterCurves {
  let found = known.get(cluster);
  if (found === undefined)
    known.set(cluster, (found = { facts: groupPricing(cluster), curves: new Map() }));
  return found;
}

/**
 * Seconds that hops across levels above the host add to the constants of NCCL: as many hops as
 * there are hosts, at most one for a message.
 */
function furtherSeconds(
  kind: CollectiveKind,
  hosts: number,
  seen: Cluster,
  cluster: Cluster,
): number {
  const hops =
    kind === 'collective_permute' ? 1 : kind === 'all_reduce' ? 2 * (hosts - 1) : hosts - 1;
  return hops * (seen.inter.latencySeconds - cluster.inter.latencySeconds);
}

interface Price {
  seconds(bytes: number): number;
}
const FREE: Price = { seconds: () => 0 };

/**
 * Smallest and largest power of two that is tabulated; below the time is constant, above the rate.
 */
const FIRST = 6;
const LAST = 36;

/** A price by bytes: taken at powers of two, made rising, log-log between. */
class Curve implements Price {
  private readonly log: Float64Array;

  constructor(price: (bytes: number) => number) {
    this.log = new Float64Array(LAST - FIRST + 1);
    let least = 0;
    for (let k = FIRST; k <= LAST; k++) {
      least = Math.max(least, price(2 ** k));
      this.log[k - FIRST] = Math.log2(least);
    }
  }

  seconds(bytes: number): number {
    const { log } = this;
    const at = Math.log2(Math.max(bytes, 1)) - FIRST;
    if (at <= 0) return 2 ** log[0];
    const last = LAST - FIRST;
    if (at >= last) return 2 ** (log[last] + at - last);
    const i = Math.floor(at);
    return 2 ** (log[i] + (log[i + 1] - log[i]) * (at - i));
  }
}

/** Prices of groups on one cluster, before they are made rising. */
interface GroupPricing {
  seconds(kind: CollectiveKind, bytes: number, group: NcclGroup, axes: number): number;
  source(nodes: number): string;
}

/** The physics behind the preset for one cluster. */
function groupPricing(cluster: Cluster): GroupPricing {
  const { torus } = cluster;
  if (torus !== undefined)
    return {
      seconds: (kind, bytes, group, axes) =>
        group.nodes === 1
          ? torusSeconds(kind, bytes, group.n, axes, torus)
          : torusSeconds(kind, bytes, group.perNode, axes, torus) +
            networkSeconds(kind, bytes, group, cluster),
      source: (nodes) =>
        nodes === 1 ? 'rings of the torus' : 'rings of the torus, then the data-center network',
    };
  const facts = hardware().accelerators.find((a) => a.name === cluster.accelerator);
  const family = facts === undefined ? undefined : ncclFamily(facts.arch);
  const measured = measuredCollectives(cluster.accelerator);
  const slower = measured === undefined ? 1 : slowerLinks(cluster);
  const links = ncclLinks(cluster);
  const meshed = facts?.scaleup?.links_per_gpu === cluster.devicesPerHost - 1;
  return {
    seconds(kind, bytes, group) {
      if (kind === 'collective_permute')
        return permuteSeconds(bytes, group, cluster, measured, meshed);
      if (group.nodes === 1 && measured !== undefined) {
        const least = measured.seconds(kind, 1, group.n);
        return least + (measured.seconds(kind, bytes, group.n) - least) * slower;
      }
      // Without a switch a group uses only the links between its own members.
      const own = meshed && group.nodes === 1 ? partialMesh(links, group, cluster) : links;
      return kind === 'all_to_all'
        ? allToAllSeconds(bytes, group, own)
        : reductionSeconds(kind, bytes, group, own);
    },
    source(nodes) {
      const constants =
        family === undefined
          ? "NCCL's constants for Hopper, assumed"
          : `NCCL's constants for ${family}`;
      if (nodes > 1) return `algorithms and protocols, ${constants}, with the cluster's link rates`;
      if (measured !== undefined)
        return (
          'measured on ' +
          `${measured.accelerator}${slower === 1 ? '' : ', at the rate of the links'}`
        );
      return `ring and tree formulas, ${constants}`;
    },
  };
}

/**
 * Tells whether the preset knows the collectives of a cluster: the links of its accelerator were
 * measured, NCCL has constants for its generation, or its chips are rings of a torus. For any other
 * accelerator the preset assumes the constants of Hopper.
 */
export function hasNcclConstants({ accelerator, torus }: Cluster): boolean {
  const facts = hardware().accelerators.find((a) => a.name === accelerator);
  return (
    torus !== undefined ||
    (facts !== undefined &&
      (ncclFamily(facts.arch) !== undefined || measuredCollectives(accelerator) !== undefined))
  );
}

/**
 * How much slower the links inside a node are than those of the node design that was measured: a
 * user's file may state others, and a report asks what others would change. What grows with the
 * bytes of a collective takes so much longer.
 */
function slowerLinks({ accelerator, intra }: Cluster): number {
  const design = hardware().nodes.find((node) => node.accelerator === accelerator);
  if (design === undefined) return 1;
  const measured = loadCluster(design.id).intra;
  return (
    (measured.bytesPerSecond * measured.efficiency) / (intra.bytesPerSecond * intra.efficiency)
  );
}

/**
 * Links of a cluster for the formulas: its own rates, NCCL's channels and caps of its generation.
 */
function ncclLinks(cluster: Cluster): NcclLinks {
  const facts = hardware().accelerators.find((a) => a.name === cluster.accelerator);
  const family = (facts === undefined ? undefined : ncclFamily(facts.arch)) ?? 'hopper';
  const known = facts !== undefined && ncclFamily(facts.arch) !== undefined;
  return {
    family,
    channels: ncclConstants().clusters[family].channels,
    intraGBps: (cluster.intra.bytesPerSecond * cluster.intra.efficiency) / 1e9,
    interGBps: (cluster.inter.bytesPerSecond * cluster.inter.efficiency) / 1e9,
    nvSwitch: known && ncclConstants().clusters[family].nvSwitch,
    collnet: false,
    crossing: 'shared',
  };
}

function partialMesh(links: NcclLinks, group: NcclGroup, cluster: Cluster): NcclLinks {
  return { ...links, intraGBps: (links.intraGBps * (group.n - 1)) / (cluster.devicesPerHost - 1) };
}

/** Least time over algorithms and protocols, and over the pairs of collectives that do the same. */
function reductionSeconds(
  kind: ReductionKind,
  bytes: number,
  group: NcclGroup,
  links: NcclLinks,
): number {
  const own = (k: ReductionKind): number =>
    formulaMicros(k, bytes, links, group, ['ring', 'tree', 'nvlsTree']) * 1e-6;
  if (group.nodes === 1) return own(kind);
  return kind === 'all_reduce'
    ? Math.min(own(kind), 2 * own('all_gather'))
    : Math.min(own(kind), own('all_reduce') * (1 - FEWER_BYTES));
}

/**
 * The share by which an all_gather or reduce_scatter is cheaper than an all_reduce that takes as
 * long: of equal times the one that moves fewer bytes is chosen. No printed figure shows it.
 */
const FEWER_BYTES = 1e-6;

/**
 * Pairwise exchange: what stays on the node passes its links, the rest the device's own network
 * card.
 */
function allToAllSeconds(bytes: number, group: NcclGroup, links: NcclLinks): number {
  const { n, nodes, perNode } = group;
  const { latency_us: latency, allToAllNodes } = ncclConstants();
  const inside = (bytes * (perNode - 1)) / n / (links.intraGBps * 1e9);
  if (nodes === 1) return (latency.base.ring[0] + (n - 1) * latency.nvlink.ring[0]) * 1e-6 + inside;
  const { nodes: at, latency_us: micros } = allToAllNodes;
  let start = micros[0];
  for (let i = 1; i < at.length; i++) {
    const last = i === at.length - 1;
    if (nodes > at[i] && !last) continue;
    // Beyond the last measured number of nodes the latency keeps growing.
    start =
      micros[i - 1] +
      ((micros[i] - micros[i - 1]) * Math.max(0, nodes - at[i - 1])) / (at[i] - at[i - 1]);
    break;
  }
  return start * 1e-6 + Math.max(inside, (bytes * (n - perNode)) / n / (links.interGBps * 1e9));
}

/** One message: 80 % of the slowest link that a pair of the group may have to pass. */
function permuteSeconds(
  bytes: number,
  group: NcclGroup,
  cluster: Cluster,
  measured: MeasuredCollectives | undefined,
  meshed: boolean,
): number {
  const { latency_us: latency } = ncclConstants();
  const pair = measured?.pairSeconds ?? (latency.base.ring[0] + latency.nvlink.ring[0]) * 1e-6;
  if (group.nodes > 1)
    return (
      pair + latency.net.ring[0] * 1e-6 + bytes / (PERMUTE_SHARE * cluster.inter.bytesPerSecond)
    );
  const link = meshed
    ? cluster.intra.bytesPerSecond / (cluster.devicesPerHost - 1)
    : cluster.intra.bytesPerSecond;
  return pair + bytes / (PERMUTE_SHARE * link);
}
const PERMUTE_SHARE = 0.8;

/**
 * The part of a collective between slices of TPU pods, over the chips' share of the data-center
 * network.
 */
function networkSeconds(
  kind: CollectiveKind,
  bytes: number,
  group: NcclGroup,
  cluster: Cluster,
): number {
  const rate = cluster.inter.bytesPerSecond * cluster.inter.efficiency;
  const outside = (group.nodes - 1) / group.nodes;
  const latency = (group.nodes - 1) * cluster.inter.latencySeconds;
  switch (kind) {
    case 'all_gather':
    case 'reduce_scatter':
      return latency + (bytes * outside) / (rate * group.perNode);
    case 'all_reduce':
      return 2 * latency + (2 * bytes * outside) / (rate * group.perNode);
    case 'all_to_all':
      return latency + (bytes * outside) / rate;
    case 'collective_permute':
      return latency + bytes / rate;
  }
}
