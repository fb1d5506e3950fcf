import { describe, expect, test } from 'vitest';

import { sliceKind } from '../../src/mesh/placements/slice-kind.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { verify } from '../../src/simulate/verify.ts';
import { input, parameter } from '../../src/trace/record/spec.ts';
import type { Tensor } from '../../src/trace/tensor/tensor.ts';
import { trace } from '../../src/trace/trace.ts';
import { planFor, request, TABLE } from './support.ts';

/** Cuts beyond plain shards, asked for in the request. */
const graph = trace(({ x, qkv }: Record<'x' | 'qkv', Tensor>) => x.matmul(qkv).gelu(), {
  x: input([64, 64]),
  qkv: parameter([64, 32]),
});
const SECTIONS = 'Interleaved(0, [16, 8, 8])';

describe('strided cuts that do not divide', () => {
  // 32 columns and 64 rows do not divide by 3 x 2; 48 and 96 do.
  const of = (rows: number, columns: number): typeof graph =>
    trace(({ x, w }: Record<'x' | 'w', Tensor>) => x.matmul(w).gelu(), {
      x: input([rows, rows]),
      w: parameter([rows, columns]),
    });

  test('are not offered, so every plan can be lowered and computes what the program does', async () => {
    for (const [rows, columns] of [
      [64, 32],
      [64, 48],
      [96, 48],
      [9, 12],
      [10, 6],
    ]) {
      const program = of(rows, columns);
      for (const mesh of ['tp=2', 'dp=2,tp=2', 'tp=4']) {
        const plan = await planFor(program, mesh, { cuts: ['_S(0, 3)'], optimizer: 'none' });
        expect(
          verify(program, plan, { table: TABLE, seed: 1 }).mismatches,
          `${rows} x ${columns} on ${mesh}`,
        ).toEqual([]);
      }
      const columnsDivide = columns % 6 === 0;
      const pinned = planFor(program, 'tp=2', {
        cuts: ['_S(0, 3)'],
        pins: [{ node: 'w', spec: '_S(1, 3)' }],
      });
      if (columnsDivide)
        expect(verify(program, await pinned, { table: TABLE, seed: 1 }).mismatches).toEqual([]);
      else
        await expect(pinned).rejects.toThrow(
          `with _S(1, 3) its ${columns} rows of dim 1 are in pieces of different sizes, for which no device program is written`,
        );
    }
  });

  test('and the plan says where no tensor takes one, and which cuts it can only price', async () => {
    const { assumptions } = await planFor(of(64, 32), 'tp=2', { cuts: ['_S(0, 3)', SECTIONS] });
    expect(assumptions).toContain(
      'No tensor is offered the cut _S(0, 3) (--cut): it fits no dim in pieces of one size.',
    );
    expect(assumptions.join()).toContain(`The cut ${SECTIONS} (--cut) is priced only`);
  });
});

describe('cuts of the request', () => {
  test('a fused weight cut by its sections passes through product and activation as it is', async () => {
    const pins = ['qkv', 'gelu'].map((node) => ({ node, spec: 'Interleaved(1, [16, 8, 8])' }));
    const plan = await planFor(graph, 'tp=2', { cuts: [SECTIONS], pins });
    const [product] = plan.nodes.filter((n) => n.target === 'aten.mm.default');
    expect([product.inputs, product.outputs]).toEqual([
      ['R', 'Interleaved(1, [16, 8, 8])'],
      ['Interleaved(1, [16, 8, 8])'],
    ]);
    expect(plan.proof.status).toBe('optimal');
    // 64 rows of half the 32 columns.
    expect(plan.memory.parameterBytes).toBe(64 * 16 * 4);
  });

  test('gathering an interleaved cut has a price', async () => {
    const pins = [
      { node: 'qkv', spec: 'Interleaved(1, [16, 8, 8])' },
      { node: 'mm', spec: 'R' },
    ];
    const plan = await planFor(graph, 'tp=2', { cuts: [SECTIONS], pins });
    expect(plan.objective.communicationSeconds).toBeGreaterThan(0);
  });

  test('what was not asked for is not offered, and a plain shard is no further cut', async () => {
    const pins = [{ node: 'qkv', spec: 'Interleaved(1, [16, 8, 8])' }];
    await expect(planFor(graph, 'tp=2', { pins })).rejects.toThrow(
      /'qkv' \[64, 32\] cannot be Interleaved/,
    );
    await expect(planFor(graph, 'tp=2', { cuts: ['S(0)'] })).rejects.toThrow(
      /'S\(0\)' is not a cut beyond a plain shard/,
    );
    await expect(planFor(graph, 'tp=2', { cuts: ['R'] })).rejects.toThrow(
      /not a cut beyond a plain shard/,
    );
    await expect(planFor(graph, 'tp=2', { cuts: ['Sideways(0)'] })).rejects.toThrow(/Sideways/);
  });
});

describe('cuts of a kind that the user made', () => {
  /** Rank r of n holds chunks r and 2n - 1 - r of 2n: the balanced cut of causal attention. */
  const zigzag = sliceKind({
    kind: 'zigzag',
    word: 'Zigzag',
    split: (size, n) => {
      const rows = (c: number): number[] => {
        const [from, to] = [c, c + 1].map((k) => Math.floor((size * k) / (2 * n)));
        return Array.from({ length: to - from }, (_, i) => from + i);
      };
      return Array.from({ length: n }, (_, r) => [...rows(r), ...rows(2 * n - 1 - r)]);
    },
  });
  const table = TABLE.withKinds([zigzag]);
  const training = jointGraph(
    trace(
      ({ x, up, down }: Record<'x' | 'up' | 'down', Tensor>) =>
        x.matmul(up).gelu().matmul(down).square().sum(),
      {
        x: input([16, 8]),
        up: parameter([8, 32]),
        down: parameter([32, 8]),
      },
    ),
    { seed: 1 },
  );
  const planned = async (more: Parameters<typeof request>[1]) => {
    const result = await leastCostPlan(
      training,
      request('dp=2,tp=2', { cuts: ['Zigzag(0)'], ...more }),
      {
        table,
      },
    );
    if (result.status !== 'planned') throw new Error(`infeasible: ${result.conflict.join(', ')}`);
    return result;
  };

  test('a plan with it is optimal and priced; lowering refuses it by name', async () => {
    const pins = [
      ['x', 'Zigzag(0)R'],
      ['up', 'RZigzag(1)'],
      ['mm', 'Zigzag(0)Zigzag(1)'],
    ].map(([node, spec]) => ({ node, spec }));
    const { plan, graph: program } = await planned({ pins });
    expect(plan.proof.status).toBe('optimal');
    const [product] = plan.nodes.filter((n) => n.target === 'aten.mm.default');
    expect([product.inputs, product.outputs]).toEqual([
      ['Zigzag(0)R', 'RZigzag(1)'],
      ['Zigzag(0)Zigzag(1)'],
    ]);
    expect(product.redistributions).toEqual([]);
    // The result is cut on both mesh dims and the second product adds up over the second: somewhere
    // the plan communicates.
    expect(plan.objective.communicationSeconds).toBeGreaterThan(0);
    expect(() => verify(program, plan, { table })).toThrow(
      /RZigzag\(1\) is not lowered: Zigzag\(1\) is not a cut into chunks/,
    );
  });

  test('is refused where it is not known, or not asked for', async () => {
    await expect(planFor(graph, 'tp=2', { cuts: ['Zigzag(0)'] })).rejects.toThrow(/Zigzag/);
    await expect(planned({ cuts: [], pins: [{ node: 'x', spec: 'Zigzag(0)R' }] })).rejects.toThrow(
      /cannot be Zigzag/,
    );
  });
});
