/**
 * Plays the step of a choice on the simulator, with overlapped communication, and ranks plans by
 * the simulated seconds.
 */

import { type Decoded, stateMemory } from '../../plan/choice/decode.ts';
import type { Prepared } from '../../plan/prepare/prepared.ts';
import { simulateSeconds } from '../../simulate/timeline/simulate.ts';

/**
 * Seconds of the step of a choice when it is played: collectives on streams that overlap with
 * compute, early gathers, buckets, all with the defaults of `simulate`. The other figure of a plan
 * is the sum of all its costs one after another.
 */
export function simulatedSeconds(
  {
    model,
    question: { program, operators, request, budgetBytes },
  }: Pick<Prepared, 'question' | 'model'>,
  choice: Int32Array,
  { nodes, outputs }: Pick<Decoded, 'nodes' | 'outputs'>,
): number {
  const memory = { ...stateMemory(model, choice), budgetBytes };
  const { accumulate = 1 } = request;
  return accumulate * simulateSeconds(program, { request, nodes, outputs, memory }, operators);
}

/** A plan that may have been simulated. */
interface Simulated {
  readonly name: string;
  readonly seconds: number;
  readonly fits: boolean;
  readonly simulatedSeconds?: number;
}

/**
 * Names of the plans that fit and were simulated, the shortest step first; of equal ones that of
 * fewer seconds one after another.
 */
export function simulatedRanking(plans: readonly Simulated[]): string[] {
  return plans
    .flatMap(({ name, seconds, fits, simulatedSeconds: played }) =>
      fits && played !== undefined ? [{ name, seconds, played }] : [],
    )
    .sort((a, b) => a.played - b.played || a.seconds - b.seconds || (a.name < b.name ? -1 : 1))
    .map(({ name }) => name);
}
