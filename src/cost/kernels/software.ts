/** What the software that runs a training step does, as far as prices depend on it. Plain data: it travels between threads. */

/** Software of a step. */
export interface StepSoftware {
  /** Attention in one kernel, causal half only, scores never stored. */
  readonly flashAttention: boolean;
  /** Share of the matrix peak that the attention kernel reaches; kernels older than the device reach little. */
  readonly attentionShare: number;
  /** Bias, activation, dropout and residual in few kernels (Megatron's, or a compiler's). */
  readonly fusedPointwise: boolean;
  /** Pointwise chains fused by a compiler, little host work. */
  readonly compiled: boolean;
  /** Dropout masks are made and kept. */
  readonly dropout: boolean;
  /** Gradient and parameter collectives run beside the compute. */
  readonly overlap: boolean;
  /**
   * Share of the tensor-parallel gathers and scatters that run in parts beside the product that they adjoin (async TP,
   * userbuffers); 0 where none do.
   */
  readonly tensorOverlap: number;
  /** Bytes per element of gradients as data ranks sum them. */
  readonly gradientBytes: number;
}

/**
 * Software where nothing is stated: today's trainers with kernels made for the device (FlashAttention-3, fused norms and
 * activations), launched by an eager host, states moved beside compute.
 */
export const DEFAULT_SOFTWARE: StepSoftware = {
  flashAttention: true,
  attentionShare: 0.55,
  fusedPointwise: true,
  compiled: false,
  dropout: false,
  overlap: true,
  tensorOverlap: 0,
  gradientBytes: 2,
};
