/** The step with communication beside compute, in words. */
import { holdsPeak } from '../../plan/request/request.ts';
import type { OverlappedStep } from '../../simulate/overlap/known-plan.ts';
import type { OverlapPlan } from '../../simulate/overlap/plan.ts';
import { countedText, excessOver, percentText, secondsText, shareOf } from '../../units.ts';

const HELD =
  '\n           every plan simulated keeps the peak of memory within the budget; the bound holds ' +
  'whatever the peak is';

/** The step of the plan to take, for the first screen. */
export function stepText({
  name,
  simulatedSeconds,
  baseSimulatedSeconds,
  serialSeconds,
  baseSerialSeconds,
  boundSeconds,
  gap,
}: OverlappedStep): string {
  const proven =
    boundSeconds === null || gap === null
      ? ''
      : `; no plan takes less than ${secondsText(boundSeconds)} (gap ${percentText(gap)})`;
  const first =
    `overlapped ${secondsText(simulatedSeconds)} simulated, communication beside ` +
    `compute${proven}`;
  if (name === undefined) return first;
  return (
    `${first}\n           ${name}: ` +
    `${percentText(shareOf(baseSimulatedSeconds - simulatedSeconds, baseSimulatedSeconds))} ` +
    'less than the plan of least seconds one after another ' +
    `(${secondsText(baseSimulatedSeconds)})\n           one after another it takes ` +
    `${percentText(excessOver(baseSerialSeconds, serialSeconds))} more than that plan, which ` +
    '--objective serial prints'
  );
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
