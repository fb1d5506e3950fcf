/**
 * The settings of a TOML file of torchtitan that state a layout. Source: `JobConfig` of 0.2.1.
 */
import { editToml, type Settings } from '../layout/edit-settings.ts';
import type { ConfigEdits, EditedLayout } from '../layout/edited-layout.ts';
import { torchtitanCuts } from '../layout/stage-cuts.ts';

const SCHEDULES: Readonly<Record<string, string>> = {
  '1f1b': '1F1B',
  gpipe: 'GPipe',
  interleaved: 'Interleaved1F1B',
};

export const TORCHTITAN_EDITS: ConfigEdits = {
  settings: (layout, text) => {
    const { sizes, kind, tuning, globalBatch } = layout;
    const { pp, dp_replicate: replicas, dp_shard: shards, cp, tp, ep, etp = 1 } = sizes;
    if (pp > 1 && SCHEDULES[tuning.schedule] === undefined) return undefined;
    const whole = kind.mode === 'dp';
    // -1 takes the ranks that are left.
    const isLeft = /^\s*data_parallel_shard_degree\s*=\s*-1\b/m.test(text);
    const isBatch = /^\s*global_batch_size\s*=\s*[1-9]/m.test(text);
    const ranks = replicas * shards;
    const accumulates = globalBatch !== localBatch(layout) * ranks;
    return {
      'parallelism.data_parallel_replicate_degree': whole ? ranks : replicas,
      'parallelism.data_parallel_shard_degree': whole ? 1 : isLeft ? -1 : shards,
      'parallelism.tensor_parallel_degree': tp,
      'parallelism.enable_sequence_parallel': tp > 1 && !kind.sequenceParallel ? false : undefined,
      'parallelism.context_parallel_degree': cp,
      'parallelism.context_parallel_rotate_method':
        cp > 1 && (kind.context === 'ring' || text.includes('context_parallel_rotate_method'))
          ? kind.context === 'ring'
            ? 'alltoall'
            : 'allgather'
          : undefined,
      'parallelism.pipeline_parallel_degree': pp,
      'parallelism.expert_parallel_degree': ep,
      'parallelism.expert_tensor_parallel_degree': etp,
      'parallelism.fsdp_reshard_after_forward':
        whole || tuning.once === pp > 1 ? 'default' : tuning.once ? 'never' : 'always',
      ...stages(layout),
      'training.local_batch_size': localBatch(layout),
      'training.global_batch_size': isBatch || accumulates ? globalBatch : undefined,
      ...recomputation(layout),
    };
  },
  edit: editToml,
};

/** With stages a rank gets all microbatches of a step at once. */
function localBatch({ sizes: { pp }, tuning, microbatches }: EditedLayout): number {
  return pp > 1 ? tuning.microbatch * microbatches : tuning.microbatch;
}

function stages({ sizes: { pp }, tuning, layers }: EditedLayout): Settings {
  if (pp === 1) return {};
  const { schedule, chunks, microbatch, stageLayers } = tuning;
  const parts = pp * chunks;
  const own = torchtitanCuts(parts, layers, 1, 1);
  const isOwn =
    stageLayers === undefined || (!('fault' in own) && own.join() === stageLayers.join());
  return {
    'parallelism.pipeline_parallel_schedule': SCHEDULES[schedule],
    'parallelism.pipeline_parallel_microbatch_size': microbatch,
    'parallelism.pipeline_parallel_layers_per_stage':
      isOwn && chunks > 2 ? Math.ceil((layers + 2) / parts) : undefined,
  };
}

function recomputation({ tuning: { checkpoint } }: EditedLayout): Settings {
  const isOperators = checkpoint === 'operators';
  return {
    'activation_checkpoint.mode': isOperators ? 'selective' : checkpoint,
    'activation_checkpoint.selective_ac_option': isOperators ? 'op' : undefined,
  };
}
