/**
 * Takes FLOPs and bytes of a matrix product and gives its seconds on a device alone: an efficiency
 * that grows with arithmetic intensity, fitted on published shapes.
 */

import type { Cluster } from '../hardware/cluster.ts';

/**
 * Efficiency curve of dense matmul, fitted on 666 H100 shapes (MAPE 8.9 %): plateau, half point,
 * exponent.
 */
const PLATEAU = 0.742;
const HALF_INTENSITY = 150;
const EXPONENT = 1.47;
/**
 * FLOPs per byte at which an H100 in bf16 is balanced; the half point of another device moves with
 * its balance.
 */
const H100_BALANCE = 989.4e12 / 3350e9;
/**
 * Below this multiple of the half point the fitted time would fall with more work at equal bytes.
 * Work can always be padded, so the time there is that at this intensity: the root of d/dF [F + B^e
 * F^(1-e) h^e] = 0.
 */
const TURNING_POINT = (EXPONENT - 1) ** (1 / EXPONENT);

/**
 * Share of the matrix peak that a dense matmul reaches at an arithmetic intensity (FLOPs per byte),
 * as fitted, never above the cap.
 */
export function matmulEfficiency(
  intensity: number,
  cap = 1,
  halfIntensity = HALF_INTENSITY,
): number {
  if (intensity <= 0) return 0;
  const x = intensity ** EXPONENT;
  return Math.min((PLATEAU * x) / (x + halfIntensity ** EXPONENT), cap);
}

/**
 * Seconds of matrix work: `flops` at the peak times the efficiency of its intensity. Never falls
 * when FLOPs or bytes grow.
 *
 * @param unit of the peak; with it a calibrated cluster's own curve is used
 */
export function matrixSeconds(
  flops: number,
  bytes: number,
  peak: number,
  cluster: Cluster,
  unit?: string,
): number {
  if (flops <= 0) return 0;
  const curve = unit === undefined ? undefined : cluster.matmulCurves?.[unit];
  if (curve !== undefined) {
    const intensity = flops / Math.max(bytes, 1);
    // Rises with FLOPs and with bytes: seconds = flops / (peak * plateau) + bytes * half / (peak *
    // plateau).
    const share = (curve.plateau * intensity) / (intensity + curve.halfIntensity);
    return Math.max(flops / (peak * share), flops / (peak * cluster.matmulCap));
  }
  const half = (HALF_INTENSITY * (peak / cluster.memoryBytesPerSecond)) / H100_BALANCE;
  const padded = Math.max(flops, bytes * half * TURNING_POINT);
  return Math.max(
    padded / (peak * matmulEfficiency(padded / bytes, 1, half)),
    flops / (peak * cluster.matmulCap),
  );
}
