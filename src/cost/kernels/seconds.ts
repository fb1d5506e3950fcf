/**
 * Prices the kernels of a device in seconds, without gaps and host time: products of matrices by
 * efficiency, waves of tiles and clocks under load; fused attention by the share of the peak that
 * its kernels reach; everything else by memory traffic. Every price of a training step is a sum of
 * these.
 */

import type { Cluster } from '../hardware/cluster.ts';
import type { FittedConstants } from './fitted.ts';
import { matrixSeconds } from './matmul.ts';
import { fillsWave, NARROWEST_TILE, tailFactor } from './tiles.ts';

/** Products of equal size in one kernel. */
export interface Product {
  readonly rows: number;
  readonly columns: number;
  readonly count: number;
  /** FLOPs of all of them, 2 per multiply-add. */
  readonly flops: number;
  /** Operands and results of all of them. */
  readonly bytes: number;
  /**
   * Multiprocessors that have no tile share the inner dim of the others' (split-K), however wide
   * the sides are (`StepSoftware.splitsProducts`).
   */
  readonly isFilled?: boolean;
}

/** The unit of a device that runs matrix products. */
interface MatrixUnit {
  readonly cluster: Cluster;
  /** Peak in FLOP/s. */
  readonly peak: number;
  /** See `clockTime`. */
  readonly clockTime: number;
  /** Name of the unit; with it a calibrated cluster's own curve is used. */
  readonly unit?: string;
}

/**
 * Seconds of products in one kernel: the roofline with its efficiency, on whole waves of tiles, at
 * the clocks of a long step.
 */
export function productSeconds(
  { rows, columns, count, flops, bytes, isFilled = false }: Product,
  { cluster, peak, clockTime: hot, unit }: MatrixUnit,
  { tailShare, tailMean }: FittedConstants,
): number {
  const side = Math.min(rows, columns);
  // A side that is narrower than a tile is padded to one, and the inner dim is split over the
  // multiprocessors that have no tile: libraries have such kernels for thin products.
  const isNarrow = side < NARROWEST_TILE;
  const padded = isNarrow ? (flops * NARROWEST_TILE) / side : flops;
  const isWhole = isNarrow || (isFilled && !fillsWave(rows, columns, count, cluster.accelerator));
  const waves = isWhole ? 1 : tailFactor(rows, columns, count, cluster.accelerator);
  const tail = (1 + tailShare * (waves - 1)) / tailMean;
  return Math.max(
    matrixSeconds(padded, bytes, peak, cluster, unit) * hot * tail,
    trafficSeconds(bytes, cluster),
  );
}

/** Seconds of fused attention at a rate in FLOP/s, of which masked scores are none. */
export function attentionSeconds(
  flops: number,
  bytes: number,
  cluster: Cluster,
  rate: number,
): number {
  return Math.max(flops / rate, trafficSeconds(bytes, cluster));
}

/** Seconds to read and write bytes. */
export function trafficSeconds(bytes: number, cluster: Cluster): number {
  return bytes / (cluster.memoryBytesPerSecond * cluster.memoryEfficiency);
}
