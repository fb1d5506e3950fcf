/** Prints an audit as text: the gap to the optimum and the edits that reduce it. */

import type { Audit } from '../../recipes/audit.ts';
import { EXPORTED } from '../../recipes/chosen-step.ts';
import { bytesText, countedText, percentText, secondsText } from '../../units.ts';
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
    {
      label: 'step time',
      texts: [
        `${secondsText(a.stepSeconds)} ${stepWords(a)}; the figures below are sums without overlap`,
      ],
    },
    {
      label: 'plan',
      texts: [`${name}: ${secondsText(a.seconds)}, ${bytesText(a.peakBytes)} ${scope}${over}`],
    },
    {
      label: 'optimum',
      texts: [
        `${secondsText(a.optimumSeconds)}, ${bytesText(a.optimumPeakBytes)} ${scope} ` +
          `(${a.status}; no plan takes less than ${secondsText(a.bound)})`,
      ],
    },
    {
      label: 'regret',
      texts: [
        a.regret < 0
          ? 'none: the plan is faster than any that fits, and does not fit'
          : `${percentText(a.regret)}, at most ${percentText(a.provenRegret)}`,
      ],
    },
  ];
  const after = `${secondsText(a.editedSeconds)}, ${bytesText(a.editedPeakBytes)} ${scope}`;
  const last: ScreenRow[] = [
    ...(a.edits.length === 0 ? [] : [{ label: 'after', texts: [after] }]),
    { label: 'how', texts: [a.method] },
    ...(notes.length === 0 ? [] : [{ label: 'note', texts: notes }]),
  ];
  const edits = a.edits.length === 0 ? [] : [`\n${editTable(a)}\n`];
  return [screenText(rows), ...edits, screenText(last)].join('\n');
}

/** How the step runs. */
function stepWords({ trainer }: Audit): string {
  return trainer === EXPORTED
    ? 'simulated, communication overlapped'
    : `a training step, run by ${trainer}`;
}

/** The result of the audit, in one sentence. */
function answerText(name: string, a: Audit): string {
  if (a.regret < 0) return `${name} does not fit the budget`;
  if (a.regret === 0) return `${name} is as fast as the best plan`;
  const gain =
    a.edits.length === 0
      ? ''
      : `; ${countedText(a.edits.length, 'edit')} would take ` +
        `${percentText(1 - a.editedSeconds / a.seconds)} off`;
  return `${name} is ${percentText(a.regret)} slower than the best plan${gain}`;
}

function editTable({ edits }: Audit): string {
  const rows = edits.map((e, i) => [
    String(i + 1),
    e.node,
    e.from,
    e.to,
    signed(e.secondsSaved, secondsText),
    signed(e.bytesFreed, bytesText),
  ]);
  return narrowTable([['', 'edit', 'from', 'to', 'saves', 'frees'], ...rows], [4, 5]);
}

function signed(value: number, text: (value: number) => string): string {
  return value < 0 ? `-${text(-value)}` : text(value);
}
