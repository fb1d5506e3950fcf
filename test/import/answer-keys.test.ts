import { describe, expect, test } from 'vitest';

import { parametersOf } from '../../src/graph/parameters.ts';
import { parseGraph } from '../../src/graph/text/parse.ts';
import { printGraph } from '../../src/graph/text/write.ts';
import type { Graph } from '../../src/graph/types.ts';
import { contiguousStride } from '../../src/graph/value.ts';
import { applyRoles } from '../../src/import/complete/roles.ts';
import { importGraph } from '../../src/import/import.ts';
import { FULL } from '../support/full.ts';
import {
  type AnswerKey,
  answerKey,
  counts,
  KEY_DTYPES,
  type KeyType,
  packed,
  withoutLines,
} from './fixtures.ts';

/**
 * Every typed value of the graph against the key that the framework wrote; returns how many were
 * compared.
 */
function compareTypes(graph: Graph, key: AnswerKey, strides: boolean): number {
  let compared = 0;
  for (const node of graph.nodes) {
    const wanted = key.shapes[node.name];
    if (wanted === undefined || node.type.kind !== 'tensor') continue;
    const [dtype, shape, stride] = wanted as KeyType;
    const { type } = node;
    const got = [type.dtype, type.shape.map((d) => (typeof d === 'number' ? d : d.sym))];
    expect(got, node.name).toEqual([KEY_DTYPES[dtype], shape]);
    if (strides) expect(type.stride ?? contiguousStride(type.shape), node.name).toEqual(stride);
    compared++;
  }
  return compared;
}

function expectCounts(graph: Graph, key: AnswerKey): void {
  const got = counts(graph);
  expect(got.nodes).toBe(key.graph.nodes);
  expect(got.by_kind).toEqual(key.graph.by_kind);
  expect(got.by_op).toEqual(key.graph.by_op);
  const bodies = Object.entries(key.graph.subgraphs ?? {});
  expect(Object.keys(graph.subgraphs).sort()).toEqual(bodies.map(([name]) => name).sort());
  for (const [name, body] of bodies) {
    const ours = counts(graph.subgraphs[name]);
    expect([ours.nodes, ours.by_op], name).toEqual([body.nodes, body.by_op]);
  }
}

// Nodes as the specification lists them; ties: the second names of tied weights.
const JOINT: readonly [
  model: string,
  nodes: number,
  ties?: readonly (readonly [string, string])[],
][] = [
  ['mlp', 29],
  ['mlp-loss', 32],
  ['convnet', 59],
  ['llama-tiny', 579],
  ['llama3-8b-2l', 602],
  ['llama3-8b-2l-b16', 602],
  ['llama3-8b-4l-b64', 1082],
  ['gpt2-2l', 355, [['model.transformer.wte.weight', 'model.lm_head.weight']]],
  [
    'bert-base',
    1945,
    [
      ['model.bert.embeddings.word_embeddings.weight', 'model.cls.predictions.decoder.weight'],
      ['model.cls.predictions.bias', 'model.cls.predictions.decoder.bias'],
    ],
  ],
  ['hop-cond-joint', 18],
  ['hop-scan-joint', 25],
  ['hop-map-joint', 17],
];
/** Graphs of 12 and 32 layers are those of 2 for longer. */
const DEEP: typeof JOINT = [
  ['llama3-8b-32l', 7802],
  ['llama3-8b-32l-b16', 7802],
  ['gpt2-12l', 1675, [['model.transformer.wte.weight', 'model.lm_head.weight']]],
];

describe('joint texts against the answer keys', () => {
  test.each(FULL ? [...JOINT, ...DEEP] : JOINT)(
    '%s: %i nodes, both texts',
    (model, nodes, ties = []) => {
      const key = answerKey(`${model}/joint`);
      expect(key.graph.nodes).toBe(nodes);
      const expanded = importGraph(packed(`${model}/joint.expanded.txt.gz`));
      const readable = importGraph(packed(`${model}/joint.readable.txt.gz`));
      for (const graph of [expanded, readable]) {
        expectCounts(graph, key);
        expect(compareTypes(graph, key, true)).toBeGreaterThan(nodes / 2);
        expect(graph.outputs.filter((o) => o.role !== 'grad')).toHaveLength(
          key.forwardOutputs ?? -1,
        );
      }
      // Roles by gradient slots leave out a tied weight's second name; stated roles count it until it
      // is tied.
      const bySlots = parametersOf(readable);
      expect([bySlots.length, bySlots.reduce((n, p) => n + p.elements, 0)]).toEqual([
        key.params.count,
        key.params.numel,
      ]);
      expect(parametersOf(expanded)).toHaveLength(key.params.count + ties.length);
      const tied = parametersOf(ties.length === 0 ? expanded : applyRoles(expanded, { ties }));
      expect([tied.length, tied.reduce((n, p) => n + p.elements, 0)]).toEqual([
        key.params.count,
        key.params.numel,
      ]);

      expect(expanded.nodes.map((n) => [n.name, n.target, n.args, n.kwargs, n.type])).toEqual(
        readable.nodes.map((n) => [n.name, n.target, n.args, n.kwargs, n.type]),
      );
    },
  );
});

describe('other producers', () => {
  const OTHERS: readonly [id: string, kinds: readonly string[]][] = [
    ['mlp/forward', ['readable']],
    ['mlp/backward', ['readable']],
    ['mlp/export', ['readable', 'ep']],
    ['mlp-dynamic/export', ['readable', 'ep']],
    ['convnet/forward', ['readable']],
    ['convnet/backward', ['readable']],
    ['convnet/export_core', ['readable', 'ep']],
    ['llama-tiny/forward', ['readable']],
    ['llama-tiny/backward', ['readable']],
    ['llama-tiny/export', ['readable', 'ep']],
    ['gpt2-2l/export', ['readable', 'ep']],
    ['hop-while/export', ['readable']],
    ['hop-cond/export', ['readable', 'ep']],
  ];
  test.each(OTHERS)('%s', (id, kinds) => {
    const key = answerKey(id);
    for (const kind of kinds) {
      const graph = importGraph(packed(`${id}.${kind}.txt.gz`));
      expectCounts(graph, key);
      expect(compareTypes(graph, key, /forward|backward/.test(id))).toBeGreaterThan(2);
    }
  });

  test.each(['mlp/export', 'convnet/export_core', 'llama-tiny/export', 'gpt2-2l/export'])(
    '%s: parameters are the used p_ placeholders',
    (id) => {
      const key = answerKey(id);
      const found = parametersOf(importGraph(packed(`${id}.readable.txt.gz`)));
      expect([found.length, found.reduce((n, p) => n + p.elements, 0)]).toEqual([
        key.params.count,
        key.params.numel,
      ]);
    },
  );

  test('str(ExportedProgram): full names, ranges, buffer mutations first', () => {
    const dynamic = importGraph(packed('mlp-dynamic/export.ep.txt.gz'));
    expect(dynamic.dims).toEqual({ s77: { min: 2, max: 512 } });
    expect(
      dynamic.nodes.filter((n) => n.meta.role === 'parameter').map((n) => n.meta.roleName),
    ).toEqual(['fc1.weight', 'fc1.bias', 'fc2.weight', 'fc2.bias']);
    const core = importGraph(packed('convnet/export_core.ep.txt.gz'));
    expect(core.outputs).toEqual([
      { value: 'getitem_3', role: 'mutation', of: 'b1.running_mean' },
      { value: 'getitem_4', role: 'mutation', of: 'b1.running_var' },
      { value: 'add', role: 'mutation', of: 'b1.num_batches_tracked' },
      { value: '_log_softmax', role: 'output', index: 0 },
    ]);
  });

  test('a symbolic batch is one named dim', () => {
    const graph = importGraph(packed('mlp-dynamic/export.readable.txt.gz'));
    const x = graph.nodes.find((n) => n.name === 'x');
    expect(x?.type).toEqual({ kind: 'tensor', dtype: 'f32', shape: [{ sym: 's77' }, 128] });
  });
});

describe('roles, phases and sources of joint graphs', () => {
  const graph = importGraph(packed('convnet/joint.expanded.txt.gz'));

  test('descriptors give names, roles, gradient links and buffer updates', () => {
    const named = (role: string): (string | undefined)[] =>
      graph.nodes.filter((n) => n.meta.role === role).map((n) => n.meta.roleName);
    expect(named('parameter').slice(0, 3)).toEqual(['c1.weight', 'c1.bias', 'b1.weight']);
    expect(named('buffer')).toEqual([
      'b1.running_mean',
      'b1.running_var',
      'b1.num_batches_tracked',
    ]);
    expect(named('input')).toEqual(['primals_12']);
    expect(
      graph.nodes.filter((n) => n.meta.role === 'tangent').map((n) => n.meta.roleIndex),
    ).toEqual([0]);
    expect(graph.nodes.some((n) => n.meta.inferred === true)).toBe(false);
    expect(graph.outputs.slice(0, 5)).toEqual([
      { value: 'getitem_3', role: 'mutation', of: 'b1.running_mean' },
      { value: 'getitem_4', role: 'mutation', of: 'b1.running_var' },
      { value: 'add', role: 'mutation', of: 'b1.num_batches_tracked' },
      { value: '_log_softmax', role: 'output', index: 0 },
      { value: 'getitem_14', role: 'grad', of: 'c1.weight' },
    ]);
    expect(graph.outputs.at(-1)).toEqual({ value: null, role: 'grad', of: 'primals_12' });
  });

  test('without descriptors roles are inferred, marked and noted', () => {
    const plain = importGraph(packed('convnet/joint.readable.txt.gz'));
    const roles = plain.nodes.filter((n) => n.kind === 'placeholder').map((n) => n.meta);
    expect(roles[0]).toMatchObject({ role: 'parameter', roleName: 'primals_1', inferred: true });
    expect(roles[8]).toMatchObject({ role: 'input', roleName: 'primals_9', inferred: true });
    expect(plain.notes?.join(' ')).toContain('--role');
    expect(plain.notes?.join(' ')).toContain('updated buffers');
  });

  test('a call is backward iff it depends on a tangent; values kept for it alone are savedOnly', () => {
    const loss = importGraph(packed('mlp-loss/joint.expanded.txt.gz'));
    const phase = (name: string): unknown[] => {
      const { meta } = loss.nodes.find((n) => n.name === name)!;
      return [meta.phase, meta.savedOnly ?? false];
    };
    expect(phase('relu')).toEqual(['forward', false]);
    expect(phase('detach')).toEqual(['forward', true]);
    // Printed after the backward has begun, but needing no tangent.
    expect(phase('t_2')).toEqual(['forward', true]);
    expect(phase('detach_1')).toEqual(['forward', true]);
    expect(phase('mse_loss_backward')).toEqual(['backward', false]);
    const source = loss.nodes.find((n) => n.name === 'mse_loss')?.meta;
    expect([source?.source, source?.line]).toEqual(['torch_models.py:114', 24]);
  });

  test('bodies become subgraphs, their reads references; results are typed by the bodies', () => {
    const joint = importGraph(packed('hop-scan-joint/joint.expanded.txt.gz'));
    const scan = joint.nodes.find((n) => n.name === 'scan_1');
    expect(scan?.target).toBe('scan');
    expect(scan?.args[0]).toEqual({ kind: 'graph', name: 'scan_combine_graph_1' });
    expect(scan?.meta.phase).toBe('backward');
    expect(joint.subgraphs.scan_combine_graph_1.nodes.at(-1)?.meta.phase).toBe('backward');
    // One carry of three is never read; its type comes from the body.
    expect(
      scan?.type.kind === 'tuple' &&
        scan.type.items.map((t) => (t.kind === 'tensor' ? t.shape : t.kind)),
    ).toEqual([
      [4, 16],
      [16, 16],
      [16, 16],
      [6, 4, 16],
    ]);
    const loop = importGraph(packed('hop-while/export.readable.txt.gz'));
    expect(Object.keys(loop.subgraphs)).toEqual([
      'while_loop_cond_graph_0',
      'while_loop_body_graph_0',
    ]);
    expect(loop.subgraphs.while_loop_cond_graph_0.outputs).toEqual([
      { value: 'lt', role: 'output', index: 0 },
    ]);
  });

  test('equal annotations share one frozen type object', () => {
    const depth = FULL ? 32 : 2;
    const big = importGraph(packed(`llama3-8b-${depth}l/joint.expanded.txt.gz`));
    const tensors = big.nodes.flatMap((n) => (n.type.kind === 'tensor' ? [n.type] : []));
    const texts = new Set(tensors.map((t) => JSON.stringify(t)));
    expect(new Set(tensors).size).toBe(texts.size);
    expect(texts.size).toBeLessThan(120);
    expect(tensors.every((t) => Object.isFrozen(t))).toBe(true);
  });

  test.each([
    'convnet/joint.expanded',
    'hop-cond-joint/joint.readable',
    'llama-tiny/export.readable',
    'mlp-dynamic/export.ep',
  ])('graph text of %s reads back to the same graph', (path) => {
    const imported = importGraph(packed(`${path}.txt.gz`));
    const printed = printGraph(imported);
    const again = parseGraph(printed);
    expect(again).toEqual(withoutLines(imported));
    expect(printGraph(again)).toBe(printed);
    expect(importGraph(printed)).toEqual(again);
  });
});
