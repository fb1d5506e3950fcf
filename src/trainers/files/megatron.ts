/**
 * Reads the layout of Megatron-LM: its arguments, in a file of them or in a launch script, and the
 * same settings as NeMo and Megatron-Bridge dump them to YAML. Sources: `ModelParallelConfig`,
 * `TransformerConfig` and `DistributedDataParallelConfig` of megatron-core 0.16; the argument
 * parser of Megatron-LM; `ConfigContainer` of Megatron-Bridge.
 */

import type { Fp8Recipe } from '../../cost/kernels/software.ts';
import type { Gradients } from '../../cost/memory/state-bytes.ts';
import { ShardwrightError } from '../../errors.ts';
import { moduleSet, RECOMPUTE_MODULES, type RecomputeModule } from '../../recipes/checkpoints.ts';
import type { LayoutDraft, NotPriced } from './layout-draft.ts';
import {
  count,
  type FileSetting,
  isOn,
  noPrice,
  readSettings,
  settingsOf,
  type SettingsTable,
  type Take,
} from './settings-table.ts';
import { stageLetters } from './stage-cuts.ts';

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

/** By the name of the setting: of arguments with underscores. */
const TABLE: SettingsTable = {
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
    'tensor-parallel collectives are exposed; --framework megatron-core counts what hides',
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
  num_layers: count('layers'),
  cpu_offloading: noPrice('nothing is moved to the host'),
  optimizer_cpu_offload: noPrice('nothing is moved to the host'),
  fine_grained_activation_offloading: noPrice('nothing is moved to the host'),
  grad_reduce_in_fp32: gradients('fp32', 'bf16'),
  accumulate_allreduce_grads_in_fp32: gradients('fp32', 'bf16'),
  grad_reduce_in_bf16: gradients('bf16', 'fp32'),
  rampup_batch_size: noPrice('the batch is the last one'),
  mtp_num_layers: noPrice('tokens further ahead are not predicted'),
  moe_shared_expert_overlap: noPrice('shared experts run after the exchange'),
  num_nodes: () => undefined,
};

function isModule(name: string): name is RecomputeModule {
  return RECOMPUTE_MODULES.some((m) => m === name);
}

function isOff(value: string): boolean {
  return /^(false|0|no|off)$/i.test(value);
}

/** Argument names that take no value. */
const FLAG = 'true';

/** Tells whether a text has arguments of Megatron-LM. */
export function isMegatronArguments(text: string): boolean {
  return /(^|\s)--(tensor-model-parallel-size|pipeline-model-parallel-size|micro-batch-size)[\s=]/m.test(
    text,
  );
}

/**
 * Arguments in a file or a script: words that begin with two dashes, and the words behind them.
 * @throws E_INPUT
 */
export function readMegatronArguments(text: string, file: string): MegatronLayout {
  const variables = new Map<string, string>();
  const words: string[] = [];
  for (const raw of text.split('\n')) {
    const line = raw.replace(/(^|\s)#.*$/, '').trim();
    const variable = /^(?:export\s+)?([A-Za-z_]\w*)=["']?([\w.,-]+)["']?$/.exec(line);
    if (variable !== null) variables.set(variable[1], variable[2]);
    words.push(...line.split(/\s+/).map((word) => word.replace(/^["'(]+|["')\\]+$/g, '')));
  }
  const value = (word: string): string =>
    word.replace(
      /^\$\{?(\w+)(?::-(\w+))?\}?$/,
      (whole, name: string, otherwise?: string) => variables.get(name) ?? otherwise ?? whole,
    );
  const settings: FileSetting[] = [];
  words.forEach((word, i) => {
    const [name, stated] = word.split('=');
    if (!/^--[a-z]/.test(name)) return;
    const behind = words.slice(i + 1).filter((w) => w !== '');
    const end = behind.findIndex((w) => /^(--|[A-Z_]+=|torchrun|python)/.test(w));
    const values =
      stated === undefined
        ? behind
            .slice(0, end < 0 ? undefined : end)
            .map(value)
            .join(' ')
        : value(stated);
    settings.push({
      path: name,
      key: name.slice(2).replaceAll('-', '_'),
      value: values === '' ? FLAG : values,
    });
  });
  for (const { path, key, value: found } of settings)
    if (Object.hasOwn(TABLE, key) && found.includes('$'))
      throw new ShardwrightError(
        'E_INPUT',
        `${path}: found '${found}', which the file does not set`,
        { file, hint: 'write the number.' },
      );
  const found = settled(settings, file);
  // The argument parser sets it together with bf16.
  if (settings.some(({ key, value: on }) => key === 'bf16' && !isOff(on)))
    found.draft.gradients ??= 'fp32';
  return found;
}

/**
 * Reads a dump of Megatron-Bridge's or NeMo's configuration: the settings are in sections, under
 * the same names. @throws E_INPUT
 */
export function readMegatronYaml(value: unknown, file: string): MegatronLayout {
  const settings = settingsOf(value);
  // Where sections repeat a setting, those of the model and the trainer decide.
  const order = (s: FileSetting): number =>
    s.value === 'null'
      ? 3
      : /(^|\.)(model|train|strategy|ddp|mixed_precision)\./.test(s.path)
        ? 0
        : /(^|\.)dataset\./.test(s.path)
          ? 1
          : 2;
  const seen = new Set<string>();
  const first = settings
    .map((s) => ({ s, at: order(s) }))
    .sort((a, b) => a.at - b.at)
    .flatMap(({ s }) => {
      // A precision that is stated anywhere counts: sections of the model are filled from it when
      // the run starts.
      const isOffHere = isOff(s.value) || s.value === 'null';
      if (seen.has(s.key) || isOffHere) return [];
      seen.add(s.key);
      return [s];
    });
  const nodes = settings.find((s) => /(^|\.)(trainer|resources)\.num_nodes$/.test(s.path));
  const each = settings.find((s) => /(^|\.)trainer\.devices$/.test(s.path));
  const found = settled(first, file);
  if (nodes !== undefined && each !== undefined && Number(nodes.value) * Number(each.value) > 0)
    found.draft.devices = Number(nodes.value) * Number(each.value);
  return found;
}

interface MegatronLayout {
  readonly draft: LayoutDraft;
  readonly notPriced: readonly NotPriced[];
}

function settled(settings: readonly FileSetting[], file: string): MegatronLayout {
  // A strategy of Megatron-FSDP counts only where that is used.
  const uses = settings.some(
    ({ key, value }) => /^use_(megatron|custom)_fsdp$/.test(key) && isOn(value),
  );
  const { draft, notPriced } = readSettings(
    uses ? settings : settings.filter(({ key }) => key !== 'data_parallel_sharding_strategy'),
    TABLE,
    file,
  );
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
  return { draft, notPriced: [...notPriced, ...more] };
}
