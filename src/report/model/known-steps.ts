/** The steps of known plans beside a plan's own: by a trainer's software, or simulated. */

import type { Plan } from '../../plan/record/types.ts';
import type { Answered } from '../../recipes/chosen-step.ts';
import type { KnownStep } from '../../simulate/overlap/known-plan.ts';

/** How the step of a plan was found: by a trainer's software, or by playing the program. */
export type FoundStep = Pick<Answered, 'fastest' | 'step'> & {
  /** True if the plan is of one microbatch, of which stages make a step. */
  readonly isMicrobatch?: boolean;
};

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

/**
 * Why a plan has no step: `not looked for: ...`.
 *
 * @param hasKnown whether known plans were priced beside it
 */
export function noStepText({ request }: Plan, hasKnown: boolean, isMicrobatch = false): string {
  if (isMicrobatch)
    return 'not looked for: the plan is of one microbatch; its stages make the step';
  const { objective, solver } = request;
  if (objective === 'serial')
    return 'not looked for: --objective serial chooses by the costs one after another';
  if (objective === 'parameter-memory')
    return 'not looked for: --objective parameter-memory chooses by the memory of parameters';
  if (solver === 'propagate')
    return 'not looked for: --solver propagate takes the first plan that it finds';
  return hasKnown || request.overlap === true
    ? 'not looked for: the time was over before the step was simulated'
    : 'not looked for: no known plan was priced to choose from';
}
