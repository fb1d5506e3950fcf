import { describe, expect, it } from 'vitest';

import { prepare } from '../../src/plan/prepare/prepare.ts';
import { cheapestByFrontier } from './memory-frontier.ts';
import { load, planFor, request, solveFor, TABLE } from './support.ts';

// A slow cluster makes the small program's communication and compute weigh the same, so that
// placements matter.
const SLOW = JSON.stringify({
  base: 'dgx-a100-80gb',
  launchSeconds: 1e-9,
  matmulLaunchSeconds: 1e-9,
  baseLatencySeconds: 1e-8,
});

describe('the MLP is planned and equals exhaustive search', () => {
  for (const model of ['torch/mlp/joint.expanded', 'torch/mlp-loss/joint.expanded']) {
    for (const [mesh, cluster] of [
      ['x=8', 'dgx-h100'],
      ['x=4', SLOW],
      ['x=3', SLOW],
    ] as const) {
      it(`${model} on ${mesh}`, async () => {
        const graph = load(model);
        const ask = request(mesh, { cluster, sharing: false });
        const best = cheapestByFrontier(prepare(graph, ask, TABLE));
        const plan = await planFor(graph, mesh, { cluster, sharing: false });
        expect(plan.proof.status).toBe('optimal');
        expect(plan.objective.seconds).toBeCloseTo(best, 11);
        expect(Math.abs(plan.objective.seconds / best - 1)).toBeLessThan(1e-6);
      });
    }
  }

  it('with a memory limit that binds', async () => {
    const graph = load('torch/mlp/joint.expanded');
    const free = await planFor(graph, 'x=4', { cluster: SLOW, sharing: false });
    const budget = Math.floor(free.memory.peakBytes * 0.6);
    const ask = request('x=4', { cluster: SLOW, sharing: false, memoryBytes: budget });
    const best = cheapestByFrontier(prepare(graph, ask, TABLE), budget);
    const plan = await planFor(graph, 'x=4', {
      cluster: SLOW,
      sharing: false,
      memoryBytes: budget,
    });
    expect(plan.memory.peakBytes).toBeLessThanOrEqual(budget);
    expect(plan.proof.status).toBe('optimal');
    expect(Math.abs(plan.objective.seconds / best - 1)).toBeLessThan(1e-6);
    expect(plan.objective.seconds).toBeGreaterThanOrEqual(free.objective.seconds);
  });

  it('one copy for several uses never costs more than a redistribution at each', async () => {
    for (const mesh of ['x=4', 'x=2,y=2']) {
      const graph = load('torch/mlp-loss/joint.expanded');
      const shared = await planFor(graph, mesh, { cluster: SLOW });
      const each = await planFor(graph, mesh, { cluster: SLOW, sharing: false });
      expect(shared.objective.seconds).toBeLessThanOrEqual(each.objective.seconds * (1 + 1e-9));
    }
  });

  it('a pin is kept, and dropping it restores the earlier plan byte for byte', async () => {
    const graph = load('torch/mlp/joint.expanded');
    const free = await planFor(graph, 'x=4', { cluster: SLOW });
    const pinned = await planFor(graph, 'x=4', {
      cluster: SLOW,
      pins: [{ node: 'fc1.weight', spec: 'S(1)' }],
    });
    expect(pinned.parameters.find((p) => p.name === 'fc1.weight')?.placement).toBe('S(1)');
    expect(pinned.objective.seconds).toBeGreaterThanOrEqual(free.objective.seconds);
    const again = await planFor(graph, 'x=4', { cluster: SLOW });
    const still = (p: typeof free): string =>
      JSON.stringify({ ...p, proof: { ...p.proof, solveSeconds: null } });
    expect(still(again)).toBe(still(free));
  });

  it('gradients are placed like their parameters, and the loss is whole', async () => {
    const plan = await planFor(load('torch/mlp-loss/joint.expanded'), 'x=2,y=2', { cluster: SLOW });
    for (const p of plan.parameters)
      expect(plan.outputs.find((o) => o.role === 'grad' && o.of === p.name)?.placement).toBe(
        p.placement,
      );
    expect(plan.outputs.find((o) => o.role === 'output')?.placement).toBe('RR');
  });

  it('infeasible states: the smallest budget works, one byte less does not', async () => {
    const graph = load('torch/mlp/joint.expanded');
    const states = { activations: 'report' } as const;
    const result = await solveFor(graph, 'x=4', { ...states, memoryBytes: 1000 });
    if (result.status !== 'infeasible') throw new Error('expected infeasible');
    const smallest = result.smallestBudgetBytes!;
    expect((await solveFor(graph, 'x=4', { ...states, memoryBytes: smallest })).status).toBe(
      'planned',
    );
    expect((await solveFor(graph, 'x=4', { ...states, memoryBytes: smallest - 1 })).status).toBe(
      'infeasible',
    );
  });
});
