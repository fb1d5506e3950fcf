import { describe, expect, it } from 'vitest';

import { repeatLayer } from '../../bench/repeat.ts';
import { lintGraph } from '../../src/graph/lint.ts';
import { graphFlops } from '../../src/ops/flops.ts';
import { inferCall } from '../../src/ops/record/infer.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { priceRecipes } from '../../src/recipes/compare/compare.ts';
import { FULL } from '../support/full.ts';
import { load, planFor, request, TABLE } from './support.ts';

const DEEP = 'torch/llama3-8b-32l-b16/joint.expanded';
// The long runs belong to `npm run test:full`.

describe('32 layers of Llama-3 8B', () => {
  it.runIf(FULL)(
    '8 x 8: proven optimal with its states inside the device memory, and no recipe is cheaper',
    async () => {
      const graph = load(DEEP);
      const plan = await planFor(graph, 'dp=8,tp=8', { activations: 'report' });
      expect(plan.proof.status).toBe('optimal');
      expect(plan.proof.gap).toBe(0);
      const { recheckedSeconds, roundingSeconds } = plan.proof;
      // 15,000 prices, each rounded to half a unit; what the bound stays below the step is open,
      // too.
      const open = plan.objective.seconds - plan.proof.bound;
      expect(open).toBeGreaterThanOrEqual(0);
      expect(roundingSeconds! + open).toBeLessThan(1e-9 * plan.objective.seconds);
      expect(Math.abs(recheckedSeconds - plan.objective.seconds)).toBeLessThan(roundingSeconds!);
      expect(Math.abs(recheckedSeconds / plan.objective.seconds - 1)).toBeLessThan(1e-9);
      expect(plan.memory.peakBytes).toBeLessThanOrEqual(plan.memory.budgetBytes);
      const recipes = await priceRecipes(
        prepare(graph, request('dp=8,tp=8', { activations: 'report' }), TABLE),
      );
      const priced = recipes.flatMap((r) => (r.status === 'priced' ? [r.seconds] : []));
      expect(priced.length).toBeGreaterThanOrEqual(4);
      for (const seconds of priced) expect(seconds).toBeGreaterThanOrEqual(plan.objective.seconds);
      const replicated = recipes.find((r) => r.name === 'replicated');
      expect(replicated).toMatchObject({ status: 'refused' });
    },
  );

  it.runIf(FULL)(
    '8 x 8 without flags: peak memory is inside the device memory, within a gap of 1 %',
    async () => {
      const graph = load(DEEP);
      const plan = await planFor(graph, 'dp=8,tp=8');
      expect(plan.memory.peakBytes).toBe(plan.memory.timeline?.peakBytes);
      expect(plan.memory.peakBytes).toBeLessThanOrEqual(plan.memory.budgetBytes);
      // A stated headroom of 5 % of what the driver reports.
      expect(plan.memory.budgetBytes).toBe(Math.round(0.95 * 81_559 * 2 ** 20));
      expect(plan.proof.gap).toBeLessThanOrEqual(0.01);
      const states = await planFor(graph, 'dp=8,tp=8', { activations: 'report' });
      expect(states.memory.timeline!.peakBytes).toBeGreaterThan(plan.memory.budgetBytes);
      expect(plan.objective.seconds).toBeGreaterThan(states.objective.seconds);
    },
  );

  it('the middle layer repeated: a graph that lints, types, and has the work of its layers', () => {
    const graph = load(DEEP);
    const deeper = repeatLayer(graph, 4);
    lintGraph(deeper, (node, typeOf) => inferCall(TABLE, node, typeOf));
    const flops = (g: typeof graph): number => graphFlops(g, TABLE).total;
    // Every layer does equal work, so two more copies add as much as the two before.
    const two = flops(repeatLayer(graph, 2));
    expect(flops(deeper) - two).toBe(two - flops(graph));
    expect(deeper.outputs.length - graph.outputs.length).toBe(4 * 9);
  });
});

describe('3-D meshes', () => {
  it.runIf(FULL)(
    '2 layers on 2 x 4 x 8: proven optimal, and no more expensive than without sharing',
    async () => {
      const graph = load('torch/llama3-8b-2l-b16/joint.expanded');
      const plan = await planFor(graph, 'pod=2,dp=4,tp=8');
      expect(plan.proof.status).toBe('optimal');
      const each = await planFor(graph, 'pod=2,dp=4,tp=8', { sharing: false });
      expect(plan.objective.seconds).toBeLessThanOrEqual(each.objective.seconds);
    },
  );

  if (FULL) {
    it('32 layers on 8 x 8 without cuts of the sequence: memory does not bind, and the plan is far more expensive', async () => {
      const graph = load(DEEP);
      const plain = await planFor(graph, 'dp=8,tp=8', { strided: 'off', activations: 'report' });
      expect(plain.proof).toMatchObject({ status: 'optimal', gap: 0 });
      const plan = await planFor(graph, 'dp=8,tp=8', { activations: 'report' });
      expect(plain.objective.seconds).toBeGreaterThan(1.05 * plan.objective.seconds);
    });

    it('32 layers on 2 x 4 x 8: proven optimal', async () => {
      const plan = await planFor(load(DEEP), 'pod=2,dp=4,tp=8');
      expect(plan.proof.gap).toBeLessThanOrEqual(0.005);
    });

    it('126 layers on 8 x 8: nothing is cheaper by more than what its 58,000 prices are rounded by', async () => {
      const graph = repeatLayer(load(DEEP), 94);
      const plan = await planFor(graph, 'dp=8,tp=8', { memoryBytes: 600 * 2 ** 30 });
      const { bound, roundingSeconds } = plan.proof;
      // As many prices have no units fine enough for 1e-9 of the step, so it is not called optimal.
      expect(roundingSeconds!).toBeLessThan(3e-9 * plan.objective.seconds);
      expect(plan.objective.seconds - bound).toBeLessThan(2 * roundingSeconds!);
      const { peakBytes } = plan.memory;
      const held = await planFor(graph, 'dp=8,tp=8', { memoryBytes: 0.9 * peakBytes });
      expect(held.memory.peakBytes).toBeLessThanOrEqual(0.9 * peakBytes);
      expect(held.proof.gap).toBeLessThan(2e-3);
    });
  }
});
