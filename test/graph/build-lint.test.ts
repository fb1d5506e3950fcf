import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import { baseName, GraphBuilder } from '../../src/graph/build.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import type { Arg, Graph, Node, ValueRef, ValueType } from '../../src/graph/types.ts';
import { tensorType } from '../../src/graph/value.ts';

const F = tensorType('f32', [4, 4]);
const B = tensorType('b8', []);

function failure(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof ShardwrightError) return `${error.code} ${error.message}`;
    throw error;
  }
  throw new Error('nothing was thrown');
}

/** A small joint graph: y = relu(x w), dw = x^T g. */
function joint(): GraphBuilder {
  const b = new GraphBuilder('joint');
  const w = b.placeholder('w', F, { role: 'parameter', roleName: 'fc.weight' });
  const x = b.placeholder('x', F, { role: 'input', roleName: 'x' });
  const g = b.placeholder('g', F, { role: 'tangent', roleIndex: 0 });
  const y = b.call('aten.mm.default', [x, w], F, { meta: { phase: 'forward' } });
  const t = b.call('aten.t.default', [x], F, { meta: { phase: 'forward' } });
  const dw = b.call('aten.mm.default', [t, g], F, { meta: { phase: 'backward' } });
  b.output({ value: y.name, role: 'output', index: 0 });
  b.output({ value: dw.name, role: 'grad', of: 'fc.weight' });
  b.output({ value: null, role: 'grad', of: 'x' });
  return b;
}

describe('GraphBuilder', () => {
  test('names are the base name, then _1, _2; wanted names are kept while free', () => {
    const b = new GraphBuilder('g');
    const x = b.placeholder('x', F, { role: 'arg', roleIndex: 0 });
    const names = [
      'aten.mm.default',
      'aten.mm.default',
      'aten.sum.dim_IntList',
      'operator.getitem',
      'cond',
      'aten.mm.default',
    ].map((target) => b.call(target, [x], F).name);
    expect(names).toEqual(['mm', 'mm_1', 'sum', 'getitem', 'cond', 'mm_2']);
    expect(b.call('aten.mm.default', [x], F, { name: 'mm_3' }).name).toBe('mm_3');
    expect(b.call('aten.mm.default', [x], F).name).toBe('mm_4');
    expect(baseName('torch.nn.functional.relu')).toBe('functional');
  });

  test('10,000 calls of one operator take linear time', () => {
    const b = new GraphBuilder('g');
    let x: ValueRef = b.placeholder('x', F, { role: 'arg', roleIndex: 0 });
    for (let i = 0; i < 10_000; i++) x = b.call('aten.neg.default', [x], F);
    expect(b.build().nodes.at(-1)?.name).toBe('neg_9999');
  });

  test('build lints and gives plain data', () => {
    const graph = joint().build();
    expect(graph.nodes.map((n) => n.name)).toEqual(['w', 'x', 'g', 'mm', 't', 'mm_1']);
    const wrong = joint();
    wrong.call('aten.neg.default', [{ kind: 'value', name: 'nowhere' }], F);
    expect(failure(() => wrong.build())).toBe(
      `E_GRAPH_LINT references resolve at neg: uses 'nowhere', which is not defined`,
    );
  });
});

describe('lintGraph: one broken graph for each check', () => {
  const graph = joint().build();
  const edit = (name: string, change: Partial<Node>): Graph => ({
    ...graph,
    nodes: graph.nodes.map((n) => (n.name === name ? { ...n, ...change } : n)),
  });
  const args = (name: string, ...list: Arg[]): Graph => edit(name, { args: list });
  const ref = (name: string): ValueRef => ({ kind: 'value', name });
  const outputs = (...list: Graph['outputs']): Graph => ({ ...graph, outputs: list });

  test.each<[check: string, broken: Graph, message: string]>([
    [
      'single definition',
      edit('t', { name: 'mm' }),
      'single definition at mm: the name is defined twice',
    ],
    [
      'undefined',
      args('mm', ref('X'), ref('w')),
      `references resolve at mm: uses 'X', which is not defined`,
    ],
    [
      'definition before use',
      {
        ...graph,
        nodes: [...graph.nodes.slice(0, 3), graph.nodes[5], graph.nodes[3], graph.nodes[4]],
      },
      'definition before use at mm_1: uses t, which is defined only later',
    ],
    [
      'cycle',
      {
        ...graph,
        nodes: [
          ...graph.nodes.slice(0, 3),
          { ...graph.nodes[3], args: [ref('t')] },
          { ...graph.nodes[4], args: [ref('mm')] },
        ],
        outputs: [],
      },
      'no cycles at mm: the values need each other: mm -> t -> mm',
    ],
    ['self use', args('mm', ref('mm')), 'no cycles at mm: the values need each other: mm -> mm'],
    [
      'placeholders first',
      {
        ...graph,
        nodes: [
          graph.nodes[0],
          graph.nodes[1],
          graph.nodes[4],
          graph.nodes[2],
          graph.nodes[3],
          graph.nodes[5],
        ],
      },
      'order at g: a placeholder follows a call; placeholders come first',
    ],
    [
      'subgraph',
      args('mm', { kind: 'graph', name: 'toString' }),
      'references resolve at mm: uses subgraph @toString, which graph joint does not have',
    ],
    ['float as number', args('mm', 0.5), 'literals at mm: the number 0.5 is not an exact integer'],
    [
      'huge number',
      args('mm', [2 ** 60]),
      'literals at mm: the number 1152921504606847000 is not an exact integer',
    ],
    [
      'phases',
      edit('mm_1', { meta: { phase: 'forward' }, args: [ref('late'), ref('g')] }),
      `references resolve at mm_1: uses 'late', which is not defined`,
    ],
    ['role', edit('x', { meta: {} }), 'roles at x: a placeholder has no role'],
    [
      'role name',
      edit('x', { meta: { role: 'input' } }),
      'roles at x: a placeholder of role input has no role name',
    ],
    [
      'tangent index',
      edit('g', { meta: { role: 'tangent' } }),
      'roles at g: a placeholder of role tangent has no index',
    ],
    [
      'role name twice',
      edit('x', { meta: { role: 'input', roleName: 'fc.weight' } }),
      `roles at x: is called 'fc.weight', as w is already`,
    ],
    [
      'output undefined',
      outputs({ value: 'mn', role: 'output', index: 0 }),
      `references resolve: graph joint returns 'mn', which is not defined`,
    ],
    [
      'output twice',
      outputs({ value: 'mm', role: 'output', index: 0 }, { value: 't', role: 'output', index: 0 }),
      `outputs at t: graph joint returns 'output 0' twice`,
    ],
    [
      'output index',
      outputs({ value: 'mm', role: 'output' }),
      'outputs at mm: an output of graph joint has no index',
    ],
    [
      'gradient of nothing',
      outputs({ value: 'mm_1', role: 'grad', of: 'fc.bias' }),
      `outputs at mm_1: output 'grad fc.bias' of graph joint belongs to no placeholder`,
    ],
    [
      'gradient type',
      edit('mm_1', { type: tensorType('bf16', [4, 4]) }),
      'gradients at mm_1: grad fc.weight has type bf16[4, 4], its placeholder w has f32[4, 4]',
    ],
    [
      'tie',
      { ...graph, ties: [['fc.weight', 'x']] },
      `ties: 'x' is tied, but is not a parameter of graph joint`,
    ],
    ['target', edit('mm', { target: '' }), `targets at mm: '' is not an operator`],
  ])('%s', (_check, broken, message) => {
    expect(failure(() => lintGraph(broken))).toBe(`E_GRAPH_LINT ${message}`);
  });

  test('no forward node uses a backward value', () => {
    const wrong = edit('mm_1', { meta: { phase: 'forward' } });
    lintGraph(wrong);
    const late: Node = {
      ...graph.nodes[3],
      name: 'late',
      args: [ref('mm_1')],
      meta: { phase: 'forward', source: 'm.py:3' },
    };
    const error = failure(() => lintGraph({ ...graph, nodes: [...graph.nodes, late] }));
    expect(error).toBe(
      'E_GRAPH_LINT phases at late: a forward node uses mm_1, which is of the backward phase',
    );
  });

  test('retype: a stated type that differs from the rule is E_TYPE with both', () => {
    const rule = (node: Node): ValueType | undefined =>
      node.target === 'aten.t.default' ? tensorType('f32', [4, 5]) : undefined;
    expect(failure(() => lintGraph(graph, rule))).toBe(
      'E_TYPE t: the file says f32[4, 4], but aten.t.default gives f32[4, 5]',
    );
    lintGraph(graph, (node, typeOf) => (node.args.length === 2 ? typeOf('w') : undefined));
  });
});

describe('bodies', () => {
  const body = (inputs: readonly ValueType[], results: number, type: ValueType = F): Graph => {
    const b = new GraphBuilder('body');
    inputs.forEach((t, i) => b.placeholder(`a${i}`, t, { role: 'arg', roleIndex: i }));
    const y = b.call('aten.neg.default', [{ kind: 'value', name: 'a0' }], type);
    for (let i = 0; i < results; i++) b.output({ value: y.name, role: 'output', index: i });
    return b.build();
  };
  const cond = (t: Graph, f: Graph, operands = 1): Graph => {
    const b = new GraphBuilder('g');
    const p = b.placeholder('p', B, { role: 'arg', roleIndex: 0 });
    const x = b.placeholder('x', F, { role: 'arg', roleIndex: 1 });
    const names = [b.subgraph('branch', t), b.subgraph('branch', f)];
    const [yes, no] = names.map((name): Arg => ({ kind: 'graph', name }));
    b.call('cond', [p, yes, no, new Array<Arg>(operands).fill(x)], { kind: 'tuple', items: [F] });
    return b.build();
  };

  test('arity, types and number of results', () => {
    expect(Object.keys(cond(body([F], 1), body([F], 1)).subgraphs)).toEqual(['branch', 'branch_1']);
    expect(failure(() => cond(body([F], 1), body([F, F], 1)))).toContain(
      'bodies at cond: @branch_1 takes 2 inputs, the call gives 1',
    );
    expect(failure(() => cond(body([F], 1), body([F], 1), 2))).toContain(
      'bodies at cond: @branch takes 1 inputs, the call gives 2',
    );
    expect(failure(() => cond(body([F], 1), body([F], 1), 0))).toContain(
      'bodies at cond: @branch takes 1 inputs, the call gives 0',
    );
    expect(failure(() => cond(body([B], 1), body([F], 1)))).toContain(
      'input 0 of @branch is b8[], the call gives f32[4, 4]',
    );
    expect(failure(() => cond(body([F], 1), body([F], 2)))).toContain(
      'branches return 1 and 2 values',
    );
  });

  test('a scan slices its xs and carries its init', () => {
    const b = new GraphBuilder('g');
    const xs = b.placeholder('xs', tensorType('f32', [6, 4, 4]), { role: 'arg', roleIndex: 0 });
    const h = b.placeholder('h', F, { role: 'arg', roleIndex: 1 });
    const step: Arg = { kind: 'graph', name: b.subgraph('step', body([F, F], 2)) };
    b.call('scan', [step, [h], [xs], []], {
      kind: 'tuple',
      items: [F, tensorType('f32', [6, 4, 4])],
    });
    expect(b.build().nodes).toHaveLength(3);
    b.call('scan', [step, [xs], [xs], []], F);
    expect(failure(() => b.build())).toContain(
      'input 0 of @step is f32[4, 4], the call gives f32[6, 4, 4]',
    );
  });
});
