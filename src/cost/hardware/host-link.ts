/** Gives the rate at which a device moves bytes to the memory of its host, and back. */

import type { Cluster } from './cluster.ts';
import { hardware } from './hardware.ts';

/** Part of the rate of a link that copies reach. */
const REACHED = 0.8;
/**
 * TPUs state none: 16 GB/s each way, as jax-ml/scaling-book has it (tpus.md: TPU v4, and its
 * problem for TPU v6e).
 */
const TPU_BYTES_PER_SECOND = 16e9;

/** Bytes per second each way; undefined for an accelerator without facts. */
export function hostLinkBytesPerSecond({ accelerator, torus }: Cluster): number | undefined {
  const facts = hardware().accelerators.find((a) => a.name === accelerator);
  const stated = facts?.pcie?.GBps_unidir;
  if (stated !== undefined) return REACHED * stated * 1e9;
  return torus === undefined ? undefined : REACHED * TPU_BYTES_PER_SECOND;
}
