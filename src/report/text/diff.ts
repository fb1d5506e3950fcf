/** Prints the differences of two plans as text. */

import type { PlanDiff } from '../../plan/record/diff.ts';
import type { Plan } from '../../plan/record/types.ts';
import {
  bytesText,
  countText,
  deltaBytesText,
  deltaSecondsText,
  percentText,
  secondsText,
  shareOf,
  tableText,
} from '../../units.ts';

/** The differences of two plans as text. */
export function diffText(diff: PlanDiff, a: Plan, b: Plan): string {
  const { deltaSeconds, deltaPeakBytes } = diff;
  const share = shareOf(Math.abs(deltaSeconds), a.objective.seconds);
  const lines = [
    `step time  ${secondsText(a.objective.seconds)} -> ${secondsText(b.objective.seconds)}   ` +
      `${deltaSecondsText(deltaSeconds)}${deltaSeconds === 0 ? '' : ` (${percentText(share)})`}`,
    `memory     ${bytesText(a.memory.peakBytes)} -> ${bytesText(b.memory.peakBytes)}   ` +
      `${deltaBytesText(deltaPeakBytes)}`,
  ];
  const empty = [diff.terms, diff.memory, diff.placements, diff.collectives, diff.request].every(
    (l) => l.length === 0,
  );
  if (empty) return [...lines, 'the plans are the same'].join('\n');
  const table = (head: string[], rows: string[][], right: number[]): void => {
    if (rows.length > 0) lines.push('', tableText([head, ...rows], right));
  };
  const signedSeconds = (x: number, y: number): string => deltaSecondsText(y - x);
  table(
    ['asked', 'a', 'b'],
    diff.request.map((r) => [r.key, clip(r.a), clip(r.b)]),
    [],
  );
  table(
    ['time', 'a', 'b', 'change'],
    diff.terms.map((t) => [t.term, secondsText(t.a), secondsText(t.b), signedSeconds(t.a, t.b)]),
    [1, 2, 3],
  );
  const bytes = (n: number | null): string => (n === null ? 'not modelled' : bytesText(n));
  table(
    ['bytes per device', 'a', 'b', 'change'],
    diff.memory.map((m) => [
      m.term.replace(/Bytes$/, ''),
      bytes(m.a),
      bytes(m.b),
      m.a === null || m.b === null ? '' : deltaBytesText(m.b - m.a),
    ]),
    [1, 2, 3],
  );
  table(
    ['collective', 'mesh dims', 'a', 'b'],
    diff.collectives.map((c) => [c.kind, c.axes, countText(c.a), countText(c.b)]),
    [2, 3],
  );
  table(
    ['placement', 'a', 'b'],
    diff.placements.map((p) => [p.count > 1 ? `${p.name} x${p.count}` : p.name, p.a, p.b]),
    [],
  );
  return lines.join('\n');
}

function clip(text: string): string {
  return text.length <= 60 ? text : `${text.slice(0, 57)}...`;
}
