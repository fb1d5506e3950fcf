import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import { typesByName } from '../../../src/graph/nodes.ts';
import type { Graph } from '../../../src/graph/types.ts';
import { withReturnedGradients } from '../../../src/import/complete/train-step.ts';
import { importGraph, type ImportOptions } from '../../../src/import/import.ts';
import { callContext, tensorMetas } from '../../../src/passes/call-context.ts';
import { inlineCalls } from '../../../src/passes/control/inline-calls.ts';
import { withStepPhases } from '../../../src/passes/training/step-phases.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import { inputRoles } from '../../../src/recipes/inputs/roles.ts';
import { request, TABLE } from '../../plan/support.ts';

/** Train steps of JAX: nothing in them says where the backward pass begins, or what a batch is. */
const STEPS = ['lm2-scan', 'lm2-unrolled', 'flax-encoder'];
const TEXTS = ['stablehlo.mlir', 'jaxpr.txt'];
const EACH = STEPS.flatMap((step) => TEXTS.map((text) => [step, text] as const));

const read = (step: string, text: string, options: ImportOptions = {}): Graph =>
  importGraph(
    readFileSync(new URL(`../../fixtures/jax/${step}/${text}.gz`, import.meta.url)),
    options,
  );

/** FLOPs of products by phase, of a program without loops. */
function matrixFlops(graph: Graph): Record<string, number> {
  const line = inlineCalls(graph);
  const metas = tensorMetas(line);
  const found: Record<string, number> = {};
  for (const node of line.nodes) {
    const record = node.kind === 'call' ? TABLE.get(node.target) : undefined;
    const ctx = record === undefined ? undefined : callContext(node, record, metas);
    const flops = ctx === undefined ? 0 : record!.flops(ctx).matrix;
    if (flops > 0) found[node.meta.phase ?? ''] = (found[node.meta.phase ?? ''] ?? 0) + flops;
  }
  return found;
}

/** How many nodes or outputs have each value of a property. */
const counted = (list: readonly (string | undefined)[]): Record<string, number> => {
  const found: Record<string, number> = {};
  for (const key of list) found[key ?? ''] = (found[key ?? ''] ?? 0) + 1;
  return found;
};

describe('the jaxpr of a jitted step', () => {
  test.each(['dropout', 'Flax-nnx', 'transformer-scanned-loss-first'])(
    '%s: its inputs have the roles that they have in the StableHLO, and the same results replace them',
    (step) => {
      const [stablehlo, jaxpr] = ['mlir', 'jaxpr.txt'].map((text) => {
        const file = new URL(`../../fixtures/jax-steps/${step}.${text}.gz`, import.meta.url);
        const graph = importGraph(readFileSync(file));
        const inputs = graph.nodes.filter(({ kind }) => kind === 'placeholder');
        const names = inputs.map(({ name, meta }) => meta.roleName ?? name);
        return {
          roles: inputs.map(({ meta }) => meta.role),
          replaced: graph.outputs.map(({ role, of = '' }) =>
            role === 'output' ? 'a result' : names.indexOf(of),
          ),
        };
      });
      expect(jaxpr).toEqual(stablehlo);
      expect(jaxpr.roles).toContain('parameter');
      expect(jaxpr.replaced.some((at) => at !== 'a result' && at >= 0)).toBe(true);
    },
  );
});

describe('a step of JAX', () => {
  test.each(EACH)('%s, %s: parameters, states and batch are told apart', (step, text) => {
    const graph = read(step, text, { trainStep: true });
    const inputs = graph.nodes.filter(({ kind }) => kind === 'placeholder');
    const roles = counted(inputs.map(({ meta }) => meta.role));
    // The optimizer of Flax's example is plain SGD; the others keep two moments and a count.
    const weights = { 'lm2-scan': 12, 'lm2-unrolled': 21, 'flax-encoder': 38 }[step] ?? 0;
    expect(roles).toMatchObject({ parameter: weights, input: 1 });
    expect(roles.state ?? 0).toBe(step === 'flax-encoder' ? 0 : 2 * weights + 1);
    const [batch] = inputs.filter(({ meta }) => meta.role === 'input');
    const { model } = prepare(graph, request('d=2', { activations: 'off' }), TABLE);
    const found = [...inputRoles(model)].map(([n, role]) => [model.graph.nodes[n].name, role]);
    expect(found).toEqual([[batch.name, { batch: 0 }]]);
  });

  test.each(TEXTS)('lm2-unrolled, %s: the backward pass has the two products of each', (text) => {
    const { forward, backward, ...rest } = matrixFlops(
      read('lm2-unrolled', text, { trainStep: true }),
    );
    expect(backward).toBe(2 * forward);
    expect(rest).toEqual({});
  });

  test.each(EACH)(
    '%s, %s: what updates the weights makes them of gradients alone',
    (step, text) => {
      const graph = read(step, text, { trainStep: true });
      const types = typesByName(graph);
      const weight = graph.outputs.find(({ role }) => role === 'mutation')?.value ?? '';
      const maker = graph.nodes.find(({ name }) => name === weight);
      expect(types.get(weight)).toBeDefined();
      expect(maker?.meta.phase).toBe('optimizer');
    },
  );

  test('a step that is not said to be one has no phases, and its inputs no roles', () => {
    const graph = read('lm2-unrolled', 'jaxpr.txt');
    expect(Object.keys(matrixFlops(graph))).toEqual(['forward']);
  });
});

describe('--train-step', () => {
  /** `(p, x) -> (loss, p - g)` in StableHLO, with attributes of its arguments. */
  const step = (more = ''): string => `module @m {
  func.func public @main(%arg0: tensor<8x4xf32>${more}, %arg1: tensor<16x8xf32>) -> (tensor<f32>, tensor<8x4xf32>) {
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0] : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
    %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0, 1] : (tensor<16x4xf32>, tensor<f32>) -> tensor<f32>
    %2 = stablehlo.dot_general %arg1, %0, contracting_dims = [0] x [0] : (tensor<16x8xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    %3 = stablehlo.subtract %arg0, %2 : tensor<8x4xf32>
    return %1, %3 : tensor<f32>, tensor<8x4xf32>
  }
}
`;
  const outputs = (graph: Graph): string[] =>
    graph.outputs.map(({ role, of }) => `${role} ${of ?? ''}`.trim());

  test('finds new values behind the loss', () => {
    const graph = importGraph(step(), { trainStep: true });
    expect(outputs(graph)).toEqual(['output', 'mutation arg0']);
    expect(graph.notes?.join()).toContain('--train-step: 1 output behind the first one replace');
    const phases = graph.nodes.flatMap(({ kind, target, meta }) =>
      kind === 'call' && !/constant|getitem/.test(target) ? [`${target} ${meta.phase}`] : [],
    );
    expect(phases).toEqual([
      'stablehlo.dot_general forward',
      'stablehlo.reduce forward',
      'stablehlo.dot_general backward',
      'stablehlo.subtract optimizer',
    ]);
  });

  test('takes a donated step as it is', () => {
    const donated = step(' {tf.aliasing_output = 1 : i32}');
    const graph = importGraph(donated, { trainStep: true });
    expect(outputs(graph)).toEqual(outputs(importGraph(donated)));
    expect(outputs(graph)).toEqual(['output', 'mutation arg0']);
    expect(graph.notes?.join()).toContain('the program says itself');
  });

  test('a text without locations names donated inputs after the results that replace them', () => {
    const named = step(' {tf.aliasing_output = 1 : i32}').replace(
      /-> \(tensor<f32>, (tensor<\w+>)/,
      '-> (tensor<f32> {jax.result_info = "result[0]"}, ' +
        `$1 {jax.result_info = "result[1]['l1']['w']"}`,
    );
    const graph = importGraph(named);
    const names = graph.nodes.flatMap(({ kind, meta }) =>
      kind === 'placeholder' ? [meta.roleName] : [],
    );
    expect(names[0]).toBe("result[1]['l1']['w']");
    expect(names.slice(1).every((name) => /^arg\d$/.test(name ?? ''))).toBe(true);
    expect(outputs(graph)).toEqual(['output', "mutation result[1]['l1']['w']"]);
  });

  test('value_and_grad returns gradients: loss first, then the types of the weights', () => {
    const graph = withReturnedGradients(
      importGraph(step().replace('return %1, %3', 'return %1, %2')),
    );
    if (graph === undefined) throw new Error('no gradients');
    expect(outputs(graph)).toEqual(['output', 'grad arg0']);
    const { forward, backward } = matrixFlops(withStepPhases(graph, TABLE));
    expect(backward).toBe(forward);
  });
});
