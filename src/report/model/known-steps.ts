/** The steps of known plans beside a plan's own: by a trainer's software, or simulated. */

import type { Answered } from '../../recipes/chosen-step.ts';
import type { KnownStep } from '../../simulate/overlap/known-plan.ts';

/** How the step of a plan was found: by a trainer's software, or by playing the program. */
export type FoundStep = Pick<Answered, 'fastest' | 'step'>;

/** The steps of the known plans that fit; undefined where the step of none was looked for. */
export function knownSteps({ fastest, step }: FoundStep): readonly KnownStep[] | undefined {
  if (fastest === undefined) return step?.known;
  return fastest.recipes.map(({ name, step: { stepSeconds } }) => ({
    name,
    stepSeconds,
    isAtLeast: false,
    isAdmitted: true,
  }));
}
