/**
 * Prints the explanation of a node's strategy as text: the alternatives, and the counterfactual
 * plan.
 */

import type { NodeExplanation } from '../../plan/questions/explain.ts';
import { pinText } from '../../plan/questions/what-if.ts';
import type { Forced, PlanChange, WhatIfHistory } from '../../plan/questions/what-if-history.ts';
import {
  bytesText,
  deltaSecondsText,
  differenceText,
  lineText,
  secondsText,
  tableText,
} from '../../units.ts';

/** The strategies of a node as text; `limit` of them, the rest counted. */
export function explanationText(found: NodeExplanation, limit: number): string {
  const shown = found.strategies.slice(0, limit);
  const time = (seconds: number | null): string => (seconds === null ? '-' : secondsText(seconds));
  const rows = shown.map((c) => [
    c.spec,
    c.class === 'OVER BUDGET' ? `OVER BUDGET +${bytesText(c.overBytes ?? 0)}` : c.class,
    c.localSeconds === null ? '-' : deltaSecondsText(c.localSeconds),
    secondsText(c.computeSeconds),
    secondsText(c.internalSeconds),
    time(c.inSeconds),
    time(c.outSeconds),
    c.reason ?? '',
  ]);
  const lines = [
    `${lineText(found.node)}  ${found.target}  ${found.chosen}`,
    '',
    tableText(
      [['strategy', '', 'local', 'compute', 'inside', 'moves in', 'moves out', ''], ...rows],
      [2, 3, 4, 5, 6],
    ),
  ];
  const left = found.strategies.length - shown.length;
  if (left > 0) lines.push(`and ${left} more (--limit ${found.strategies.length} shows all)`);
  const [chosen] = found.strategies.filter((c) => c.class === 'CHOSEN');
  if (chosen !== undefined && chosen.inside.length > 0)
    lines.push(
      '',
      'inside, as chosen:',
      tableText(
        chosen.inside.map(({ node, kind, meshDims, from, to, type, bytes, seconds, times }) => [
          node === undefined ? '-' : `%${node}`,
          `${kind}(${meshDims.join(',')})`,
          from === undefined || to === undefined ? '' : `${from} -> ${to}`,
          type ?? '',
          bytesText(bytes),
          secondsText(seconds),
          times === undefined ? '' : 'in one branch',
        ]),
        [4, 5],
      ),
    );
  lines.push(
    '',
    'local: seconds more than the chosen strategy, everything around it fixed but the shared ' +
      'copies of its tensors',
    'global: no placement of this node makes the plan faster than >= ' +
      `${deltaSecondsText(found.globalAtLeastSeconds)} (proven bound); --force SPEC solves ` +
      'again',
    ...found.limits.map((l) => `limit  ${l}`),
  );
  return lines.join('\n');
}

/** The counterfactual of one placement as text; `asked` is the placement as it is named there. */
export function forcedText(forced: Forced, limit: number, asked = forced.spec): string {
  const { attribution, changedNodes } = forced;
  const lines = [
    `force ${changeText(asked, forced)}`,
    forced.changes.length === 0
      ? 'changed in the request: nothing, the pin was there'
      : `changed in the request: ${forced.changes.join('; ')}`,
  ];
  if (attribution.length > 0) {
    const rows = attribution
      .slice(0, limit)
      .map((t) => [t.term, secondsText(t.before), secondsText(t.after), deltaSecondsText(t.delta)]);
    lines.push('', tableText([['because of', 'before', 'after', 'change'], ...rows], [1, 2, 3]));
    const rest = attribution.slice(limit);
    if (rest.length > 0)
      lines.push(
        `and ${rest.length} smaller terms, ` +
          `${deltaSecondsText(rest.reduce((n, t) => n + t.delta, 0))} together`,
      );
  }
  const names = lineText(changedNodes.slice(0, limit).join(', '));
  const listed = names === '' ? '' : ` (${names}${changedNodes.length > limit ? ' ...' : ''})`;
  lines.push('', `other nodes that change: ${changedNodes.length}${listed}`);
  return lines.join('\n');
}

/** The cost of a change, with its share of the step before it. */
function changeText(what: string, { globalSeconds, plan }: PlanChange): string {
  const { seconds } = plan.objective;
  const before = seconds - globalSeconds;
  const share = before > 0 ? ` (${differenceText(globalSeconds / before)} ` + 'of the step)' : '';
  return (
    `${what}: global ${deltaSecondsText(globalSeconds)}${share}, ` +
    `${secondsText(seconds)} in all, ${plan.proof.status}`
  );
}

export const NOTHING_ASKED = 'no other placement is asked for: the plan as it is';

/** The last question of several with its answer, and all of them against the plan. */
export function historyText(history: WhatIfHistory, limit: number): string {
  const last = history.asked.at(-1);
  if (last === undefined) return NOTHING_ASKED;
  const asked = history.asked.length > 1 ? pinText(last.pin) : last.pin.spec;
  return [forcedText(last.forced, limit, asked), ...togetherLines(history)].join('\n\n');
}

/** All questions against the plan, where there are several. */
export function togetherLines(history: WhatIfHistory): string[] {
  const { length } = history.asked;
  if (length < 2) return [];
  const { together } = history;
  return [
    `${changeText(`${length} together`, together)}\n` +
      `changed in the request: ${together.changes.join('; ')}`,
  ];
}
