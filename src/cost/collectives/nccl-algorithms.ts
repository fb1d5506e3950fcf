/**
 * Bandwidth and latency of NCCL's algorithms and protocols, the form of NCCL's tuning model
 * (src/graph/tuning.cc) with the constants of `data/nccl.json`. GB/s of 1e9 bytes and microseconds;
 * `bytes` by the convention of `CollectiveKind`.
 */

import { ncclConstants, type NcclFamily } from './nccl-constants.ts';

export const ALGORITHMS = [
  'ring',
  'tree',
  'nvls',
  'nvlsTree',
  'collnetDirect',
  'collnetChain',
] as const;
export type Algorithm = (typeof ALGORITHMS)[number];
export type ReductionKind = 'all_gather' | 'reduce_scatter' | 'all_reduce';

/** The links that a group runs over. */
export interface NcclLinks {
  readonly family: NcclFamily;
  readonly channels: number;
  /** One device to the others of its node, all channels, GB/s. */
  readonly intraGBps: number;
  /** One device's share of the network, GB/s. */
  readonly interGBps: number;
  readonly nvSwitch: boolean;
  /** In-network reduction; no cluster of the data files has it. */
  readonly collnet: boolean;
  /**
   * `literal`: groups over two nodes run at the speed inside a node, and only switched nodes share
   * their network cards. `shared`: every group over nodes is limited by the cards of its devices on
   * a node.
   */
  readonly crossing: 'literal' | 'shared';
}

/** Devices of a group, the nodes that it reaches over, devices on each. */
export interface NcclGroup {
  readonly n: number;
  readonly nodes: number;
  readonly perNode: number;
}

/** Position in the lists of one, two and more nodes. */
function nodeBucket(nodes: number): 0 | 1 | 2 {
  return nodes === 1 ? 0 : nodes === 2 ? 1 : 2;
}

/** Tells whether the algorithm serves the collective on these links. */
export function eligible(
  algorithm: Algorithm,
  kind: ReductionKind,
  links: NcclLinks,
  group: NcclGroup,
): boolean {
  const switched = links.nvSwitch && ncclConstants().nvlsEfficiency[links.family] > 0;
  switch (algorithm) {
    case 'ring':
      return true;
    case 'tree':
      return kind === 'all_reduce';
    case 'nvls':
      return switched && (kind === 'all_reduce' || group.nodes === 1 || links.collnet);
    case 'nvlsTree':
      // One device a node has no switch to reduce in.
      return (
        switched &&
        kind === 'all_reduce' &&
        group.nodes > 1 &&
        (links.crossing === 'literal' || group.perNode > 1)
      );
    case 'collnetDirect':
      return links.collnet;
    case 'collnetChain':
      return links.collnet && kind === 'all_reduce';
  }
}

export function protocolsOf(algorithm: Algorithm): readonly (0 | 1 | 2)[] {
  return algorithm === 'ring' || algorithm === 'tree' ? [0, 1, 2] : [2];
}

/** Steps of a ring: one round for gathers and scatters, two for sums. */
function ringSteps(kind: ReductionKind, n: number): number {
  return kind === 'all_reduce' ? 2 * (n - 1) : n - 1;
}

/** Bandwidth before size corrections: bytes of the collective over its time, GB/s. */
export function algorithmGBps(
  algorithm: Algorithm,
  protocol: 0 | 1 | 2,
  kind: ReductionKind,
  links: NcclLinks,
  group: NcclGroup,
): number {
  const { caps_GBps: caps, nvlsEfficiency } = ncclConstants();
  const { channels: ch, family } = links;
  const { n, nodes, perNode } = group;
  const bucket = nodeBucket(nodes);
  const intra = links.intraGBps / ch;
  const inter = links.interGBps / ch;
  const shares = links.crossing === 'shared' || links.nvSwitch;
  const crossing = shares && nodes > 1 ? Math.min(intra, inter * perNode) : inter;
  const channel = nodes === 1 || (nodes === 2 && links.crossing === 'literal') ? intra : crossing;
  const perStep = n / ringSteps(kind, n);
  const nvlsChannel = (intra * nvlsEfficiency[family] * (ch - 1)) / ch;
  switch (algorithm) {
    case 'ring': {
      const bus = ch * channel;
      if (protocol === 0) return Math.min(caps.llTotal[family][bucket], 0.5 * bus) * perStep;
      if (protocol === 1)
        return Math.min(0.92 * bus, ch * caps.ring128PerChannel[family]) * perStep;
      return bus * perStep;
    }
    case 'tree': {
      const bus = Math.min(0.92 * ch * channel, ch * caps.treePerChannel[family][bucket]);
      if (protocol === 0) return Math.min(bus / 3.8, caps.llTotal[family][bucket]) / 2;
      if (protocol === 1)
        return (
          Math.min(
            bus * (nodes === 1 ? 7 / 9 : 120 / 128),
            ch * caps.tree128PerChannel[family][bucket],
          ) / 2
        );
      return bus / 2;
    }
    case 'nvls': {
      const v = nvlsChannel * (kind === 'all_reduce' ? 2 : (perNode - 1) / perNode);
      const bus =
        ch * (nodes > 1 ? Math.min(v, links.crossing === 'shared' ? inter * perNode : inter) : v);
      return kind === 'all_reduce' ? bus * perStep : bus;
    }
    case 'nvlsTree': {
      const cap = caps.nvlsTreePerChannel[family][bucket];
      const rate = ch * Math.min(2 * nvlsChannel, crossing * (nodes === 2 ? 2 : 1), cap) * perStep;
      // Every byte passes the cards of a node at least once.
      return links.crossing === 'literal' ? rate : Math.min(rate, links.interGBps * perNode);
    }
    case 'collnetDirect': {
      if (kind !== 'all_reduce') return perNode * Math.min(intra * ch, 0.9 * inter * ch);
      const factor = (perNode / ch + 1) / 2;
      return ((ch * channel) / factor / 2) * (family === 'ampere' ? 1 : 0.85);
    }
    case 'collnetChain':
      return (ch * channel) / 2;
  }
}

/** A collective of so many bytes, and the way in which NCCL may run it. */
interface AlgorithmRun {
  readonly algorithm: Algorithm;
  readonly protocol: 0 | 1 | 2;
  readonly kind: ReductionKind;
  readonly bytes: number;
}

/** Latency in microseconds. */
export function algorithmMicros(
  { algorithm, protocol, kind, bytes }: AlgorithmRun,
  links: NcclLinks,
  group: NcclGroup,
): number {
  const { latency_us: latency } = ncclConstants();
  const { n, nodes, perNode } = group;
  const netOf = (own: number): number => (perNode === 1 ? latency.net.tree[protocol] : own);
  switch (algorithm) {
    case 'ring': {
      const least = nodes > 1 ? (protocol === 2 ? 3 : 1) : 0;
      const intra = Math.max(latency.nvlink.ring[protocol], least);
      const hops = nodes === 1 ? 0 : ringSteps(kind, nodes);
      const deep = nodes > 4 ? (nodes / 4) ** 0.65 : 1;
      const sum =
        latency.base.ring[protocol] +
        (ringSteps(kind, n) - hops) * intra +
        hops * netOf(latency.net.ring[protocol]) +
        (nodes > 1 && links.crossing === 'literal' ? 4.7 * nodes * deep : 0);
      const slow =
        kind === 'all_reduce' && protocol === 2 && nodes > 1 && bytes / (links.channels * n) >= 64;
      return slow ? 1.4 * sum : sum;
    }
    case 'tree':
      return (
        latency.base.tree[protocol] +
        2 *
          ((Math.floor(n / nodes) - 1) * latency.nvlink.tree[protocol] +
            Math.floor(Math.log2(nodes)) * latency.net.tree[protocol])
      );
    case 'nvls':
      return latency.nvlink.nvls + (nodes > 1 ? netOf(latency.net.nvls) : 0);
    case 'nvlsTree':
      return (
        latency.nvlink.nvlsTree + 2 * Math.floor(Math.log2(nodes)) * netOf(latency.net.nvlsTree)
      );
    case 'collnetDirect':
      return (
        2 * (Math.min(1, perNode - 1) * latency.nvlink.collnetDirect + (perNode - 1) * 0.4) +
        netOf(latency.net.collnetDirect)
      );
    case 'collnetChain':
      return 2 * (perNode - 1) * latency.nvlink.collnetChain + netOf(latency.net.collnetChain);
  }
}

/** Index of a size in the ramps, before rounding: log2 of whole 64-byte lines; 0 below one line. */
export function rampPosition(bytes: number): number {
  const lines = Math.floor(bytes / 64);
  return lines < 1 ? 0 : Math.log2(lines);
}

/** A ramp between its entries, linear in the position; the last entry beyond. */
export function rampAt(ramp: readonly number[], position: number): number {
  const last = ramp.length - 1;
  if (position >= last) return ramp[last];
  const i = Math.floor(position);
  return ramp[i] + (ramp[i + 1] - ramp[i]) * (position - i);
}

/**
 * The ring's ramp for deep networks: dents deepen with the number of nodes, and no entry is over
 * twice the one before.
 */
export function deepRamp(ramp: readonly number[], nodes: number): readonly number[] {
  if (nodes <= 4) return ramp;
  const power = 1 + 0.2 * (Math.floor(Math.log2(nodes)) - 2);
  const out: number[] = [];
  ramp.forEach((share, i) => {
    const deep = share < 1 ? share ** power : share;
    out.push(i === 0 ? deep : Math.min(deep, 2 * out[i - 1]));
  });
  return out;
}
