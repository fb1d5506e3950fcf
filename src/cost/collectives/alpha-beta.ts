/**
 * Takes a cluster and a mesh and gives the collective model `alpha-beta`: ring collectives with a
 * latency per hop (alpha) and the bandwidth of the slowest link (beta).
 */

import { COLLECTIVE_KINDS, type CollectiveKind } from '../../mesh/collective-kinds.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import {
  byMeshDims,
  type CollectiveModel,
  type CostRecord,
  type GroupTopology,
} from '../collective-model.ts';
import type { Cluster } from '../hardware/cluster.ts';
import { clusterOfGroup, clusterTopology } from '../hardware/topology.ts';

/**
 * Latency and inverse rate of one kind of collective over one group: seconds = latency + bytes *
 * secondsPerByte.
 */
interface Line {
  readonly latency: number;
  readonly perByte: number;
}

/**
 * The preset `alpha-beta`: ring collectives with the cluster's own numbers.
 *
 * - all_gather, reduce_scatter: base + hops + bytes (n-1)/n / bandwidth; all_reduce: twice the hops
 *   and the bytes.
 * - A ring over several hosts makes one inter-host hop per host and intra-host hops else; its rate
 *   is the smaller of the link inside a host and the network cards of all the group's devices on
 *   one host together.
 * - all_to_all: what goes to other hosts passes the device's own network card; the slower of both
 *   parts counts.
 * - collective_permute: one message; it passes the network if the group reaches over hosts.
 *
 * Groups of one device cost 0. Latencies are NCCL's ring constants; form of the formulas: PyTorch's
 * torch/distributed/tensor/_collective_utils.py, ring steps as in NCCL's tuning model.
 */
export function alphaBeta(cluster: Cluster, mesh: DeviceMesh): CollectiveModel {
  const linesOf = byMeshDims((meshDims) => {
    const topology = clusterTopology(cluster, mesh, meshDims);
    const lineOf = (kind: CollectiveKind): Line =>
      groupLines(clusterOfGroup(cluster, mesh, meshDims, kind), topology)[kind];
    return Object.fromEntries(COLLECTIVE_KINDS.map((kind) => [kind, lineOf(kind)])) as Record<
      CollectiveKind,
      Line
    >;
  });
  const copyPerByte = 1 / (cluster.memoryBytesPerSecond * cluster.memoryEfficiency);
  return {
    preset: 'alpha-beta',
    mesh,
    byteRule: 'ceil',
    chargesUnitDims: false,
    seconds(kind, bytes, meshDims) {
      const line = linesOf(meshDims)[kind];
      return line.latency + bytes * line.perByte;
    },
    record(kind, bytes, meshDims): CostRecord {
      const line = linesOf(meshDims)[kind];
      const bandwidthSeconds = bytes * line.perByte;
      return {
        seconds: line.latency + bandwidthSeconds,
        kind,
        terms: { latencySeconds: line.latency, bandwidthSeconds },
        source: `alpha-beta on ${cluster.id}`,
      };
    },
    copySeconds: (bytes) => bytes * copyPerByte,
  };
}

const FREE: Line = { latency: 0, perByte: 0 };

function groupLines(
  cluster: Cluster,
  topology: GroupTopology,
): Readonly<Record<CollectiveKind, Line>> {
  const { devices: n, hosts, perHost } = topology;
  if (n === 1)
    return {
      all_gather: FREE,
      reduce_scatter: FREE,
      all_reduce: FREE,
      all_to_all: FREE,
      collective_permute: FREE,
    };
  const base = cluster.baseLatencySeconds;
  const intraRate = cluster.intra.bytesPerSecond * cluster.intra.efficiency;
  const interRate = cluster.inter.bytesPerSecond * cluster.inter.efficiency;
  const netHops = hosts === 1 ? 0 : hosts - 1;
  const hops =
    (n - 1 - netHops) * cluster.intra.latencySeconds + netHops * cluster.inter.latencySeconds;
  const rate =
    hosts === 1 ? intraRate : Math.min(perHost === 1 ? Infinity : intraRate, interRate * perHost);
  const share = (n - 1) / n;
  const gather: Line = { latency: base + hops, perByte: share / rate };
  const inside = (perHost - 1) / n / intraRate;
  const outside = hosts === 1 ? 0 : (n - perHost) / n / interRate;
  const crosses = hosts > 1;
  return {
    all_gather: gather,
    reduce_scatter: gather,
    all_reduce: { latency: base + 2 * hops, perByte: (2 * share) / rate },
    all_to_all: { latency: base + hops, perByte: Math.max(inside, outside) },
    collective_permute: {
      latency: base + (crosses ? cluster.inter.latencySeconds : cluster.intra.latencySeconds),
      perByte: 1 / (crosses ? interRate : intraRate),
    },
  };
}
