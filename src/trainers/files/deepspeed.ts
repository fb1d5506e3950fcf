/**
 * Reads the layout of a DeepSpeed configuration (JSON). Source: the configuration of DeepSpeed
 * 0.19, `runtime/zero/config.py`.
 */

import type { LayoutDraft, NotPriced } from './layout-draft.ts';
import {
  count,
  isOn,
  noPrice,
  readSettings,
  settingsOf,
  type SettingsTable,
  type Take,
} from './settings-table.ts';

const HOST = 'nothing is moved to the host';
const precision =
  (dtype: string): Take =>
  (value, draft) =>
    void (isOn(value) ? (draft.dtype ??= dtype) : undefined);

/** By the path; of offloading by its device. */
export const DEEPSPEED_TABLE: SettingsTable = {
  'zero_optimization.stage': (value, draft, wrong) => {
    if (!/^[0-3]$/.test(value)) throw wrong('a stage from 0 to 3');
    draft.zero = Number(value);
    return undefined;
  },
  'zero_optimization.mics_shard_size': count('shards'),
  'zero_optimization.zero_hpz_partition_size': noPrice('no second copy of the parameters is kept', [
    '1',
  ]),
  'zero_optimization.zero_quantized_weights': noPrice('parameters are gathered in 16 bits'),
  'zero_optimization.zero_quantized_gradients': noPrice('gradients are summed in 16 bits'),
  'zero_optimization.offload_optimizer.device': noPrice(HOST, ['none']),
  'zero_optimization.offload_param.device': noPrice(HOST, ['none']),
  'zero_optimization.cpu_offload': noPrice(HOST),
  train_micro_batch_size_per_gpu: count('microbatch'),
  train_batch_size: count('globalBatch'),
  gradient_accumulation_steps: count('accumulation'),
  sequence_parallel_size: count('cp'),
  'tensor_parallel.autotp_size': count('tp'),
  'expert_parallel.autoep_size': count('ep'),
  'bf16.enabled': precision('bf16'),
  'fp16.enabled': precision('f16'),
  'compile.enabled': noPrice('--framework deepspeed --compiled prices it'),
  'activation_checkpointing.cpu_checkpointing': noPrice(HOST),
  'activation_checkpointing.partition_activations': noPrice(
    'activations are kept as tensor ranks have them',
  ),
};

/** Keys of `zero_optimization` that change neither what is placed nor what is sent. */
const ZERO = new Set(
  (
    'overlap_comm contiguous_gradients reduce_scatter reduce_bucket_size allgather_bucket_size ' +
    'allgather_partitions round_robin_gradients sub_group_size stage3_prefetch_bucket_size ' +
    'stage3_param_persistence_threshold stage3_model_persistence_threshold ' +
    'stage3_max_live_parameters stage3_max_reuse_distance ' +
    'stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save ' +
    'stage3_module_granularity_threshold stage3_use_all_reduce_for_fetch_params ' +
    'load_from_fp32_weights elastic_checkpoint ignore_unused_parameters legacy_stage1 ' +
    'use_multi_rank_bucket_allreduce zero_quantized_nontrainable_weights ' +
    'mics_hierarchical_params_gather memory_efficient_linear pipeline_loading_checkpoint ' +
    'override_module_apply log_trace_cache_warnings leaf_module param_persistence_threshold ' +
    'model_persistence_threshold max_live_parameters max_reuse_distance prefetch_bucket_size ' +
    'cpu_offload_param cpu_offload_use_pin_memory loco_zero_enable zeropp_loco_param'
  ).split(' '),
);

/** @throws E_INPUT */
export function readDeepspeed(
  value: unknown,
  file: string,
): { readonly draft: LayoutDraft; readonly notPriced: readonly NotPriced[] } {
  const settings = settingsOf(value)
    .filter(
      ({ path }) =>
        !/^zero_optimization\.offload_\w+\.(?!device$)/.test(path) &&
        !ZERO.has(path.replace(/^zero_optimization\.(\w+).*$/, '$1')),
    )
    .map((s) => ({ ...s, key: s.path }));
  const { draft, notPriced } = readSettings(settings, DEEPSPEED_TABLE, file, ({ path }) =>
    path.startsWith('zero_optimization.'),
  );
  draft.sequenceParallel = false;
  if (draft.cp !== undefined && draft.cp > 1) draft.context = 'ulysses';
  return { draft, notPriced };
}
