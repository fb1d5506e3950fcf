import { describe, expect, test } from 'vitest';

import { GraphBuilder } from '../../../src/graph/build.ts';
import { parseGraph } from '../../../src/graph/text/parse.ts';
import { printGraph } from '../../../src/graph/text/write.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { flat, fromList, type NDArray } from '../../../src/ndarray/array.ts';
import { builtinOperators } from '../../../src/ops/builtin.ts';
import { graphFlops } from '../../../src/ops/flops.ts';
import { defineOp } from '../../../src/ops/record/record.ts';
import type { Vjps } from '../../../src/ops/vjp/vjp.ts';
import { jointGraph, type JointOptions } from '../../../src/passes/autodiff/joint.ts';
import { savedValues } from '../../../src/passes/autodiff/saved.ts';
import { forwardPart } from '../../../src/passes/dead-code.ts';
import { evaluateGraph } from '../../../src/simulate/evaluate.ts';
import { input, parameter, type Tensor, trace } from '../../../src/trace/trace.ts';
import { planFor } from '../../plan/support.ts';
import { graphOf, table, targets, withGradient } from '../joint-support.ts';

const text = (body: string): Graph => parseGraph(`swgraph 1\ngraph @main {\n${body}\n}\n`);

/** Gradient slots by name, evaluated. */
function gradients(
  graph: Graph,
  values: Readonly<Record<string, NDArray>>,
  options: JointOptions = {},
) {
  const joint = jointGraph(graph, { table, seed: 1, ...options });
  const inputs = joint.nodes.filter((n) => n.kind === 'placeholder').map((n) => values[n.name]);
  const results = evaluateGraph(table, joint, inputs).outputs;
  const out: Record<string, number[] | number | null> = {};
  joint.outputs.forEach(({ role, of, index }, i) => {
    const value = results[i] as NDArray | null;
    const key = role === 'grad' ? `d ${of}` : `${role} ${of ?? index}`;
    out[key] = value === null ? null : value.rank === 0 ? value.item() : [...flat(value)];
  });
  return out;
}

const f64 = (shape: readonly number[], values: readonly number[]): NDArray =>
  fromList(shape, [...values], 'f64');

function failure(make: () => unknown): unknown {
  try {
    make();
  } catch (error) {
    return error;
  }
  return undefined;
}

describe('jointGraph', () => {
  test('the MLP of torch.export: 5 products, 1,835,008 FLOPs, 4 gradients and no slot for the input', () => {
    const joint = jointGraph(graphOf('mlp', 'export'), { table });
    const { forward, backward, total } = graphFlops(joint, table);
    expect([forward, backward, total]).toEqual([786_432, 1_048_576, 1_835_008]);
    const counts = targets(joint);
    expect(counts['aten.addmm.default'] + counts['aten.mm.default']).toBe(5);
    expect(joint.outputs.map((o) => [o.role, o.value !== null])).toEqual([
      ['output', true],
      ['grad', true],
      ['grad', true],
      ['grad', true],
      ['grad', true],
      ['grad', false],
    ]);
  });

  test('the text of a traced MLP', () => {
    const graph = trace(({ x, w }: Record<'x' | 'w', Tensor>) => x.matmul(w).relu(), {
      x: input([4, 3]),
      w: parameter([3, 2]),
    });
    expect(printGraph(jointGraph(graph, { table }), { source: false })).toMatchInlineSnapshot(`
      "swgraph 1
      graph @main {
        in %w: f32[3, 2] parameter "w"
        in %x: f32[4, 3] input "x"
        in %tangents_1: f32[4, 2] tangent 0
        %mm = aten.mm.default(%x, %w): f32[4, 2] ; forward
        %relu = aten.relu.default(%mm): f32[4, 2] ; forward
        %threshold_backward = aten.threshold_backward.default(%tangents_1, %relu, 0): f32[4, 2] ; backward of="relu"
        %t = aten.t.default(%x): f32[3, 4] ; forward savedOnly
        %mm_1 = aten.mm.default(%t, %threshold_backward): f32[3, 2] ; backward of="mm"
        out %relu output 0
        out %mm_1 grad "w"
        out none grad "x"
      }
      "
    `);
  });

  test('the loss of a product and relu', () => {
    const graph = text(`
      in %w: f64[2, 2] parameter "w"
      in %x: f64[2, 2] input "x"
      %mm = aten.mm.default(%x, %w): f64[2, 2]
      %relu = aten.relu.default(%mm): f64[2, 2]
      %sum = aten.sum.default(%relu): f64[]
      out %sum output 0`);
    const values = { x: f64([2, 2], [1, 2, 3, 4]), w: f64([2, 2], [1, -1, 0.5, 2]) };
    expect(gradients(graph, values, { wrt: 'all' })).toEqual({
      'output 0': 15,
      'd w': [4, 4, 6, 6],
      'd x': [0, 2.5, 0, 2.5],
    });
  });

  test('an unused parameter, an integer input, a tied weight, a value used twice', () => {
    const graph = text(`
      in %e: f64[3, 2] parameter "embedding"
      in %head: f64[3, 2] parameter "head"
      in %unused: f64[2] parameter "unused"
      in %ids: i64[2] input "ids"
      %h = aten.embedding.default(%e, %ids): f64[2, 2]
      %square = aten.mul.Tensor(%h, %h): f64[2, 2]
      %t = aten.t.default(%head): f64[2, 3]
      %y = aten.mm.default(%square, %t): f64[2, 3]
      %loss = aten.sum.default(%y): f64[]
      out %loss output 0`);
    const weight = [1, 2, 3, 4, 5, 6];
    const values = {
      e: f64([3, 2], weight),
      head: f64([3, 2], weight),
      unused: f64([2], [0, 0]),
      ids: fromList([2], [2, 0], 'i64'),
    };
    const apart = gradients(graph, values, { wrt: 'all' });
    expect(apart['d unused']).toBeNull();
    expect(apart['d ids']).toBeNull();
    // Rows 2 and 0 are looked up; column sums of the head are 9 and 12; the derivative of a square
    // is twice the value.
    expect(apart['d embedding']).toEqual([2 * 1 * 9, 2 * 2 * 12, 0, 0, 2 * 5 * 9, 2 * 6 * 12]);
    expect(apart['d head']).toEqual([26, 40, 26, 40, 26, 40]);
    const tied = gradients({ ...graph, ties: [['embedding', 'head']] }, values);
    expect(tied['d embedding']).toEqual([18 + 26, 48 + 40, 26, 40, 90 + 26, 144 + 40]);
    expect(tied['d head']).toBeNull();
    expect(gradients(graph, values, { materializeZeros: true })['d unused']).toEqual([0, 0]);
  });

  test('an operator without a derivative is named with its place and the way from the parameter', () => {
    const graph = text(`
      in %w: f32[3] parameter "w"
      %scaled = aten.mul.Tensor(%w, 2.0): f32[3] ; source="model.ts:7:3" path="block.0"
      %bins = aten.special_erfcx.default(%scaled): f32[3] ; source="model.ts:8:5" path="block.0"
      %loss = aten.sum.default(%bins): f32[]
      out %loss output 0`);
    expect(failure(() => jointGraph(graph, { table }))).toMatchObject({
      code: 'E_NO_VJP',
      message:
        'bins (model.ts:8:5): aten.special_erfcx.default has no derivative, but a gradient is to pass it: w -> scaled -> bins',
      details: { node: 'bins', path: 'block.0' },
    });
    // Off the way of every gradient it does no harm.
    const aside = text(`
      in %w: f32[3] parameter "w"
      in %x: f32[3] input "x"
      %bins = aten.special_erfcx.default(%x): f32[3]
      %y = aten.mul.Tensor(%w, %bins): f32[3]
      out %y output 0`);
    expect(withGradient(jointGraph(aside, { table }))).toEqual(['w']);
    expect(failure(() => jointGraph(aside, { table, wrt: ['x'] }))).toMatchObject({
      code: 'E_NO_VJP',
    });
  });

  test('a while loop on the way of a gradient is refused with the remedy', () => {
    expect(
      failure(() => jointGraph(graphOf('hop-while', 'export'), { table, wrt: 'all' })),
    ).toMatchObject({ code: 'E_GRAD_WHILE' });
  });

  test('an operator of the user without a derivative is refused, and differentiated with one', () => {
    const twice = defineOp('mine.twice.default', {
      schema: 'Tensor self',
      cls: 'pointwise',
      infer: (ctx) => [ctx.inputs[0]],
    });
    const own = builtinOperators().with([twice]);
    const graph = text(`
      in %w: f32[2] parameter "w"
      %y = mine.twice.default(%w): f32[2]
      out %y output 0`);
    expect(failure(() => jointGraph(graph, { table: own }))).toMatchObject({ code: 'E_NO_VJP' });
    const vjps: Vjps = { 'mine.twice.default': (c) => ({ self: () => c.b.mul(c.g(), 2) }) };
    expect(targets(jointGraph(graph, { table: own, vjps }))).toEqual({
      'aten.mul.Scalar': 1,
      'mine.twice.default': 1,
    });
  });

  test('shardings that the source states stay with their values', () => {
    const graph = text(`
      in %w: f32[4, 4] parameter "w"
      in %x: f32[4, 4] input "x"
      %y = aten.linear.default(%x, %w): f32[4, 4]
      out %y output 0`);
    const given = [
      { value: 'y', sharding: 'S(0)', strength: 'pin' },
      { output: 0, sharding: 'S(0)', strength: 'hint' },
    ] as const;
    const joint = jointGraph({ ...graph, mesh: 'd=2', given }, { table });
    expect([joint.mesh, joint.given]).toEqual(['d=2', [{ ...given[0], value: 'mm' }, given[1]]]);
  });

  test('detach stops the gradient', () => {
    const graph = text(`
      in %w: f64[2] parameter "w"
      %cut = aten.detach.default(%w): f64[2]
      %y = aten.mul.Tensor(%w, %cut): f64[2]
      %loss = aten.sum.default(%y): f64[]
      out %loss output 0`);
    expect(gradients(graph, { w: f64([2], [3, 4]) })['d w']).toEqual([3, 4]);
  });

  test('kinks: relu, abs and clamp at their corners, ties of maximum', () => {
    const graph = text(`
      in %a: f64[1] parameter "a"
      in %b: f64[1] parameter "b"
      %m = aten.maximum.default(%a, %b): f64[1]
      %r = aten.relu.default(%a): f64[1]
      %v = aten.abs.default(%b): f64[1]
      %c = aten.clamp_min.default(%a, 0): f64[1]
      %s0 = aten.add.Tensor(%m, %r): f64[1]
      %s1 = aten.add.Tensor(%s0, %v): f64[1]
      %s2 = aten.add.Tensor(%s1, %c): f64[1]
      %loss = aten.sum.default(%s2): f64[]
      out %loss output 0`);
    // maximum and clamp give the gradient to their first argument, relu and abs give none.
    expect(gradients(graph, { a: f64([1], [0]), b: f64([1], [0]) })).toMatchObject({
      'd a': [2],
      'd b': [0],
    });
  });

  test('without a seed there is a tangent for each output that can be differentiated', () => {
    const graph = text(`
      in %x: f32[2] input "x"
      in %w: f32[2] parameter "w"
      in %running: f32[2] buffer "running"
      %y = aten.mul.Tensor(%x, %w): f32[2]
      %z = aten.add.Tensor(%x, 1.0): f32[2]
      %i = aten.argmax.default(%y): i64[]
      out %z output 0
      out %y output 1
      out %i output 2`);
    const joint = jointGraph(graph, { table });
    expect(
      joint.nodes
        .filter((n) => n.kind === 'placeholder')
        .map((n) => [n.name, n.meta.role, n.meta.roleIndex]),
    ).toEqual([
      ['w', 'parameter', undefined],
      ['running', 'buffer', undefined],
      ['x', 'input', undefined],
      ['tangents_1', 'tangent', 1],
    ]);
    expect(joint.outputs.map((o) => [o.role, o.index ?? o.of, o.value])).toEqual([
      ['output', 0, 'z'],
      ['output', 1, 'y'],
      ['output', 2, 'i'],
      ['grad', 'w', 'mul'],
      ['grad', 'running', null],
      ['grad', 'x', null],
    ]);
    expect(failure(() => jointGraph(graph, { table, seed: 1 }))).toMatchObject({ code: 'E_TYPE' });
    expect(failure(() => jointGraph(graph, { table, wrt: ['wx'] }))).toMatchObject({
      code: 'E_REF',
    });
  });

  test('a seed is a constant of the backward pass; outputs that are not scalars are carried along', () => {
    const graph = text(`
      in %w: f32[2] parameter "w"
      %y = aten.exp.default(%w): f32[2]
      %loss = aten.sum.default(%y): f32[]
      out %loss output 0
      out %y output 1`);
    const joint = jointGraph(graph, { table, seed: 1 });
    expect(joint.nodes.some((n) => n.meta.role === 'tangent')).toBe(false);
    const phases = Object.fromEntries(joint.nodes.map((n) => [n.name, n.meta.phase]));
    expect(phases).toEqual({
      w: undefined,
      y: 'forward',
      loss: 'forward',
      full: 'backward',
      expand: 'backward',
      mul: 'backward',
    });
  });

  test('in-place operators become functional, a changed input is returned; a change that another name would show is refused', () => {
    const graph = text(`
      in %w: f64[2] parameter "w"
      in %count: f64[2] buffer "count"
      %y = aten.mul.Tensor(%w, %w): f64[2]
      %z = aten.relu_.default(%y): f64[2]
      %n = aten.add_.Tensor(%count, %y): f64[2]
      %loss = aten.sum.default(%n): f64[]
      out %loss output 0`);
    const joint = jointGraph(graph, { table, seed: 1 });
    expect(Object.keys(targets(joint)).filter((name) => /_\./.test(name))).toEqual([]);
    expect(joint.outputs[0]).toEqual({ role: 'mutation', of: 'count', value: 'n' });
    const values = { w: f64([2], [3, -4]), count: f64([2], [1, 1]) };
    expect(gradients(graph, values)).toMatchObject({
      'mutation count': [10, 17],
      'output 0': 27,
      'd w': [6, -8],
    });
    const aliased = text(`
      in %w: f64[4] parameter "w"
      %y = aten.mul.Tensor(%w, %w): f64[4]
      %v = aten.view.default(%y, [2, 2]): f64[2, 2]
      %z = aten.relu_.default(%y): f64[4]
      %loss = aten.sum.default(%v): f64[]
      out %loss output 0`);
    expect(failure(() => jointGraph(aliased, { table }))).toMatchObject({ code: 'E_MUTATION' });
  });

  test('symbolic sizes are fixed at their examples, and a note says so', () => {
    const { nodes, ...rest } = text(`
      in %w: f32[3, 4] parameter "w"
      in %x: f32[2, 3] input "x"
      %y = aten.mm.default(%x, %w): f32[2, 4]
      %v = aten.view.default(%y, [2, 2, 2]): f32[2, 2, 2]
      out %v output 0`);
    const batch = { sym: 's0', example: 2 };
    const dynamic: Graph = {
      ...rest,
      nodes: nodes.map((node) => {
        if (node.type.kind !== 'tensor' || node.name === 'w') return node;
        const args =
          node.name === 'v'
            ? [node.args[0], [{ kind: 'size', size: batch } as const, 2, 2]]
            : node.args;
        return {
          ...node,
          args,
          type: { ...node.type, shape: [batch, ...node.type.shape.slice(1)] },
        };
      }),
    };
    const joint = jointGraph(dynamic, { table });
    expect(joint.notes).toEqual(['Symbolic sizes are fixed at their examples: s0 = 2.']);
    expect(joint.nodes).toEqual(jointGraph({ nodes, ...rest }, { table }).nodes);
    // Without an example there is nothing to fix them at.
    expect(failure(() => jointGraph(graphOf('mlp-dynamic', 'export'), { table }))).toMatchObject({
      code: 'E_TYPE',
    });
  });

  test('a chain of 10,000 calls is differentiated without a deep stack', () => {
    const b = new GraphBuilder('chain');
    const type = { kind: 'tensor', dtype: 'f32', shape: [2] } as const;
    let x = b.placeholder('w', type, { role: 'parameter', roleName: 'w' });
    for (let i = 0; i < 10_000; i++) x = b.call('aten.sin.default', [x], type);
    b.output({ value: x.name, role: 'output', index: 0 });
    const joint = jointGraph(b.build(), { table });
    expect(targets(joint)).toEqual({
      'aten.cos.default': 10_000,
      'aten.mul.Tensor': 10_000,
      'aten.sin.default': 10_000,
    });
  });

  test('the text of a joint graph is read back', () => {
    const joint = jointGraph(graphOf('mlp', 'export'), { table });
    const printed = printGraph(joint);
    expect(printGraph(parseGraph(printed))).toBe(printed);
    expect(printed).toContain(' backward of="relu"');
  });

  test('values that cross into the backward pass are listed with their bytes', () => {
    const joint = jointGraph(graphOf('mlp', 'export'), { table });
    // What PyTorch's forward half of this model returns for its backward half: primals_5, relu,
    // t_2.
    expect(savedValues(joint)).toEqual([
      { name: 'x', bytes: 8 * 128 * 4, placeholder: true },
      { name: 'relu', bytes: 8 * 256 * 4, placeholder: false },
      { name: 't_2', bytes: 256 * 64 * 4, placeholder: false },
    ]);
  });
});

describe('planning a differentiated program', () => {
  test.each([
    ['mlp-loss', 'd=4', { objective: 'parameter-memory' }],
    ['llama3-8b-2l', 'd=8', {}],
  ] as const)('%s on %s costs what the joint graph of PyTorch costs', async (model, mesh, more) => {
    const theirs = graphOf(model, 'joint');
    const ours = jointGraph(forwardPart(theirs), { table, wrt: withGradient(theirs) });
    const [a, b] = [await planFor(ours, mesh, more), await planFor(theirs, mesh, more)];
    expect(a.proof.status).toBe('optimal');
    expect(a.objective).toEqual(b.objective);
    expect(b.objective.communicationSeconds).toBeGreaterThan(0);
    // The nodes of the two have other names and another order: what they hold at the peak is
    // compared, not where.
    const { timeline: ofOurs, ...rest } = a.memory;
    const { timeline: ofTheirs, ...theirRest } = b.memory;
    expect(rest).toEqual(theirRest);
    expect(ofOurs?.peakBytes).toBe(ofTheirs?.peakBytes);
  });

  test('a traced MLP and its backward pass are planned with a proof', async () => {
    const graph = trace(
      ({ x, w1, w2 }: Record<'x' | 'w1' | 'w2', Tensor>) => x.matmul(w1).relu().matmul(w2),
      {
        x: input([64, 128]),
        w1: parameter([128, 256]),
        w2: parameter([256, 64]),
      },
    );
    const plan = await planFor(jointGraph(graph, { table }), 'd=4', { optimizer: 'adam' });
    expect(plan.proof.status).toBe('optimal');
    expect(plan.parameters.map((p) => p.name)).toEqual(['w1', 'w2']);
    expect(plan.memory.gradientBytes).toBeGreaterThan(0);
  });
});
