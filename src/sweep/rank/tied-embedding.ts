/**
 * Prices the all-reduce of a tied embedding's gradient between the first and the last pipeline
 * stage.
 */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { collectiveModel } from '../../cost/presets/presets.ts';
import { DeviceMesh } from '../../mesh/devices/mesh.ts';

/**
 * Seconds in which the first and the last stage of a pipeline sum what both have, such as the
 * gradient of a tied embedding (lint rule ZL14). The two stages are at least half the devices
 * apart, and every device of the one has its partner in the other.
 *
 * @param bytes on each device
 */
export function endsSumSeconds(
  bytes: number,
  devices: number,
  preset: string,
  cluster: Cluster,
  holders = 2,
): number {
  const ends = new DeviceMesh([
    { name: 'pp', size: holders },
    { name: 'stage', size: Math.max(1, Math.floor(devices / holders)) },
  ]);
  return collectiveModel(preset, cluster, ends).seconds('all_reduce', bytes, [0]);
}
