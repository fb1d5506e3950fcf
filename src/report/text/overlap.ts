/** The step with communication overlapped, in words. */
import type { Plan } from '../../plan/record/types.ts';
import { holdsPeak } from '../../plan/request/request.ts';
import type { OverlappedStep } from '../../simulate/overlap/known-plan.ts';
import type { OverlapPlan } from '../../simulate/overlap/plan.ts';
import { countedText, excessOver, percentText, secondsText, shareOf } from '../../units.ts';
import { planBandText } from '../model/certainty.ts';
import { passesTexts } from '../model/first-screen.ts';
import { type FoundStep, noStepText } from '../model/known-steps.ts';

const HELD =
  '\n           every plan simulated keeps the peak of memory within the budget; the bound holds ' +
  'whatever the peak is';

/** The lines of the step, for the first screen. */
export function stepLines(
  plan: Plan,
  { fastest, step, isMicrobatch }: FoundStep = {},
  hasKnown = false,
): string[] {
  const range = `range      ${planBandText(plan)}`;
  const [first, ...more] =
    fastest === undefined
      ? step === undefined
        ? [noStepText(plan, hasKnown, isMicrobatch)]
        : simulatedWords(step)
      : trainerWords(fastest);
  const lines = [...passesTexts(plan), ...more];
  return [`step time  ${first}`, ...lines.map((line) => `           ${line}`), range];
}

function trainerWords({ name, step, base }: NonNullable<FoundStep['fastest']>): string[] {
  const { parts, trainer, stepSeconds } = step;
  const split =
    parts === undefined
      ? ''
      : `   forward ${secondsText(parts.forwardSeconds)}   backward ` +
        `${secondsText(parts.backwardSeconds)}   once a step ${secondsText(parts.onceSeconds)}`;
  const first = `${secondsText(stepSeconds)}${split}   (whole training step, run by ${trainer})`;
  if (name === undefined || base === undefined) return [first];
  return [
    first,
    `${name}: ${percentText(shareOf(base.stepSeconds - stepSeconds, base.stepSeconds))} less ` +
      `than the plan of least seconds one after another (${secondsText(base.stepSeconds)})`,
  ];
}

function simulatedWords({
  name,
  simulatedSeconds,
  baseSimulatedSeconds,
  serialSeconds,
  baseSerialSeconds,
  boundSeconds,
  gap,
}: OverlappedStep): string[] {
  const proven =
    boundSeconds === null || gap === null
      ? ''
      : `; no plan takes less than ${secondsText(boundSeconds)} (gap ${percentText(gap)})`;
  const first =
    `${secondsText(simulatedSeconds)} simulated, communication overlapped, run as exported` +
    proven;
  if (name === undefined) return [first];
  return [
    first,
    `${name}: ` +
      `${percentText(shareOf(baseSimulatedSeconds - simulatedSeconds, baseSimulatedSeconds))} ` +
      'less than the plan of least seconds one after another ' +
      `(${secondsText(baseSimulatedSeconds)})`,
    `one after another it takes ${percentText(excessOver(baseSerialSeconds, serialSeconds))} ` +
      'more than that plan, which --objective serial prints',
  ];
}

/** Prints the result of a search for overlap. */
export function overlapText(overlap: OverlapPlan): string {
  const {
    changed,
    simulatedSeconds,
    boundSeconds,
    gap,
    baseSimulatedSeconds,
    serialSeconds,
    baseSerialSeconds,
    rounds,
  } = overlap;
  const holds = holdsPeak(overlap.result.prepared.question.request);
  const proven =
    `no plan takes less than ${secondsText(boundSeconds)} (gap ${percentText(gap)}); ` +
    `${countedText(rounds, 'plan')} ` +
    `simulated${holds ? HELD : ''}`;
  if (!changed) return `overlap    ${secondsText(simulatedSeconds)} simulated; ${proven}`;
  return (
    `overlap    ${secondsText(simulatedSeconds)} simulated, ` +
    `${percentText(shareOf(baseSimulatedSeconds - simulatedSeconds, baseSimulatedSeconds))} ` +
    'less than the plan of least seconds one after another ' +
    `(${secondsText(baseSimulatedSeconds)}); one after another ` +
    `${percentText(excessOver(baseSerialSeconds, serialSeconds))} more\n           ${proven}`
  );
}
