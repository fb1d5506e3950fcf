/** Writes the stages of a compared plan in words and rows, for the terminal and the pages. */

import { itemAt } from '../../item-at.ts';
import type { ComparedLayout, ComparedStage } from '../../recipes/compare/comparison.ts';
import { bytesText, countText, percentText } from '../../units.ts';
import { type ReportStage, stageText } from '../analysis/pipeline.ts';
import { bytes, type Cell, count, seconds, type TableBlock } from '../model/blocks.ts';
import { type ColumnOf, tableOf, terminalTable } from '../model/table.ts';

/** A stage as `stageText` reads it. */
function comparedStage({
  first,
  end,
  embedding,
  head,
}: ComparedStage): Pick<ReportStage, 'layers' | 'embedding' | 'head'> {
  return { layers: end > first ? [first, end - 1] : null, embedding, head };
}

/** Bytes that each device of a row sends to its neighbours in a step, activations and gradients. */
function sentBytes({ stages, boundaries, microbatches, sizes }: ComparedLayout): number[] {
  const sent = new Array<number>(sizes.pp).fill(0);
  stages.forEach((_, k) => {
    const forward = boundaries[k]?.bytes ?? 0;
    const backward = k === 0 ? 0 : (boundaries[k - 1]?.bytes ?? 0);
    const device = k % sizes.pp;
    sent[device] = itemAt(sent, device) + microbatches * (forward + backward);
  });
  return sent;
}

/**
 * The messages between the stages in a step: `1.00 MiB each, 16 of them over each of 3 boundaries:
 * ...`.
 */
export function messagesText(layout: ComparedLayout): string {
  const { boundaries, microbatches, sizes } = layout;
  const each = boundaries.map((b) => b.bytes);
  const [least, most] = [Math.min(...each), Math.max(...each)];
  const size = least === most ? bytesText(most) : `${bytesText(least)} to ${bytesText(most)}`;
  const over = boundaries.length === 1 ? 'the boundary' : `each of ${boundaries.length} boundaries`;
  return (
    `${size} each, ${countText(2 * microbatches)} of them a step over ${over}: a device sends ` +
    `up to ${bytesText(Math.max(...sentBytes(layout)))}, a row of ${sizes.pp} devices ` +
    `${bytesText(layout.pointToPointBytes)}`
  );
}

/**
 * By device: the seconds after its last pass in which gradients are summed. What a device is busy
 * with beyond its passes.
 */
export function afterPasses(
  { stages, microbatches, sizes }: ComparedLayout,
  stepSeconds: number,
): number[] {
  return Array.from({ length: sizes.pp }, (_, device) => {
    const mine = stages.filter((_stage, k) => k % sizes.pp === device);
    const passes = microbatches * mine.reduce((total, s) => total + s.seconds, 0);
    const after = (1 - (mine[0]?.idleShare ?? 1)) * stepSeconds - passes;
    return after > 1e-9 * stepSeconds ? after : 0;
  });
}

const numbered = (
  head: string,
  cell: (stage: ComparedStage, index: number) => Cell,
  short = head.toLowerCase(),
): ColumnOf<ComparedStage> => ({ column: { head, short, kind: 'number' }, cell });

/** The stages of a layout, a row each. */
export function stageTable({
  stages,
  sizes,
}: ComparedLayout): Pick<TableBlock, 'columns' | 'rows'> {
  return tableOf(stages, [
    numbered('Stage', (_, k) => count(k)),
    numbered('Device', (_, k) => count(k % sizes.pp)),
    {
      column: { head: 'Holds', short: 'holds', kind: 'name' },
      cell: (s) => stageText(comparedStage(s)),
    },
    numbered('Forward', (s) => seconds(s.forwardSeconds)),
    numbered('Backward', (s) => seconds(s.backwardInputSeconds + s.backwardWeightSeconds)),
    numbered('Kept', (s) => count(s.inFlight)),
    numbered('Peak', (s) => bytes(s.peakBytes), 'memory'),
    numbered('Waits', (s) => ({ text: percentText(s.idleShare), value: s.idleShare })),
  ]);
}

/** Stages that the terminal lists. */
const LISTED = 16;

/** The stages for the terminal: none where there is one. */
export function stageLines(layout: ComparedLayout): string[] {
  const { stages, sizes } = layout;
  if (sizes.pp === 1) return [];
  const { columns, rows } = stageTable(layout);
  return [
    `messages  ${messagesText(layout)}`,
    '',
    terminalTable({ columns, rows: rows.slice(0, LISTED) }),
    ...(stages.length > LISTED ? [`${stages.length - LISTED} more stages; --json has all`] : []),
  ];
}
