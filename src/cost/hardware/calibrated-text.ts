/** Writes a calibrated cluster as a cluster file: a plan's request has all that it needs. */

import type { Calibration } from './calibration.ts';
import { loadCluster } from './load-cluster.ts';

/**
 * Cluster file of `clusterText` (a node design or JSON) with a calibration. Calls of models, which
 * nothing is priced by, are left out.
 *
 * @throws E_CALIBRATION for a unit that the cluster has no peak for; E_CLUSTER as `loadCluster`
 */
export function calibratedClusterText(clusterText: string, calibration: Calibration): string {
  const trimmed = clusterText.trim();
  const file = trimmed.startsWith('{')
    ? (JSON.parse(trimmed) as Record<string, unknown>)
    : { base: loadCluster(clusterText).id };
  const text = JSON.stringify({ ...file, calibration: { ...calibration, kernels: [] } });
  loadCluster(text);
  return text;
}
