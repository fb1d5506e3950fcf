/**
 * The behaviour of the software that runs a training step, as far as prices depend on it. Plain
 * data: it travels between threads.
 */

import type { StateBytes } from '../memory/state-bytes.ts';

/**
 * `delayed`: one scale for a tensor, from the largest values of earlier steps; `current`: from the
 * present ones; `rowwise`: one for a row, so that what is gathered is cast behind the gather
 * (torchao); `blockwise`: one for 128 values in a row of activations, and for 128 x 128 of weights;
 * `mxfp8`: one of 8 bits for 32 values; `deepseek`: blockwise, with moments of 16 bits and tokens
 * that go to their experts in fp8.
 */
export const FP8_RECIPES = [
  'delayed',
  'current',
  'rowwise',
  'blockwise',
  'mxfp8',
  'deepseek',
] as const;
export type Fp8Recipe = (typeof FP8_RECIPES)[number];

/**
 * Tensors that software keeps in memory otherwise than the program of a step says. Each is a fact
 * of its kernels or its schedule; `docs/fidelity.md` lists them by trainer.
 */
export interface MemoryHabits {
  /**
   * Bytes for each logit of a rank while the loss is taken, its gradient among them; absent: those
   * of the program (logarithms of the shares and their gradient in float32, logits or their
   * gradient in 16 bits and in float32).
   */
  readonly logitBytes?: number;
  /**
   * Attention reads a key or value once for all queries that share it; else the copies that a
   * program makes for them are kept.
   */
  readonly groupedKeys?: true;
  /**
   * Shares of experts are multiplied in before the second product, whose results are then not kept.
   */
  readonly sharesInExperts?: true;
  /**
   * Parameters that data ranks cut are gathered for one call at a time, as a compiler schedules it;
   * else those of a layer together.
   */
  readonly gathersByWeight?: true;
  /** Data ranks cut gradients from where they are made, also while parameters stay gathered. */
  readonly cutsGradients?: true;
  /** Bytes that the process holds for a byte of activations and temporary values; absent: 1. */
  readonly heldShare?: number;
}

/** Software of a step. */
export interface StepSoftware {
  /** Attention in one kernel, causal half only, scores never stored. */
  readonly flashAttention: boolean;
  /**
   * Share of the matrix peak that the attention kernel reaches; kernels older than the device reach
   * little.
   */
  readonly attentionShare: number;
  /** Bias, activation, dropout and residual in few kernels (Megatron's, or a compiler's). */
  readonly fusedPointwise: boolean;
  /** Pointwise chains fused by a compiler, little host work. */
  readonly compiled: boolean;
  /** The host waits for each kernel before it launches the next (`CUDA_LAUNCH_BLOCKING=1`). */
  readonly blockingLaunches?: boolean;
  /** Dropout masks are made and kept. */
  readonly dropout: boolean;
  /** Gradient and parameter collectives overlap with compute. */
  readonly overlap: boolean;
  /**
   * The share of the tensor-parallel gathers and scatters that overlap in parts with the product
   * next to them (async TP, userbuffers); 0 where none do.
   */
  readonly tensorOverlap: number;
  /**
   * One product for projections that read the same tensor (queries, keys and values; gate and up).
   */
  readonly fusedProjections: boolean;
  /**
   * A recomputed layer runs to its end, not only to the last value that the backward pass misses.
   */
  readonly recomputesWhole: boolean;
  /** How products are cast for fp8 (`fp8-recipes.ts`). */
  readonly fp8Recipe?: Fp8Recipe;
  /** Unit of products with weights where it is narrower than their dtype. */
  readonly narrowUnit?: 'fp8' | 'fp4';
  /**
   * Bytes moved per operand element to cast it for a narrow unit: two reads of 16 bits and a write
   * of 8 where the scale is that of the present values, one read where it is that of earlier ones.
   */
  readonly narrowCastBytes: number;
  /**
   * Bytes per element of what products keep for the backward pass where it is the cast operand;
   * absent: of the value itself.
   */
  readonly savedOperandBytes?: number;
  /**
   * Bytes of cast weights (and of the same transposed) that are kept for each element of a weight;
   * absent: none.
   */
  readonly keptWeightBytes?: number;
  /**
   * When devices agree on the largest value of a tensor that they have in parts: once a step for
   * all, or at every cast.
   */
  readonly largest?: 'step' | 'tensor';
  /**
   * Bytes per element of what tensor-parallel ranks gather for products on a narrow unit; absent:
   * those of the activations.
   */
  readonly gatheredBytes?: number;
  /** Bytes per element of tokens on their way to experts; absent: those of the activations. */
  readonly sentBytes?: number;
  /** Weights are cast once a step and kept for all microbatches. */
  readonly castWeightsKept: boolean;
  /**
   * Products of all experts of a device run as one kernel, which takes rows as they lie; else one
   * after the other, each with its casts, on rows that are laid out for them.
   */
  readonly groupedExperts: boolean;
  /**
   * A token crosses to a device once for all of its experts there (DeepEP, HybridEP), not once for
   * each.
   */
  readonly expertTokensOnce: boolean;
  /**
   * Products with fewer tiles than the device has multiprocessors share their inner dim among all
   * of them (split-K and stream-K, as libraries for inference have them).
   */
  readonly splitsProducts?: true;
  /** Bytes per element in which weights of the layers lie in memory; absent: those of the dtype. */
  readonly weightBytes?: number;
  /** Bytes per element of keys and values of earlier tokens; absent: those of the dtype. */
  readonly cacheBytes?: number;
  /**
   * Share of their heads that a device reads where its program holds all: several devices share a
   * head of keys. Absent: all.
   */
  readonly cacheShare?: number;
  /** Bytes per element of gradients as data ranks sum them. */
  readonly gradientBytes: number;
  /**
   * Elements that data ranks sum or gather in one collective, at least, and for each rank; absent:
   * those of a layer.
   */
  readonly bucket?: { readonly elements: number; readonly perRank: number };
  /**
   * Bytes per parameter element that a device keeps, where they differ from those of optimizer and
   * dtype.
   */
  readonly state?: Partial<StateBytes>;
  /** Absent: memory as the program says. */
  readonly memory?: MemoryHabits;
}

/**
 * The software that is assumed where none is stated: today's trainers with kernels made for the
 * device (FlashAttention-3, fused norms and activations), launched by an eager host, with states
 * moved during compute.
 */
export const DEFAULT_SOFTWARE: StepSoftware = {
  flashAttention: true,
  attentionShare: 0.55,
  fusedPointwise: true,
  compiled: false,
  dropout: false,
  overlap: true,
  tensorOverlap: 0,
  fusedProjections: false,
  recomputesWhole: false,
  narrowCastBytes: 3,
  castWeightsKept: true,
  groupedExperts: true,
  expertTokensOnce: true,
  gradientBytes: 2,
  memory: { groupedKeys: true, sharesInExperts: true },
};
