/**
 * Makes the section on the layout that the user runs: its figures compared with the best, the
 * changes that bring it nearer, and the costs that are not counted.
 */

import type { ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import { bytesText, countText, percentText, secondsText, slowerText } from '../../units.ts';
import { type Block, seconds, type Section } from '../model/blocks.ts';

type Layout = NonNullable<Comparison['layout']>;

export function layoutSection({ layout, plans, best: name }: Comparison): Section[] {
  if (layout === undefined) return [];
  const { from } = layout;
  const blocks: Block[] = [
    {
      kind: 'text',
      text: layout.text + (from === undefined ? '' : ` (read from ${from.file}, ${from.format})`),
    },
    figures(
      layout,
      plans.find((p) => p.name === name),
    ),
    edits(layout),
  ];
  if (from !== undefined && from.notPriced.length > 0)
    blocks.push(
      { kind: 'heading', text: 'Not counted' },
      {
        kind: 'list',
        items: from.notPriced.map(
          ({ key, value, why }) => `${[key, value].join(' ').trim()}: ${why}`,
        ),
      },
    );
  return [{ id: 'your-layout', title: 'Your layout', blocks }];
}

/** The layout, and beside it the best plan where one fits. */
function figures(layout: Layout, best: ComparedPlan | undefined): Block {
  const parts = best?.layout;
  const rows = [
    ['Step time', seconds(layout.seconds), best && seconds(best.seconds)],
    ['Slower by', best === undefined ? '–' : slowerText(layout.seconds, best.seconds), '–'],
    ['Compute', seconds(layout.computeSeconds), parts && seconds(parts.computeSeconds)],
    [
      'Communication',
      seconds(layout.communicationSeconds),
      best && seconds(best.communicationSeconds),
    ],
    ['Pipeline bubble', seconds(layout.bubbleSeconds), parts && seconds(parts.bubbleSeconds)],
    [
      'Tokens a second',
      countText(Math.round(layout.tokensPerSecond)),
      parts && countText(Math.round(parts.tokensPerSecond)),
    ],
    [
      'Peak memory',
      `${bytesText(layout.peakBytes)}${layout.fits ? '' : ', does not fit'}`,
      best && bytesText(best.peakBytes),
    ],
  ] as const;
  return {
    kind: 'table',
    caption:
      'The layout as it is priced' +
      (best === undefined ? '' : `, next to the best: ${best.plan} on ${best.mesh}`),
    columns: [
      { head: 'Of the step', kind: 'name' },
      { head: 'Your layout', kind: 'number' },
      ...(best === undefined ? [] : [{ head: 'Best plan', kind: 'number' as const }]),
    ],
    rows: rows.map(([what, own, other]) => [
      what,
      own,
      ...(best === undefined ? [] : [other ?? '–']),
    ]),
  };
}

/** The changes of one setting that make the layout faster. */
function edits(layout: Layout): Block {
  if (layout.edits.length === 0)
    return {
      kind: 'text',
      text: 'No change of one setting that fits as surely as the best is faster.',
    };
  return {
    kind: 'list',
    items: layout.edits.map(
      (e) =>
        `${e.change}: ${secondsText(e.seconds)}, ` +
        `${percentText(1 - e.seconds / layout.seconds)} less, ${bytesText(e.peakBytes)}`,
    ),
  };
}
