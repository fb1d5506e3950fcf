/** The settings of a DeepSpeed configuration that state a layout. Source: DeepSpeed 0.19. */
import { editJson } from '../layout/edit-settings.ts';
import type { ConfigEdits } from '../layout/edited-layout.ts';

export const DEEPSPEED_EDITS: ConfigEdits = {
  settings: ({ sizes, kind, tuning, microbatches, globalBatch }, text) => {
    const { pp, dp_replicate: replicas, dp_shard: shards, cp, tp, ep } = sizes;
    // Recomputation is a matter of the model's code.
    if (pp > 1 || tuning.checkpoint !== 'none') return undefined;
    const states = ['dp', 'zero1', 'zero2', 'fsdp', 'hsdp'].indexOf(kind.mode);
    return {
      'zero_optimization.stage': Math.min(3, states),
      'zero_optimization.mics_shard_size': replicas > 1 ? shards : undefined,
      train_micro_batch_size_per_gpu: tuning.microbatch,
      gradient_accumulation_steps: microbatches,
      train_batch_size: /"train_batch_size"/.test(text) ? globalBatch : undefined,
      'tensor_parallel.autotp_size': tp,
      sequence_parallel_size: cp,
      'expert_parallel.autoep_size': ep,
    };
  },
  edit: editJson,
};
