import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import type { Graph } from '../../../src/graph/types.ts';
import { importGraph, type ImportOptions } from '../../../src/import/import.ts';
import { inferCall } from '../../../src/ops/record/infer.ts';
import { randomPlan } from '../../../src/plan/choice/random-plan.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import { planFor, request, TABLE } from '../../plan/support.ts';
import { runTwoSteps } from '../../simulate/steps/run-steps.ts';
import { FULL } from '../../support/full.ts';

/** Whole train steps that PyTorch and JAX wrote (`fixtures/steps/capture.py`). */

function read(name: string, options: ImportOptions = {}): Graph {
  const path = new URL(`../../fixtures/steps/${name}.gz`, import.meta.url);
  return importGraph(readFileSync(path), {
    ...options,
    infer: (node, typeOf) => inferCall(TABLE, node, typeOf),
  });
}

/** Inputs by role, and how many outputs replace one. */
function counts(graph: Graph): Record<string, number> {
  const found: Record<string, number> = {};
  const add = (key: string): void => void (found[key] = (found[key] ?? 0) + 1);
  for (const { kind, meta } of graph.nodes) if (kind === 'placeholder') add(meta.role ?? '');
  for (const { role } of graph.outputs) add(`${role} returned`);
  return found;
}

const FILES = [
  'torch-momentum.ep.txt',
  'torch-momentum.pt2',
  'torch-momentum.fx.txt',
  'torch-adamw.ep.txt',
  'torch-adamw.pt2',
  'torch-adamw.fx.txt',
  'jax-momentum.mlir',
];

describe('roles in a whole train step', () => {
  // The net has 5 parameters and 3 statistics; momentum keeps one state of each parameter, AdamW
  // three.
  test.each([
    [
      'torch-momentum.ep.txt',
      {
        parameter: 5,
        state: 5,
        buffer: 3,
        input: 2,
        'mutation returned': 8,
        'newstate returned': 5,
        'output returned': 1,
      },
    ],
    [
      'torch-momentum.pt2',
      {
        parameter: 5,
        state: 5,
        buffer: 3,
        input: 2,
        'mutation returned': 8,
        'newstate returned': 5,
        'output returned': 1,
      },
    ],
    [
      'torch-momentum.fx.txt',
      {
        parameter: 5,
        state: 5,
        input: 5,
        'mutation returned': 8,
        'newstate returned': 5,
        'output returned': 1,
      },
    ],
    [
      'torch-adamw.ep.txt',
      {
        parameter: 5,
        state: 15,
        buffer: 3,
        input: 2,
        'mutation returned': 8,
        'newstate returned': 15,
        'output returned': 1,
      },
    ],
    [
      'torch-adamw.pt2',
      {
        parameter: 5,
        state: 15,
        buffer: 3,
        input: 2,
        'mutation returned': 8,
        'newstate returned': 15,
        'output returned': 1,
      },
    ],
    [
      'torch-adamw.fx.txt',
      {
        parameter: 5,
        state: 15,
        input: 5,
        'mutation returned': 8,
        'newstate returned': 15,
        'output returned': 1,
      },
    ],
    [
      'jax-momentum.mlir',
      {
        parameter: 3,
        state: 3,
        input: 2,
        'mutation returned': 3,
        'newstate returned': 3,
        'output returned': 1,
      },
    ],
  ] as const)('%s', (name, expected) => {
    const graph = read(name);
    expect(counts(graph)).toEqual(expected);
    expect(graph.notes?.some((note) => note.includes('count as optimizer state'))).toBe(true);
  });

  test('every state belongs to the parameter that it is kept for', () => {
    const owners = (name: string): string[] =>
      read(name).nodes.flatMap(({ meta }) =>
        meta.role === 'state' ? [`${meta.stateName} of ${meta.roleName}`] : [],
      );
    expect(owners('torch-momentum.ep.txt')).toEqual(
      ['0.weight', '0.bias', '1.weight', '1.bias', '3.weight'].map(
        (n) => `optimizer_${n.replace('.', '_')}_momentum_buffer of m.${n}`,
      ),
    );
    expect(owners('torch-adamw.ep.txt').slice(0, 3)).toEqual(
      ['exp_avg', 'exp_avg_sq', 'step'].map((state) => `optimizer_0_weight_${state} of m.0.weight`),
    );
    // The results that replace them have names in the text: the order is that of a dict in JAX.
    expect(owners('jax-momentum.mlir')).toEqual(
      ['b1', 'w1', 'w2'].map((n) => `result[1]['${n}'] of result[0]['${n}']`),
    );
  });

  test('a role that the user states is kept', () => {
    const graph = read('torch-momentum.ep.txt', {
      roles: { optimizer_0_weight_momentum_buffer: 'buffer' },
    });
    expect(counts(graph)).toMatchObject({
      state: 4,
      buffer: 4,
      'mutation returned': 9,
      'newstate returned': 4,
    });
  });

  test('what is kept is counted as what it is', async () => {
    const replicated = { inputs: 'R', outputs: 'R' } as const;
    const elements = 16 * 32 + 32 + 2 * 32 + 32 * 8;
    const momentum = await planFor(read('torch-momentum.ep.txt'), 'd=1', replicated);
    // The statistics: two vectors of 32 and a counter of 8 bytes.
    expect(momentum.memory).toMatchObject({
      parameterBytes: 4 * elements + 4 * 64 + 8,
      optimizerBytes: 4 * elements,
    });
    const adam = await planFor(read('torch-adamw.pt2'), 'd=1', replicated);
    expect(adam.memory).toMatchObject({
      parameterBytes: 4 * elements + 4 * 64 + 8,
      optimizerBytes: 8 * elements + 5 * 4,
    });
  });

  test.each(FILES)(
    '%s: the optimum with least memory returns everything as it enters',
    async (name) => {
      const graph = read(name);
      const plan = await planFor(graph, 'a=2,b=2', { objective: 'parameter-memory' });
      const enters = new Map(
        graph.nodes.flatMap(({ kind, meta }, n) =>
          kind === 'placeholder'
            ? [[`${meta.roleName} ${meta.stateName ?? ''}`, plan.nodes[n].outputs[0]]]
            : [],
        ),
      );
      const returned = graph.outputs.map(({ of, stateName }) =>
        enters.get(`${of} ${stateName ?? ''}`),
      );
      plan.outputs.forEach(({ placement, role }, k) => {
        if (role !== 'output') expect(placement).toBe(returned[k]);
      });
      // Not vacuous: the states are cut.
      expect(
        plan.outputs.some(({ role, placement }) => role === 'newstate' && placement.includes('S')),
      ).toBe(true);
    },
  );

  test.each(FILES.filter((name) => name.startsWith('torch')))(
    '%s: two steps of random plans, the second on what the first left',
    (name) => {
      const graph = read(name);
      for (const [seed, mesh] of ['d=4', 'a=2,b=2', 'd=3'].entries()) {
        // Each format on another mesh; all on all with SHARDWRIGHT_FULL.
        if (!FULL && seed !== FILES.indexOf(name) % 3) continue;
        const { faults, carried } = runTwoSteps(
          graph,
          randomPlan(prepare(graph, request(mesh), TABLE), seed),
          seed,
        );
        expect(faults, mesh).toEqual([]);
        expect(carried).toBe(graph.outputs.length - 1);
      }
    },
  );
});

describe('a functional train step, which says nothing of donation', () => {
  const path = new URL('../../fixtures/jax/lm2-unrolled/stablehlo.mlir.gz', import.meta.url);
  const lm = (options: ImportOptions): Graph =>
    importGraph(readFileSync(path), {
      ...options,
      infer: (node, typeOf) => inferCall(TABLE, node, typeOf),
    });

  test('a note asks for --train-step', () => {
    const asks = (graph: Graph): string[] =>
      (graph.notes ?? []).filter((note) => note.includes('--train-step'));
    expect(asks(lm({}))).toEqual([
      'The first 64 outputs have the types of the first 64 inputs, as the new values of a train step have: --train-step places each as the input that it replaces.',
    ]);
    expect(asks(lm({ trainStep: true }))).toEqual([
      '--train-step: the first 64 outputs replace the first 64 inputs and are placed as they are.',
    ]);
  });

  test('its parameters, both moments and the counter of Adam are found', () => {
    // 21 parameters, the counter and two moments of each; the tokens.
    expect(counts(lm({ trainStep: true }))).toEqual({
      parameter: 21,
      state: 43,
      input: 1,
      'mutation returned': 21,
      'newstate returned': 43,
      'output returned': 1,
    });
  });

  test('a program that returns nothing of the kind is refused', () => {
    const forward = new URL('../../fixtures/torch/mlp/export.readable.txt.gz', import.meta.url);
    expect(() => importGraph(readFileSync(forward), { trainStep: true })).toThrow(
      /--train-step: the first output is/,
    );
  });
});
