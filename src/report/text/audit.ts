/** Prints an audit as text: the gap to the optimum and the edits that reduce it. */

import type { Audit } from '../../recipes/audit.ts';
import { bytesText, percentText, secondsText, tableText } from '../../units.ts';

/** An audit as text: the rank of the plan, and the edits that bring it nearer. */
export function auditText(name: string, a: Audit): string {
  const scope = a.holds === 'peak' ? 'at the peak' : 'of states';
  const lines = [
    `step     ${secondsText(a.stepSeconds)} with communication beside compute; below it is ` +
      'one after another',
    `plan     ${name}: ${secondsText(a.seconds)}, ${bytesText(a.peakBytes)} ` +
      `${scope}${a.overBytes === undefined ? '' : `, ${bytesText(a.overBytes)} over the budget`}`,
    `optimum  ${secondsText(a.optimumSeconds)}, ${bytesText(a.optimumPeakBytes)} ${scope} ` +
      `(${a.status}; no plan takes less than ${secondsText(a.bound)})`,
    a.regret < 0
      ? `regret   none: the plan is faster than any that fits, and does not fit`
      : `regret   ${percentText(a.regret)}, at most ${percentText(a.provenRegret)}`,
  ];
  if (a.edits.length > 0) {
    const rows = a.edits.map((e, i) => [
      String(i + 1),
      e.node,
      e.from,
      e.to,
      signed(e.secondsSaved, secondsText),
      signed(e.bytesFreed, bytesText),
    ]);
    lines.push(
      '',
      tableText([['', 'edit', 'from', 'to', 'saves', 'frees'], ...rows], [4, 5]),
      '',
      `after    ${secondsText(a.editedSeconds)}, ${bytesText(a.editedPeakBytes)} ${scope}`,
    );
  }
  lines.push(`how      ${a.method}`);
  return lines.join('\n');
}

function signed(value: number, text: (value: number) => string): string {
  return value < 0 ? `-${text(-value)}` : text(value);
}
