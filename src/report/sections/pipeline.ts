/** Makes the pipeline section of a report: stages, boundaries and the schedule. */

import { itemAt } from '../../item-at.ts';
import { bytesText, countedText, countText, percentText, secondsText } from '../../units.ts';
import { type Pipeline, stageText } from '../analysis/pipeline.ts';
import { scheduleFigures } from '../figures/schedule.ts';
import { type Block, bytes, count, seconds, type Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';

/** The scope of the other sections, where the plan has stages. */
export function ofOneMicrobatch({ pipeline }: Report): Block[] {
  if (pipeline === null) return [];
  return [
    {
      kind: 'text',
      text:
        'This section is about one microbatch, the whole model on the mesh of one stage, with ' +
        `the memory of all ${pipeline.devices} devices of the pipeline together; what the ` +
        'stages make of it is under Pipeline.',
    },
  ];
}

/** The stages of a plan that has some. */
export function pipelineSection({ pipeline }: Report): Section[] {
  if (pipeline === null) return [];
  const { schedule, microbatches, virtual, devices, stages, afterSeconds, boundaries, moved } =
    pipeline;
  const blocks: Block[] = [
    { kind: 'text', text: summaryText(pipeline) },
    ...scheduleFigures({
      schedule,
      devices,
      microbatches,
      chunks: virtual,
      stages: stages.map((s) => ({
        forward: s.forwardSeconds,
        backwardInput: s.backwardInputSeconds,
        backwardWeight: s.backwardWeightSeconds,
      })),
      hopSeconds: boundaries.map((b) => b.seconds),
      afterSeconds,
    }).map((figure): Block => ({ kind: 'figure', ...figure })),
    stageTable(pipeline),
    ...(boundaries.length === 0 ? [] : [boundaryTable(boundaries, microbatches)]),
    ...(moved.length === 0 ? [] : [{ kind: 'list', items: moved } as const]),
  ];
  return [{ id: 'pipeline', title: 'Pipeline', sheet: true, blocks }];
}

function summaryText({
  schedule,
  microbatches,
  virtual,
  seconds: whole,
  bubbleSeconds,
  stages,
  devices,
}: Pipeline): string {
  const slowest = stages.reduce(
    (most, s, k) => (s.seconds > itemAt(stages, most).seconds ? k : most),
    0,
  );
  const stage = itemAt(stages, slowest);
  const chunks = virtual > 1 ? `, ${virtual} chunks of layers on each device` : '';
  return (
    `${stages.length} stages on ${devices} devices in a row (each of them a mesh of its ` +
    `own)${chunks}; ${schedule}, ${countedText(microbatches, 'microbatch', 'microbatches')}. ` +
    `The step takes ${secondsText(whole)}; the device that works longest waits ` +
    `${secondsText(bubbleSeconds)} of it (${percentText(bubbleSeconds / whole)} of the step). ` +
    `The slowest stage is ${slowest} (${stageText(stage)}), ` +
    `${secondsText(stage.seconds)} a microbatch.`
  );
}

function stageTable({ stages, budgetBytes }: Pipeline): Block {
  return {
    kind: 'table',
    caption:
      'Stages: seconds of one microbatch, bytes of the device at its peak (budget ' +
      `${bytesText(budgetBytes)}), and the share of the step that the device waits`,
    columns: [
      { head: 'Stage', kind: 'number' },
      { head: 'Device', kind: 'number' },
      { head: 'Holds', kind: 'name' },
      { head: 'Forward', kind: 'number' },
      { head: 'Backward', kind: 'number' },
      { head: 'States', kind: 'number' },
      { head: 'Kept', kind: 'number' },
      { head: 'Activations', kind: 'number' },
      { head: 'Other', kind: 'number' },
      { head: 'Peak', kind: 'number' },
      { head: 'Waits', kind: 'number' },
    ],
    rows: stages.map((s, k) => [
      count(k),
      count(s.device),
      stageText(s),
      seconds(s.forwardSeconds),
      seconds(s.backwardInputSeconds + s.backwardWeightSeconds),
      bytes(s.stateBytes),
      count(s.inFlight),
      bytes(s.activationBytes),
      bytes(s.temporaryBytes),
      bytes(s.peakBytes),
      { text: percentText(s.idleShare), value: s.idleShare },
    ]),
  };
}

/** The messages between stages; rows beyond the first are a click away. */
export function boundaryTable(
  boundaries: readonly { readonly bytes: number; readonly seconds: number }[],
  microbatches: number,
): Block {
  return {
    kind: 'table',
    caption:
      'Point to point between stages: what each device sends for one microbatch, activations ' +
      `forward and as many bytes of gradients back; a step has ${countText(microbatches)} each ` +
      'way',
    columns: [
      { head: 'From stage', kind: 'number' },
      { head: 'To stage', kind: 'number' },
      { head: 'One message', kind: 'number' },
      { head: 'Takes', kind: 'number' },
      { head: 'A step, both ways', kind: 'number' },
    ],
    rows: boundaries.map((b, k) => [
      count(k),
      count(k + 1),
      bytes(b.bytes),
      seconds(b.seconds),
      bytes(2 * microbatches * b.bytes),
    ]),
    open: 16,
  };
}
