import { describe, expect, test } from 'vitest';

import { parseGraph } from '../../../src/graph/text/parse.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { flat, fromList, type NDArray } from '../../../src/ndarray/array.ts';
import { jointGraph } from '../../../src/passes/autodiff/joint.ts';
import { forwardPart } from '../../../src/passes/dead-code.ts';
import { adam, adamw, type Optimizer, sgd } from '../../../src/passes/training/optimizer.ts';
import { trainStep } from '../../../src/passes/training/train-step.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { planFor } from '../../plan/support.ts';
import { graphOf, table, withGradient } from '../joint-support.ts';

/** `loss = 0.5 p`: the gradient is 0.5 at every step. */
function half(dtype: 'f32' | 'f64' | 'bf16'): Graph {
  const graph = parseGraph(`swgraph 1
graph @main {
  in %p: ${dtype}[1] parameter "p"
  %y = aten.mul.Tensor(%p, 0.5): ${dtype}[1]
  %loss = aten.sum.default(%y): ${dtype}[]
  out %loss output 0
}
`);
  return jointGraph(graph, { table, seed: 1 });
}

/** Steps from p = 1 and zero states; what the graph returns, by slot, after each step. */
function run(graph: Graph, steps: number): Record<string, number>[] {
  const placeholders = graph.nodes.filter((node) => node.kind === 'placeholder');
  const start = (name: string | undefined): number =>
    name === undefined || name === 'master' ? 1 : 0;
  let inputs: NDArray[] = placeholders.map((node) => {
    if (node.type.kind !== 'tensor' || node.type.dtype === 'c64' || node.type.dtype === 'c128')
      throw new Error(node.name);
    return fromList(node.type.shape.map(Number), [start(node.meta.stateName)], node.type.dtype);
  });
  return Array.from({ length: steps }, () => {
    const results = evaluateGraph(table, graph, inputs).outputs as NDArray[];
    const found = new Map(graph.outputs.map((output, i) => [slot(output), results[i]]));
    inputs = placeholders.map(
      (node, i) =>
        found.get(slot({ of: node.meta.roleName, stateName: node.meta.stateName })) ?? inputs[i],
    );
    return Object.fromEntries([...found].map(([name, value]) => [name, flat(value)[0]]));
  });
}

function slot({
  of,
  stateName,
}: {
  readonly of?: string | undefined;
  readonly stateName?: string | undefined;
}): string {
  return of === undefined ? 'loss' : stateName === undefined ? of : `${of} ${stateName}`;
}

const options = { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8 };

describe('trainStep', () => {
  test('two steps of AdamW without decay', () => {
    const [first, second] = run(trainStep(half('f64'), adamw(options), { table }), 2);
    expect(first['p']).toBeCloseTo(0.900000002, 12);
    expect(first['p exp_avg']).toBeCloseTo(0.05, 12);
    expect(first['p exp_avg_sq']).toBeCloseTo(0.00025, 12);
    expect(first['optimizer step']).toBe(1);
    expect(second['p']).toBeCloseTo(0.800000004, 12);
    expect(second['optimizer step']).toBe(2);
  });

  test('the first step of AdamW with decay 0.01', () => {
    const [first] = run(
      trainStep(half('f64'), adamw({ ...options, weightDecay: 0.01 }), { table }),
      1,
    );
    expect(first['p']).toBeCloseTo(0.899000002, 12);
  });

  test('Adam adds the decay to the gradient', () => {
    const [first] = run(
      trainStep(half('f64'), adam({ ...options, weightDecay: 0.01 }), { table }),
      1,
    );
    // g = 0.5 + 0.01 p = 0.51
    expect(first['p exp_avg']).toBeCloseTo(0.051, 12);
    expect(first['p']).toBeCloseTo(1 - (0.1 * 0.51) / (0.51 + 1e-8), 12);
  });

  test('two steps of SGD with momentum', () => {
    const [first, second] = run(
      trainStep(half('f64'), sgd({ lr: 0.1, momentum: 0.9 }), { table }),
      2,
    );
    expect(first['p']).toBeCloseTo(0.95, 12);
    expect(second['p']).toBeCloseTo(0.855, 12);
  });

  test('SGD: plain, with decay, and with Nesterov momentum', () => {
    const [plain] = run(trainStep(half('f64'), sgd({ lr: 0.1, weightDecay: 0.5 }), { table }), 1);
    expect(plain['p']).toBeCloseTo(0.9, 12);
    const [first, second] = run(
      trainStep(half('f64'), sgd({ lr: 0.1, momentum: 0.9, nesterov: true }), { table }),
      2,
    );
    // Steps 0.5 + 0.9 * 0.5 and 0.5 + 0.9 * 0.95.
    expect(first['p']).toBeCloseTo(0.905, 12);
    expect(second['p']).toBeCloseTo(0.905 - 0.1 * (0.5 + 0.9 * 0.95), 12);
  });

  test('Adam of 21 parameters has 3n + 1 states in and out, the data and the loss', () => {
    const theirs = graphOf('llama3-8b-2l', 'joint');
    const forward = forwardPart(theirs);
    const wanted = withGradient(theirs);
    expect(wanted.length).toBe(21);
    const asParameters = {
      ...forward,
      nodes: forward.nodes.map((n) =>
        wanted.includes(n.meta.roleName ?? '')
          ? { ...n, meta: { ...n.meta, role: 'parameter' as const } }
          : n,
      ),
    };
    const joint = jointGraph(asParameters, { table, seed: 1 });
    const step = trainStep(inFloat32(joint), adam({ lr: 1e-3 }), { table });
    const inputs = step.nodes.filter((node) => node.kind === 'placeholder');
    const state = inputs.filter((n) => n.meta.role === 'parameter' || n.meta.role === 'state');
    expect(state.length).toBe(3 * 21 + 1);
    expect(inputs.length - state.length).toBe(
      joint.nodes.filter((n) => n.kind === 'placeholder').length - 21,
    );
    expect(step.outputs.filter((o) => o.role === 'newstate' || o.role === 'mutation').length).toBe(
      3 * 21 + 1,
    );
    expect(step.outputs.filter((o) => o.role === 'output').length).toBe(1);
    expect(step.outputs.length).toBe(3 * 21 + 2);
  });

  test('bf16 parameters have float32 masters and moments, and stay bf16', () => {
    const step = trainStep(half('bf16'), adamw(options), { table });
    const types = Object.fromEntries(
      step.nodes
        .filter((n) => n.kind === 'placeholder')
        .map((n) => [
          slot({ of: n.meta.roleName, stateName: n.meta.stateName }),
          n.type.kind === 'tensor' ? n.type.dtype : '',
        ]),
    );
    expect(types).toEqual({
      p: 'bf16',
      'p master': 'f32',
      'p exp_avg': 'f32',
      'p exp_avg_sq': 'f32',
      'optimizer step': 'f32',
    });
    const typeOf = new Map(step.nodes.map((n) => [n.name, n.type]));
    expect(
      step.outputs.map((o) => {
        const type = typeOf.get(o.value ?? '');
        return [slot(o), type?.kind === 'tensor' ? type.dtype : ''];
      }),
    ).toEqual([
      ['p', 'bf16'],
      ['p master', 'f32'],
      ['p exp_avg', 'f32'],
      ['p exp_avg_sq', 'f32'],
      ['optimizer step', 'f32'],
      ['loss', 'bf16'],
    ]);
    const [first] = run(step, 1);
    expect(first['p master']).toBeCloseTo(0.900000002, 12);
  });

  test('a parameter without a gradient stays and adds no calls; all new calls are element-wise and of their own phase', () => {
    const graph = parseGraph(`swgraph 1
graph @main {
  in %p: f32[4, 2] parameter "p"
  in %q: f32[3] parameter "q"
  in %x: f32[5, 4] input "x"
  %y = aten.mm.default(%x, %p): f32[5, 2]
  %loss = aten.sum.default(%y): f32[]
  out %loss output 0
}
`);
    const joint = jointGraph(graph, { table, seed: 1 });
    const step = trainStep(joint, adamw(options), { table });
    expect(step.nodes.some((n) => n.meta.role === 'state' && n.meta.roleName === 'q')).toBe(false);
    expect(step.outputs.some((o) => o.of === 'q')).toBe(false);
    const added = step.nodes.filter((n) => n.meta.phase === 'optimizer');
    // And a name for the one gradient, where it is made.
    const names = step.nodes.filter((n) => n.target === 'aten.alias.default');
    expect(names.map((n) => n.meta.phase)).toEqual(['backward']);
    expect(added.length + names.length).toBe(
      step.nodes.filter((n) => n.kind === 'call').length -
        joint.nodes.filter((n) => n.kind === 'call').length,
    );
    for (const node of added) expect(table.get(node.target)?.cls).toBe('pointwise');
    expect(
      trainStep(joint, adamw(options), { table, keepGradients: true }).outputs.filter(
        (o) => o.role === 'grad',
      ).length,
    ).toBe(3);
  });

  test.each<[string, () => Optimizer]>([
    ['a negative learning rate', () => sgd({ lr: -1 })],
    ['nesterov without momentum', () => sgd({ lr: 1, nesterov: true })],
    ['a beta of 1', () => adam({ lr: 1, beta1: 1 })],
  ])('%s is refused', (_, make) => {
    expect(make).toThrow(expect.objectContaining({ code: 'E_TYPE' }));
  });

  test('a graph without gradients is refused', () => {
    expect(() => trainStep(graphOf('mlp', 'export'), sgd({ lr: 1 }), { table })).toThrow(
      expect.objectContaining({ code: 'E_TYPE' }),
    );
  });

  test('a training step is planned', async () => {
    const joint = jointGraph(graphOf('mlp-loss', 'export'), { table, seed: 1 });
    const plan = await planFor(trainStep(joint, adamw({ lr: 1e-3 }), { table }), 'd=4');
    expect(plan.proof.status).toBe('optimal');
    expect(plan.parameters.length).toBe(4);
  });
});

/**
 * The same program with float32 parameters, as a model in mixed precision has no master copies of
 * them.
 */
function inFloat32(graph: Graph): Graph {
  const wide = (type: Graph['nodes'][number]['type']): typeof type =>
    type.kind === 'tensor' && type.dtype === 'bf16'
      ? { ...type, dtype: 'f32' }
      : type.kind === 'tuple'
        ? { ...type, items: type.items.map(wide) }
        : type;
  const arg = (a: Graph['nodes'][number]['args'][number]): typeof a =>
    a !== null && typeof a === 'object' && 'kind' in a && a.kind === 'dtype' && a.dtype === 'bf16'
      ? { ...a, dtype: 'f32' }
      : a;
  return {
    ...graph,
    nodes: graph.nodes.map((n) => ({
      ...n,
      type: wide(n.type),
      args: n.args.map(arg),
      kwargs: Object.fromEntries(Object.entries(n.kwargs).map(([k, v]) => [k, arg(v)])),
    })),
  };
}
