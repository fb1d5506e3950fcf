/** Makes the sections that list the plans, the meshes and the refusals of a comparison. */

import { itemAt } from '../../item-at.ts';
import { bestPlan, stepTime } from '../../recipes/compare/best-plan.ts';
import type { ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import { shownFront } from '../../recipes/compare/pareto.ts';
import { bytesText, countText, slowerText } from '../../units.ts';
import { paretoFigure, type PlanPoint } from '../figures/pareto.ts';
import { type Block, bytes, type Cell, type Section, type TableBlock } from '../model/blocks.ts';
import {
  change,
  figureColumns,
  memoryWords,
  meshTable,
  MOST_ROWS,
  nextBestTable,
  refusedTable,
  whatIfTable,
} from '../model/compared-tables.ts';
import { type ColumnOf, tableOf } from '../model/table.ts';

/** Plans that are numbered in the picture. */
const NUMBERED = 16;
const OPEN = 24;

/** Plans that no figure tells apart: one row. */
interface Twins {
  readonly first: ComparedPlan;
  readonly others: readonly ComparedPlan[];
}

/** Plans of equal seconds, communication and bytes under the first of them, or the best. */
function foldedTwins(plans: readonly ComparedPlan[], best: ComparedPlan | undefined): Twins[] {
  const groups = new Map<string, [ComparedPlan, ...ComparedPlan[]]>();
  for (const p of plans) {
    const key = `${stepTime(p)} ${p.seconds} ${p.communicationSeconds} ${p.peakBytes}`;
    const known = groups.get(key);
    if (known === undefined) groups.set(key, [p]);
    else if (p === best) known.unshift(p);
    else known.push(p);
  }
  return [...groups.values()].map(([first, ...others]) => ({ first, others }));
}

/** Rows that a document shows: the fastest, and those of the front. */
export function shownTwins(c: Comparison): readonly Twins[] {
  const front = new Set(c.pareto);
  const all = foldedTwins(c.plans, bestPlan(c));
  return all.filter(
    ({ first, others }, i) => i < MOST_ROWS || [first, ...others].some((p) => front.has(p.name)),
  );
}

/** The other plans with these figures: those on the same mesh by name, the others by number. */
function twinText({ first, others }: Twins): string {
  const here = others.filter((p) => p.mesh === first.mesh).map((p) => p.plan);
  const elsewhere = others.length - here.length;
  return [
    first.plan,
    ...new Set(here),
    ...(elsewhere > 0 ? [`${elsewhere} on other meshes`] : []),
  ].join(', ');
}

export function plansSection(c: Comparison): Section {
  const drawn = drawnPlans(c);
  const blocks: Block[] = [];
  if (drawn.length > 0) blocks.push(planFigure(c, drawn));
  blocks.push(planTable(c, drawn), ...questions(c));
  return { id: 'plans', title: 'Plans', blocks };
}

/**
 * The plans of the picture: the front and the best whatever else is, of plans with equal figures
 * the first.
 */
function drawnPlans(c: Comparison): ComparedPlan[] {
  const best = bestPlan(c);
  const front = new Set(c.pareto);
  const figures = new Set<string>();
  const position = new Map(c.plans.map((p, k) => [p, k]));
  return [...c.plans]
    .sort((a, b) => Number(front.has(b.name)) - Number(front.has(a.name)))
    .filter((p) => {
      const key = `${stepTime(p)} ${p.peakBytes}`;
      if (figures.has(key) && p !== best) return false;
      figures.add(key);
      return true;
    })
    .slice(0, NUMBERED)
    .sort((a, b) => (position.get(a) ?? 0) - (position.get(b) ?? 0));
}

function planFigure(c: Comparison, drawn: readonly ComparedPlan[]): Block {
  const memory = memoryWords(c);
  const best = bestPlan(c);
  const points = drawn.map((p): PlanPoint => ({
    name: `${p.name} on ${p.mesh}`,
    seconds: stepTime(p),
    bytes: p.peakBytes,
    fits: p.fits,
    chosen: p === best,
    front: c.pareto.includes(p.name),
  }));
  return {
    kind: 'figure',
    caption:
      `Step time over ${memory.long}. Numbers: those of the table; the line joins the plans ` +
      'that no other fitting one beats in both.',
    svg: paretoFigure(points, c.budgetBytes, [memory.axis, 'step time']),
  };
}

type PlanColumn = ColumnOf<Twins>;

function planColumns(c: Comparison, drawn: readonly ComparedPlan[]): PlanColumn[] {
  const front = new Set(c.pareto);
  const best = bestPlan(c);
  const numbers = new Map(drawn.map((p, k) => [p, k + 1]));
  const column = (
    head: string,
    kind: PlanColumn['column']['kind'],
    cell: PlanColumn['cell'],
  ): PlanColumn => ({ column: kind === undefined ? { head } : { head, kind }, cell });
  return [
    column('No.', 'number', (twins) => numberCell(twins, numbers)),
    column('Plan', 'keep', twinText),
    column('Mesh', 'keep', ({ first }) => first.mesh),
    ...figureColumns(c).map(({ column: of, cell }) => ({
      column: of,
      cell: ({ first }: Twins, i: number) => cell(first, i),
    })),
    column('Slower by', 'number', ({ first }) =>
      best === undefined
        ? '–'
        : { text: slowerText(stepTime(first), stepTime(best)), value: stepTime(first) },
    ),
    column('Standing', undefined, ({ first }) =>
      first === best ? 'best' : standing(first, front),
    ),
    column('Loses by', 'name', ({ first }) => first.cause ?? ''),
  ];
}

function numberCell(
  { first, others }: Twins,
  numbers: ReadonlyMap<ComparedPlan, number>,
): Cell | string {
  const number = [first, ...others].map((p) => numbers.get(p)).find((n) => n !== undefined);
  return number === undefined ? '' : { text: String(number), value: number };
}

function planTable(c: Comparison, drawn: readonly ComparedPlan[]): Block {
  const rows = shownTwins(c);
  const inRows = rows.reduce((n, { others }) => n + 1 + others.length, 0);
  const what =
    inRows === c.plans.length
      ? 'Every plan that was priced'
      : `${countText(inRows)} of ${countText(c.plans.length)} plans that were priced, the ` +
        'fastest and the front (compare --json has all)';
  const folded = inRows === rows.length ? '' : '; plans of equal figures are one row';
  return {
    kind: 'table',
    caption:
      `${what}, what each loses by most, and which plan is better in both time and ` +
      `memory${folded}`,
    ...tableOf(rows, planColumns(c, drawn)),
    open: OPEN,
  };
}

function standing(
  { name, fits, overBytes, dominatedBy }: ComparedPlan,
  front: ReadonlySet<string>,
): string {
  if (!fits)
    return `does not fit${overBytes === undefined ? '' : `, ${bytesText(overBytes)} over`}`;
  if (front.has(name)) return 'on the front';
  return dominatedBy === undefined ? '' : `dominated by ${dominatedBy}`;
}

/** A heading with its table; nothing where there is nothing to say. */
function tableUnder(title: string, table: Omit<TableBlock, 'kind'>): Block[] {
  return table.rows.length === 0
    ? []
    : [
        { kind: 'heading', text: title },
        { kind: 'table', ...table },
      ];
}

function questions(c: Comparison): Block[] {
  const front = shownFront(c.frontier ?? []);
  return [
    ...tableUnder('Next best', nextBestTable(c)),
    ...tableUnder('What would change the answer', whatIfTable(c)),
    ...tableUnder('Price of memory', {
      caption:
        'Along the front from its leanest plan up, in steps of a hundredth of the time: what ' +
        'more memory saves',
      columns: [
        { head: 'From', kind: 'number' },
        { head: 'To', kind: 'number' },
        { head: 'Change of the step', kind: 'number' },
      ],
      rows: front
        .slice(1)
        .map((p, i) => [
          bytes(itemAt(front, i).peakBytes),
          bytes(p.peakBytes),
          change(p.seconds - itemAt(front, i).seconds),
        ]),
    }),
  ];
}

export function meshSection(c: Comparison): Section {
  const table: TableBlock = { kind: 'table', ...meshTable(c), open: OPEN };
  return { id: 'meshes', title: 'Meshes', blocks: [table] };
}

export function refusedSection(c: Comparison): Section {
  const table: TableBlock = { kind: 'table', ...refusedTable(c), open: OPEN };
  const none: Block = { kind: 'text', text: 'No plan was refused.' };
  return { id: 'refused', title: 'Refused', blocks: [table.rows.length === 0 ? none : table] };
}
