/** The families of decoders: what each reads from its config beyond what all have. */

import { defined } from '../../defined.ts';
import type { Family } from '../architecture.ts';
import { activationOf } from '../layers/activation.ts';
import { classesOf, CLASSIFYING } from '../layers/classifier.ts';
import type { DecoderConfig, ExpertsConfig } from '../layers/decoder-config.ts';
import type { ConfigReader } from '../read-config.ts';
import { decoderArchitecture } from './decoder.ts';

interface Given {
  readonly tied?: boolean;
  readonly keyHeads?: number;
  readonly headWidth?: number;
  readonly heads?: number;
  readonly vocabulary?: number;
  readonly activation?: string;
  readonly eps?: number;
}

/** Reads the fields that all decoder configs state. @throws E_TYPE when the heads do not fit */
function common(config: ConfigReader, given: Given = {}): DecoderConfig {
  const width = config.size('hidden_size');
  const heads = config.size('num_attention_heads', given.heads);
  const keyHeads = config.size('num_key_value_heads', given.keyHeads ?? heads);
  if (heads % keyHeads !== 0)
    throw config.inconsistent(
      'num_key_value_heads',
      `is ${keyHeads}, which does not divide num_attention_heads ${heads}`,
      'every key head serves as many query heads as the others.',
    );
  const headWidth = headWidthOf(config, { width, heads, usual: given.headWidth });
  const positions = config.optionalSize('max_position_embeddings');
  const rotaryWidth = rotaryWidthOf(config, headWidth);
  // Base and scaling of the frequencies are values of a buffer.
  config.known(
    'rope_theta',
    'rope_scaling',
    'rope_local_base_freq',
    'original_max_position_embeddings',
  );
  return {
    vocabulary: config.size('vocab_size', given.vocabulary),
    width,
    layers: config.count('num_hidden_layers'),
    heads,
    keyHeads,
    headWidth,
    hidden: config.size('intermediate_size'),
    ...defined({ positions }),
    eps: config.positive('rms_norm_eps') ?? given.eps ?? 1e-6,
    tied: config.flag('tie_word_embeddings', given.tied ?? false),
    activation: activationOf(
      config,
      ['hidden_activation', 'hidden_act'],
      given.activation ?? 'silu',
    ),
    norm: 'plain',
    queryBias: false,
    outputBias: false,
    mlpBias: false,
    headNorm: false,
    sandwich: false,
    fused: false,
    sinks: false,
    rotaryWidth,
    localRotation: false,
    windowed: () => false,
    routed: () => false,
  };
}

/** The width of a head: as stated, as is usual in the family, or an equal part. */
function headWidthOf(
  config: ConfigReader,
  {
    width,
    heads,
    usual,
  }: { readonly width: number; readonly heads: number; readonly usual: number | undefined },
): number {
  const stated = config.optionalSize('head_dim');
  if (stated !== undefined) return stated;
  if (usual === undefined && width % heads !== 0)
    throw config.inconsistent(
      'hidden_size',
      `is ${width}, no multiple of num_attention_heads ${heads}`,
      'state head_dim.',
    );
  const headWidth = usual ?? width / heads;
  config.tookDefault('head_dim', headWidth);
  return headWidth;
}

/** Channels of a head that turn with its position. */
function rotaryWidthOf(config: ConfigReader, headWidth: number): number {
  const parameters = config.record('rope_parameters');
  const part =
    config.positive('partial_rotary_factor') ?? parameters?.positive('partial_rotary_factor') ?? 1;
  const rotaryWidth = Math.floor(headWidth * part);
  if (part > 1 || rotaryWidth % 2 !== 0)
    throw config.inconsistent(
      'partial_rotary_factor',
      `is ${part}: ${rotaryWidth} of the ${headWidth} channels of a head would turn`,
      'channels turn in pairs, at most all of them.',
    );
  return rotaryWidth;
}

/** Which layers see a window only: as `layer_types` says, else by the family's own pattern. */
function windows(
  config: ConfigReader,
  layers: number,
  pattern: (layer: number) => boolean,
): Pick<DecoderConfig, 'window' | 'windowed'> {
  const window = config.optionalSize('sliding_window');
  const types = config.list('layer_types', 'string');
  if (types === undefined) return { ...defined({ window }), windowed: pattern };
  if (types.length < layers)
    throw config.inconsistent('layer_types', `has ${types.length} entries for ${layers} layers`);
  const odd = types.findIndex((type) => type !== 'sliding_attention' && type !== 'full_attention');
  if (odd >= 0)
    throw config.inconsistent(
      `layer_types[${odd}]`,
      `is ${JSON.stringify(types[odd])}`,
      'known: sliding_attention, full_attention',
      'E_UNSUPPORTED',
    );
  if (window === undefined && types.includes('sliding_attention'))
    throw config.inconsistent('layer_types', 'has sliding layers, but there is no sliding_window');
  return {
    ...defined({ window }),
    windowed: (layer) => types[layer % types.length] === 'sliding_attention',
  };
}

const always = (): boolean => true;
const alternately = (layer: number): boolean => layer % 2 === 0;

function llama(config: ConfigReader): DecoderConfig {
  const bias = config.flag('attention_bias', false);
  return {
    ...common(config),
    queryBias: bias,
    outputBias: bias,
    mlpBias: config.flag('mlp_bias', false),
  };
}

function mistral(config: ConfigReader): DecoderConfig {
  const base = common(config, { keyHeads: 8 });
  return { ...base, ...windows(config, base.layers, always) };
}

function qwenWindows(
  config: ConfigReader,
  layers: number,
): Pick<DecoderConfig, 'window' | 'windowed'> {
  const from = config.countFromZero('max_window_layers', layers);
  if (!config.flag('use_sliding_window', false)) {
    config.known('sliding_window', 'layer_types');
    return { windowed: () => false };
  }
  return windows(config, layers, (layer) => layer >= from);
}

function qwen2(config: ConfigReader): DecoderConfig {
  const base = common(config);
  return { ...base, queryBias: true, ...qwenWindows(config, base.layers) };
}

function qwen3(config: ConfigReader): DecoderConfig {
  const base = common(config, { headWidth: 128 });
  const bias = config.flag('attention_bias', false);
  return {
    ...base,
    queryBias: bias,
    outputBias: bias,
    headNorm: true,
    ...qwenWindows(config, base.layers),
  };
}

function gemma(config: ConfigReader, given: Given = {}): DecoderConfig {
  const base = common(config, {
    tied: true,
    activation: 'gelu_pytorch_tanh',
    headWidth: 256,
    ...given,
  });
  const bias = config.flag('attention_bias', false);
  return {
    ...base,
    norm: 'offset',
    embeddingScale: Math.sqrt(base.width),
    queryBias: bias,
    outputBias: bias,
  };
}

/** The scale of the scores is that of a head of another width. */
function scaled(config: ConfigReader, headWidth: number): number {
  return (config.positive('query_pre_attn_scalar') ?? headWidth) ** -0.5;
}

function gemma2(config: ConfigReader): DecoderConfig {
  const base = gemma(config);
  const [cap, finalCap] = [
    config.positive('attn_logit_softcapping'),
    config.positive('final_logit_softcapping'),
  ];
  return {
    ...base,
    sandwich: true,
    scale: scaled(config, base.headWidth),
    ...defined({ attentionCap: cap, finalCap }),
    ...windows(config, base.layers, alternately),
  };
}

/** Multimodal files state little of their text tower; the rest are the defaults of its class. */
function gemma3(config: ConfigReader): DecoderConfig {
  const base = gemma(config, { vocabulary: 262208, heads: 8, keyHeads: 4 });
  const every = config.count(['sliding_window_pattern', '_sliding_window_pattern'], 6);
  const [cap, finalCap] = [
    config.positive('attn_logit_softcapping'),
    config.positive('final_logit_softcapping'),
  ];
  return {
    ...base,
    sandwich: true,
    headNorm: true,
    localRotation: true,
    scale: scaled(config, base.headWidth),
    ...defined({ attentionCap: cap, finalCap }),
    ...windows(config, base.layers, (layer) => (layer + 1) % every !== 0),
  };
}

function phi3(config: ConfigReader): DecoderConfig {
  const base = common(config, { eps: 1e-5 });
  return { ...base, fused: true, ...windows(config, base.layers, always) };
}

const SOFTMAX = {
  scoring: 'softmax',
  scaling: 1,
  correction: false,
  router: { name: 'gate', bias: false },
} as const;

function active(config: ConfigReader, experts: number, fallback?: number): number {
  const count = config.count('num_experts_per_tok', fallback);
  if (count > experts)
    throw config.inconsistent(
      'num_experts_per_tok',
      `is ${count}, but there are ${experts} experts`,
    );
  return count;
}

function mixtral(config: ConfigReader): DecoderConfig {
  const base = mistral(config);
  const experts = config.count('num_local_experts');
  return {
    ...base,
    experts: {
      ...SOFTMAX,
      experts,
      active: active(config, experts),
      hidden: base.hidden,
      normalised: true,
    },
    routed: always,
  };
}

/**
 * Layers whose feed-forward layer is routed: every `decoder_sparse_step`-th but those named dense.
 */
function sparseLayers(config: ConfigReader): (layer: number) => boolean {
  const step = config.count('decoder_sparse_step', 1);
  const dense = new Set(config.list('mlp_only_layers', 'number') ?? []);
  return (layer) => !dense.has(layer) && (layer + 1) % step === 0;
}

function qwenExperts(config: ConfigReader): ExpertsConfig {
  const experts = config.count(['num_experts', 'num_local_experts']);
  return {
    ...SOFTMAX,
    experts,
    active: active(config, experts),
    hidden: config.size('moe_intermediate_size'),
    normalised: config.flag('norm_topk_prob', false),
  };
}

function qwen2Moe(config: ConfigReader): DecoderConfig {
  const shared = config.size('shared_expert_intermediate_size');
  return {
    ...qwen2(config),
    queryBias: config.flag('qkv_bias', true),
    experts: {
      ...qwenExperts(config),
      shared: { name: 'shared_expert', hidden: shared, gate: true },
    },
    routed: sparseLayers(config),
  };
}

function qwen3Moe(config: ConfigReader): DecoderConfig {
  return { ...qwen3(config), experts: qwenExperts(config), routed: sparseLayers(config) };
}

function gptOss(config: ConfigReader): DecoderConfig {
  const base = common(config, { eps: 1e-5 });
  const bias = config.flag('attention_bias', true);
  const experts = config.count(['num_local_experts', 'num_experts']);
  return {
    ...base,
    queryBias: bias,
    outputBias: bias,
    sinks: true,
    ...windows(config, base.layers, alternately),
    experts: {
      experts,
      active: active(config, experts),
      hidden: base.hidden,
      scoring: 'after',
      normalised: true,
      scaling: 1,
      correction: false,
      router: { name: 'router', bias: true },
      clamp: config.positive('swiglu_limit') ?? 7,
    },
    routed: always,
  };
}

/**
 * DeepSeek-V2 and V3: latent attention, leading dense layers, shared experts, experts chosen by
 * groups.
 */
function deepseek(config: ConfigReader, type: string): DecoderConfig {
  const latent = {
    queryRank: config.optionalSize('q_lora_rank') ?? null,
    keyValueRank: config.size('kv_lora_rank'),
    plainWidth: config.size('qk_nope_head_dim'),
    rotaryWidth: config.size('qk_rope_head_dim'),
    valueWidth: config.size('v_head_dim'),
  };
  const headWidth = latent.plainWidth + latent.rotaryWidth;
  const whole = config.optionalSize('qk_head_dim');
  if (whole !== undefined && whole !== headWidth)
    throw config.inconsistent(
      'qk_head_dim',
      `is ${whole}, but the parts have ${latent.plainWidth} + ${latent.rotaryWidth} channels`,
    );
  // Some files repeat the rotary width under this name.
  config.known('head_dim');
  const base = common(config, { headWidth });
  const dense = config.countFromZero('first_k_dense_replace', 0);
  if (dense > base.layers)
    throw config.inconsistent(
      'first_k_dense_replace',
      `is ${dense}, but there are ${base.layers} layers`,
    );
  const every = config.count('moe_layer_freq', 1);
  return {
    ...base,
    headWidth,
    rotaryWidth: latent.rotaryWidth,
    latent,
    experts: deepseekExperts(config, type !== 'deepseek_v2'),
    routed: (layer) => layer >= dense && layer % every === 0,
  };
}

function deepseekExperts(config: ConfigReader, third: boolean): ExpertsConfig {
  const experts = config.count(['n_routed_experts', 'num_local_experts']);
  const hidden = config.size('moe_intermediate_size');
  const shared = config.countFromZero('n_shared_experts', 0);
  const count = config.count('n_group', 1);
  const kept = config.count('topk_group', count);
  if (experts % count !== 0)
    throw config.inconsistent('n_group', `is ${count}, which does not divide ${experts} experts`);
  if (kept > count)
    throw config.inconsistent('topk_group', `is ${kept}, but there are ${count} groups`);
  const method = config.text('topk_method') ?? (third ? 'noaux_tc' : 'greedy');
  config.checkKnown('topk_method', method, ['noaux_tc', 'group_limited_greedy', 'greedy']);
  const scoring = config.text('scoring_func') ?? (third ? 'sigmoid' : 'softmax');
  if (scoring !== 'sigmoid' && scoring !== 'softmax')
    throw config.inconsistent(
      'scoring_func',
      `is '${scoring}'`,
      'known: sigmoid, softmax',
      'E_UNSUPPORTED',
    );
  const chosen = active(config, experts);
  if (chosen > (experts / count) * kept)
    throw config.inconsistent(
      'num_experts_per_tok',
      `is ${chosen}, but ${kept} groups have ${(experts / count) * kept} experts`,
    );
  const limited = count > 1 && kept < count && method !== 'greedy';
  return {
    experts,
    active: chosen,
    hidden,
    scoring,
    normalised: config.flag('norm_topk_prob', third),
    scaling: config.positive('routed_scaling_factor') ?? 1,
    correction: method === 'noaux_tc',
    router: { name: 'gate', bias: false },
    ...(limited ? { groups: { count, kept, by: method === 'noaux_tc' ? 'top2' : 'max' } } : {}),
    ...(shared === 0
      ? {}
      : { shared: { name: 'shared_experts', hidden: shared * hidden, gate: false } }),
  };
}

/** Layers of a list of their numbers, or every n-th. */
function listedLayers(
  config: ConfigReader,
  list: string,
  every: number,
): (layer: number) => boolean {
  const stated = config.list(list, 'number');
  if (stated === undefined) return (layer) => (layer + 1) % every === 0;
  const layers = new Set(stated);
  return (layer) => layers.has(layer);
}

/**
 * Llama 4: every fourth layer does not turn and sees all keys, the others see a chunk; a share of
 * one expert multiplies what it reads, and a shared expert is beside it.
 */
function llama4(config: ConfigReader): DecoderConfig {
  const base = common(config, { headWidth: 128, eps: 1e-5 });
  const bias = config.flag('attention_bias', false);
  const experts = config.count('num_local_experts', 16);
  const { hidden } = base;
  const turns = config.list('no_rope_layers', 'number') ?? [];
  const every = config.count('no_rope_layer_interval', 4);
  const rotates = (layer: number): boolean =>
    turns.length === 0 ? (layer + 1) % every !== 0 : turns[layer % turns.length] !== 0;
  const chunk = config.has('attention_chunk_size')
    ? config.optionalSize('attention_chunk_size')
    : undefined;
  config.known('layer_types', 'router_aux_loss_coef', 'output_router_logits', 'attention_dropout');
  return {
    ...base,
    hidden: config.size('intermediate_size_mlp', 16384),
    queryBias: bias,
    outputBias: bias,
    ...defined({ window: chunk }),
    windowed: rotates,
    chunked: true,
    rotates,
    turnsPairs: true,
    ...(config.flag('use_qk_norm', true) ? { headRoot: true as const } : {}),
    ...(config.flag('attn_temperature_tuning', true)
      ? {
          temperature: {
            floor: config.size('floor_scale', 8192),
            scale: config.positive('attn_scale') ?? 0.1,
          },
        }
      : {}),
    feedForward: 'feed_forward',
    experts: {
      experts,
      active: active(config, experts, 1),
      hidden,
      scoring: 'sigmoid',
      normalised: false,
      scaling: 1,
      correction: false,
      router: { name: 'router', bias: false },
      shared: { name: 'shared_expert', hidden, gate: false },
      weighsInput: true,
    },
    routed: listedLayers(config, 'moe_layers', config.count('interleave_moe_layer_step', 1)),
  };
}

const family = (
  types: readonly string[],
  classes: readonly string[],
  read: (config: ConfigReader, type: string) => DecoderConfig,
  notes: readonly string[] = [],
): Family => ({
  types,
  classes,
  read: (config, type, className) => {
    config.checkHead(className, ['ForCausalLM', ...CLASSIFYING]);
    return decoderArchitecture(read(config, type), notes, classesOf(config, className));
  },
});

const GROUPED = 'experts are grouped products: every token meets its experts, none is dropped';

export const DECODER_FAMILIES: readonly Family[] = [
  family(['llama4_text'], ['Llama4'], llama4, [GROUPED]),
  family(['llama'], ['Llama'], llama),
  family(['mistral'], ['Mistral'], mistral),
  family(['qwen2'], ['Qwen2For'], qwen2),
  family(['qwen3'], ['Qwen3For'], qwen3),
  family(['gemma'], ['GemmaFor'], (config) => gemma(config)),
  family(['gemma2'], ['Gemma2'], gemma2),
  family(['gemma3_text'], ['Gemma3For'], gemma3),
  family(['phi3'], ['Phi3'], phi3),
  family(['mixtral'], ['Mixtral'], mixtral, [GROUPED]),
  family(['qwen2_moe'], ['Qwen2Moe'], qwen2Moe, [GROUPED]),
  family(['qwen3_moe'], ['Qwen3Moe'], qwen3Moe, [GROUPED]),
  family(['gpt_oss'], ['GptOss'], gptOss, [GROUPED]),
  family(['deepseek_v2'], ['DeepseekV2'], deepseek, [GROUPED]),
  family(['deepseek_v3', 'kimi_k2'], ['DeepseekV3'], deepseek, [
    GROUPED,
    'layers that predict further tokens (num_nextn_predict_layers) are left out',
  ]),
];
