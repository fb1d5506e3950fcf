/**
 * Reads the layout of a configuration of Hugging Face Accelerate (YAML): FSDP of both versions,
 * DeepSpeed, Megatron-LM and plain data ranks. Source: the configuration of Accelerate 1.15
 * (`accelerate config`, `ParallelismConfig`).
 */

import { namesOf } from '../layout/setting-names.ts';
import {
  count,
  isOn,
  noPrice,
  readSettings,
  settingsOf,
  type SettingsTable,
} from '../layout/settings-table.ts';
import type { ReadLayout } from '../trainer.ts';

const HOST = 'nothing is moved to the host';
/**
 * Sharding strategies of FSDP by number and name: the stage of ZeRO, and whether gathered
 * parameters are given back.
 */
const STRATEGIES: Readonly<
  Record<string, readonly [zero: number, reshards?: boolean | undefined, hybrid?: boolean]>
> = {
  FULL_SHARD: [3],
  '1': [3],
  SHARD_GRAD_OP: [3, false],
  '2': [3, false],
  NO_SHARD: [0],
  '3': [0],
  HYBRID_SHARD: [3, undefined, true],
  '4': [3, undefined, true],
  HYBRID_SHARD_ZERO2: [3, false, true],
  '5': [3, false, true],
};

const TABLE: SettingsTable = {
  num_processes: count('devices'),
  mixed_precision: (value, draft, wrong) => {
    const dtype: Readonly<Record<string, string>> = {
      bf16: 'bf16',
      fp16: 'f16',
      fp8: 'fp8',
      no: 'f32',
    };
    if (!Object.hasOwn(dtype, value)) throw wrong('no, fp16, bf16 or fp8');
    draft.dtype = dtype[value];
    return undefined;
  },
  fsdp_sharding_strategy: (value, draft, wrong) => {
    if (!Object.hasOwn(STRATEGIES, value))
      throw wrong(
        Object.keys(STRATEGIES)
          .filter((k) => k.length > 1)
          .join(', '),
      );
    const [zero, reshards, hybrid] = STRATEGIES[value];
    draft.zero = zero;
    if (reshards !== undefined) draft.reshards = reshards;
    return hybrid === true
      ? 'the devices of a host share parameters: write dp_replicate and dp with --layout'
      : undefined;
  },
  fsdp_reshard_after_forward: (value, draft) => {
    if (/^(true|false)$/i.test(value)) draft.reshards = isOn(value);
    return undefined;
  },
  fsdp_activation_checkpointing: (value, draft) =>
    void (isOn(value) ? (draft.recompute = 'full') : undefined),
  fsdp_offload_params: noPrice(HOST),
  parallelism_config_dp_replicate_size: count('replicas'),
  parallelism_config_dp_shard_size: count('shards'),
  parallelism_config_tp_size: count('tp'),
  parallelism_config_cp_size: count('cp'),
  parallelism_config_sp_size: count('cp'),
  parallelism_config_cp_comm_strategy: (value, draft) =>
    void (draft.context = value === 'alltoall' ? 'ring' : 'cp'),
  zero_stage: (value, draft, wrong) => {
    if (!/^[0-3]$/.test(value)) throw wrong('a stage from 0 to 3');
    draft.zero = Number(value);
    return undefined;
  },
  gradient_accumulation_steps: count('accumulation'),
  offload_optimizer_device: noPrice(HOST, ['none']),
  offload_param_device: noPrice(HOST, ['none']),
  deepspeed_config_file: noPrice('give that file to --layout'),
  megatron_lm_tp_degree: count('tp'),
  megatron_lm_pp_degree: count('pp'),
  megatron_lm_num_micro_batches: count('accumulation'),
  megatron_lm_sequence_parallelism: (value, draft) => void (draft.sequenceParallel = isOn(value)),
  megatron_lm_recompute_activations: (value, draft) =>
    void (isOn(value) ? (draft.recompute = 'core_attn') : undefined),
  megatron_lm_use_distributed_optimizer: (value, draft) =>
    void (isOn(value) ? (draft.zero = 1) : undefined),
  dynamo_backend: noPrice('--compiled prices it', ['no', 'NO']),
};

const CLOSED = /^(parallelism_config\.|fsdp_config\.)/;
/** Settings of FSDP that change neither what is placed nor what is sent. */
const COVERED = namesOf(`
  *fsdp_version *fsdp_auto_wrap_policy *fsdp_transformer_layer_cls_to_wrap *fsdp_state_dict_type
  *fsdp_backward_prefetch *fsdp_backward_prefetch_policy *fsdp_forward_prefetch
  *fsdp_use_orig_params *fsdp_cpu_ram_efficient_loading *fsdp_sync_module_states
  *fsdp_min_num_params *parallelism_config_cp_backend *parallelism_config_sp_backend
  *parallelism_config_sp_seq_length* *parallelism_config_sp_attn_implementation
`);

/** Settings of the launcher. */
const NOTHING = namesOf(`
  compute_environment distributed_type machine_rank num_machines main_process_ip
  main_process_port main_training_function rdzv_backend same_network gpu_ids debug downcast_bf16
  enable_cpu_affinity use_cpu tpu_* deepspeed_hostfile deepspeed_multinode_launcher
  deepspeed_exclusion_filter deepspeed_inclusion_filter zero3_init_flag zero3_save_16bit_model
  gradient_clipping megatron_lm_gradient_clipping
`);

/** @throws E_INPUT */
export function readAccelerate(value: unknown, text: string, file: string): ReadLayout {
  const settings = settingsOf(value).filter(({ path }) => !COVERED.test(path));
  const { draft, notPriced } = readSettings(settings, TABLE, {
    text,
    file,
    closed: ({ path }) => CLOSED.test(path),
    changesNothing: ({ key }) => NOTHING.test(key),
  });
  const type = settings.find(({ path }) => path === 'distributed_type')?.value ?? '';
  const shards = (draft.shards ?? 1) > 1;
  if (draft.zero === undefined && (type === 'FSDP' || shards)) draft.zero = 3;
  // With a parallelism_config what is not stated is 1; without one all processes are data ranks of
  // one kind.
  if (settings.some(({ path }) => path.startsWith('parallelism_config.'))) {
    draft.shards ??= 1;
    draft.replicas ??= 1;
  } else if (draft.zero === 3) draft.replicas ??= 1;
  if (settings.some(({ key }) => key === 'parallelism_config_sp_size')) draft.context = 'ulysses';
  draft.sequenceParallel ??= false;
  return { draft, notPriced };
}
