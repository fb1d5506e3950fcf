import type { Graph } from '../../graph/types.ts';
import { slowerText, visibleTerms, type Report } from '../data.ts';
import { bytesText, countText, percentText, secondsText } from '../units.ts';
import type { Drawings } from './drawings.ts';
import { h, Markup, scriptJson, type Child } from './markup.ts';
import { programSection } from './program.ts';
import { PAGE_SCRIPT } from './script.ts';
import { pageStyle } from './style.ts';
import { table, type Cell } from './table.ts';

/**
 * The report as one HTML file: no network, no assets, readable without scripts, in light, dark and on paper. The data stand in
 * it once more as JSON, the same value that `--format json` prints.
 */
export function htmlPage(report: Report, graph: Graph | undefined, drawings: Drawings): string {
  const sections = [
    section('what', 'What to do', whatToDo(report)),
    section('time', 'Time', time(report)),
    section('memory', 'Memory', memory(report)),
    section('against', 'Against the plain recipes', against(report)),
    section('drawings', 'Who holds what', drawn(drawings)),
    section('program', 'The program', program(report, graph)),
    section('proof', 'Proof', proof(report)),
    section('assumptions', 'Assumptions and sources', assumptions(report)),
    section('reproduce', 'Make it again', reproduce(report)),
  ];
  const head = h(
    'head',
    {},
    h('meta', { charset: 'utf-8' }),
    h('meta', { 'http-equiv': 'Content-Security-Policy', content: CSP }),
    h('meta', { name: 'viewport', content: 'width=device-width, initial-scale=1' }),
    h('meta', { name: 'generator', content: `Shardwright ${report.versions.shardwright}` }),
    h('title', {}, `Plan of ${report.model}`),
    Markup.trusted(`<style>${pageStyle()}${drawings.style}</style>`),
  );
  const mesh = report.mesh.map((d) => `${d.name}=${d.size}`).join(', ');
  const body = h(
    'body',
    {},
    h('a', { class: 'skip', href: '#what' }, 'Skip to the placements'),
    h(
      'header',
      {},
      h('div', {}, h('h1', {}, report.model), h('div', { class: 'soft' }, `${mesh} on ${report.cluster.name}`)),
      h('button', { type: 'button', class: 'theme', hidden: true }, 'Dark'),
    ),
    h(
      'nav',
      { 'aria-label': 'Sections' },
      sections.map((s) => h('a', { href: `#${s.id}` }, s.title)),
    ),
    h(
      'main',
      {},
      h('section', { 'aria-label': 'Answer' }, answer(report)),
      sections.map((s) => s.markup),
    ),
    h(
      'footer',
      {},
      `Written by Shardwright ${report.versions.shardwright}. One file; nothing is loaded from anywhere.`,
    ),
    Markup.trusted(`<script type="application/json" id="shardwright-report">${scriptJson(report)}</script>`),
    Markup.trusted(`<script>${PAGE_SCRIPT}</script>`),
  );
  return `<!doctype html>\n<html lang="en">${head.html}${body.html}</html>\n`;
}

const CSP = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"; // prettier-ignore

interface Section {
  readonly id: string;
  readonly title: string;
  readonly markup: Markup;
}

const SHEETS = new Set(['time', 'drawings', 'program', 'assumptions']);

function section(id: string, title: string, children: readonly Child[]): Section {
  const markup = h(
    'section',
    { 'aria-labelledby': id, class: SHEETS.has(id) ? 'sheet' : '' },
    h('h2', { id }, title),
    children,
  );
  return { id, title, markup };
}

function answer(report: Report): Markup {
  return h(
    'dl',
    { class: 'answer' },
    report.answer.map(({ label, text }) => [h('dt', {}, label), h('dd', {}, text)]),
  );
}

function whatToDo(report: Report): Child[] {
  const mesh = report.mesh.map((d) => d.name).join(', ');
  const rows = report.parameters.map((p) => [
    { show: h('code', {}, p.count > 1 ? `${p.name} ×${p.count}` : p.name) },
    { show: h('code', {}, `[${p.shape.join(', ')}]`) },
    { show: h('code', {}, p.placement) },
    bytesCell(p.localBytes),
  ]);
  return [
    table(
      `Every parameter, equal layers folded. Placement: one kind for each mesh dim (${mesh}); S(d) cuts dim d, R repeats.`,
      [
        { head: 'Parameter', kind: 'name' },
        { head: 'Shape', kind: 'keep' },
        { head: `Placement (${mesh})`, kind: 'keep' },
        { head: 'Each, per device', kind: 'number' },
      ],
      rows,
    ),
  ];
}

function time(report: Report): Child[] {
  const { seconds, computeSeconds, communicationSeconds } = report.plan.objective;
  const of = (part: number): string => (seconds > 0 ? percentText(part / seconds) : '0 %');
  const parts = [
    { kind: 'compute', label: 'Compute', amount: computeSeconds },
    { kind: 'communication', label: 'Communication', amount: communicationSeconds },
  ];
  const out: Child[] = [
    ...bar(parts, (s) => `${secondsText(s)} (${of(s)})`, 'Step time: compute against communication'),
    table(
      'The step time by term; the terms sum to it',
      [
        { head: 'Term', kind: 'name' },
        { head: 'Time', kind: 'number' },
        { head: 'Of the step', kind: 'number' },
      ],
      visibleTerms(report).map((t) => [t.term, secondsCell(t.seconds), { show: of(t.seconds), value: t.seconds }]),
    ),
  ];
  out.push(
    report.collectives.length === 0
      ? h('p', {}, 'The plan has no collectives between operators.')
      : table(
          'Collectives by kind and mesh dims. Bytes: gathered output, scattered input, reduced tensor, or one rank’s buffer',
          [
            { head: 'Collective', kind: 'name' },
            { head: 'Mesh dims' },
            { head: 'Devices', kind: 'number' },
            { head: 'Hosts', kind: 'number' },
            { head: 'Count', kind: 'number' },
            { head: 'Bytes', kind: 'number' },
            { head: 'Time', kind: 'number' },
          ],
          report.collectives.map((c) => [
            { show: h('code', {}, c.kind) },
            c.axes,
            countCell(c.groupSize),
            countCell(c.hosts),
            countCell(c.count),
            bytesCell(c.bytes),
            secondsCell(c.seconds),
          ]),
        ),
    ...operators(report),
  );
  return out;
}

/** Operators that stand open; the others are a click away. */
const OPEN_OPERATORS = 12;

function operators(report: Report): Markup[] {
  const rows = report.operators.map((o) => [
    { show: h('code', {}, o.target) },
    countCell(o.count),
    secondsCell(o.computeSeconds),
    secondsCell(o.communicationSeconds),
  ]);
  const columns = [
    { head: 'Operator', kind: 'name' },
    { head: 'Nodes', kind: 'number' },
    { head: 'Compute', kind: 'number' },
    { head: 'Communication', kind: 'number' },
  ] as const;
  const rest = rows.slice(OPEN_OPERATORS);
  if (rest.length === 0) return [table('Operators, dearest first', columns, rows)];
  return [
    table('The dearest operators', columns, rows.slice(0, OPEN_OPERATORS)),
    h(
      'details',
      {},
      h('summary', {}, h('span', { class: 'title' }, `${rest.length} more operators`)),
      table('The other operators', columns, rest),
    ),
  ];
}

function memory(report: Report): Child[] {
  const m = report.plan.memory;
  const parts = [
    { kind: 'm1', label: 'Parameters', amount: m.parameterBytes },
    { kind: 'm2', label: 'Gradients', amount: m.gradientBytes },
    { kind: 'm3', label: 'Optimizer', amount: m.optimizerBytes },
  ];
  const { timeline } = m;
  const atPeak = timeline?.byKind ?? {};
  const peakParts = [
    { kind: 'm1', label: 'Parameters', amount: (atPeak.parameter ?? 0) + (atPeak.buffer ?? 0) },
    { kind: 'm2', label: 'Gradients', amount: atPeak.gradient ?? 0 },
    { kind: 'm3', label: 'Optimizer', amount: atPeak.optimizer ?? 0 },
    { kind: 'other', label: 'Activations', amount: timeline?.activationBytes ?? 0 },
  ];
  const used = m.budgetBytes > 0 ? ` (${percentText(m.peakBytes / m.budgetBytes)})` : '';
  return [
    h(
      'p',
      {},
      `${bytesText(m.peakBytes)} of a budget of ${bytesText(m.budgetBytes)} per device${used}. The bar is the whole budget.`,
    ),
    ...bar(parts, bytesText, 'Memory per device by what it holds', Math.max(m.budgetBytes, m.peakBytes)),
    ...(timeline === undefined
      ? [h('p', { class: 'soft' }, 'Activations are not modelled, and not in these numbers.')]
      : [
          h(
            'p',
            {},
            `Over time the peak is ${bytesText(timeline.peakBytes)}, at ${timeline.node} (${timeline.phase}):`,
          ),
          ...bar(peakParts, bytesText, 'Memory per device at its peak', Math.max(m.budgetBytes, timeline.peakBytes)),
        ]),
  ];
}

function against(report: Report): Child[] {
  const { seconds } = report.plan.objective;
  if (report.zoo === null) return [h('p', {}, 'The plain recipes were not priced; see “Assumptions” for why.')];
  const rows: Cell[][] = report.zoo.map((r) => [
    { show: r.name },
    r.seconds === null ? { show: '–' } : secondsCell(r.seconds),
    r.seconds === null ? { show: '–' } : { show: slowerText(r.seconds, seconds), value: r.seconds },
    r.peakBytes === null ? { show: '–' } : bytesCell(r.peakBytes),
    { show: r.reason === '' ? '' : `does not fit: ${r.reason}` },
  ]);
  rows.unshift([
    { show: h('strong', {}, 'this plan') },
    secondsCell(seconds),
    { show: '', value: seconds },
    bytesCell(report.plan.memory.peakBytes),
    { show: report.plan.proof.status },
  ]);
  return [
    table(
      'Each recipe fixes what people fix by hand; everything else is chosen as well as possible, at the same prices',
      [
        { head: 'Plan', kind: 'name' },
        { head: 'Step time', kind: 'number' },
        { head: 'Slower by', kind: 'number' },
        { head: 'Memory', kind: 'number' },
        { head: 'Note' },
      ],
      rows,
    ),
  ];
}

function drawn(drawings: Drawings): Child[] {
  return [
    ...(drawings.figures.length > 0 ? [h('div', { class: 'drawings' }, drawings.figures)] : []),
    ...drawings.left.map((line) => h('p', { class: 'soft' }, line)),
    ...(drawings.figures.length + drawings.left.length === 0 ? [h('p', {}, 'The plan has no parameter to draw.')] : []),
  ];
}

function program(report: Report, graph: Graph | undefined): Child[] {
  if (graph === undefined) return [h('p', {}, 'The graph is not beside the plan, so its program cannot be shown.')];
  return [
    h(
      'p',
      {},
      'Every line with the placements of its inputs and results; above a line, the redistributions that its inputs need. ',
      `${countText(report.plan.nodes.length)} lines in all, equal neighbouring stretches folded. `,
      h('button', { type: 'button', class: 'all', hidden: true }, 'Open all'),
    ),
    h('div', { id: 'program-lines' }, programSection(graph, report.plan)),
  ];
}

function proof(report: Report): Child[] {
  const { proof: p, objective } = report.plan;
  const rows = [
    ['Status', p.status],
    ['Step time', `${secondsText(objective.seconds)} (${objective.seconds} s)`],
    ['Proven lower bound', `${secondsText(p.bound)} (${p.bound} s)`],
    ['Gap', percentText(p.gap)],
    ['Solved by', p.solver],
    ['Re-costed from the plan alone', `${secondsText(p.recheckedSeconds)} (${p.recheckedSeconds} s)`],
    ...p.evidence.map((line) => ['Evidence', line]),
  ];
  return [table('What is proven, and by what', [{ head: 'What' }, { head: 'Value', kind: 'name' }], rows)];
}

function assumptions(report: Report): Child[] {
  return [
    h(
      'ul',
      {},
      report.assumptions.map((a) => h('li', {}, a)),
    ),
    h('h3', {}, 'Not in this report'),
    h(
      'ul',
      {},
      report.missing.map((m) => h('li', {}, m)),
    ),
    table(
      `Constants of ${report.cluster.name}`,
      [{ head: 'Constant', kind: 'name' }, { head: 'Value' }, { head: 'Unit', kind: 'keep' }, { head: 'Source' }],
      report.constants.map((c) => [c.name, c.value, c.unit, c.source]),
    ),
  ];
}

function reproduce(report: Report): Child[] {
  const { hashes, request } = report.plan;
  const rows = [
    ...(hashes === undefined
      ? []
      : [
          ['SHA-256 of graph.swg', hashes.graph],
          ['SHA-256 of request.json', hashes.request],
        ]),
    ['Shardwright', report.versions.shardwright],
    ['Plan format', String(report.versions.plan)],
    ['Cost preset', request.cost],
  ];
  return [
    h('p', {}, 'In the plan folder, with the graph that was planned:'),
    h('pre', { tabindex: 0 }, report.command),
    table('What it rests on', [{ head: 'What' }, { head: 'Value', kind: 'name' }], rows.map(([k, v]) => [k, { show: h('code', {}, v) }])), // prettier-ignore
  ];
}

interface Part {
  readonly kind: string;
  readonly label: string;
  readonly amount: number;
}

/** A stacked bar with its key in words: colour never stands alone. */
function bar(parts: readonly Part[], text: (amount: number) => string, title: string, whole?: number): Markup[] {
  const total = whole ?? parts.reduce((n, p) => n + p.amount, 0);
  const width = (amount: number): string => `${total > 0 ? Number(((100 * amount) / total).toFixed(3)) : 0}%`;
  const spoken = `${title}: ${parts.map((p) => `${p.label} ${text(p.amount)}`).join(', ')}`;
  return [
    h('div', { class: 'bar', role: 'img', 'aria-label': spoken }, parts.map((p) => h('span', { class: p.kind, style: `width:${width(p.amount)}` }))), // prettier-ignore
    h(
      'ul',
      { class: 'key' },
      parts.map((p) => h('li', {}, h('i', { class: p.kind }), `${p.label} ${text(p.amount)}`)),
    ),
  ];
}

function secondsCell(seconds: number): Cell {
  return { show: seconds < 0 ? `-${secondsText(-seconds)}` : secondsText(seconds), value: seconds };
}

function bytesCell(bytes: number | null): Cell {
  return bytes === null ? { show: '–' } : { show: bytesText(bytes), value: bytes };
}

function countCell(count: number): Cell {
  return { show: countText(count), value: count };
}
