/** The record of MaxText. Source: its `base.yml` and its launch scripts. */
import { EAGER } from '../framework.ts';
import type { RunLayout, TrainerRuns } from '../runs.ts';
import type { Trainer } from '../trainer.ts';
import { MAXTEXT_EDITS } from './edits.ts';
import { maxtextLaunch } from './launch.ts';
import { isMaxtext, readMaxtext } from './read.ts';
import { maxtextTarget } from './target.ts';

/**
 * An axis of experts is one of its own: its devices come out of those that hold other data. The
 * rules of `base.yml` cut every weight over it and over `context`: none is whole beside them.
 */
function refuses({
  sizes,
  kind: { mode },
}: RunLayout): ReturnType<NonNullable<TrainerRuns['refuses']>> {
  const { dp_shard: shards, ep, cp } = sizes;
  if (mode !== 'fsdp' && mode !== 'hsdp' && ep * cp > 1)
    return {
      setting: `${mode === 'dp' ? 'zero=0' : 'zero=1'} with ${ep > 1 ? `ep=${ep}` : `cp=${cp}`}`,
      nearest: ['zero=3'],
    };
  return shards % ep === 0
    ? undefined
    : { setting: `ep=${ep} with dp=${shards}`, nearest: ['an ep that divides dp'] };
}

const RUNS: TrainerRuns = {
  source:
    'MaxText: configs/base.yml (ici_*_parallelism, remat_policy, context_parallel_strategy, ' +
    'shard_optimizer_over_data), layers/pipeline.py',
  dims: ['pp', 'cp', 'tp', 'ep'],
  modes: ['dp', 'zero1', 'fsdp', 'hsdp'],
  contexts: ['cp', 'ring'],
  sequenceParallel: [true, false],
  // Gradients are taken of the whole loop over microbatches: all forward passes come first.
  schedules: ['gpipe'],
  policies: ['none', 'products', 'full'],
  modules: [],
  gathersOnce: [false],
  pairsMicrobatches: false,
  // The values of `remat_policy` that end in `offloaded`.
  offloads: true,
  cuts: (parts, layers) =>
    layers % parts === 0 ? Array.from({ length: parts }, () => layers / parts) : undefined,
  refuses,
};

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
      // XLA gathers a weight where it is used, and fuses the loss into logits and one gradient.
      memory: { logitBytes: 4, groupedKeys: true, gathersByWeight: true },
    },
  },
  profile: 'maxtext',
  runs: RUNS,
  reads: 'MaxText YAML',
  formats: [
    {
      name: 'MaxText',
      isIn: isMaxtext,
      read: ({ text, setting, yaml }) => readMaxtext(yaml(), text, setting),
      edits: MAXTEXT_EDITS,
    },
  ],
  writeLaunch: maxtextLaunch,
  target: maxtextTarget,
} as const satisfies Trainer;
