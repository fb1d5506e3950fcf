import type { DeviceMesh } from '../mesh/mesh.ts';

/**
 * Collectives and what they cost. Bytes of a collective: all_gather the gathered output, reduce_scatter the full input,
 * all_reduce the tensor, all_to_all and collective_permute the buffer of one rank.
 */

export const COLLECTIVE_KINDS = [
  'all_gather',
  'reduce_scatter',
  'all_reduce',
  'all_to_all',
  'collective_permute',
] as const;
export type CollectiveKind = (typeof COLLECTIVE_KINDS)[number];

/** A price with its parts, in seconds, and where it comes from. */
export interface CostRecord {
  readonly seconds: number;
  readonly kind: string;
  readonly terms: {
    readonly flopSeconds?: number;
    readonly memorySeconds?: number;
    readonly latencySeconds?: number;
    readonly bandwidthSeconds?: number;
  };
  /** The preset, and what was assumed. */
  readonly source: string;
}

/** Prices of the collectives of one mesh on one cluster. */
export interface CollectiveModel {
  /** Name of the preset. */
  readonly preset: string;
  readonly mesh: DeviceMesh;
  /** `ceil`: local sizes are those of the largest shard. `fraction`: full bytes over the number of shards (DTensor). */
  readonly byteRule: 'ceil' | 'fraction';
  /** Whether collectives over mesh dims of size 1 cost anything (a literal preset may say so). */
  readonly chargesUnitDims: boolean;
  /** Seconds of one collective over the flattened group of the mesh dims. Monotone in bytes; 0 for groups of one device. */
  seconds(kind: CollectiveKind, bytes: number, meshDims: readonly number[]): number;
  /** The same with its parts. */
  record(kind: CollectiveKind, bytes: number, meshDims: readonly number[]): CostRecord;
  /** Seconds to read and write local bytes, given the sum of both. */
  copySeconds(bytes: number): number;
}

/** How the group of some mesh dims lies on the hosts. */
export interface GroupTopology {
  /** Devices of the group. */
  readonly devices: number;
  /** Hosts that one group reaches over. */
  readonly hosts: number;
  /** Devices of the group on one host (the fewest where hosts differ). */
  readonly perHost: number;
}

/**
 * Topology of the flattened group of some mesh dims: ranks fill hosts in order, so the innermost mesh dim is inside the
 * host first. Where groups differ (sizes that do not divide the host) the worst of them counts.
 */
export function groupTopology(mesh: DeviceMesh, devicesPerHost: number, meshDims: readonly number[]): GroupTopology {
  const devices = mesh.sizeOf(meshDims);
  if (devices === 1) return { devices, hosts: 1, perHost: 1 };
  if (mesh.size <= devicesPerHost) return { devices, hosts: 1, perHost: devices };
  const dims = [...meshDims].sort((a, b) => a - b);
  const others = mesh.sizes.map((_, i) => i).filter((i) => !dims.includes(i));
  let hosts = 1;
  let perHost = devices;
  const inner = offsets(mesh, dims);
  const counts = new Map<number, number>();
  for (const base of offsets(mesh, others)) {
    counts.clear();
    for (const o of inner) {
      const host = Math.floor((base + o) / devicesPerHost);
      counts.set(host, (counts.get(host) ?? 0) + 1);
    }
    hosts = Math.max(hosts, counts.size);
    for (const c of counts.values()) perHost = Math.min(perHost, c);
  }
  return { devices, hosts, perHost };
}

function offsets(mesh: DeviceMesh, dims: readonly number[]): number[] {
  let out = [0];
  for (const d of dims) {
    const next: number[] = [];
    for (const base of out) for (let c = 0; c < mesh.sizes[d]; c++) next.push(base + c * mesh.strides[d]);
    out = next;
  }
  return out;
}

/** Key of a set of mesh dims: one bit for each. */
export function dimsMask(meshDims: readonly number[]): number {
  let mask = 0;
  for (const d of meshDims) mask |= 1 << d;
  return mask;
}
