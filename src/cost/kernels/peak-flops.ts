/** Takes a dtype and a cluster and gives the matrix peak in FLOP/s of the unit that serves it. */

import { ShardwrightError } from '../../errors.ts';
import type { DType } from '../../graph/types.ts';
import type { Cluster } from '../hardware/cluster.ts';

/** Names of peaks that serve a dtype, best first. */
const PEAK_UNITS: Readonly<Partial<Record<DType, readonly string[]>>> = {
  bf16: ['bf16', 'fp16'],
  f16: ['fp16', 'bf16'],
  f32: ['tf32', 'fp32', 'bf16'],
  f64: ['fp64_tc', 'fp64_matrix', 'fp64', 'fp32'],
  c64: ['fp32', 'tf32', 'bf16'],
  c128: ['fp64', 'fp64_tc', 'fp32'],
  f8e4m3fn: ['fp8', 'bf16', 'fp16'],
  f8e5m2: ['fp8', 'bf16', 'fp16'],
  i8: ['int8', 'bf16', 'fp16'],
  u8: ['int8', 'bf16', 'fp16'],
};
const OTHER_UNITS: readonly string[] = ['fp32', 'tf32', 'fp16', 'bf16'];

/**
 * Matrix peak for a dtype in FLOP/s and the unit that it belongs to. Float32 runs on the TF32 units
 * where the device has them. A unit that is not the dtype's own is named in the source of the cost.
 *
 * @throws E_CLUSTER when the device has no peak that could serve
 */
export function matrixPeak(
  cluster: Cluster,
  dtype: DType,
): { flopsPerSecond: number; unit: string } {
  for (const unit of PEAK_UNITS[dtype] ?? OTHER_UNITS) {
    const peak = cluster.peakFlopsPerSecond[unit];
    if (peak !== undefined) return { flopsPerSecond: peak, unit };
  }
  const known = Object.keys(cluster.peakFlopsPerSecond).sort().join(', ');
  throw new ShardwrightError(
    'E_CLUSTER',
    `${cluster.name} has no peak for ${dtype}; it has ${known}`,
    {
      hint: `add peakFlopsPerSecond.${(PEAK_UNITS[dtype] ?? OTHER_UNITS)[0]} to the cluster file`,
    },
  );
}
