/** Gives the seconds of each collective that neighbouring compute can hide. */

import { ShardwrightError } from '../../errors.ts';

/** One step of the program: what it computes, and a collective that must be done before (or can run after) it. */
interface OverlapStep {
  readonly computeSeconds: number;
  /** Of a collective that may run beside compute; 0 where the step has none. */
  readonly hideableSeconds: number;
}

/**
 * Seconds of every collective that compute can hide, at most: communication of a step is hidden behind the compute of the steps
 * before it (`before`: gathers of weights, which may run ahead) or after it (`after`: reductions of gradients, which nothing
 * waits for), and no second of compute hides twice. So the sum of what is hidden never exceeds the compute on that side, at
 * any place of the program; the result has the largest total of all that keep this.
 */
export function hiddenSeconds(steps: readonly OverlapStep[], side: 'before' | 'after'): number[] {
  for (const { computeSeconds, hideableSeconds } of steps)
    if (!(computeSeconds >= 0) || !(hideableSeconds >= 0))
      throw new ShardwrightError('E_USAGE', `a step of ${computeSeconds} s compute and ${hideableSeconds} s communication`); // prettier-ignore
  const order = steps.map((_, i) => i);
  if (side === 'after') order.reverse();
  const hidden = new Array<number>(steps.length).fill(0);
  let budget = 0;
  for (const i of order) {
    hidden[i] = Math.min(steps[i].hideableSeconds, budget);
    budget += steps[i].computeSeconds - hidden[i];
  }
  return hidden;
}

/**
 * What hiding is worth: the hidden seconds less what the compute beside them loses.
 *
 * @param slowdown time of compute beside communication, relative to compute alone; 1.13 to 1.3 have been measured
 */
export function overlapDiscount(hidden: number, slowdown: number): number {
  return Math.max(0, hidden * (2 - slowdown));
}
