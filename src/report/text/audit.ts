/** Prints an audit as text: the gap to the optimum and the edits that reduce it. */

import { EXPORTED } from '../../plan/record/answer.ts';
import type { Audit } from '../../recipes/audit.ts';
import { bytesText, countedText, percentText, probabilityText, secondsText } from '../../units.ts';
import type { ScreenRow } from '../model/first-screen.ts';
import { screenText } from './first-screen.ts';
import { narrowTable } from './narrow-table.ts';

/**
 * An audit as text in 80 columns: the distance of the plan from the optimum, the edits that bring
 * it nearer, and how both were found.
 *
 * @param notes what else a reader has to know
 */
export function auditText(name: string, a: Audit, notes: readonly string[] = []): string {
  const scope = a.holds === 'peak' ? 'at the peak' : 'of states';
  const over = a.overBytes === undefined ? '' : `, ${bytesText(a.overBytes)} over the budget`;
  const rows: ScreenRow[] = [
    { label: 'answer', texts: [answerText(name, a)] },
    { label: 'step time', texts: [`${secondsText(a.stepSeconds)} ${stepWords(a)}`] },
    { label: 'memory', texts: [`${bytesText(a.peakBytes)} ${scope}${fitsText(a)}${over}`] },
    {
      label: 'sum',
      texts: [
        `of all costs, without overlap: ${secondsText(a.seconds)}` +
          (a.budgetedBytes === a.peakBytes
            ? ''
            : `, ${bytesText(a.budgetedBytes)} ${scope} of the exported program`),
      ],
    },
    {
      label: 'optimum',
      texts: [
        `of the sum: ${secondsText(a.optimumSeconds)}, ${bytesText(a.optimumPeakBytes)} ${scope} ` +
          `(${a.status}; no plan takes less than ${secondsText(a.bound)})`,
      ],
    },
    {
      label: 'regret',
      texts: [regretText(a)],
    },
  ];
  const step =
    a.editedStepSeconds === undefined ? '' : `; step time ${secondsText(a.editedStepSeconds)}`;
  const edited = `${secondsText(a.editedSeconds)}, ${bytesText(a.editedPeakBytes)} ${scope}`;
  const after = `sum ${edited}${step}`;
  const last: ScreenRow[] = [
    ...(a.edits.length === 0 ? [] : [{ label: 'after', texts: [after] }]),
    { label: 'how', texts: [a.method] },
    ...(notes.length === 0 ? [] : [{ label: 'note', texts: notes }]),
  ];
  const edits = a.edits.length === 0 ? [] : [`\n${editTable(a)}\n`];
  return [screenText(rows), ...edits, screenText(last)].join('\n');
}

/** How far the plan is from the best one: by the step, and by the sum, whose optimum is proven. */
function regretText({ best, regret, provenRegret }: Audit): string {
  const ofStep = best === undefined ? [] : [`${percentText(best.regret)} of the step`];
  const ofSum =
    regret < 0
      ? 'none of the sum: the plan is faster than any that fits, and does not fit'
      : `${percentText(regret)} of the sum, at most ${percentText(provenRegret)}`;
  return [...ofStep, ofSum].join('; ');
}

/** How the step runs. */
function stepWords({ trainer }: Audit): string {
  return trainer === EXPORTED
    ? 'simulated, communication overlapped'
    : `a training step, run by ${trainer}`;
}

/** How surely the peak fits, where activations are counted. */
function fitsText({ fitProbability }: Audit): string {
  return fitProbability === null ? '' : `; fits with ${probabilityText(fitProbability)}`;
}

/** The result of the audit, in one sentence: by the step, and by the sum where no step is known. */
function answerText(name: string, a: Audit): string {
  if (!a.fits) return `${name} does not fit the budget`;
  const { best } = a;
  if (best === undefined) {
    if (a.regret <= 0) return `${name} has the least sum of costs`;
    return `the costs of ${name} add up to ${percentText(a.regret)} more than those of the optimum`;
  }
  if (best.regret === 0) return `${name} is as fast as the best plan that is known`;
  return (
    `${name} is ${percentText(best.regret)} slower than the best plan that is known, ` +
    `${best.name} with ${secondsText(best.stepSeconds)}${gainText(a)}`
  );
}

/** The share of the step that the edits save, where they make it shorter. */
function gainText({ edits, stepSeconds, editedStepSeconds = Infinity }: Audit): string {
  if (edits.length === 0 || editedStepSeconds >= stepSeconds) return '';
  const gain = percentText(1 - editedStepSeconds / stepSeconds);
  return `; ${countedText(edits.length, 'edit')} would take ${gain} off`;
}

function editTable({ edits }: Audit): string {
  const rows = edits.map((e, i) => [
    String(i + 1),
    e.node,
    e.from,
    e.to,
    e.savedStepSeconds === undefined ? '-' : signed(e.savedStepSeconds, secondsText),
    signed(e.secondsSaved, secondsText),
    signed(e.bytesFreed, bytesText),
  ]);
  return narrowTable(
    [['', 'edit', 'from', 'to', 'off step', 'off sum', 'frees'], ...rows],
    [4, 5, 6],
  );
}

function signed(value: number, text: (value: number) => string): string {
  return value < 0 ? `-${text(-value)}` : text(value);
}
