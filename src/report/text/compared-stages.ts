/** Writes the stages of a compared plan in words and rows, for the terminal and the pages. */

import type { ComparedLayout, ComparedStage } from '../../recipes/compare/comparison.ts';
import { bytesText, countText, percentText, secondsText, tableText } from '../../units.ts';
import { type ReportStage, stageText } from '../analysis/pipeline.ts';

/** A stage as `stageText` reads it. */
export function comparedStage({
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
    sent[k % sizes.pp] += microbatches * (forward + backward);
  });
  return sent;
}

/**
 * The messages between the stages in a step: `1.00 MiB each, 16 of them over each of 3 boundaries:
 * ...`.
 */
export function messagesText(layout: ComparedLayout): string {
  const { boundaries, microbatches, sizes } = layout;
  const bytes = boundaries.map((b) => b.bytes);
  const [least, most] = [Math.min(...bytes), Math.max(...bytes)];
  const each = least === most ? bytesText(most) : `${bytesText(least)} to ${bytesText(most)}`;
  const over = boundaries.length === 1 ? 'the boundary' : `each of ${boundaries.length} boundaries`;
  return (
    `${each} each, ${countText(2 * microbatches)} of them a step over ${over}: a device sends ` +
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

/** Stages that the terminal lists. */
const LISTED = 16;

/** The stages for the terminal: none where there is one. */
export function stageLines(layout: ComparedLayout): string[] {
  const { stages, sizes } = layout;
  if (sizes.pp === 1) return [];
  const rows = stages
    .slice(0, LISTED)
    .map((s, k) => [
      `${k}`,
      `${k % sizes.pp}`,
      stageText(comparedStage(s)),
      secondsText(s.forwardSeconds),
      secondsText(s.backwardInputSeconds + s.backwardWeightSeconds),
      `${s.inFlight}`,
      bytesText(s.peakBytes),
      percentText(s.idleShare),
    ]);
  const head = ['stage', 'device', 'holds', 'forward', 'backward', 'kept', 'memory', 'waits'];
  return [
    `messages  ${messagesText(layout)}`,
    '',
    tableText([head, ...rows], [0, 1, 3, 4, 5, 6, 7]),
    ...(stages.length > LISTED ? [`${stages.length - LISTED} more stages; --json has all`] : []),
  ];
}
