/** Makes the sections on the best plan of a comparison: memory, collectives, stages. */

import type { ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import { bytesText, countedText, percentText } from '../../units.ts';
import { scheduleFigures } from '../figures/schedule.ts';
import { type Block, bytes, count, seconds, type Section } from '../model/blocks.ts';
import { afterPasses, messagesText, stageTable } from '../text/compared-stages.ts';
import { boundaryTable } from './pipeline.ts';

/** The best plan by itself: its memory, its collectives, its stages. */
export function bestSections(c: Comparison): Section[] {
  const best = c.plans.find((p) => p.name === c.best);
  if (best === undefined) return [];
  const blocks = [...memoryBlocks(best, c.budgetBytes), ...trafficBlocks(best)];
  return [
    ...(blocks.length === 0
      ? []
      : [
          { id: 'best', title: `The best plan: ${best.plan} on ${best.mesh}`, sheet: true, blocks },
        ]),
    ...pipelineSection(best, c.budgetBytes),
  ];
}

function memoryBlocks({ layout, peakBytes }: ComparedPlan, budgetBytes: number): Block[] {
  if (layout === undefined) return [];
  const { memory: m } = layout;
  return [
    {
      kind: 'text',
      text:
        `The fullest device takes ${bytesText(peakBytes)} of ${bytesText(budgetBytes)}. The ` +
        'bar is the whole budget.',
    },
    {
      kind: 'bar',
      title: 'Memory of the fullest device at its peak',
      parts: [
        { kind: 'm1', label: 'Parameters', amount: m.parameterBytes },
        { kind: 'm2', label: 'Gradients', amount: m.gradientBytes },
        { kind: 'm3', label: 'Optimizer', amount: m.optimizerBytes },
        { kind: 'm4', label: 'Activations', amount: m.activationBytes },
        { kind: 'm5', label: 'Other', amount: m.temporaryBytes },
      ],
      text: bytesText,
      whole: Math.max(budgetBytes, peakBytes),
    },
  ];
}

function trafficBlocks({ traffic }: ComparedPlan): Block[] {
  if (traffic === undefined || traffic.length === 0) return [];
  return [
    {
      kind: 'table',
      caption:
        'Collectives of a step by kind and mesh dims, on one device; sent: by a ring. ' +
        'Messages between stages are not among them.',
      columns: [
        { head: 'Collective', kind: 'keep' },
        { head: 'Mesh dims', kind: 'name' },
        { head: 'Count', kind: 'number' },
        { head: 'Sent', kind: 'number' },
        { head: 'Time', kind: 'number' },
      ],
      rows: traffic.map((t) => [
        t.kind,
        t.axes,
        count(t.count),
        bytes(Math.round(t.sentBytes)),
        seconds(t.seconds),
      ]),
    },
  ];
}

function pipelineSection({ layout, seconds: whole }: ComparedPlan, budgetBytes: number): Section[] {
  if (layout === undefined || layout.sizes.pp === 1) return [];
  const { stages, boundaries, microbatches, chunks, schedule, bubbleSeconds } = layout;
  const devices = layout.sizes.pp;
  const blocks: Block[] = [
    {
      kind: 'text',
      text:
        `${stages.length} stages on ${devices} devices in a row (each of them a mesh of its ` +
        `own)${chunks > 1 ? `, ${chunks} chunks of layers on each device` : ''}; ${schedule}, ` +
        `${countedText(microbatches, 'microbatch', 'microbatches')}, bubble ` +
        `${percentText(bubbleSeconds / whole)} of the step. Messages between stages: ` +
        `${messagesText(layout)}.`,
    },
    ...drawnSchedule(layout, whole),
    stagesBlock(layout, budgetBytes),
  ];
  if (boundaries.length > 0) blocks.push(boundaryTable(boundaries, microbatches));
  return [{ id: 'pipeline', title: 'Pipeline of the best plan', sheet: true, blocks }];
}

type ComparedLayout = NonNullable<ComparedPlan['layout']>;

/** The schedule; a file may hold anything, and what does not make a schedule is not drawn. */
function drawnSchedule(layout: ComparedLayout, whole: number): Block[] {
  const { stages, boundaries, microbatches, chunks, schedule } = layout;
  const devices = layout.sizes.pp;
  if (stages.length !== devices * chunks || boundaries.length !== stages.length - 1) return [];
  const figures = scheduleFigures({
    schedule,
    devices,
    microbatches,
    chunks,
    stages: stages.map((s) => ({
      forward: s.forwardSeconds,
      backwardInput: s.backwardInputSeconds,
      backwardWeight: s.backwardWeightSeconds,
    })),
    hopSeconds: boundaries.map((b) => b.seconds),
    afterSeconds: afterPasses(layout, whole),
  });
  return figures.map((figure) => ({ kind: 'figure', ...figure }));
}

function stagesBlock(layout: ComparedLayout, budgetBytes: number): Block {
  const recomputed = layout.checkpoint === 'none' ? '' : ' (backward with what is recomputed)';
  return {
    kind: 'table',
    caption:
      `Stages: seconds of one microbatch${recomputed}, ` +
      `bytes of the device at its peak (budget ${bytesText(budgetBytes)}), microbatches with ` +
      'saved activations, and the idle share of the step',
    ...stageTable(layout),
    open: 16,
  };
}
