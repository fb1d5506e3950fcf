/**
 * Defines the `Cluster` record that all prices are computed from, and the memory that a plan may
 * fill on its devices. Memory is in bytes, rates are in bytes or FLOP per second.
 */

import type { Calibration } from './calibration.ts';
import type { CollectiveRow } from './collective-table.ts';
import type { Operation } from './operation.ts';

/**
 * A cluster: what one device can do and what the links between devices carry. How many hosts there
 * are follows from the mesh, innermost mesh dim inside the host first.
 */
export interface Cluster {
  /** Node design, or the name that the user's file gives. */
  readonly id: string;
  readonly name: string;
  readonly accelerator: string;
  /** Dense peaks in FLOP/s by unit: bf16, fp16, tf32, fp32, fp64, fp64_tc, fp8, int8 and so on. */
  readonly peakFlopsPerSecond: Readonly<Record<string, number>>;
  /** Largest share of the peak that a measured matmul reaches, 0..1. */
  readonly matmulCap: number;
  readonly memoryBytes: number;
  /** Headroom: held back for context, allocator and communication buffers. */
  readonly reservedBytes: number;
  readonly memoryBytesPerSecond: number;
  /** Share of the memory bandwidth that kernels reach, 0..1. */
  readonly memoryEfficiency: number;
  /** Power limit of a device over its rated power, where a user's file states one. */
  readonly powerShare?: number;
  /** The cost of operation: price, power, failures. */
  readonly operation?: Operation;
  /** Devices of one scale-up domain (NVLink, xGMI): a host, or a rack. */
  readonly devicesPerHost: number;
  /**
   * Devices of a tray or instance, where a scale-up domain is made of several: parts of it are used
   * in whole ones.
   */
  readonly devicesPerTray?: number;
  /**
   * Devices of each host that are used, where it is stated; else they follow from the mesh
   * (`packing.ts`).
   */
  readonly usedPerHost?: number;
  readonly intra: LinkLevel;
  /** Links between hosts. */
  readonly inter: LinkLevel;
  /**
   * Levels above the host (rack, pod, site), the smallest first, where the links between hosts are
   * not the same everywhere.
   */
  readonly levels?: readonly NetworkLevel[];
  /**
   * The torus that links chips to their neighbours; absent where a switch or a full mesh links
   * them.
   */
  readonly torus?: TorusLinks;
  /** Seconds that starting any collective takes. */
  readonly baseLatencySeconds: number;
  /** Least time of any kernel. */
  readonly launchSeconds: number;
  /** Least time of a kernel on the matrix units. */
  readonly matmulLaunchSeconds: number;
  /** Measured efficiency of matmuls by unit, where the cluster was calibrated. */
  readonly matmulCurves?: Readonly<Record<string, MatmulCurve>>;
  /**
   * Measured share of the peak of attention kernels, all scores counted, where the cluster was
   * calibrated.
   */
  readonly attentionShares?: AttentionShares;
  /**
   * Measured collectives of the user's own cluster; presets that price the cluster's links take
   * them first.
   */
  readonly collectiveTable?: readonly CollectiveRow[];
  /**
   * Kernels that were measured on the machine: single calls take their prices from it, and the
   * figures above that it gives are its own.
   */
  readonly calibration?: Calibration;
  /** The source of each constant, by field name. */
  readonly sources: Readonly<Record<string, string>>;
  /** The assumptions for figures that are not known, one sentence each; every plan prints them. */
  readonly assumptions: readonly string[];
}

/** Shares of the matrix peak that fused attention reaches, 0..1. */
export interface AttentionShares {
  readonly forwardShare: number;
  readonly backwardShare: number;
}

/**
 * Share of the peak that matmuls reach: plateau * intensity / (intensity + half), intensity in
 * FLOPs per byte.
 */
export interface MatmulCurve {
  readonly plateau: number;
  readonly halfIntensity: number;
}

/** A torus of chips: two links on every axis, one to each neighbour. */
export interface TorusLinks {
  /** Sizes of the axes of the largest torus, descending. */
  readonly longestAxes: readonly number[];
  /** An axis closes to a ring when its size is a multiple of this; else its ends are open. */
  readonly wrapMultiple: number;
  /** Bandwidth of one link in one direction. */
  readonly linkBytesPerSecond: number;
  readonly hopSeconds: number;
}

/** Links of one level: inside a host, or between hosts. */
export interface LinkLevel {
  /** One way, for one device, as the data sheet has it. */
  readonly bytesPerSecond: number;
  /** Share of it that collectives reach, 0..1. */
  readonly efficiency: number;
  /** Seconds of one hop. */
  readonly latencySeconds: number;
}

/**
 * A level of the network: its links join the hosts, or the units of the level below it, inside one
 * of its own units.
 */
export interface NetworkLevel extends LinkLevel {
  readonly name: string;
  /** Devices of one unit, of whole hosts. */
  readonly devices: number;
  /**
   * Rate of the devices of a unit below, all together, over that of the links on which it is joined
   * to others.
   */
  readonly oversubscription: number;
  /** True if devices at the same place of their hosts have switches of their own. */
  readonly rails: boolean;
}

/** Share of a device's memory that is held back where nobody says how much. */
export const HEADROOM = 0.05;

/**
 * Limits on the bytes of a device: a budget, or a share of its memory to hold back instead of the
 * cluster's.
 */
export interface MemoryLimits {
  readonly memoryBytes?: number;
  readonly headroom?: number;
}

/**
 * Memory that a plan may fill on one device, in bytes: the budget that is asked for, or the
 * device's memory less its headroom.
 */
export function usableMemoryBytes(
  cluster: Cluster,
  { memoryBytes, headroom }: MemoryLimits = {},
): number {
  if (memoryBytes !== undefined) return memoryBytes;
  return (
    cluster.memoryBytes -
    (headroom === undefined ? cluster.reservedBytes : headroomOf(cluster.memoryBytes, headroom))
  );
}

/** Bytes of a device that are held back of its memory. */
export function headroomOf(memoryBytes: number, share = HEADROOM): number {
  return Math.round(share * memoryBytes);
}

export const HEADROOM_ASSUMED =
  `${100 * HEADROOM} % of memory is held back for context, allocator and ` +
  'communication buffers';
