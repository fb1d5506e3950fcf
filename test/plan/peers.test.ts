import { describe, expect, it } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import type { PlanRequest } from '../../src/plan/request/request.ts';
import { load, placed, planFor as planAt, solveFor } from './support.ts';

/**
 * The test models of PyTorch's AutoParallel, with the placements that its optimizer is known to
 * choose, planned at our alpha-beta prices of the same cluster and at AutoParallel's own, where
 * every listed placement is the optimum. A matrix product's placements are named as in the
 * specification. Its memory limits are of states alone.
 */
const M = {
  m1: 'S(0)R , RS(1) -> S(0)S(1)',
  m2: 'S(0)S(1) , RS(0) -> S(0)P(sum)',
  m3: 'S(1)R , S(0)S(1) -> P(sum)S(1)',
  m4: 'S(1)S(0) , S(0)R -> P(sum)S(0)',
} as const;

function products(plan: Plan): string[] {
  return plan.nodes
    .filter((n) => n.target === 'aten.mm.default')
    .map((n) => `${n.inputs.join(' , ')} -> ${n.outputs.join()}`);
}

const FFN_STATE = 2 * 1024 * 4096 * 16;
const BLOCK_STATE = (4 * 6144 * 6144 + 2 * 6144 * 24576) * 16;
const ON_1D = { inputs: 'S(0)', outputs: 'S(0)' } as const;
const ON_2D = { inputs: 'S(0)R', outputs: 'S(0)R' } as const;
const BLOCK_WEIGHTS = ['wq', 'wk', 'wv', 'w1'] as const;

/** The plans are the same under the preset that has AutoParallel's own costs. */
describe.each(['alpha-beta', 'autoparallel'] as const)(
  'plans of AutoParallel test models, prices of %s',
  (cost) => {
    const planFor = (graph: Graph, mesh: string, more: Partial<PlanRequest>): Promise<Plan> =>
      planAt(graph, mesh, { cost, activations: 'report', ...more });

    it('FFN on 256 devices with memory for one share: fully sharded data parallel', async () => {
      const plan = await planFor(load('peers/ffn-524288'), 'x=256', {
        ...ON_1D,
        memoryBytes: FFN_STATE / 256,
      });
      expect(plan.proof.status).toBe('optimal');
      for (const p of plan.parameters) expect(p.placement).toBe('S(0)');
      const forward = 'S(0) , R -> S(0)';
      const weight = 'S(1) , S(0) -> P(sum)';
      expect(products(plan)).toEqual([forward, forward, weight, forward, weight]);
    });

    it('FFN on 256 devices without a limit: every parameter replicated', async () => {
      const plan = await planFor(load('peers/ffn-524288'), 'x=256', ON_1D);
      for (const p of plan.parameters) expect(p.placement).toBe('R');
    });

    it('FFN on (32, 8): the Megatron pair, its column weight S(0)S(0) or where that is more expensive cut otherwise', async () => {
      const graph = load('peers/ffn-65536');
      const limit = { ...ON_2D, memoryBytes: FFN_STATE / 256 };
      const ours = await planFor(graph, 'x=32,y=8', limit);
      expect(products(ours)).toEqual([M.m1, M.m2, M.m3, M.m1, M.m4]);
      expect(placed(ours, 'linear2.weight')).toBe('S(0)S(1)');
      const listed = await planFor(graph, 'x=32,y=8', {
        ...limit,
        pins: [
          { node: 'linear1.weight', spec: 'S(0)S(0)' },
          { node: 'linear2.weight', spec: 'S(0)S(1)' },
        ],
      });
      expect(products(listed)).toEqual(products(ours));
      expect(ours.objective.computeSeconds).toBe(listed.objective.computeSeconds);
      if (cost === 'autoparallel') {
        // Its formula undoes the outer cut by one gather over it, so the listed storage is the
        // cheapest.
        expect(placed(ours, 'linear1.weight')).toBe('S(0)S(0)');
        expect(ours.objective.seconds).toBe(listed.objective.seconds);
      }
      // What runs needs both mesh dims gathered to undo the outer one; ours cuts the tensor dim
      // first.
      else expect(ours.objective.seconds).toBeLessThan(listed.objective.seconds);
    });

    it('transformer block on (32, 8): Megatron by itself', async () => {
      const graph = load('peers/block-256');
      const limit = { ...ON_2D, memoryBytes: BLOCK_STATE / 256 };
      const ours = await planFor(graph, 'x=32,y=8', limit);
      const { m1, m2, m3, m4 } = M;
      expect(products(ours)).toEqual([
        m1,
        m1,
        m1,
        m2,
        m1,
        m2,
        m3,
        m1,
        m4,
        m2,
        m3,
        m1,
        m4,
        m2,
        m4,
        m2,
        m4,
        m2,
      ]);
      const attention = ours.nodes.find((n) =>
        n.target.includes('flash_attention_for_cpu.default'),
      );
      expect(attention?.inputs).toEqual(['S(0)S(1)', 'S(0)S(1)', 'S(0)S(1)']);
      for (const w of ['wo', 'w2']) expect(placed(ours, `${w}.weight`)).toBe('S(0)S(1)');
      const listed = await planFor(graph, 'x=32,y=8', {
        ...limit,
        pins: [
          ...BLOCK_WEIGHTS.map((w) => ({ node: `${w}.weight`, spec: 'S(0)S(0)' })),
          ...['wo', 'w2'].map((w) => ({ node: `${w}.weight`, spec: 'S(0)S(1)' })),
        ],
      });
      expect(products(listed)).toEqual(products(ours));
      if (cost === 'autoparallel') {
        for (const w of BLOCK_WEIGHTS) expect(placed(ours, `${w}.weight`)).toBe('S(0)S(0)');
        expect(ours.objective.seconds).toBe(listed.objective.seconds);
      } else expect(ours.objective.seconds).toBeLessThanOrEqual(listed.objective.seconds);
    });

    it('transformer block on 256 devices: all parameters S(0) for one share, all R without a limit', async () => {
      const graph = load('peers/block-2048');
      const least = await planFor(graph, 'x=256', { ...ON_1D, memoryBytes: BLOCK_STATE / 256 });
      const free = await planFor(graph, 'x=256', ON_1D);
      expect(least.parameters.map((p) => p.placement)).toEqual(Array(6).fill('S(0)'));
      expect(free.parameters.map((p) => p.placement)).toEqual(Array(6).fill('R'));
      for (const plan of [least, free]) {
        const found = products(plan);
        expect(found.filter((p) => p === 'S(0) , R -> S(0)')).toHaveLength(12);
        expect(found.filter((p) => p === 'S(1) , S(0) -> P(sum)')).toHaveLength(6);
      }
    });

    it('uneven widths: 1024 -> 280 (+ bias) -> 1024 on (32, 8) is feasible', async () => {
      const plan = await planFor(load('peers/uneven-65536'), 'x=32,y=8', ON_2D);
      expect(plan.proof.status).toBe('optimal');
      const sharded = await planFor(load('peers/uneven-65536'), 'x=32,y=8', {
        ...ON_2D,
        pins: [{ node: 'linear1.weight', spec: 'S(0)S(0)' }],
      });
      expect(placed(sharded, 'linear1.weight')).toBe('S(0)S(0)');
    });

    it('pin the first weight whole, then unpin: S(0) is back', async () => {
      const graph = load('peers/ffn-524288');
      const most = { ...ON_1D, memoryBytes: Math.floor(FFN_STATE * 0.51) };
      const pinned = await planFor(graph, 'x=256', {
        ...most,
        pins: [{ node: 'linear1.weight', spec: 'R' }],
      });
      expect(placed(pinned, 'linear1.weight')).toBe('R');
      const least = { ...ON_1D, memoryBytes: FFN_STATE / 256 };
      const again = await planFor(graph, 'x=256', least);
      expect(placed(again, 'linear1.weight')).toBe('S(0)');
    });

    it('contradictory pins are infeasible and both are named', async () => {
      const result = await solveFor(load('peers/ffn-65536'), 'x=32,y=8', {
        cost,
        pins: [
          { node: 'linear1.weight', spec: 'RR' },
          { node: 'linear1.weight', spec: 'S(0)R' },
        ],
      });
      expect(result).toMatchObject({
        status: 'infeasible',
        conflict: ['--pin linear1.weight=RR', '--pin linear1.weight=S(0)R'],
      });
    });

    it('the joint optimum is at most each mesh dim planned on its own', async () => {
      const graph = load('peers/ffn-65536');
      const joint = await planFor(graph, 'x=32,y=8', ON_2D);
      for (const pins of [
        [
          { node: 'linear1.weight', spec: 'RR' },
          { node: 'linear2.weight', spec: 'RR' },
        ],
        [
          { node: 'linear1.weight', spec: 'S(0)R' },
          { node: 'linear2.weight', spec: 'S(0)R' },
        ],
      ]) {
        const single = await planFor(graph, 'x=32,y=8', { ...ON_2D, pins });
        expect(joint.objective.seconds).toBeLessThanOrEqual(single.objective.seconds);
      }
    });
  },
);
