/**
 * What the programs of each source do. Which features there are follows the sources' documentation; the sizes of logits,
 * optimizer copies and attention rates were settled with the residuals of the same rows in view (`bench/validate.md`).
 */

import type { Cluster } from '../hardware/cluster.ts';
import type { ParallelPlan, RecomputeMode, TrainingSystem } from '../training/shape.ts';

/** Cells of a row that tell its software, and where it runs. */
export interface SoftwareText {
  readonly source: string;
  readonly model: string;
  readonly extras: string;
  readonly dtype: string;
  readonly zero: string;
  readonly plan: ParallelPlan;
  readonly cluster: Cluster;
}

export function softwareOf(row: SoftwareText): Omit<TrainingSystem, 'cluster' | 'powerShare'> {
  const { source, extras, dtype, cluster } = row;
  const { accelerator } = cluster;
  const text = `${source} ${extras}`;
  const vendor = /Bridge|NeMo|Megatron-Core|Llama 3 herd|MaxText/.test(source);
  const megatron = /vTrain|BLOOM|SC21|Megatron-LM 2020|Korthikanti/.test(source);
  // Megatron-Bridge 26.06 records whole steps of its Blackwell recipes as one graph, experts in one kernel (releases 0.5, 0.5.1).
  const graphs = /Bridge 26\.0[6-9]/.test(source) && /^(GB|B)/.test(accelerator);
  // Vendors' trainers are eager Python with few large kernels, unless a graph holds the whole step.
  const compiled = graphs || /torch\.compile|MaxText/.test(text);
  const narrow = /fp4/i.test(dtype) ? 'fp4' : /fp8|float8/i.test(dtype) ? 'fp8' : /fp16/.test(dtype) ? 'fp16' : 'bf16';
  return {
    matmulUnit: narrow,
    // Vendors' libraries scale by earlier steps' values; the others look at the present ones.
    narrowCastBytes: vendor ? 3 : 5,
    // Transformer Engine casts weights with the first microbatch (`is_first_microbatch`).
    castWeightsKept: vendor,
    flashAttention: !megatron,
    attentionShare: attentionShare(text, vendor, accelerator),
    fusedPointwise: megatron || vendor || compiled || /Liger/.test(extras),
    powerLimited: /^(H100|H200|GB|B)/.test(accelerator),
    compiled,
    fusedLoss: compiled || vendor,
    overlap: !megatron,
    tensorOverlap: tensorOverlap(source, extras, narrow),
    savedOperandBytes: /Bridge|NeMo|Megatron-Core/.test(source) ? savedOperandBytes(narrow) : 2,
    groupedExperts: graphs,
    headPlaces: /Bridge|NeMo|Llama 3 herd/.test(source),
    expertTokensOnce: expertTokensOnce(row),
    expertOverlap: expertOverlap(row, graphs),
    offloadedOptimizer: /CPU AdamW offload/.test(row.zero),
    offloadedActivations: /Bridge/.test(source) && accelerator.startsWith('GB'),
    logitBytes: logitBytes(source, extras, megatron, compiled),
    tiedEmbedding: megatron,
    dropout: megatron,
    stateBytes: stateBytes(row, megatron),
  };
}

function stateBytes({ source, dtype, zero }: SoftwareText, megatron: boolean): TrainingSystem['stateBytes'] {
  // DeepSpeed's stage 1 keeps a 32-bit copy of its gradients; its bf16 optimizer whole 32-bit sums beside the 16-bit ones.
  if (/BLOOM|vTrain/.test(source))
    return {
      parameter: 2,
      gradient: /fp32 grad accumulation/.test(dtype) ? 6 : 2,
      optimizer: /BLOOM/.test(source) ? 16 : 12,
    };
  // All of Bridge's performance recipes sum gradients in 16 bits (`grad_reduce_in_fp32 = False`).
  if (/Bridge/.test(source)) return { parameter: 2, gradient: 2, optimizer: 12 };
  if (megatron || /NeMo|Megatron-Core|nanotron/.test(source)) return { parameter: 2, gradient: 4, optimizer: 12 };
  if (/CPU AdamW offload/.test(zero)) return { parameter: 2, gradient: 2, optimizer: 0 };
  return { parameter: 4, gradient: 4, optimizer: 8 };
}

/** Transformer Engine saves the cast operand for the backward pass; 4-bit ones have a scale of 8 bits for 16 elements. */
function savedOperandBytes(unit: string): number {
  return unit === 'fp8' ? 1 : unit === 'fp4' ? 9 / 16 : 2;
}

function tensorOverlap(source: string, extras: string, unit: string): number {
  // Bridge turns it off for 4-bit products (`tp_comm_overlap = False if precision == "nvfp4"`).
  if (/Bridge|NeMo/.test(source)) return unit === 'fp4' ? 0 : 1;
  if (/tp-comm-overlap/.test(extras)) return 1;
  // MaxText's launch scripts fuse collectives into products (xla_tpu_enable_async_collective_fusion, overlap_compute_collective_tc).
  if (/MaxText/.test(source)) return 1;
  // Async TP leaves out the scatter after the backward pass of separate projections, whose results are added before it.
  return /async TP/.test(extras) ? 0.75 : 0;
}

/**
 * Dispatchers by Bridge's recipes: DeepEP for DeepSeek on H100, HybridEP since 26.02, but a plain all_to_all for the experts of
 * Qwen3 235B off the rack-wide links.
 */
function expertTokensOnce({ source, model, extras, cluster }: SoftwareText): boolean {
  if (!/Bridge/.test(source)) return /DeepEP/.test(extras);
  const rack = cluster.accelerator.startsWith('GB');
  if (/Qwen3-235B/.test(model) && !rack) return false;
  return /Bridge 2[6-9]/.test(source) || (/DeepSeek|Kimi/.test(model) && cluster.accelerator.startsWith('H'));
}

/**
 * Bridge overlaps the exchange (`moe_a2a_overlap`) in interleaved pipelines, where the other microbatch comes from: recipes with
 * whole graphs, and those whose experts span hosts.
 */
function expertOverlap({ source, plan, cluster }: SoftwareText, graphs: boolean): boolean {
  return /Bridge/.test(source) && plan.chunks > 1 && (graphs || plan.expert > cluster.devicesPerHost);
}

/** Liger takes the loss piece by piece; llm-foundry and compilers fuse it; Megatron's is vocabulary-parallel in 32 bits. */
function logitBytes(source: string, extras: string, megatron: boolean, compiled: boolean): number {
  if (/Liger/.test(extras)) return 0;
  if (/MosaicML|MaxText/.test(source)) return 6;
  if (megatron || /Bridge|NeMo|Megatron-Core|Llama 3 herd/.test(source)) return 10;
  // TorchTitan compiles the loss since 2025.
  if (/TorchTitan 2024/.test(source)) return 16;
  return compiled ? 6 : 12;
}

/** Attention kernels by generation: made for the device (vendor's, FA3, FA4), or for the one before. */
function attentionShare(text: string, vendor: boolean, accelerator: string): number {
  if (vendor || /FA3|FA4/.test(text)) return 0.55;
  return /^(A100|V100|TPU)/.test(accelerator) ? 0.4 : 0.25;
}

/** The mode that a row states, or those it may have had, least first. */
export function recomputeModes(source: string, text: string): readonly RecomputeMode[] {
  if (/per recipe|not stated/.test(text) || text === '')
    // None of Bridge's recipes for the measured models recomputes layers: cheap modules, or nothing (published_runs.json).
    return /Bridge/.test(source) ? ['none', 'modules'] : ['none', 'selective', 'full'];
  // MaxText's `minimal` keeps every product with weights (checkpoint_dots_with_no_batch_dims).
  if (/minimal/.test(text)) return ['products'];
  if (/full/.test(text)) return ['full'];
  if (/attn core/.test(text)) return ['core'];
  return [/selective/.test(text) ? 'selective' : 'none'];
}

export function zeroStage(text: string, shards: number): 0 | 1 | 2 | 3 {
  if (/SHARD_GRAD_OP|ZeRO-2|no reshard/.test(text)) return 2;
  if (shards > 1 && /FSDP|ZeRO-3|fsdp/.test(text)) return 3;
  if (/Megatron-FSDP/.test(text)) return 3;
  if (/^1( |$)|ZeRO-1|distributed optimizer|overlap-param-gather/.test(text)) return 1;
  return 0;
}
