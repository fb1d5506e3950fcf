/**
 * The NCCL-like times of AutoParallel, literally, with the faults that they have (cost spec,
 * section 10): two-node groups at the speed inside a node, all_reduce below all_gather on flat
 * groups, equal prices of different sizes beyond 32 nodes. Switched nodes use measured lines inside
 * a node and measured rows across nodes; everything else the formulas.
 */

import {
  type Algorithm,
  algorithmGBps,
  algorithmMicros,
  ALGORITHMS,
  deepRamp,
  eligible,
  type NcclGroup,
  type NcclLinks,
  protocolsOf,
  rampAt,
  rampPosition,
  type ReductionKind,
} from './nccl-algorithms.ts';
import { ncclConstants, type NcclFamily, type NcclRow } from './nccl-constants.ts';

/** The reference cluster of a generation. */
export function literalLinks(family: NcclFamily): NcclLinks {
  const { channels, intraGBps, interGBps, nvSwitch } = ncclConstants().clusters[family];
  return { family, channels, intraGBps, interGBps, nvSwitch, collnet: false, crossing: 'literal' };
}

/**
 * Group of a mesh dim in the literal model: consecutive devices of the dim are `inner` apart.
 *
 * @param n devices of the dim
 * @param inner product of the mesh sizes after it
 * @param devicesPerNode of the reference cluster
 */
export function literalGroup(n: number, inner: number, devicesPerNode: number): NcclGroup {
  const perNode = Math.max(1, Math.min(Math.floor(devicesPerNode / inner), n));
  return { n, nodes: Math.floor(n / perNode), perNode };
}

/** Microseconds of a collective of more than one device. */
export function literalMicros(
  kind: ReductionKind | 'all_to_all',
  bytes: number,
  links: NcclLinks,
  group: NcclGroup,
): number {
  const newer = links.nvSwitch && links.family !== 'ampere';
  if (kind === 'all_to_all') return allToAllMicros(bytes, links, group, newer);
  if (newer && group.nodes === 1) return oneNodeMicros(kind, bytes, links, group.n);
  const row = newer
    ? ncclConstants().measuredRows.find(
        (r) => r.nodes === group.nodes && r.perNode === group.perNode,
      )
    : undefined;
  if (row !== undefined) return rowMicros(kind, bytes, links, group, row);
  return formulaMicros(kind, bytes, links, group, ALGORITHMS);
}

/**
 * The least time over the given algorithms and their protocols, by the formulas and the size
 * corrections.
 */
export function formulaMicros(
  kind: ReductionKind,
  bytes: number,
  links: NcclLinks,
  group: NcclGroup,
  algorithms: readonly Algorithm[],
): number {
  const { ramps } = ncclConstants();
  let best = Infinity;
  for (const algorithm of algorithms) {
    if (!eligible(algorithm, kind, links, group)) continue;
    for (const protocol of protocolsOf(algorithm)) {
      let rate = algorithmGBps(algorithm, protocol, kind, links, group);
      if (algorithm === 'tree') rate *= treeShare(protocol, bytes);
      if (algorithm === 'nvlsTree' && links.family === 'blackwell') {
        const k = Math.floor(rampPosition(bytes));
        if (k < 24) rate *= ramps.tree[2][k];
      }
      // Neither NCCL's own model nor the measured rows of rings over 2 to 32 nodes have these
      // dents.
      if (algorithm === 'ring' && group.nodes > 1 && links.crossing === 'literal')
        rate *= rampAt(
          deepRamp(ramps.ring, group.nodes),
          rampPosition(Math.floor(bytes / group.n)),
        );
      best = Math.min(
        best,
        algorithmMicros({ algorithm, protocol, kind, bytes }, links, group) + bytes / (1000 * rate),
      );
    }
  }
  return best;
}

function treeShare(protocol: 0 | 1 | 2, bytes: number): number {
  const k = Math.floor(rampPosition(bytes));
  return k < 23 ? ncclConstants().ramps.tree[protocol][k] : 1;
}

function oneNodeMicros(kind: ReductionKind, bytes: number, links: NcclLinks, n: number): number {
  const { oneNode } = ncclConstants();
  const line = kind === 'all_reduce' ? oneNode.allReduce : oneNode.gather;
  const rate = between(oneNode.devices, line.GBps, n) * (links.family === 'blackwell' ? 2 : 1);
  return between(oneNode.devices, line.latency_us, n) + bytes / (1000 * rate);
}

function rowMicros(
  kind: ReductionKind,
  bytes: number,
  links: NcclLinks,
  group: NcclGroup,
  row: NcclRow,
): number {
  const { ramps, clusters } = ncclConstants();
  const double = links.family === 'blackwell' ? 2 : 1;
  const position = rampPosition(Math.floor(bytes / group.n));
  if (kind !== 'all_reduce') {
    const full =
      group.perNode === clusters[links.family].devicesPerNode && Math.floor(position) < 24;
    const share = full ? rampAt(ramps.full, position) : 1;
    return Math.min(
      ...row.gather.map(([latency, rate]) => latency + bytes / (1000 * rate * double * share)),
    );
  }
  let best = formulaMicros(kind, bytes, links, group, ['ring']);
  row.tree.forEach(([latency, rate], p) => {
    const share = treeShare(p as 0 | 1 | 2, bytes);
    best = Math.min(best, latency + bytes / (1000 * rate * double * share));
  });
  if (row.nvlsTree !== undefined) {
    const [latency, rate] = row.nvlsTree;
    best = Math.min(best, latency + bytes / (1000 * rate * double * rampAt(ramps.nvls, position)));
  }
  return best;
}

function allToAllMicros(bytes: number, links: NcclLinks, group: NcclGroup, newer: boolean): number {
  const { oneNode, allToAllNodes, ramps, latency_us: latency } = ncclConstants();
  const { n, nodes, perNode } = group;
  if (newer && nodes === 1) {
    const { hopperGBps, blackwellGBps, latency_us } = oneNode.allToAll;
    return latency_us + bytes / (1000 * (links.family === 'hopper' ? hopperGBps : blackwellGBps));
  }
  if (links.nvSwitch && nodes > 1) {
    const k = Math.floor(rampPosition(Math.floor(bytes / n)));
    let share = k < 24 ? ramps.allToAll[k] : 1;
    const depth = Math.floor(Math.log2(nodes));
    if (depth > 1 && share < 1) share = 1 - (1 - share) / depth;
    const rate = links.interGBps * (1 - allToAllNodes.networkLoss / nodes) * share;
    return (
      between(allToAllNodes.nodes, allToAllNodes.latency_us, nodes) +
      (bytes * (n - perNode)) / n / (1000 * rate)
    );
  }
  const channel = (nodes <= 2 ? links.intraGBps : links.interGBps) / links.channels;
  const hops = nodes > 1 ? nodes - 1 : 0;
  const intra = Math.max(latency.nvlink.ring[2], nodes > 1 ? 3 : 0);
  return (
    latency.base.ring[2] +
    (n - hops) * intra +
    hops * latency.net.ring[2] +
    bytes / (1000 * 0.7 * links.channels * channel)
  );
}

/** Linear between the points, clamped outside. */
function between(xs: readonly number[], ys: readonly number[], x: number): number {
  if (x <= xs[0]) return ys[0];
  for (let i = 1; i < xs.length; i++)
    if (x <= xs[i])
      return ys[i - 1] + ((ys[i] - ys[i - 1]) * (x - xs[i - 1])) / (xs[i] - xs[i - 1]);
  return ys[ys.length - 1];
}
