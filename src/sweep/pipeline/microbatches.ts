/**
 * Chooses the number of microbatches of a pipeline where the user does not: a divisor of the batch
 * that suits the number of stages.
 */

import { divisors } from '../../divisors.ts';

/** Microbatches of a stage by default: the bubble is then under a quarter of the work. */
export const MICROBATCHES_A_STAGE = 4;

/**
 * The most that divide the batch, up to `MICROBATCHES_A_STAGE` for every stage, and whose sequences
 * the data ranks share evenly; where no number leaves each rank as many, that is not asked.
 */
export function defaultMicrobatches(batch: number, devices: number, dataRanks: number): number {
  const few = divisors(batch).filter((d) => d <= MICROBATCHES_A_STAGE * devices);
  const even = few.filter((d) => (batch / d) % dataRanks === 0);
  return Math.max(...(even.length > 0 ? even : few));
}
