/**
 * Takes the counted FLOPs of a program and its seconds and gives its model FLOPs utilisation (PaLM,
 * arXiv:2204.02311, appendix B).
 */

/**
 * Forward passes that a step counts as: one without gradients, two where weights are frozen and
 * gradients only pass them, three where weights have gradients, too.
 */
type CountedPasses = 1 | 2 | 3;

/**
 * Share of the peak that the model's own arithmetic takes, with the convention it was counted by.
 *
 * @param forwardFlops matrix FLOPs of the unsharded forward pass, attention with every score
 */
export function programUtilization(
  forwardFlops: number,
  passes: CountedPasses,
  seconds: number,
  devices: number,
  peakFlopsPerSecond: number,
): { readonly mfu: number; readonly modelFlops: number; readonly convention: string } {
  const modelFlops = forwardFlops * passes;
  const times = passes === 1 ? '' : `${passes} x `;
  return {
    mfu: seconds > 0 ? modelFlops / (seconds * devices * peakFlopsPerSecond) : 0,
    modelFlops,
    convention:
      `MFU: ${times}matrix FLOPs of the forward pass, full attention (all ` +
      `scores, masked or not), ${(peakFlopsPerSecond / 1e12).toFixed(1)} TFLOPS dense peak`,
  };
}
