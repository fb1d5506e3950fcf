import { stageText } from '../analysis/pipeline.ts';
import { bytes, count, seconds, type Block, type Section } from '../blocks.ts';
import type { ReadComparison, ReadPlan } from '../comparison-schema.ts';
import { scheduleFigures } from '../figures/schedule.ts';
import { bytesText, percentText } from '../../units.ts';

/** The best plan by itself: its memory, its collectives, its stages. */
export function bestSections(c: ReadComparison): Section[] {
  const best = c.plans.find((p) => p.name === c.best);
  if (best === undefined) return [];
  const blocks = [...memoryBlocks(best, c.budgetBytes), ...trafficBlocks(best)];
  return [
    ...(blocks.length === 0 ? [] : [{ id: 'best', title: 'The best plan', sheet: true, blocks }]),
    ...pipelineSection(best, c.budgetBytes),
  ];
}

function memoryBlocks({ layout, peakBytes }: ReadPlan, budgetBytes: number): Block[] {
  if (layout === undefined) return [];
  const { memory: m } = layout;
  return [
    {
      kind: 'text',
      text: `The fullest device takes ${bytesText(peakBytes)} of ${bytesText(budgetBytes)}. The bar is the whole budget.`,
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

function trafficBlocks({ traffic }: ReadPlan): Block[] {
  if (traffic === undefined || traffic.length === 0) return [];
  return [
    {
      kind: 'table',
      caption:
        'Collectives of a step by kind and mesh dims, on one device; sent: by a ring. Messages between stages are not among them.',
      columns: [
        { head: 'Collective', kind: 'keep' },
        { head: 'Mesh dims', kind: 'name' },
        { head: 'Count', kind: 'number' },
        { head: 'Sent', kind: 'number' },
        { head: 'Time', kind: 'number' },
      ],
      rows: traffic.map((t) => [t.kind, t.axes, count(t.count), bytes(Math.round(t.sentBytes)), seconds(t.seconds)]),
    },
  ];
}

/** Share of a microbatch that is drawn as its forward pass: backward has two products where forward has one. */
const FORWARD_SHARE = 1 / 3;

function pipelineSection({ layout, seconds: whole }: ReadPlan, budgetBytes: number): Section[] {
  if (layout === undefined || layout.sizes.pp === 1) return [];
  const { stages, microbatches, chunks, schedule, bubbleSeconds } = layout;
  const devices = layout.sizes.pp;
  const blocks: Block[] = [
    {
      kind: 'text',
      text: `${stages.length} stages on ${devices} devices in a row (each of them a mesh of its own)${chunks > 1 ? `, ${chunks} chunks of layers on each device` : ''}; ${schedule}, ${microbatches} microbatches, bubble ${percentText(bubbleSeconds / whole)} of the step.`,
    },
  ];
  // A file may hold anything: what does not make a schedule is not drawn.
  if (stages.length === devices * chunks) {
    const figures = scheduleFigures({
      schedule,
      devices,
      microbatches,
      chunks,
      stages: stages.map((s) => ({ forward: s.seconds * FORWARD_SHARE, backwardInput: s.seconds * FORWARD_SHARE, backwardWeight: s.seconds * (1 - 2 * FORWARD_SHARE) })),
      hopSeconds: stages.slice(1).map(() => 0),
      afterSeconds: [],
    }); // prettier-ignore
    blocks.push(...figures.map((figure): Block => ({ kind: 'figure', ...figure })), {
      kind: 'text',
      soft: true,
      text: 'The drawing has the seconds of each stage from the comparison, which keeps forward and backward in one sum: a third of it is drawn as forward, no time for messages between stages, no sums of gradients. The figures in the text and the table are those of the comparison.',
    });
  }
  blocks.push({
    kind: 'table',
    caption: `Stages: seconds of one microbatch, bytes of the device at its peak (budget ${bytesText(budgetBytes)}), and the share of the step that the device waits`,
    columns: [
      { head: 'Stage', kind: 'number' },
      { head: 'Device', kind: 'number' },
      { head: 'Holds', kind: 'name' },
      { head: 'A microbatch', kind: 'number' },
      { head: 'Kept', kind: 'number' },
      { head: 'Peak', kind: 'number' },
      { head: 'Waits', kind: 'number' },
    ],
    rows: stages.map((s, k) => [
      count(k),
      count(k % devices),
      stageText({ ...s, layers: s.end > s.first ? [s.first, s.end - 1] : null }),
      seconds(s.seconds),
      count(s.inFlight),
      bytes(s.peakBytes),
      { text: percentText(s.idleShare), value: s.idleShare },
    ]),
    open: 16,
  });
  return [{ id: 'pipeline', title: 'Pipeline of the best plan', sheet: true, blocks }];
}
