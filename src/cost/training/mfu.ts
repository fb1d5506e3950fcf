/**
 * Takes the counted FLOPs of a program and its seconds and gives its model FLOPs utilisation (PaLM,
 * arXiv:2204.02311, appendix B).
 */

/**
 * Share of the peak that the model's own arithmetic takes, with the convention it was counted by:
 * three forward passes for a step with gradients, one without.
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
    convention:
      `MFU: ${training ? '3 x ' : ''}matrix FLOPs of the forward pass, full attention (all ` +
      `scores, masked or not), ${(peakFlopsPerSecond / 1e12).toFixed(1)} TFLOPS dense peak`,
  };
}
