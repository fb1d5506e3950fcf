import { readFileSync } from 'node:fs';

import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { importGraph } from '../../src/import/import.ts';
import { fromList, NDArray } from '../../src/ndarray/array.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { randomPlan } from '../../src/plan/choice/random-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { evaluateGraph, type Value } from '../../src/simulate/evaluate.ts';
import { verify } from '../../src/simulate/verify.ts';
import { request } from '../plan/support.ts';

/**
 * Graphs with operators over lists of tensors, printed by PyTorch 2.13
 * (`scripts/engines/list_graphs.py`), whose elements get calls of their own. The numbers beside
 * them are PyTorch's, in float32.
 */
const folder = new URL('../fixtures/lists/', import.meta.url);
const text = (name: string): string => readFileSync(new URL(`${name}.txt`, folder), 'utf8');
const values = JSON.parse(readFileSync(new URL('values.json', folder), 'utf8')) as {
  readonly torch: string;
  readonly graphs: Readonly<
    Record<string, { readonly inputs: readonly number[][]; readonly results: readonly number[][] }>
  >;
};
const table = builtinOperators();

const calls = (graph: Graph): Record<string, number> => {
  const count: Record<string, number> = {};
  for (const { kind, target } of graph.nodes)
    if (kind === 'call') count[target] = (count[target] ?? 0) + 1;
  return count;
};

describe('lists of tensors in an imported graph are taken apart', () => {
  test.each([
    ['foreach', { 'aten.lerp.Scalar': 2, 'aten.mul.Scalar': 2, 'aten.add.Tensor': 2 }],
    [
      'foreach-in-place',
      {
        'aten.mul_.Scalar': 2,
        'aten.addcmul_.default': 2,
        'aten.maximum.default': 2,
        'aten.copy_.default': 2,
        'aten.sum.default': 2,
        'aten.add.Tensor': 1,
      },
    ],
    [
      'fused-adamw',
      { 'aten._fused_adamw.default': 2, 'operator.getitem': 6, 'aten.copy_.default': 6 },
    ],
    ['fused-adam-functional', { 'aten._fused_adam.default': 2, 'operator.getitem': 8 }],
  ])('%s: its calls, and the values of PyTorch', (name, expected) => {
    const graph = importGraph(text(name));
    expect(calls(graph)).toEqual(expected);
    expect(values.torch).toBe('2.13.0');
    const { inputs, results } = values.graphs[name];
    const placeholders = graph.nodes.filter((node) => node.kind === 'placeholder');
    const given = placeholders.map(({ type }, i): Value => {
      const shape = type.kind === 'tensor' ? type.shape.map(Number) : [];
      return fromList(shape, inputs[i], 'f32');
    });
    const { outputs } = evaluateGraph(table, graph, given);
    const returned = graph.outputs.flatMap((o, i) => (o.role === 'mutation' ? [] : [outputs[i]]));
    expect(returned).toHaveLength(results.length);
    results.forEach((want, k) => {
      const got = returned[k];
      if (!(got instanceof NDArray)) throw new Error(`result ${k} is not an array`);
      const numbers = got.toArray();
      expect(numbers).toHaveLength(want.length);
      want.forEach((v, i) =>
        expect(Math.abs(numbers[i] - v)).toBeLessThanOrEqual(2e-6 * (1 + Math.abs(v))),
      );
    });
  });

  test.each(['foreach', 'foreach-in-place', 'fused-adamw', 'fused-adam-functional'])(
    '%s: plans drawn at random give what one device gives',
    (name) => {
      const graph = importGraph(text(name));
      const prepared = prepare(graph, request('d=4'), table);
      const cut = new Set<string>();
      for (const seed of [1, 2, 3, 4]) {
        const plan = randomPlan(prepared, seed);
        for (const { outputs } of plan.nodes)
          for (const placement of outputs) cut.add(String(placement));
        const found = verify(graph, plan, { table, seed });
        expect(found.mismatches).toEqual([]);
        expect(found.nodesCompared).toBeGreaterThan(5);
      }
      expect([...cut].some((placement) => placement.includes('S(0)'))).toBe(true);
    },
  );

  test('an element is read under the name of the line that reads it, and twice as one value', () => {
    const twice = text('foreach').replace(
      'return (getitem_4,',
      'getitem_9: "f32[8, 4]" = _foreach_add[0]\n        return (getitem_9, getitem_4,',
    );
    const graph = importGraph(twice.replace('_foreach_add = None', ''));
    const { nodes, outputs } = graph;
    expect(nodes.find((node) => node.name === 'getitem_4')?.target).toBe('aten.add.Tensor');
    expect(outputs.slice(0, 2).map((o) => o.value)).toEqual(['getitem_4', 'getitem_4']);
  });

  test('lists of unequal length and lists read as a whole are refused; an operator without elements is unknown', () => {
    const code = (source: string): string => {
      try {
        importGraph(source);
      } catch (error) {
        return `${(error as { code: string }).code}: ${(error as Error).message}`;
      }
      return 'imported';
    };
    expect(code(text('foreach').replace('[g0_1, g1_1], 0.1', '[g0_1], 0.1'))).toMatch(
      /^E_TYPE: .*1 and 2 elements/,
    );
    expect(code(text('foreach').replace('return (getitem_4,', 'return (_foreach_mul,'))).toMatch(
      /^E_UNSUPPORTED: .*as a whole/,
    );
    expect(
      code(text('foreach-in-place').replaceAll('_foreach_mul_', '_foreach_quite_other_')),
    ).toMatch(/^E_UNKNOWN_OP: .*_foreach_quite_other_/);
  });
});
