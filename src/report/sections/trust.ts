import { code, count, type Block, type Section } from '../blocks.ts';
import type { Report } from '../data.ts';
import { percentText, secondsText } from '../../units.ts';

const WHAT = [{ head: 'What' }, { head: 'Value', kind: 'name' }] as const;

export function proof(report: Report): Section {
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
  return {
    id: 'proof',
    title: 'Proof',
    blocks: [{ kind: 'table', caption: 'What is proven, and by what', columns: WHAT, rows }, ...problem(report)],
  };
}

function problem({ solverTrace }: Report): Block[] {
  if (solverTrace === null) return [];
  const { whole, asked } = solverTrace;
  return [
    {
      kind: 'table',
      caption: 'The problem that was solved, and what the pins of the request leave of it',
      columns: [{ head: 'What' }, { head: 'Whole', kind: 'number' }, { head: 'As asked', kind: 'number' }],
      rows: [
        ['Decisions (variables)', count(whole.variables), count(asked.variables)],
        ['Strategies and placements in all', count(whole.values), count(asked.values)],
        ['Most for one decision', count(whole.largestDomain), count(asked.largestDomain)],
        ['Pairs that meet (edges)', count(whole.edges), count(asked.edges)],
        ['Distinct cost tables', count(whole.tables), count(asked.tables)],
        ['Digits of the number of combinations', count(whole.digits), count(asked.digits)],
      ],
    },
  ];
}

export function assumptions(report: Report): Section {
  return {
    id: 'assumptions',
    title: 'Assumptions and sources',
    sheet: true,
    blocks: [
      { kind: 'list', items: report.assumptions },
      { kind: 'heading', text: 'Not in this report' },
      { kind: 'list', items: report.missing },
      {
        kind: 'table',
        caption: `Constants of ${report.cluster.name}`,
        columns: [
          { head: 'Constant', kind: 'name' },
          { head: 'Value' },
          { head: 'Unit', kind: 'keep' },
          { head: 'Source' },
        ],
        rows: report.constants.map((c) => [c.name, c.value, c.unit, c.source]),
      },
    ],
  };
}

export function reproduce(report: Report): Section {
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
  return {
    id: 'reproduce',
    title: 'Make it again',
    blocks: [
      { kind: 'text', text: 'In the plan folder, with the graph that was planned:' },
      { kind: 'code', text: report.command },
      { kind: 'table', caption: 'What it rests on', columns: WHAT, rows: rows.map(([k, v]) => [k, code(v)]) },
    ],
  };
}
