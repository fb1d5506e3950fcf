/**
 * Takes a measured training run and gives the question and the layout that `compare` would be asked
 * for it, or the reason why the sweep has no price for that layout.
 */

import type { ParallelPlan, RecomputeMode, TransformerShape } from '../cost/training/shape.ts';
import type { Checkpoint } from '../step/checkpoints.ts';
import type { StateMode } from '../step/zero-mode.ts';
import type { SweepQuestion } from '../sweep/model/question.ts';
import type { StatedLayout } from '../sweep/model/stated-layout.ts';
import type { MeasuredRun } from './runs.ts';
import { stepSoftware } from './software.ts';

export interface AskedRun {
  readonly question: SweepQuestion;
  readonly layout: StatedLayout;
}

/** Why the sweep has no price for a row. */
export interface NotAsked {
  readonly reason: string;
}

const CHECKPOINT: Readonly<Record<RecomputeMode, Checkpoint>> = {
  none: 'none',
  modules: 'selective',
  core: 'core_attn',
  products: 'products',
  selective: 'operators',
  full: 'full',
};

/** The question for a measured run, under the plan of its row or a more definite one. */
export function askedRun(
  { id, shape, config: named, system, devices, clusterText, framework }: MeasuredRun,
  plan: ParallelPlan,
  cost: string,
): AskedRun | NotAsked {
  const checkpoint = CHECKPOINT[plan.recompute];
  if (system.offloadedOptimizer) return { reason: 'an optimizer on the host' };
  if (shape.furtherTokens !== undefined) return { reason: 'further tokens that are predicted' };
  const config = named ?? configOf(shape);
  if (config === undefined) return { reason: 'a shape that no family of ours has' };
  if (plan.globalBatch % (plan.replicas * plan.shards * plan.microbatch) !== 0)
    return { reason: 'a batch that its microbatches do not divide' };
  return {
    question: {
      model: id,
      config: JSON.stringify(config),
      devices,
      cluster: clusterText,
      sequence: shape.sequence,
      globalBatch: plan.globalBatch,
      cost,
      dtype: system.matmulUnit === 'fp16' ? 'f16' : 'bf16',
      software: stepSoftware(system),
    },
    layout: layoutOf(plan, {
      // Megatron's ring; gathered keys and values in the Llama 3 report (arXiv:2407.21783, section
      // 3.3.2).
      context: framework === 'llama3-herd' ? 'cp' : 'ring',
      // DeepSpeed's stage 2 leaves parameters whole, where FSDP gathers them for a pass.
      wholeWeights: framework === 'deepspeed' && plan.zeroStage === 2,
      checkpoint,
      pairs: system.expertOverlap,
    }),
  };
}

/** The layout of a plan. */
function layoutOf(
  plan: ParallelPlan,
  {
    context,
    wholeWeights,
    checkpoint,
    pairs,
  }: {
    readonly context: 'cp' | 'ring';
    readonly wholeWeights: boolean;
    readonly checkpoint: Checkpoint;
    readonly pairs: boolean;
  },
): StatedLayout {
  const data = plan.replicas * plan.shards;
  const mode = wholeWeights ? 'zero2' : modeOf(plan);
  const hybrid = mode === 'hsdp';
  const cutsWeights = mode === 'fsdp' || hybrid;
  const microbatches = Math.max(1, Math.ceil(plan.globalBatch / (data * plan.microbatch)));
  return {
    sizes: {
      pp: plan.pipeline,
      dp_replicate: hybrid ? plan.replicas : 1,
      dp_shard: hybrid ? plan.shards : data,
      cp: plan.context,
      tp: plan.tensor,
      ep: plan.expert,
    },
    kind: { mode, context, sequenceParallel: plan.sequenceParallel },
    tuning: {
      microbatch: plan.microbatch,
      schedule: plan.chunks > 1 ? 'interleaved' : '1f1b',
      chunks: plan.chunks,
      checkpoint,
      // Weights stay gathered under stage 2, and in pipelines.
      once: cutsWeights && microbatches > 1 && (plan.zeroStage === 2 || plan.pipeline > 1),
      asStated: true,
      ...(pairs ? { paired: true } : {}),
    },
  };
}

function modeOf({ replicas, shards, context, zeroStage }: ParallelPlan): StateMode {
  if (shards > 1) return replicas > 1 ? 'hsdp' : 'fsdp';
  return replicas * shards * context === 1
    ? 'dp'
    : (['dp', 'zero1', 'zero2', 'fsdp'] as const)[zeroStage];
}

/**
 * A Hugging Face config with the dimensions of a run: OPT for plain MLPs, Llama, Qwen3-MoE or
 * DeepSeek-V3 for gated ones.
 */
function configOf(shape: TransformerShape): Readonly<Record<string, unknown>> | undefined {
  const { layers, hidden, heads, kvHeads, headDim, ffn, gated, vocab, sequence, experts, latent } =
    shape;
  if (!gated) {
    if (experts !== undefined || kvHeads !== heads || headDim * heads !== hidden) return undefined;
    // Projections of their own, as tensor-parallel frameworks lay them out; one of all three would
    // be moved between ranks.
    return {
      model_type: 'opt',
      num_hidden_layers: layers,
      hidden_size: hidden,
      num_attention_heads: heads,
      ffn_dim: ffn,
      vocab_size: vocab,
      max_position_embeddings: sequence,
      word_embed_proj_dim: hidden,
    };
  }
  const common = {
    num_hidden_layers: layers,
    hidden_size: hidden,
    num_attention_heads: heads,
    intermediate_size: ffn,
    vocab_size: vocab,
    max_position_embeddings: sequence,
    tie_word_embeddings: false,
  };
  if (latent !== undefined && experts !== undefined)
    return {
      ...common,
      model_type: 'deepseek_v3',
      q_lora_rank: latent.query,
      kv_lora_rank: latent.keyValue,
      qk_rope_head_dim: latent.rotary,
      qk_nope_head_dim: headDim,
      v_head_dim: headDim,
      n_routed_experts: experts.count,
      num_experts_per_tok: experts.topK,
      moe_intermediate_size: experts.ffn,
      n_shared_experts: experts.shared,
      first_k_dense_replace: experts.denseLayers,
      n_group: 1,
      topk_group: 1,
      num_key_value_heads: heads,
    };
  const dense = { ...common, num_key_value_heads: kvHeads, head_dim: headDim };
  if (experts === undefined) return { ...dense, model_type: 'llama' };
  if (experts.shared > 0 || experts.denseLayers > 0) return undefined;
  return {
    ...dense,
    model_type: 'qwen3_moe',
    num_experts: experts.count,
    num_experts_per_tok: experts.topK,
    moe_intermediate_size: experts.ffn,
    norm_topk_prob: true,
    decoder_sparse_step: 1,
    mlp_only_layers: [],
  };
}
