/**
 * A training run as tables have it: the dimensions of a transformer, the degrees of a parallel
 * plan, the machine and its software, and the model FLOPs of a step.
 */

import type { Cluster } from '../hardware/cluster.ts';
import type { Fp8Recipe, StepSoftware } from '../kernels/software.ts';
import type { StateBytes } from '../memory/state-bytes.ts';

/** Dimensions of a decoder-only transformer. */
export interface TransformerShape {
  readonly layers: number;
  readonly hidden: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Width of the MLP, of the dense layers. */
  readonly ffn: number;
  /** The layer has a gate and an up projection (swiglu). */
  readonly gated: boolean;
  readonly vocab: number;
  readonly sequence: number;
  readonly experts?: ExpertShape;
  /**
   * Latent attention (multi-head latent attention); `headDim` is then that of values and of the
   * unrotated part of keys.
   */
  readonly latent?: LatentShape;
  /**
   * Layers behind the last that predict further tokens (multi-token prediction), each with a pass
   * of the output head.
   */
  readonly furtherTokens?: number;
}

/**
 * Widths of latent attention (DeepSeek-V2, arXiv:2405.04434): all heads share what queries, and
 * keys with values, come from.
 */
interface LatentShape {
  readonly query: number;
  readonly keyValue: number;
  /** The rotated part of a query and key, in addition to `headDim`. */
  readonly rotary: number;
}

interface ExpertShape {
  readonly count: number;
  readonly topK: number;
  readonly ffn: number;
  /** Experts that every token passes. */
  readonly shared: number;
  /** Leading layers without experts. */
  readonly denseLayers: number;
}

/**
 * The work that the backward pass does again: nothing, the cheap modules (norms, activation
 * functions, products up from a latent), the attention core, all but the products with weights,
 * every second operator's worth, everything.
 */
export type RecomputeMode = 'none' | 'modules' | 'core' | 'products' | 'selective' | 'full';

/** Degrees of a parallel plan; `replicas * shards * tensor * pipeline * context` devices. */
export interface ParallelPlan {
  readonly replicas: number;
  /** Devices that parameters are sharded over (ZeRO stage 3). */
  readonly shards: number;
  readonly tensor: number;
  readonly sequenceParallel: boolean;
  readonly pipeline: number;
  /** Model chunks of a device (interleaved schedule). */
  readonly chunks: number;
  readonly context: number;
  /** Devices that experts are spread over, carved out of the data-parallel ones. */
  readonly expert: number;
  /** Sequences of a microbatch and of the whole step. */
  readonly microbatch: number;
  readonly globalBatch: number;
  readonly recompute: RecomputeMode;
  /** ZeRO stage of replicas: 0, 1 optimizer, 2 gradients too; sharded plans are stage 3. */
  readonly zeroStage: 0 | 1 | 2 | 3;
}

/** The machine and the software that runs on it. */
export interface TrainingSystem {
  readonly cluster: Cluster;
  /** Unit of the matrix work: `bf16`, `fp16`, `fp8`, `fp4`. */
  readonly matmulUnit: string;
  /**
   * Bytes moved per operand element to cast it for a matrix unit of 8 bits or less: two reads of 16
   * bits and a write of 8 where the scale is that of the present values, one read where it is that
   * of earlier ones.
   */
  readonly narrowCastBytes: number;
  /** Weights are cast once a step and kept for all microbatches. */
  readonly castWeightsKept: boolean;
  /** Attention in one kernel, causal half only, scores never stored. */
  readonly flashAttention: boolean;
  /**
   * Share of the matrix peak that the attention kernel reaches; kernels older than the device reach
   * little.
   */
  readonly attentionShare: number;
  /** Bias, activation, dropout and residual in few kernels (Megatron's, or a compiler's). */
  readonly fusedPointwise: boolean;
  /** See `StepSoftware`. */
  readonly fusedProjections: boolean;
  /** How products are cast for fp8. */
  readonly fp8Recipe?: Fp8Recipe;
  readonly recomputesWhole: boolean;
  /** Pointwise chains fused by a compiler, little host work. */
  readonly compiled: boolean;
  /** The host waits for each kernel before it launches the next. */
  readonly blockingLaunches?: boolean;
  /** Gradient and parameter collectives overlap with compute. */
  readonly overlap: boolean;
  /**
   * The share of the tensor-parallel gathers and scatters that overlap in parts with the product
   * next to them (async TP, userbuffers); 0 where none do.
   */
  readonly tensorOverlap: number;
  /**
   * Bytes per element of what a matmul saves for the backward pass: 2, or those of the narrow
   * operand where that is kept.
   */
  readonly savedOperandBytes: number;
  /**
   * Products of all experts of a device run as one kernel; else one after the other, each with its
   * casts.
   */
  readonly groupedExperts: boolean;
  /**
   * Experts' tokens cross to a host once for all experts there (DeepEP, HybridEP), not once for
   * each expert.
   */
  readonly expertTokensOnce: boolean;
  /** The exchange of experts' tokens overlaps with the compute of another microbatch. */
  readonly expertOverlap: boolean;
  /** State of the optimizer lives in the host's memory. */
  readonly offloadedOptimizer: boolean;
  /**
   * Activations beyond the device's memory wait in the host's, behind links fast enough to hide it
   * (Grace).
   */
  readonly offloadedActivations: boolean;
  /** Dropout masks are kept. */
  readonly dropout: boolean;
  /** Bytes per element of gradients as data ranks sum them. */
  readonly gradientBytes: number;
  /** See `StepSoftware`. */
  readonly bucket?: NonNullable<StepSoftware['bucket']>;
  /** See `StepSoftware`. */
  readonly memory: NonNullable<StepSoftware['memory']>;
  readonly state: StateBytes;
}

/** Microbatches of one replica in a step, at least one. */
export function microbatches(plan: ParallelPlan): number {
  return Math.max(1, Math.ceil(plan.globalBatch / (plan.replicas * plan.shards * plan.microbatch)));
}

/** Parameters of one layer, by what tensor and expert parallelism do to them. */
interface LayerParameters {
  /** Split over tensor-parallel devices: attention, dense or shared MLP. */
  readonly split: number;
  /** On every device: norms. */
  readonly whole: number;
  /** Routed experts, all of them. */
  readonly routed: number;
}

function layerParameters(shape: TransformerShape, layer: number): LayerParameters {
  const { hidden: h, ffn, gated, experts } = shape;
  const attention = attentionProducts(shape).reduce((sum, [k, n]) => sum + k * n, 0);
  const mats = gated ? 3 : 2;
  const sparse = experts !== undefined && layer >= experts.denseLayers;
  const dense = sparse ? mats * h * experts.ffn * experts.shared : mats * h * ffn;
  return {
    split: attention + dense,
    whole: 4 * h + (sparse ? h * experts.count : 0),
    routed: sparse ? mats * h * experts.ffn * experts.count : 0,
  };
}

/**
 * Inner and outer width of the products of attention, in order; those of the heads are split by
 * tensor parallelism.
 */
export function attentionProducts(
  shape: TransformerShape,
  tensor = 1,
): readonly (readonly [number, number])[] {
  const { hidden: h, heads, kvHeads, headDim, latent } = shape;
  const out = [(heads * headDim) / tensor, h] as const;
  if (latent === undefined) return [[h, ((heads + 2 * kvHeads) * headDim) / tensor], out];
  return [
    [h, latent.query],
    [latent.query, (heads * (headDim + latent.rotary)) / tensor],
    [h, latent.keyValue + latent.rotary],
    [latent.keyValue, (heads * 2 * headDim) / tensor],
    out,
  ];
}

/** Elements of a head that a query-key pair costs on average over scores and weighted sum. */
function pairWidth({ headDim, latent }: TransformerShape): number {
  return headDim + (latent?.rotary ?? 0) / 2;
}

/**
 * Parameters that every token is multiplied with in all layers and the output head (no input
 * embedding).
 */
export function activeMatmulParameters(shape: TransformerShape): number {
  let sum = shape.hidden * shape.vocab;
  for (let l = 0; l < shape.layers; l++) {
    const { split, routed } = layerParameters(shape, l);
    const { experts } = shape;
    sum += split + (experts === undefined ? 0 : (routed * experts.topK) / experts.count);
  }
  return sum;
}

/**
 * Model FLOPs of a step: 6 for each active matmul parameter and token, and attention, causal or
 * not.
 *
 * @param causal counts half of the attention scores (6 L h s a token instead of 12)
 */
export function modelFlops(shape: TransformerShape, sequences: number, causal: boolean): number {
  const attention =
    (causal ? 6 : 12) * shape.layers * shape.heads * pairWidth(shape) * shape.sequence;
  return (6 * activeMatmulParameters(shape) + attention) * sequences * shape.sequence;
}
