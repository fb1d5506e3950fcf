/**
 * Writes the result of a fit on a user's own runs in words, the same for a terminal and a report.
 */

import type { Refit, RefitErrors } from '../../recipes/compare/comparison.ts';
import { countedText, percentText, secondsText } from '../../units.ts';

/** Rows without a price that are named. */
const NAMED = 3;

/** The common names of constants. */
const WORDS: Readonly<Record<string, string>> = {
  tailMean: 'rate of products',
  pointwiseTraffic: 'traffic of other kernels',
  kernelGapSeconds: 'gap between kernels',
  eagerHostSeconds: "the host's time of a kernel",
  compiledHostSeconds: "the host's time of a compiled kernel",
  hopHostSeconds: "the host's time of a pipeline hop",
  stepHostSeconds: "the host's time of a step",
};

/** Lines on the changed constants, and whether the figures use them. */
export function refitLines({
  runs,
  elsewhere,
  notPriced,
  taken,
  constants,
  before,
  after,
  leftOut,
}: Refit): string[] {
  const moved = constants.filter((c) => c.after !== c.before);
  const changes = moved.map(
    ({ name, before: from, after: to }) =>
      `${WORDS[name] ?? name}: ${valueText(name, from)} -> ${valueText(name, to)}`,
  );
  const out = `${errorText(leftOut)} on runs left out of the fit, one ${leftOut.by} at a time`;
  const lines = taken
    ? [
        `All figures use constants fitted on ${countedText(runs, 'run')} of your own:`,
        ...changes,
        `Mean error on these runs: ${errorText(before)} before, ${errorText(after)} after; ${out}.`,
      ]
    : [
        `Constants stay as shipped: a fit on ${countedText(runs, 'run')} of your own does not ` +
          `predict the runs left out of it better. Mean error: ${errorText(before)} as shipped; ` +
          `${out}.`,
      ];
  if (elsewhere > 0)
    lines.push(
      `${countedText(elsewhere, 'run')} of them ran on another accelerator than that of the ` +
        'comparison.',
    );
  if (notPriced.length > 0) {
    const named = notPriced.slice(0, NAMED).map(({ line, reason }) => `line ${line}: ${reason}`);
    lines.push(
      `${countedText(notPriced.length, 'row')} without a price: ` +
        `${named.join('; ')}${notPriced.length > NAMED ? ' ...' : ''}.`,
    );
  }
  return lines;
}

/** `14.2 % (bias -12.0 %)`. */
function errorText({ mape, bias }: RefitErrors): string {
  return `${percentText(mape)} (bias ${percentText(bias)})`;
}

function valueText(name: string, value: number): string {
  return name.endsWith('Seconds') ? secondsText(value) : String(Number(value.toPrecision(3)));
}
