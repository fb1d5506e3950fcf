/**
 * Makes the tables of a comparison that a terminal and a page both have: the figures of plans,
 * the next best ones, what would change the answer, the meshes, the refusals.
 */

import { stepTime } from '../../recipes/compare/best-plan.ts';
import type { ComparedPlan, Comparison, WhatIf } from '../../recipes/compare/comparison.ts';
import { countText, deltaSecondsText, probabilityText } from '../../units.ts';
import { bytes, type Cell, seconds, type TableBlock } from './blocks.ts';
import type { ColumnOf } from './table.ts';

type Table = Omit<TableBlock, 'kind'>;

/** Rows that a document has; `compare --json` and `report --format csv` have all of them. */
export const MOST_ROWS = 600;

/** Words for the bytes of plans: the peak, or the states where those alone were asked about. */
export function memoryWords({ question, holds }: Comparison): {
  readonly long: string;
  readonly axis: string;
  readonly head: string;
  readonly short: string;
} {
  if (question !== undefined || holds === 'peak')
    return {
      long: 'the memory of a device at its peak',
      axis: 'peak memory per device',
      head: 'Peak memory',
      short: question === undefined ? 'peak' : 'memory',
    };
  return {
    long: 'the memory of parameters, gradients and optimizer state',
    axis: 'states per device',
    head: 'States',
    short: 'states',
  };
}

/** Columns of what a plan takes: its seconds, its bytes, and how surely it fits. */
export function figureColumns(c: Comparison): ColumnOf<ComparedPlan>[] {
  const { head, short } = memoryWords(c);
  const number = (
    title: string,
    cell: ColumnOf<ComparedPlan>['cell'],
    onTerminal = title.toLowerCase(),
  ): ColumnOf<ComparedPlan> => ({
    column: { head: title, short: onTerminal, kind: 'number' },
    cell,
  });
  return [
    number('Step time', (p) => seconds(stepTime(p))),
    ...(c.question === undefined ? [number('Call by call', (p) => seconds(p.seconds))] : []),
    number('Communication', (p) => seconds(p.communicationSeconds)),
    number(head, (p) => bytes(p.peakBytes), short),
    ...(c.plans.some((p) => typeof p.fitProbability === 'number')
      ? [number('Fits with', fitCell, 'fits')]
      : []),
  ];
}

function fitCell({ fitProbability }: ComparedPlan): Cell | string {
  return typeof fitProbability !== 'number'
    ? '–'
    : { text: probabilityText(fitProbability), value: fitProbability };
}

/** A difference of seconds with its sign. */
export function change(delta: number): Cell {
  return { text: deltaSecondsText(delta), value: delta };
}

export function nextBestTable({ nextBest = [] }: Comparison): Table {
  return {
    caption: 'The best of the other plans, by what they do otherwise',
    columns: [
      { head: 'Other by', short: 'next best', kind: 'name' },
      { head: 'Plan', short: '', kind: 'name' },
      { head: 'Mesh', short: '', kind: 'keep' },
      { head: 'Slower by', short: 'slower by', kind: 'number' },
    ],
    rows: nextBest.map((n) => [
      n.kind,
      n.name.replace(/ \[.*/, ''),
      n.mesh,
      change(n.deltaSeconds),
    ]),
  };
}

export function whatIfTable({ whatIf = [] }: Comparison): Table {
  return {
    caption: 'The best plan where one thing is otherwise',
    columns: [
      { head: 'Change', short: 'what if', kind: 'name' },
      { head: 'Step time', short: 'step time', kind: 'number' },
      { head: 'Best there', short: 'best there', kind: 'name' },
    ],
    rows: whatIf.map((w) => [w.change, seconds(w.seconds ?? null), bestThere(w)]),
  };
}

function bestThere({ best, mesh, same, settings }: WhatIf): string {
  if (best === null) return 'nothing fits';
  if (same && settings !== undefined) return `the same plan with ${settings}`;
  return same ? 'the same plan' : `${best}${mesh === undefined ? '' : ` on ${mesh}`}`;
}

export function meshTable({ meshes }: Comparison): Table {
  return {
    caption: 'What became of every mesh: solved for its optimum, beaten by a bound, or refused',
    columns: [
      { head: 'Mesh', short: 'mesh', kind: 'name' },
      { head: 'Status', short: 'optimum' },
      { head: 'At least', short: 'at least', kind: 'number' },
      { head: 'Why', short: 'why', kind: 'name' },
    ],
    rows: meshes.map((m) => [m.mesh, m.status, seconds(m.boundSeconds ?? null), m.reason ?? '']),
  };
}

export function refusedTable({ refused }: Comparison): Table {
  const some = refused.slice(0, MOST_ROWS);
  const what =
    some.length === refused.length
      ? 'Plans'
      : `${countText(some.length)} of ${countText(refused.length)} plans`;
  return {
    caption: `${what} that the model, the mesh or the linter does not admit`,
    columns: [
      { head: 'Plan', short: 'refused', kind: 'keep' },
      { head: 'Mesh', short: 'mesh', kind: 'name' },
      { head: 'Code', short: 'code' },
      { head: 'Reason', short: 'reason', kind: 'name' },
    ],
    rows: some.map((r) => [r.plan, r.mesh, r.code ?? '', r.reason]),
  };
}
