/** Makes the memory section of a report: the curve, the peak, and what is alive there. */

import { bytesText, percentText } from '../../units.ts';
import { memoryFigure } from '../figures/memory-curve.ts';
import { type Block, bytes, code, type Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';
import { ofOneMicrobatch } from './pipeline.ts';

export function memory(report: Report): Section {
  const { timeline } = report.plan.memory;
  const blocks: Block[] = [...ofOneMicrobatch(report), ...states(report)];
  if (timeline === undefined) {
    blocks.push({
      kind: 'text',
      soft: true,
      text: 'Activations are not modelled, and not in these numbers.',
    });
    return { id: 'memory', title: 'Memory timeline', blocks };
  }
  blocks.push(...peak(report, timeline), ...curve(report));
  return { id: 'memory', title: 'Memory timeline', sheet: true, blocks };
}

/** The memory of a device within its budget, and the states in it. */
function states({ plan }: Report): Block[] {
  const m = plan.memory;
  // Where the budget limits peak memory, the plan's memory is that peak.
  const isPeakLimited = m.timeline !== undefined && m.peakBytes === m.timeline.peakBytes;
  const used = m.budgetBytes > 0 ? ` (${percentText(m.peakBytes / m.budgetBytes)})` : '';
  return [
    {
      kind: 'text',
      text:
        (isPeakLimited
          ? 'At its peak a device takes '
          : 'Parameters, gradients and optimizer state take ') +
        `${bytesText(m.peakBytes)} of a budget of ${bytesText(m.budgetBytes)} per ` +
        `device${used}. The bar is the whole budget.`,
    },
    {
      kind: 'bar',
      title: 'States per device by what they are',
      parts: [
        { kind: 'm1', label: 'Parameters', amount: m.parameterBytes },
        { kind: 'm2', label: 'Gradients', amount: m.gradientBytes },
        { kind: 'm3', label: 'Optimizer', amount: m.optimizerBytes },
      ],
      text: bytesText,
      whole: Math.max(m.budgetBytes, m.parameterBytes + m.gradientBytes + m.optimizerBytes),
    },
  ];
}

type Timeline = NonNullable<Report['plan']['memory']['timeline']>;

function peak({ plan }: Report, { peakBytes, node, phase, byKind }: Timeline): Block[] {
  return [
    {
      kind: 'text',
      text: `Peak memory is ${bytesText(peakBytes)}, at ${node} (${phase}):`,
    },
    {
      kind: 'bar',
      title: 'Memory per device at its peak',
      parts: [
        { kind: 'm1', label: 'Parameters', amount: (byKind.parameter ?? 0) + (byKind.buffer ?? 0) },
        { kind: 'm2', label: 'Gradients', amount: byKind.gradient ?? 0 },
        { kind: 'm3', label: 'Optimizer', amount: byKind.optimizer ?? 0 },
        {
          kind: 'm4',
          label: 'Activations',
          amount: (byKind.activation ?? 0) + (byKind.temporary ?? 0) + (byKind.reserved ?? 0),
        },
        { kind: 'm5', label: 'Copies in flight', amount: byKind.communication ?? 0 },
      ],
      text: bytesText,
      whole: Math.max(plan.memory.budgetBytes, peakBytes),
    },
  ];
}

/** The kind of a tensor, in words. */
function kindText(kind: string): string {
  return kind === 'communication' ? 'copy of a redistribution' : kind;
}

function curve({ memory: found, plan }: Report): Block[] {
  const columns = [
    { head: 'Tensor', kind: 'name' },
    { head: 'What' },
    { head: 'Bytes', kind: 'number' },
  ] as const;
  if (found === null) {
    const largest = plan.memory.timeline?.largest ?? [];
    return [
      {
        kind: 'table',
        caption: 'The largest tensors at the peak',
        columns,
        rows: largest.map((t) => [code(t.name), kindText(t.kind), bytes(t.bytes)]),
      },
    ];
  }
  const at = (point: number): { text: string; value: number } => ({
    text: String(point),
    value: point,
  });
  return [
    {
      kind: 'figure',
      caption:
        'Live bytes on the fullest device at every program point. From below: parameters, ' +
        'optimizer state, gradients, activations, copies that redistributions make.',
      svg: memoryFigure(found, plan.memory.budgetBytes),
    },
    {
      kind: 'table',
      caption:
        `The largest tensors alive at the peak (program point ${found.peakMoment} of ` +
        `${found.moments}), without states`,
      columns: [
        ...columns,
        { head: 'From point', kind: 'number' },
        { head: 'To point', kind: 'number' },
      ],
      rows: found.largest.map((t) => [
        code(t.name),
        kindText(t.kind),
        bytes(t.bytes),
        at(t.from),
        at(t.to),
      ]),
    },
  ];
}
