/**
 * Takes tokens per second and the sizes of a model and gives its model FLOPs utilisation (PaLM, arXiv:2204.02311,
 * appendix B).
 */

import { modelFlops, type TransformerShape } from './shape.ts';

/** What of attention counts as work: every score, or the lower half that a causal model needs. */
type AttentionConvention = 'full' | 'causal';

/** Share of the peak that the model's own arithmetic takes, with the convention it was counted by. */
interface Utilization {
  readonly mfu: number;
  /** Model FLOPs of a token, forward and backward. */
  readonly flopsPerToken: number;
  /** One sentence; goes wherever the number goes. */
  readonly convention: string;
}

/**
 * Model FLOPs utilisation (PaLM, arXiv:2204.02311, appendix B): tokens per second and device times the model FLOPs of a token,
 * over the dense peak. What is recomputed does not count.
 *
 * @param tokensPerSecond of one device
 * @param peakFlopsPerSecond dense peak of one device, of the unit that the matmuls run on
 */
export function modelFlopsUtilization(
  shape: TransformerShape,
  tokensPerSecond: number,
  peakFlopsPerSecond: number,
  attention: AttentionConvention,
): Utilization {
  const flopsPerToken = modelFlops(shape, 1, attention === 'causal') / shape.sequence;
  return {
    mfu: (tokensPerSecond * flopsPerToken) / peakFlopsPerSecond,
    flopsPerToken,
    convention: `MFU: ${conventionText(attention)}, ${(peakFlopsPerSecond / 1e12).toFixed(1)} TFLOPS dense peak`,
  };
}

/** How model FLOPs were counted. */
function conventionText(attention: AttentionConvention): string {
  return attention === 'causal'
    ? 'matmul and output-head FLOPs x 3, causal attention (half of the scores)'
    : 'matmul and output-head FLOPs x 3, full attention (all scores, masked or not)';
}

/**
 * The same for a program with counted FLOPs: three forward passes for a step with gradients, one without.
 *
 * @param forwardFlops matrix FLOPs of the unsharded forward pass, attention with every score
 */
export function programUtilization(
  forwardFlops: number,
  training: boolean,
  seconds: number,
  devices: number,
  peakFlopsPerSecond: number,
): { readonly mfu: number; readonly modelFlops: number; readonly convention: string } {
  const modelFlops = forwardFlops * (training ? 3 : 1);
  return {
    mfu: seconds > 0 ? modelFlops / (seconds * devices * peakFlopsPerSecond) : 0,
    modelFlops,
    convention: `MFU: ${training ? '3 x ' : ''}matrix FLOPs of the forward pass, full attention (all scores, masked or not), ${(peakFlopsPerSecond / 1e12).toFixed(1)} TFLOPS dense peak`,
  };
}
