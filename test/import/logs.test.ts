import { createHash } from 'node:crypto';

import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { readTorchLog } from '../../src/import/fx/text/log.ts';
import { importGraph, importModel } from '../../src/import/import.ts';
import { text } from './fixtures.ts';
import { content, infer, refusal } from './twins.ts';

const shape = (graph: Graph): [placeholders: number, calls: number] => [
  graph.nodes.filter((n) => n.kind === 'placeholder').length,
  graph.nodes.filter((n) => n.kind === 'call').length,
];

// Titles with placeholders and calls; names of compiled functions carry an id of the run.
const LOGS: readonly [
  log: string,
  graphs: readonly [title: string, placeholders: number, calls: number][],
][] = [
  [
    'mlp',
    [
      ['0/0 graph_code', 5, 3],
      ['0/0 Joint graph 0', 6, 24],
      ['0/0 Forward graph 0', 5, 5],
      ['0/0 Backward graph 0', 4, 20],
    ],
  ],
  [
    'llama-tiny',
    [
      ['0/0 Joint graph 0', 25, 618],
      ['0/0 Forward graph 0', 24, 250],
      ['0/0 Backward graph 0', 63, 405],
    ],
  ],
  [
    'mlp-recompile-dynamic',
    [
      ['0/0 graph_code', 5, 3],
      ['0/0 Joint graph 0', 6, 24],
      ['0/0 Forward graph 0', 5, 5],
      ['0/0 Backward graph 0', 4, 20],
      ['0/1 graph_code', 6, 3],
      ['0/1 Joint graph 1', 7, 24],
      ['0/1 Forward graph 1', 6, 5],
      ['0/1 Backward graph 1', 5, 20],
    ],
  ],
];

describe('TORCH_LOGS', () => {
  test.each(LOGS)('of %s is read into the graphs that it printed', (log, graphs) => {
    const source = text(`logs/${log}.log.gz`);
    const found = readTorchLog(source).graphs;
    expect(found).toHaveLength(log === 'mlp-recompile-dynamic' ? 8 : 4);
    expect([...new Set(found.map((g) => g.compileId))]).toEqual(
      log === 'mlp-recompile-dynamic' ? ['0/0', '0/1'] : ['0/0'],
    );
    for (const [select, placeholders, calls] of graphs)
      expect([select, ...shape(importGraph(source, { infer, select }))]).toEqual([
        select,
        placeholders,
        calls,
      ]);
  });

  test('the second compilation has a symbolic batch', () => {
    const graph = importGraph(text('logs/mlp-recompile-dynamic.log.gz'), {
      infer,
      select: 'Joint graph 1',
    });
    expect(graph.nodes.find((n) => n.name === 'primals_3')?.type).toEqual({
      kind: 'sym',
      expr: 's77',
    });
  });

  test('without a choice the graphs are listed; a wrong or vague one is refused', () => {
    const source = text('logs/mlp.log.gz');
    const open = refusal(() => importGraph(source));
    expect(open.message).toMatch(
      /^the log holds 4 graphs: '0\/0 __compiled_fn_1_\w+', '0\/0 Joint graph 0', '0\/0 Forward/,
    );
    expect(open.details.hint).toBe('name one: --select "Joint graph 0"');
    expect(refusal(() => importGraph(source, { select: 'Joint graph 7' })).headline).toBe(
      `E_REF no graph of the log is called 'Joint graph 7'`,
    );
    expect(refusal(() => importGraph(source, { select: 'aot_graphs' })).headline).toBe(
      `E_REF 2 graphs of the log are called 'aot_graphs'`,
    );
    expect(importModel(source, { select: 'aot_joint_graph' }).format).toBe('torch-log');
  });

  test('errors and lines are those of the log', () => {
    const source = text('logs/mlp.log.gz');
    const lines = source.split('\n');
    const at = lines.findIndex((line) => line.includes('aten.addmm.default(primals_2, primals_3'));
    const graph = importGraph(source, { select: 'Joint graph 0' });
    expect(graph.nodes.find((n) => n.name === 'addmm')?.meta.line).toBe(at + 1);
    lines[at] = lines[at].replace('primals_3, permute', 'primals_33, permute');
    const error = refusal(() =>
      importGraph(lines.join('\n'), { select: 'Joint graph 0', file: 'run.log' }),
    );
    expect(error.headline).toBe(
      `run.log:${at + 1}:${lines[at].indexOf('primals_33') + 1}: E_REF 'primals_33' is not defined`,
    );
  });

  test('interleaved frames, other lines between, and a log without graphs', () => {
    const prefix = (id: string, payload: string): string =>
      `V1120 11:01:03.362000 13582 a/b.py:1] [${id}] [__aot_graphs] ${payload}`;
    const lines = ['0/0', '0/1'].flatMap((id) => [
      prefix(id, 'TRACED GRAPH'),
      prefix(id, ` ===== Forward graph ${id} =====`),
    ]);
    const body = (id: string, width: number): string[] => [
      prefix(id, ' <eval_with_key>.2 class <lambda>(torch.nn.Module):'),
      prefix(id, `    def forward(self, x: "f32[${width}]"):`),
      prefix(id, `        y: "f32[${width}]" = torch.ops.aten.relu.default(x)`),
      prefix(id, '        return (y,)'),
    ];
    const [a, b] = [body('0/0', 3), body('0/1', 4)];
    a.forEach((line, i) => lines.push(line, 'warning: something else', b[i]));
    lines.push(
      prefix('0/0', 'aot_config id: 0, fw_metadata=ViewAndMutationMeta('),
      prefix('0/0', 'TRACED'),
    );
    const width = (select: string): unknown =>
      importGraph(lines.join('\r\n'), { infer, select }).nodes[1].type;
    expect([width('Forward graph 0/0'), width('Forward graph 0/1')]).toMatchObject([
      { shape: [3] },
      { shape: [4] },
    ]);
    expect(refusal(() => importGraph(prefix('0/0', 'nothing here'))).message).toContain(
      'the log holds no graph',
    );
  });
});

describe('TORCH_TRACE', () => {
  const joint = text('mlp-loss/joint.readable.txt.gz').trimEnd();
  const forward = text('mlp/forward.readable.txt.gz').trimEnd();
  const entry = (key: string, payload: string, sum?: string): string => {
    const md5 = sum ?? createHash('md5').update(payload).digest('hex');
    const json = JSON.stringify({
      [key]: {},
      frame_id: 0,
      frame_compile_id: 0,
      attempt: 0,
      has_payload: md5,
    });
    return `V1120 11:01:03.362000 13582 torch/_logging/structured.py:28] ${json}\n\t${payload.replaceAll('\n', '\n\t')}`;
  };
  const noise = 'V1120 11:01:03.362000 13582 torch/_logging/structured.py:28] {"str": ["a.py", 1]}';
  const other = entry('describe_tensor', 'x');

  test('two payloads, chosen by name', () => {
    const trace = [
      noise,
      entry('aot_joint_graph', joint),
      other,
      entry('aot_forward_graph', forward),
    ].join('\n');
    const { graph, format } = importModel(trace, { infer, select: 'aot_joint_graph' });
    expect(format).toBe('torch-trace');
    expect(content(graph)).toEqual(content(importGraph(joint, { infer })));
    expect(content(importGraph(trace, { infer, select: '0/0 aot_forward_graph' }))).toEqual(
      content(importGraph(forward, { infer })),
    );
    expect(refusal(() => importGraph(trace)).message).toBe(
      `the log holds 2 graphs: '0/0 aot_joint_graph', '0/0 aot_forward_graph'`,
    );
  });

  test('a wrong checksum is noted; a broken line is refused at its place', () => {
    const noted = importGraph(`${noise}\n${entry('aot_joint_graph', joint, 'f'.repeat(32))}`, {
      infer,
    });
    expect(noted.notes?.join(' ')).toContain('fails its checksum');
    const broken = `${noise}\n${entry('aot_joint_graph', joint).replace('"attempt":0', '"attempt":')}`;
    expect(refusal(() => importGraph(broken)).headline).toMatch(
      /^2:\d+: E_SYNTAX expected a value, found/,
    );
  });
});
