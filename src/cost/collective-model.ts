/**
 * Collectives and what they cost. Bytes of a collective: all_gather the gathered output,
 * reduce_scatter the full input, all_reduce the tensor, all_to_all and collective_permute the
 * buffer of one rank.
 */

import type { CollectiveKind } from '../mesh/collective-kinds.ts';
import { groupLevels, hostLevel } from '../mesh/devices/levels.ts';
import type { DeviceMesh } from '../mesh/devices/mesh.ts';
import type { Sharding } from '../mesh/sharding/sharding.ts';

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

/**
 * Facts about a tensor, in addition to its shardings, that the formula of a literal preset needs to
 * price its redistribution.
 */
export interface LiteralMove {
  /** Bytes of the whole tensor. */
  readonly bytes: number;
  /** True if the tensor is contiguous; a copy is charged once if it is not. */
  readonly contiguous: boolean;
}

/** Prices of the collectives of one mesh on one cluster. */
export interface CollectiveModel {
  /** Name of the preset. */
  readonly preset: string;
  /**
   * One sentence for the plan where the preset takes its figures from elsewhere than the cluster.
   */
  readonly note?: string;
  readonly mesh: DeviceMesh;
  /**
   * `ceil`: local sizes are those of the largest shard. `fraction`: full bytes over the number of
   * shards (DTensor).
   */
  readonly byteRule: 'ceil' | 'fraction';
  /** True if collectives over mesh dims of size 1 cost anything (a literal preset may say so). */
  readonly chargesUnitDims: boolean;
  /**
   * Seconds of one collective over the flattened group of the mesh dims. Monotone in bytes; 0 for
   * groups of one device.
   */
  seconds(kind: CollectiveKind, bytes: number, meshDims: readonly number[]): number;
  /** The same with its parts. */
  record(kind: CollectiveKind, bytes: number, meshDims: readonly number[]): CostRecord;
  /** Seconds to read and write local bytes, given the sum of both. */
  copySeconds(bytes: number): number;
  /**
   * Seconds of a local slice by the bytes that it writes, 0 of a view; absent: those to read and
   * write them.
   */
  sliceSeconds?(bytes: number): number;
  /**
   * Seconds that the planning problem charges for a whole redistribution between shardings of S, R
   * and P in mesh order, where the preset copies a planner whose price is not that of the steps
   * that run. Absent: the steps' own price.
   */
  redistributionSeconds?(from: Sharding, to: Sharding, move: LiteralMove): number;
  /**
   * `each-use`: the planner that the preset copies has every use pay its own redistribution.
   * Absent: copies may be shared.
   */
  readonly copies?: 'each-use';
  /**
   * `joined`: kernels in place of an operator's own one (`BodyTraffic`) run as one. Absent: one
   * after another.
   */
  readonly bodies?: 'joined';
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
 * Topology of the flattened group of some mesh dims. Hosts hold consecutive device ids, so with the
 * default table the innermost mesh dim is inside the host first. Where groups differ (sizes that do
 * not divide the host) the worst counts.
 */
export function groupTopology(
  mesh: DeviceMesh,
  devicesPerHost: number,
  meshDims: readonly number[],
): GroupTopology {
  const devices = mesh.sizeOf(meshDims);
  if (devices === 1) return { devices, hosts: 1, perHost: 1 };
  const even = evenMembers(mesh, devicesPerHost, meshDims);
  if (even !== undefined) return { devices, hosts: devices / even, perHost: even };
  const [{ units, members }] = groupLevels(mesh, meshDims, hostLevel(devicesPerHost)).spans;
  return { devices, hosts: units, perHost: members };
}

/**
 * Members of a group on each host where devices lie in order and each dim divides a host, fills
 * whole ones, or both, so that all groups lie alike; undefined elsewhere, where devices are looked
 * at one by one.
 */
function evenMembers(
  { sizes, strides, devices }: DeviceMesh,
  perHost: number,
  meshDims: readonly number[],
): number | undefined {
  if (!devices.every((id, rank) => id === rank)) return undefined;
  let members = 1;
  for (let d = 0; d < sizes.length; d++) {
    const span = strides[d] * sizes[d];
    let inside = 1;
    if (perHost % span === 0) inside = sizes[d];
    else if (perHost % strides[d] === 0 && span % perHost === 0) inside = perHost / strides[d];
    else if (strides[d] % perHost !== 0) return undefined;
    if (meshDims.includes(d)) members *= inside;
  }
  return members;
}

/**
 * Makes a value for each set of mesh dims once; the order in which a set is named does not matter.
 */
export function byMeshDims<T>(
  make: (meshDims: readonly number[]) => T,
): (meshDims: readonly number[]) => T {
  const made = new Map<number, T>();
  return (meshDims) => {
    const mask = dimsMask(meshDims);
    const known = made.get(mask);
    if (known !== undefined) return known;
    const value = make(meshDims);
    made.set(mask, value);
    return value;
  };
}

/**
 * Seconds of one collective on a curve, split into those of an empty message and those of its
 * bytes.
 */
export function recordOnCurve(
  kind: CollectiveKind,
  curve: { seconds(bytes: number): number },
  bytes: number,
): Omit<CostRecord, 'source'> {
  const seconds = curve.seconds(bytes);
  const latencySeconds = Math.min(seconds, curve.seconds(0));
  return { seconds, kind, terms: { latencySeconds, bandwidthSeconds: seconds - latencySeconds } };
}

/** Key of a set of mesh dims: one bit for each. */
export function dimsMask(meshDims: readonly number[]): number {
  let mask = 0;
  for (const d of meshDims) mask |= 1 << d;
  return mask;
}
