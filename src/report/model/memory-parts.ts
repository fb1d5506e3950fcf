/** Writes, in words, the memory that gradients take in a plan. */

import type { Plan } from '../../plan/record/types.ts';
import { bytesText } from '../../units.ts';

/**
 * `gradients 973 MiB`; where the peak is what is limited and not all are alive there, `gradients 0
 * B of 973 MiB`.
 */
export function gradientText({ gradientBytes, peakBytes, timeline }: Plan['memory']): string {
  const whole = bytesText(gradientBytes);
  if (timeline === undefined || peakBytes !== timeline.peakBytes) return `gradients ${whole}`;
  const { gradient: alive = 0 } = timeline.byKind;
  return alive === gradientBytes
    ? `gradients ${whole}`
    : `gradients ${bytesText(alive)} of ${whole}`;
}
