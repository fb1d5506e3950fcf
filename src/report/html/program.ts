/** Prints a planned program as collapsible HTML: by phase, by repeated layer, by module. */

import { defined } from '../../defined.ts';
import { nodesByName } from '../../graph/nodes.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { itemAt } from '../../item-at.ts';
import { backwardStart } from '../../passes/plannable/weight-views.ts';
import type { Plan, PlannedNode } from '../../plan/record/types.ts';
import { countText, secondsText } from '../../units.ts';
import { lineSignature, nodeLines, outputLines } from '../analysis/program.ts';
import { findRepeats } from '../analysis/repeats.ts';
import { h, type Markup } from '../markup.ts';

/** Lines of program text in one page; what is above is left out, and the page says so. */
const MAX_LINES = 6000;
/** Stretches that are folded when they repeat: parameters of a layer, and calls of one. */
const LEAST_INPUTS = 4;
const LEAST_LINES = 12;
/** The number of lines of a block that are open. */
const OPEN_LINES = 12;

/** A line as the page shows it. */
interface Shown {
  readonly text: string;
  /** `file:line` of the user's program. */
  readonly source: string;
}

interface Line {
  readonly node: Node;
  readonly planned: PlannedNode;
}

/**
 * The program with placements and collectives, in collapsible blocks: by phase, equal neighbouring
 * stretches (layers) folded into one, and inside by module path where the source tells it.
 */
export function programSection(graph: Graph, plan: Plan): Markup[] {
  const planned = nodesByName(plan);
  const split = backwardStart(graph);
  const phases: { name: string; lines: Line[] }[] = [
    { name: 'Inputs', lines: [] },
    { name: 'Forward', lines: [] },
    { name: 'Backward', lines: [] },
  ];
  graph.nodes.forEach((node, n) => {
    const p = planned.get(node.name);
    if (p === undefined) return;
    const phase = node.kind === 'placeholder' ? 0 : n < split ? 1 : 2;
    itemAt(phases, phase).lines.push({ node, planned: p });
  });
  const budget = { lines: MAX_LINES };
  const blocks: Markup[] = [];
  for (const { name, lines } of phases) {
    if (lines.length === 0) continue;
    blocks.push(
      h('h3', {}, `${name}: ${countText(lines.length)} ${lines.length === 1 ? 'line' : 'lines'}`),
      ...phaseBlocks(lines, name === 'Inputs' ? LEAST_INPUTS : LEAST_LINES, budget),
    );
  }
  const outputs = plan.outputs.flatMap((output) =>
    outputLines(output).map((text): Shown => ({ text, source: '' })),
  );
  if (outputs.length > 0)
    blocks.push(
      h('h3', {}, `Results: ${countText(plan.outputs.length)}`),
      block('results', '', outputs, budget),
    );
  if (budget.lines <= 0)
    blocks.push(
      h(
        'p',
        { class: 'soft' },
        `Above ${countText(MAX_LINES)} lines the text is left out; `,
        h('code', {}, 'shardwright plan ... --program'),
        ' prints all of it.',
      ),
    );
  return blocks;
}

function phaseBlocks(lines: readonly Line[], least: number, budget: { lines: number }): Markup[] {
  const numbers = new Map<string, number>();
  const ids = Int32Array.from(lines, (line) => {
    const text = lineSignature(line.node, line.planned);
    let id = numbers.get(text);
    if (id === undefined) numbers.set(text, (id = numbers.size));
    return id;
  });
  return findRepeats(ids, least).flatMap(({ start, period, count }) => {
    const body = lines.slice(start, start + period);
    const suffix = count > 1 ? `${count} equal stretches of ${period} lines, the first shown` : '';
    const parts = byPath(body);
    return parts.map((part) => {
      const note = [suffix, timeText(part, count)].filter((t) => t !== '').join(' · ');
      return block(
        titleOf(part, count > 1 && parts.length === 1),
        note,
        part.flatMap(shownLines),
        budget,
      );
    });
  });
}

/** Neighbouring lines of one module together; without paths everything is one part. */
function byPath(lines: readonly Line[]): Line[][] {
  const parts: Line[][] = [];
  let path: string | undefined;
  for (const line of lines) {
    const own = modulePath(line.node);
    if (parts.length === 0 || own !== path) parts.push([]);
    path = own;
    parts.at(-1)?.push(line);
  }
  return parts;
}

/** At most three steps down, so that a module is a block and not every leaf of it. */
function modulePath(node: Node): string {
  return (node.meta.path ?? '').split('.').slice(0, 4).join('.');
}

function titleOf(lines: readonly Line[], repeated: boolean): string {
  const { node } = itemAt(lines, 0);
  const path = modulePath(node);
  if (path !== '') return path;
  if (node.kind === 'placeholder')
    return repeated ? 'inputs and parameters of a layer' : 'inputs and parameters';
  const last = itemAt(lines, lines.length - 1).node;
  return lines.length === 1 ? node.name : `${node.name} to ${last.name}`;
}

function timeText(lines: readonly Line[], count: number): string {
  let compute = 0;
  let communication = 0;
  for (const { planned } of lines) {
    const times = planned.times ?? 1;
    compute += planned.seconds * times;
    communication += (planned.internalSeconds ?? 0) * times;
    for (const r of planned.redistributions) communication += r.seconds * (r.times ?? 1);
  }
  const each = count > 1 ? ' each' : '';
  const parts = [lines.length === 1 ? '1 line' : `${countText(lines.length)} lines`];
  if (compute > 0) parts.push(`compute ${secondsText(compute)}${each}`);
  if (communication > 0) parts.push(`communication ${secondsText(communication)}${each}`);
  return parts.join(', ');
}

function block(
  title: string,
  note: string,
  lines: readonly Shown[],
  budget: { lines: number },
): Markup {
  const shown = lines.slice(0, Math.max(0, budget.lines));
  budget.lines -= lines.length;
  return h(
    'details',
    { open: lines.length <= OPEN_LINES },
    h('summary', {}, h('span', { class: 'title' }, title), h('span', { class: 'soft' }, note)),
    h(
      'pre',
      { tabindex: 0 },
      shown.length === 0 && lines.length > 0 ? 'left out' : shown.map(lineMarkup),
    ),
  );
}

/**
 * A line of program text: redistributions in one colour, the placement after the `#` in another,
 * the source as a hint.
 */
function lineMarkup({ text, source }: Shown): Markup {
  if (text.startsWith('    # ')) return h('span', { class: 'move' }, `${text}\n`);
  const hint = source === '' ? {} : { title: source };
  const at = text.lastIndexOf('  # ');
  if (at < 0) return h('span', hint, `${text}\n`);
  return h('span', hint, text.slice(0, at), h('span', { class: 'where' }, text.slice(at)), '\n');
}

/**
 * Lines without phase, strides and sources: the block states the phase, and a placement must not
 * lie beyond the page.
 */
function shownLines({ node, planned }: Line): Shown[] {
  const { role, roleName, roleIndex, stateName, source = '' } = node.meta;
  const meta = {
    ...defined({ role, roleName, roleIndex, stateName }),
  };
  const { type } = node;
  const bare: Node = {
    ...node,
    meta,
    type: type.kind === 'tensor' ? { kind: 'tensor', dtype: type.dtype, shape: type.shape } : type,
  };
  return nodeLines(bare, planned).map((text) => ({ text, source }));
}
