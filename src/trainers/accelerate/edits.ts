/**
 * The settings of an Accelerate configuration that state a layout of FSDP or DeepSpeed. Source: the
 * configuration of Accelerate 1.15.
 */
import { editYaml } from '../layout/edit-settings.ts';
import type { ConfigEdits } from '../layout/edited-layout.ts';

/** The size of a microbatch is decided by the training script. */
export const ACCELERATE_EDITS: ConfigEdits = {
  settings: ({ sizes, kind, tuning, microbatches }, text) => {
    const { pp, dp_replicate: replicas, dp_shard: shards, cp, tp } = sizes;
    const zero = ['dp', 'zero1', 'zero2', 'fsdp', 'hsdp'].indexOf(kind.mode);
    const isDeepspeed = /^distributed_type:\s*DEEPSPEED\b/m.test(text);
    if (pp > 1 || (isDeepspeed && (tp > 1 || zero > 3))) return undefined;
    // Neither has a setting in the file: they are compared, and never written.
    const script = { [SCRIPT]: tuning.microbatch, [`${SCRIPT} recompute`]: tuning.checkpoint };
    if (isDeepspeed)
      return {
        'deepspeed_config.zero_stage': zero,
        'deepspeed_config.gradient_accumulation_steps': microbatches,
        ...script,
        'parallelism_config.parallelism_config_sp_size': cp > 1 ? cp : undefined,
      };
    const isNamed = /parallelism_config/.test(text) || tp > 1 || cp > 1 || replicas > 1;
    return {
      [SCRIPT]: tuning.microbatch,
      [`${SCRIPT} zero`]: kind.mode === 'dp' ? 'dp' : 'fsdp',
      'fsdp_config.fsdp_activation_checkpointing':
        tuning.checkpoint === 'full' ||
        (text.includes('fsdp_activation_checkpointing') ? false : undefined),
      // Accelerate refuses a file that adds up microbatches: that is the script's, too.
      'fsdp_config.fsdp_reshard_after_forward': !tuning.once,
      'parallelism_config.parallelism_config_dp_replicate_size':
        replicas > 1 ? replicas : undefined,
      'parallelism_config.parallelism_config_dp_shard_size': isNamed ? shards : undefined,
      'parallelism_config.parallelism_config_tp_size': tp > 1 ? tp : undefined,
      'parallelism_config.parallelism_config_cp_size': cp > 1 ? cp : undefined,
      'parallelism_config.parallelism_config_cp_comm_strategy':
        cp > 1 ? (kind.context === 'ring' ? 'alltoall' : 'allgather') : undefined,
    };
  },
  edit: (text, changed) =>
    Object.keys(changed).some((key) => key.startsWith(SCRIPT)) ? text : editYaml(text, changed),
};

const SCRIPT = 'the training script';
