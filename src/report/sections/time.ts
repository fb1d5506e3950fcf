/** Makes the time section of a report: compute, communication, the roofline and the streams. */

import { countText, percentText, secondsText } from '../../units.ts';
import { numberedGroups, rateText, rooflineFigure } from '../figures/roofline.ts';
import { closeUpFigure, streamsFigure } from '../figures/streams.ts';
import { type Block, bytes, code, count, seconds, type Section } from '../model/blocks.ts';
import { type Report, visibleTerms } from '../model/data.ts';
import { ofOneMicrobatch } from './pipeline.ts';

/** The number of rows of long tables that are open on a page. */
const OPEN = 12;

export function time(report: Report): Section {
  const { computeSeconds, communicationSeconds } = report.plan.objective;
  const of = shareOfStep(report);
  const blocks: Block[] = [
    ...ofOneMicrobatch(report),
    {
      kind: 'bar',
      title: 'Step time, one after another: compute against communication',
      parts: [
        { kind: 'compute', label: 'Compute', amount: computeSeconds },
        { kind: 'communication', label: 'Communication', amount: communicationSeconds },
      ],
      text: (s) => `${secondsText(s)} (${of(s)})`,
    },
    ...executed(report),
    {
      kind: 'table',
      caption: 'The step time by term; the terms sum to it',
      columns: [
        { head: 'Term', kind: 'name' },
        { head: 'Time', kind: 'number' },
        { head: 'Of the step', kind: 'number' },
      ],
      rows: visibleTerms(report).map((t) => [
        t.term,
        seconds(t.seconds),
        { text: of(t.seconds), value: t.seconds },
      ]),
    },
    collectives(report),
    ...roofline(report),
    ...streams(report),
    operators(report),
  ];
  return { id: 'time', title: 'Time', sheet: true, blocks };
}

function shareOfStep({ plan }: Report): (part: number) => string {
  const whole = plan.objective.seconds;
  return (part) => (whole > 0 ? percentText(part / whole) : '0 %');
}

/** The seconds of what runs, where the preset charges something else. */
function executed({ plan }: Report): Block[] {
  const { executedCommunicationSeconds } = plan.objective;
  if (executedCommunicationSeconds === undefined) return [];
  return [
    {
      kind: 'text',
      text:
        'The cost preset charges redistributions by a formula of its own. The ' +
        'collectives and copies that run come to ' +
        `${secondsText(executedCommunicationSeconds)} of communication; where that is ` +
        'not what is charged, the difference is a term of its own below.',
    },
  ];
}

function operators(report: Report): Block {
  return {
    kind: 'table',
    caption: 'Operators, largest first',
    columns: [
      { head: 'Operator', kind: 'name' },
      { head: 'Nodes', kind: 'number' },
      { head: 'Compute', kind: 'number' },
      { head: 'Communication', kind: 'number' },
    ],
    rows: report.operators.map((o) => [
      code(o.target),
      count(o.count),
      seconds(o.computeSeconds),
      seconds(o.communicationSeconds),
    ]),
    open: OPEN,
  };
}

function collectives(report: Report): Block {
  if (report.collectives.length === 0)
    return { kind: 'text', text: 'The plan has no collectives.' };
  return {
    kind: 'table',
    caption:
      'Collectives by kind and mesh dims, between operators and inside them. Tensor: ' +
      'gathered output, scattered input, reduced tensor, or one rank’s buffer; sent: by each ' +
      'device in a ring. Beside compute: the share of their time that overlaps when the step ' +
      'is simulated.',
    columns: [
      { head: 'Collective', kind: 'name' },
      { head: 'Mesh dims' },
      { head: 'Devices', kind: 'number' },
      { head: 'Hosts', kind: 'number' },
      { head: 'Count', kind: 'number' },
      { head: 'Tensor', kind: 'number' },
      { head: 'Sent', kind: 'number' },
      { head: 'Time', kind: 'number' },
      { head: 'Beside compute', kind: 'number' },
    ],
    rows: report.collectives.map((c) => [
      code(c.kind),
      c.axes,
      count(c.groupSize),
      count(c.hosts),
      count(c.count),
      bytes(c.bytes),
      bytes(Math.round(c.sentBytes)),
      seconds(c.seconds),
      c.overlappedShare === null
        ? '–'
        : { text: percentText(c.overlappedShare), value: c.overlappedShare },
    ]),
  };
}

function roofline({ roofline: found, plan }: Report): Block[] {
  if (found === null || found.groups.length === 0) return [];
  const numbers = new Map(numberedGroups(found).map((g, k) => [g.name, String(k + 1)]));
  const total = plan.objective.seconds;
  return [
    { kind: 'heading', text: 'What each layer waits for' },
    ...(numbers.size === 0
      ? []
      : [
          {
            kind: 'figure',
            caption:
              'Roofline: the rate that each group of layers reaches over its FLOPs per byte. ' +
              'Area: compute time; numbers: those of the table below.',
            svg: rooflineFigure(found),
          } as const,
        ]),
    {
      kind: 'table',
      caption:
        'Layers, equal ones folded, forward and backward together, on the device with the ' +
        'largest shards. A group is bound by what most of its time waits for: the matrix ' +
        'units (compute), memory, the start of kernels (launch), or communication.',
      columns: [
        { head: 'No.', kind: 'number' },
        { head: 'Layers', kind: 'name' },
        { head: 'Bound by', kind: 'keep' },
        { head: 'Compute', kind: 'number' },
        { head: 'Communication', kind: 'number' },
        { head: 'Of the step', kind: 'number' },
        { head: 'FLOPs per byte', kind: 'number' },
        { head: 'Reached', kind: 'number' },
      ],
      rows: found.groups.map((g) => {
        const all = g.computeSeconds + g.communicationSeconds;
        const rate = g.computeSeconds > 0 ? g.flops / g.computeSeconds : 0;
        const number = numbers.get(g.name);
        return [
          number === undefined ? '' : { text: number, value: Number(number) },
          code(g.name),
          g.bound,
          seconds(g.computeSeconds),
          seconds(g.communicationSeconds),
          { text: percentText(all / total), value: all },
          g.bytes > 0
            ? { text: String(Number((g.flops / g.bytes).toPrecision(3))), value: g.flops / g.bytes }
            : '–',
          rate > 0 ? { text: rateText(rate), value: rate } : '–',
        ];
      }),
      open: OPEN,
    },
  ];
}

function streams({ streams: found, tokens }: Report): Block[] {
  if (found === null) return [];
  const rate =
    tokens === null ? '' : ` That is ${countText(Math.round(tokens / found.seconds))} tokens/s.`;
  return [
    { kind: 'heading', text: 'Compute and communication overlapped' },
    {
      kind: 'text',
      text:
        `Simulated on two streams and more, the step takes ${secondsText(found.seconds)} (one ` +
        `after another, with all kernel starts, ${secondsText(found.serialSeconds)}); ` +
        `${secondsText(found.exposedCommunicationSeconds)} of ` +
        `${secondsText(found.communicationSeconds)} of communication are exposed.${rate}`,
    },
    {
      kind: 'figure',
      caption:
        'The step: the share of each interval in which each stream works; at the left, the ' +
        'share of the step.',
      svg: streamsFigure(found),
    },
    ...(found.closeUp === null
      ? []
      : [
          {
            kind: 'figure',
            caption: 'A stretch of the forward pass, task by task.',
            svg: closeUpFigure(found, found.closeUp),
          } as const,
        ]),
    { kind: 'text', soft: true, text: [...found.passes, ...found.notes].map(sentence).join(' ') },
    {
      kind: 'text',
      soft: true,
      text:
        'For all tasks: shardwright simulate DIR --trace trace.json, which opens in ' +
        'ui.perfetto.dev.',
    },
  ];
}

function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return first.endsWith('.') ? first : `${first}.`;
}
