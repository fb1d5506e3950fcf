/** The record of MaxText. Source: its `base.yml` and its launch scripts. */
import { EAGER } from '../framework.ts';
import type { Trainer } from '../trainer.ts';
import { MAXTEXT_RUNS, maxtextLaunch } from './launch.ts';
import { maxtextTarget } from './target.ts';

export const maxtext = {
  id: 'maxtext',
  title: 'MaxText',
  software: {
    /**
     * Its launch scripts fuse collectives into products (xla_tpu_enable_async_collective_fusion,
     * overlap_compute_collective_tc).
     */
    maxtext: {
      ...EAGER,
      vendorKernels: true,
      fusedPointwise: true,
      compiled: true,
      tensorOverlap: 1,
      // `per_device_batch_size` at the commit of its table, and no accumulation of gradients: a
      // tensor group has the batch of its devices.
      onePass: true,
      // The gradient of a cast weight is scattered before it is widened.
      gradientBytes: 2,
    },
  },
  runs: MAXTEXT_RUNS,
  writeLaunch: maxtextLaunch,
  target: maxtextTarget,
} as const satisfies Trainer;
