/**
 * Reads the settings of Megatron-Core into a layout, whatever form they were written in. Sources:
 * `ModelParallelConfig`, `TransformerConfig` and `DistributedDataParallelConfig` of megatron-core
 * 0.16; the argument parser of Megatron-LM.
 */

import type { Fp8Recipe } from '../../cost/kernels/software.ts';
import type { Gradients } from '../../cost/memory/state-bytes.ts';
import { moduleSet, RECOMPUTE_MODULES, type RecomputeModule } from '../../step/checkpoints.ts';
import {
  type LayoutDraft,
  type LayoutModel,
  type LayoutSetting,
  modelFact,
  type NotPriced,
} from '../layout/layout-draft.ts';
import {
  count,
  type FileSetting,
  isOff,
  isOn,
  noPrice,
  readSettings,
  type SettingsTable,
  type Take,
} from '../layout/settings-table.ts';
import { stageLetters } from '../layout/stage-cuts.ts';
import type { ReadLayout } from '../trainer.ts';
import { FACTS, flagKind } from './flags.ts';

const STRATEGIES = ['no_shard', 'optim', 'optim_grads', 'optim_grads_params'];
const CONTEXTS: Readonly<Record<string, string>> = {
  p2p: 'ring',
  all_gather: 'cp',
  allgather: 'cp',
  a2a: 'ulysses',
};

const FP8: Readonly<Record<string, Fp8Recipe>> = {
  delayed: 'delayed',
  tensorwise: 'current',
  blockwise: 'blockwise',
  mxfp8: 'mxfp8',
};

const sharded: Take = (value, draft) => {
  if (isOn(value)) draft.zero = Math.max(draft.zero ?? 0, 3);
  return undefined;
};
const stages = ({ cuts }: LayoutDraft): Extract<LayoutDraft['cuts'], { trainer: 'megatron' }> =>
  cuts?.trainer === 'megatron' ? cuts : { trainer: 'megatron' };
const stageOf =
  (end: 'first' | 'last'): Take =>
  (value, draft, wrong) => {
    const n = Number(value);
    if (!Number.isInteger(n) || n < 1) throw wrong('a whole number of layers from 1 on');
    draft.cuts = { ...stages(draft), [end]: n };
    return undefined;
  };
const firstStage = stageOf('first');
const lastStage = stageOf('last');
const gradients =
  (on: Gradients, off: Gradients): Take =>
  (value, draft) =>
    void (draft.gradients = isOn(value) ? on : off);
const microbatch = count('microbatch');
const sequence = count('sequence');
const recompute: Take = (value, draft, wrong) => {
  if (value !== 'full' && value !== 'selective') throw wrong('full or selective');
  // Selective: attention alone, where no modules are named.
  draft.recompute ??= value === 'full' ? 'full' : 'core_attn';
  return undefined;
};

/** Collectives of data ranks overlap with compute, as `--for` says. */
const overlapped: Take = () => undefined;
const dropout: Take = (value) =>
  Number(value) === 0 ? undefined : '--for megatron-lm prices dropout';

/** By the name of the setting: of arguments with underscores. */
export const MEGATRON_TABLE: SettingsTable = {
  tensor_model_parallel_size: count('tp'),
  pipeline_model_parallel_size: count('pp'),
  context_parallel_size: count('cp'),
  expert_model_parallel_size: count('ep'),
  expert_tensor_parallel_size: count('etp'),
  virtual_pipeline_model_parallel_size: count('chunks'),
  num_virtual_stages_per_pipeline_rank: count('chunks'),
  num_layers_per_virtual_pipeline_stage: count('chunkLayers'),
  micro_batch_size: microbatch,
  global_batch_size: count('globalBatch'),
  seq_length: sequence,
  sequence_length: sequence,
  encoder_seq_length: sequence,
  sequence_parallel: (value, draft) => void (draft.sequenceParallel = isOn(value)),
  use_distributed_optimizer: (value, draft) => {
    if (isOn(value)) draft.zero = Math.max(draft.zero ?? 0, 1);
    return undefined;
  },
  use_torch_fsdp2: sharded,
  data_parallel_sharding_strategy: (value, draft, wrong) => {
    if (!STRATEGIES.includes(value)) throw wrong(STRATEGIES.join(', '));
    draft.zero = Math.max(draft.zero ?? 0, STRATEGIES.indexOf(value));
    return undefined;
  },
  num_distributed_optimizer_instances: count('replicas'),
  cp_comm_type: (value, draft) => {
    if (!Object.hasOwn(CONTEXTS, value)) return 'priced as a ring';
    draft.context = CONTEXTS[value];
    return undefined;
  },
  recompute_granularity: recompute,
  activations_checkpoint_granularity: recompute,
  recompute_activations: (value, draft) => {
    if (isOn(value)) draft.recompute ??= 'core_attn';
    return undefined;
  },
  recompute_modules: (value) => {
    const others = value.split(/\s+/).filter((name) => !isModule(name));
    return others.length === 0 ? undefined : `priced without recomputing ${others.join(', ')}`;
  },
  recompute_method: noPrice('all layers are recomputed', ['uniform']),
  recompute_num_layers: noPrice('all layers are recomputed', ['1']),
  overlap_moe_expert_parallel_comm: (value, draft) => {
    if (isOn(value)) draft.pairs = true;
    return undefined;
  },
  fp8: (value, draft) => void (isOff(value) ? undefined : (draft.dtype = 'fp8')),
  fp8_recipe: (value, draft, wrong) => {
    if (!Object.hasOwn(FP8, value)) throw wrong(Object.keys(FP8).join(', '));
    draft.fp8Recipe = FP8[value];
    return undefined;
  },
  fp8_format: (_, draft) => void (draft.dtype = 'fp8'),
  bf16: (value, draft) => void (isOff(value) ? undefined : (draft.dtype ??= 'bf16')),
  fp16: (value, draft) => void (isOff(value) ? undefined : (draft.dtype ??= 'f16')),
  fp4: noPrice('products are priced in 16 bits'),
  fp4_format: noPrice('products are priced in 16 bits'),
  tp_comm_overlap: noPrice(
    'tensor-parallel collectives are exposed; --for megatron-core counts what hides',
  ),
  pipeline_model_parallel_layout: (value, draft, wrong) => {
    const letters = stageLetters(value);
    if (letters === undefined)
      throw wrong('letters such as Et*3|(tt|)*29L: E embedding, t layer, m further token, L loss');
    draft.cuts = { ...stages(draft), letters };
    return letters.empty === 0
      ? undefined
      : 'layers lie in equal parts: a stage without layers, embedding and loss has no price';
  },
  num_layers_in_first_pipeline_stage: firstStage,
  num_layers_in_last_pipeline_stage: lastStage,
  decoder_first_pipeline_num_layers: firstStage,
  decoder_last_pipeline_num_layers: lastStage,
  account_for_embedding_in_pipeline_split: (value, draft) =>
    void (draft.cuts = { ...stages(draft), countsEmbedding: isOn(value) }),
  account_for_loss_in_pipeline_split: (value, draft) =>
    void (draft.cuts = { ...stages(draft), countsLoss: isOn(value) }),
  cpu_offloading: noPrice('nothing is moved to the host'),
  optimizer_cpu_offload: noPrice('nothing is moved to the host'),
  fine_grained_activation_offloading: noPrice('nothing is moved to the host'),
  grad_reduce_in_fp32: gradients('fp32', 'bf16'),
  accumulate_allreduce_grads_in_fp32: gradients('fp32', 'bf16'),
  grad_reduce_in_bf16: gradients('bf16', 'fp32'),
  rampup_batch_size: noPrice('the batch is the last one'),
  mtp_num_layers: noPrice('tokens further ahead are not predicted'),
  moe_shared_expert_overlap: noPrice('shared experts run after the exchange'),
  use_tp_pp_dp_mapping: noPrice('stages lie outermost, and data ranks inside of them'),
  yaml_cfg: () => 'what that file sets is not read',
  use_checkpoint_args: noPrice('what the checkpoint sets is not read'),
  use_mp_args_from_checkpoint_args: noPrice('what the checkpoint sets is not read'),
  num_nodes: () => undefined,
  use_megatron_fsdp: () => undefined,
  use_custom_fsdp: () => undefined,
  // Arguments of 2021, before `recompute`.
  checkpoint_activations: (value, draft) => {
    if (isOn(value)) draft.recompute = 'full';
    return undefined;
  },
  activations_checkpoint_method: (value, draft) => {
    draft.recompute = 'full';
    return value === 'uniform' ? undefined : 'all layers are recomputed';
  },
  overlap_grad_reduce: overlapped,
  overlap_param_gather: overlapped,
  use_flash_attn: () => undefined,
  attention_backend: (value) =>
    value === 'unfused' || value === 'local' ? 'priced as one attention kernel' : undefined,
  transformer_impl: (value) =>
    value === 'transformer_engine' ? undefined : 'priced with the kernels of Transformer Engine',
  attention_dropout: dropout,
  hidden_dropout: dropout,
  optimizer: (value) =>
    value === 'adam' ? undefined : 'priced with the states that --optimizer has',
  make_vocab_size_divisible_by: () => '--pad-vocab prices it',
};

function isModule(name: string): name is RecomputeModule {
  return RECOMPUTE_MODULES.some((m) => m === name);
}

/**
 * The layout that settings of Megatron-LM state.
 *
 * @param isWhole whether the settings are those that somebody wrote, and not a dump of all
 */
export function megatronLayout(
  settings: readonly FileSetting[],
  {
    text,
    setting: { file, model },
    isWhole,
  }: { readonly text: string; readonly setting: LayoutSetting; readonly isWhole: boolean },
): ReadLayout {
  // A strategy of Megatron-FSDP counts only where that is used.
  const uses = settings.some(
    ({ key, value }) => /^use_(megatron|custom)_fsdp$/.test(key) && isOn(value),
  );
  const own = settings.filter(
    ({ key }) => !Object.hasOwn(FACTS, key) && (uses || key !== 'data_parallel_sharding_strategy'),
  );
  const { draft, notPriced } = readSettings(own, MEGATRON_TABLE, {
    text,
    file,
    ...(isWhole ? { changesNothing: ({ key }) => flagKind(key) !== 'other' } : {}),
  });
  const more: NotPriced[] = [];
  if (draft.zero !== 3 && (draft.replicas ?? 1) > 1) {
    more.push({
      key: 'num_distributed_optimizer_instances',
      value: String(draft.replicas),
      why: 'the optimizer is cut over all data ranks',
    });
    delete draft.replicas;
  }
  const modules = settings
    .find(({ key, value }) => key === 'recompute_modules' && value !== 'null')
    ?.value.split(/\s+/);
  if (draft.recompute === 'core_attn' && modules !== undefined)
    draft.recompute = moduleSet(modules.filter(isModule));
  draft.sequenceParallel ??= false;
  draft.cuts ??= { trainer: 'megatron' };
  // Experts are cut as everything else is, where nothing is said of them.
  if (draft.tp !== undefined) draft.etp ??= draft.tp;
  return {
    draft,
    notPriced: [
      ...otherModel(settings, model),
      ...notPriced,
      ...more,
      ...formOf(settings, isWhole),
    ],
  };
}

/** Sizes that are not those of the model. */
function otherModel(settings: readonly FileSetting[], model: LayoutModel): NotPriced[] {
  return settings.flatMap(({ path, key, value }) => {
    const fact = Object.hasOwn(FACTS, key) ? FACTS[key] : undefined;
    if (fact === undefined || value === 'null') return [];
    const has = modelFact(model, fact);
    return Number(value) === has
      ? []
      : [{ key: path, value, why: `the model has ${has ?? 'none'}` }];
  });
}

/** One note on all settings of the model's form. */
function formOf(settings: readonly FileSetting[], isWhole: boolean): NotPriced[] {
  const names = settings.flatMap(({ path, key }) => (flagKind(key) === 'form' ? [path] : []));
  return isWhole && names.length > 0
    ? [{ key: names.join(' '), value: '', why: 'the form of the model is that of its config' }]
    : [];
}
