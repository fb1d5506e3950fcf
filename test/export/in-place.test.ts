import { describe, expect, it } from 'vitest';

import { exportSource } from '../../src/backend/target.ts';
import { builtinOperators } from '../../src/entries/ops.ts';
import { DEFAULT_REQUEST } from '../../src/entries/plan.ts';
import { exportFiles } from '../../src/export/export.ts';
import { inPlaceCalls } from '../../src/export/torch/program/in-place.ts';
import { type Graph, importGraph } from '../../src/index.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { PAPER } from './running-plans.ts';

/** A graph of the lines of a forward pass over a table, indices and masks. */
function graph(lines: readonly string[], result: string): Graph {
  const inputs = {
    w: 'f32[8, 4]',
    i: 'i64[6]',
    m: 'b8[6, 1]',
    n: 'b8[8, 4]',
    u: 'b8[2, 6, 1]',
  };
  return importGraph(
    [
      'class GraphModule(torch.nn.Module):',
      `    def forward(self, ${Object.entries(inputs)
        .map(([name, type]) => `${name}: "${type}"`)
        .join(', ')}):`,
      ...lines.map((line) => `        ${line}`),
      `        return (${result},)`,
    ].join('\n'),
  );
}

const call = (name: string, type: string, target: string): string =>
  `${name}: "f32[${type}]" = torch.ops.aten.${target}`;
const LOOKUP = call('read', '6, 4', 'embedding.default(w, i)');
const ZEROED = call('zeroed', '6, 4', 'masked_fill.Scalar(read, m, 0)');

describe('calls of a program that write over their operand', () => {
  it.each<[string, readonly string[], string, readonly string[]]>([
    ['a lookup that is read once', [LOOKUP, ZEROED], 'zeroed', ['zeroed']],
    ['not a lookup that lives on', [LOOKUP, ZEROED], 'read, zeroed', []],
    [
      'not a lookup that is read again',
      [LOOKUP, ZEROED, call('sum', '6, 4', 'add.Tensor(zeroed, read)')],
      'sum',
      [],
    ],
    [
      'not a view of a lookup',
      [
        LOOKUP,
        call('seen', '6, 4', 'view.default(read, [6, 4])'),
        call('zeroed', '6, 4', 'masked_fill.Scalar(seen, m, 0)'),
      ],
      'zeroed',
      [],
    ],
    ['not a parameter', [call('zeroed', '8, 4', 'masked_fill.Scalar(w, n, 0)')], 'zeroed', []],
    [
      'not a lookup that the mask makes larger',
      [LOOKUP, call('zeroed', '2, 6, 4', 'masked_fill.Scalar(read, u, 0)')],
      'zeroed',
      [],
    ],
  ])('%s', (_, lines, result, wanted) => {
    const made = graph(lines, result);
    const calls = made.nodes.filter(({ kind }) => kind === 'call');
    const kept = new Set(made.outputs.flatMap(({ value }) => (value === null ? [] : [value])));
    expect([...inPlaceCalls(calls, kept).keys()]).toEqual(wanted);
  });
});

it('a lookup in a table whose rows are cut is held once: its program zeroes the other rows in place', async () => {
  const table = builtinOperators();
  const pins = [
    { node: 'w', spec: 'S(0)' },
    { node: 'read', spec: 'P(sum)' },
  ];
  const request = { ...DEFAULT_REQUEST, mesh: 'tp=2', cluster: PAPER, pins };
  const result = await leastCostPlan(graph([LOOKUP], 'read'), request, { table });
  if (result.status !== 'planned') throw new Error('there is no plan');
  const source = exportSource({ plan: result.plan, program: result.graph }, table);
  const program = exportFiles(source, 'torch').files.find(({ name }) => name === 'program.py');
  expect(program?.text.match(/aten\.masked_fill_?\.Scalar\(\w+, \w+, 0\)/g)).toEqual([
    'aten.masked_fill.Scalar(sub, bitwise_or, 0)',
    'aten.masked_fill_.Scalar(embedding, reshape, 0)',
  ]);
});
