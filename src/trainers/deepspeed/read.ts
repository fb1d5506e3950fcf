/**
 * Reads the layout of a DeepSpeed configuration: JSON with comments (Hjson), as DeepSpeed does.
 * Sources: `runtime/config.py` and `runtime/zero/config.py` of DeepSpeed 0.19.
 */

import { ShardwrightError } from '../../errors.ts';
import { type Hjson, readHjson } from '../../text/hjson.ts';
import type { LayoutDraft, LayoutSetting } from '../layout/layout-draft.ts';
import { namesOf } from '../layout/setting-names.ts';
import {
  count,
  isOn,
  noPrice,
  placeOf,
  readSettings,
  settingsOf,
  type SettingsTable,
  type Take,
} from '../layout/settings-table.ts';
import type { ReadLayout } from '../trainer.ts';

const HOST = 'nothing is moved to the host';
const precision =
  (dtype: string): Take =>
  (value, draft) =>
    void (isOn(value) ? (draft.dtype ??= dtype) : undefined);

/** By the path; of offloading by its device. */
const DEEPSPEED_TABLE: SettingsTable = {
  // The form of 2020: true is stage 1 (`read_zero_config_deprecated`).
  zero_optimization: (value, draft, wrong) => {
    if (!/^(true|false)$/.test(value)) throw wrong('an object, true or false');
    draft.zero = value === 'true' ? 1 : 0;
    return undefined;
  },
  'zero_optimization.stage': (value, draft, wrong) => {
    const stage = { true: '1', false: '0' }[value] ?? value;
    if (!/^[0-3]$/.test(stage)) throw wrong('a stage from 0 to 3');
    draft.zero = Number(stage);
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
  'zero_optimization.cpu_offload_param': noPrice(HOST),
  train_micro_batch_size_per_gpu: count('microbatch'),
  train_batch_size: count('globalBatch'),
  gradient_accumulation_steps: count('accumulation'),
  sequence_parallel_size: count('cp'),
  'tensor_parallel.autotp_size': count('tp'),
  'expert_parallel.autoep_size': count('ep'),
  'zero_optimization.use_all_reduce_for_fetch_params': noPrice('parameters are gathered'),
  'zero_optimization.stage3_use_all_reduce_for_fetch_params': noPrice('parameters are gathered'),
  'zero_optimization.allgather_sequential': noPrice('parameters are gathered in buckets'),
  'zero_optimization.stage3_allgather_sequential': noPrice('parameters are gathered in buckets'),
  'optimizer.type': (value) =>
    /adam/i.test(value) && !/onebit|zeroone/i.test(value)
      ? undefined
      : 'priced with the states that --optimizer has',
  'bf16.enabled': precision('bf16'),
  // The name of old configurations, which DeepSpeed keeps.
  'bfloat16.enabled': precision('bf16'),
  'fp16.enabled': precision('f16'),
  'compile.enabled': noPrice('--for deepspeed --compiled prices it'),
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
    'stage3_module_granularity_threshold ' +
    'load_from_fp32_weights elastic_checkpoint ignore_unused_parameters legacy_stage1 ' +
    'use_multi_rank_bucket_allreduce zero_quantized_nontrainable_weights ' +
    'mics_hierarchical_params_gather memory_efficient_linear pipeline_loading_checkpoint ' +
    'override_module_apply log_trace_cache_warnings leaf_module param_persistence_threshold ' +
    'model_persistence_threshold max_live_parameters max_reuse_distance prefetch_bucket_size ' +
    'cpu_offload_use_pin_memory compute_grad_norm parameter_alignment enable_sanity_checks ' +
    'save_muon_momentum_buffer_in_memory gather_16bit_weights_on_model_save ' +
    'module_granularity_threshold loco_zero_enable zeropp_loco_param'
  ).split(' '),
);

/** Logs, schedules, the loss scale, and the optimizer's rates. */
const NOTHING = namesOf(`
  steps_per_print wall_clock_breakdown memory_breakdown dump_state gradient_clipping
  prescale_gradients gradient_predivide_factor zero_allow_untested_optimizer
  zero_force_ds_cpu_optimizer checkpoint aio data_efficiency curriculum_learning
  tensorboard tensorboard.* wandb wandb.* csv_monitor csv_monitor.* comet comet.*
  flops_profiler flops_profiler.* comms_logger comms_logger.* scheduler scheduler.*
  fp16.enabled fp16.auto_cast fp16.loss_scale* fp16.initial_scale_power fp16.hysteresis
  fp16.consecutive_hysteresis fp16.min_loss_scale optimizer.params.*
  activation_checkpointing.number_checkpoints activation_checkpointing.profile
  activation_checkpointing.contiguous_memory_optimization
  activation_checkpointing.synchronize_checkpoint_boundary
  tensor_parallel.tp_grain_size tensor_parallel.partition_config.* expert_parallel.enabled
`);

/** @throws E_INPUT, E_SYNTAX, E_DUP with line and column */
export function readDeepspeed(text: string, setting: LayoutSetting): ReadLayout {
  const source = { text, file: setting.file };
  const config = configOf(source);
  refuseOddKinds(config, source);
  const settings = settingsOf(config)
    .filter(
      ({ path }) =>
        !/^zero_optimization\.offload_\w+\.(?!device$)/.test(path) &&
        !ZERO.has(path.replace(/^zero_optimization\.(\w+).*$/, '$1')),
    )
    .map((s) => ({ ...s, key: s.path }));
  const { draft, notPriced } = readSettings(settings, DEEPSPEED_TABLE, {
    ...source,
    closed: ({ path }) => /^zero_optimization\.(?!zenflow\.)/.test(path),
    changesNothing: ({ path }) => NOTHING.test(path),
  });
  const stated = (path: string): string | undefined => settings.find((s) => s.path === path)?.value;
  const bf16 = ['bf16.enabled', 'bfloat16.enabled'].find((path) => isOn(stated(path) ?? ''));
  if (bf16 !== undefined && isOn(stated('fp16.enabled') ?? ''))
    throw new ShardwrightError('E_INPUT', `fp16.enabled and ${bf16}: found both`, {
      ...placeOf({ path: bf16 }, source),
      hint: 'DeepSpeed refuses it: leave one of them out.',
    });
  settleBatch(draft, settings, setting, source);
  draft.sequenceParallel = false;
  if (draft.cp !== undefined && draft.cp > 1) draft.context = 'ulysses';
  return { draft, notPriced };
}

function configOf({ text, file }: { readonly text: string; readonly file: string }): Hjson {
  try {
    return readHjson(text);
  } catch (error) {
    throw error instanceof ShardwrightError ? error.with({ file }) : error;
  }
}

const BATCH = 'train_batch_size';
const MICROBATCH = 'train_micro_batch_size_per_gpu';
const ACCUMULATION = 'gradient_accumulation_steps';

/**
 * Sections that are no objects, a stage that is null and sizes that are texts: DeepSpeed ends in an
 * error of Python. `auto` is filled in by transformers.
 *
 * @throws E_INPUT
 */
function refuseOddKinds(
  config: Hjson,
  source: { readonly text: string; readonly file: string },
): void {
  if (!isObject(config)) return;
  const fail = (path: string, value: Hjson, wanted: string): ShardwrightError =>
    new ShardwrightError('E_INPUT', `${path}: found ${JSON.stringify(value)}, wanted ${wanted}`, {
      ...placeOf({ path }, source),
      hint: 'DeepSpeed refuses it.',
    });
  for (const [path, value] of Object.entries(config)) {
    const isSize = [BATCH, MICROBATCH, ACCUMULATION].includes(path);
    if (isSize && typeof value === 'string' && value !== 'auto')
      throw fail(path, value, 'a number');
    const isPrecision = path === 'fp16' || (/^b(f|float)16$/.test(path) && value !== null);
    if (isPrecision && !isObject(value)) throw fail(path, value, 'an object');
    if (path !== 'zero_optimization' || typeof value === 'boolean') continue;
    if (!isObject(value)) throw fail(path, value, 'an object, true or false');
    const { stage = 0 } = value;
    if (typeof stage === 'object') throw fail(`${path}.stage`, stage, 'a stage from 0 to 3');
  }
}

function isObject(value: Hjson): value is Readonly<Record<string, Hjson>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Batch, microbatch and accumulation, as DeepSpeed makes one from the others
 * (`_set_batch_related_parameters`, `_batch_assertion`).
 *
 * @throws E_INPUT where they do not agree
 */
function settleBatch(
  draft: LayoutDraft,
  settings: readonly { readonly path: string; readonly value: string }[],
  { devices }: LayoutSetting,
  source: { readonly text: string; readonly file: string },
): void {
  const ranks = Math.max(1, Math.floor(devices / ((draft.tp ?? 1) * (draft.cp ?? 1))));
  const { globalBatch } = draft;
  const isAuto = settings.some(
    ({ path, value }) => [BATCH, MICROBATCH, ACCUMULATION].includes(path) && value === 'auto',
  );
  if (isAuto) return;
  const fail = (path: string, what: string, hint: string): ShardwrightError =>
    new ShardwrightError('E_INPUT', what, { ...placeOf({ path }, source), hint });
  if (globalBatch === undefined && draft.microbatch === undefined)
    throw fail(
      ACCUMULATION,
      `found neither ${BATCH} nor ${MICROBATCH}, wanted one of them`,
      `DeepSpeed refuses it: write ${MICROBATCH}.`,
    );
  if (globalBatch === undefined) {
    draft.accumulation ??= 1;
    return;
  }
  const accumulation =
    draft.accumulation ??
    (draft.microbatch === undefined ? 1 : Math.floor(globalBatch / draft.microbatch / ranks));
  const microbatch = draft.microbatch ?? Math.floor(Math.floor(globalBatch / ranks) / accumulation);
  const product = microbatch * accumulation * ranks;
  if (product !== globalBatch || product === 0)
    throw fail(
      BATCH,
      `${BATCH}: found ${globalBatch}, wanted ${MICROBATCH} x ${ACCUMULATION} x data ranks = ` +
        `${microbatch} x ${accumulation} x ${ranks} = ${product}`,
      'DeepSpeed refuses it: change one of them, leave one out, or change --devices.',
    );
  draft.accumulation = accumulation;
  draft.microbatch = microbatch;
}
