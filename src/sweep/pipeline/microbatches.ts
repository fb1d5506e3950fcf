/**
 * Chooses the number of microbatches of a pipeline where the user does not: a divisor of the batch
 * that suits the number of stages.
 */

import { divisors } from '../../divisors.ts';

/**
 * The most that divide the batch, up to four for every stage: the bubble is then under a quarter of
 * the work.
 */
export function defaultMicrobatches(batch: number, devices: number): number {
  return Math.max(...divisors(batch).filter((d) => d <= 4 * devices));
}
