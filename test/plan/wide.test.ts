/** Networks that do not repeat, on meshes of three dims. */
import { expect, test } from 'vitest';

import { compare } from '../../src/sweep/pipeline/compare.ts';
import { FULL } from '../support/full.ts';
import { load, planFor } from './support.ts';

// The long runs belong to `npm run test:full`.

test.runIf(FULL).each(['a=2,b=4,c=8', 'a=2,b=2,c=2'])(
  'a residual network of four blocks (joint) on %s: proven optimal, and no more expensive than greedy propagation',
  async (mesh) => {
    const graph = load('torch/resnet14/joint.expanded');
    const fine = await planFor(graph, mesh);
    expect(fine.proof).toMatchObject({ status: 'optimal', gap: 0 });
    expect(fine.objective.seconds).toBeLessThanOrEqual(fine.greedySeconds!);
  },
);

if (FULL) {
  test('compare of an unrolled LSTM of 1,956 nodes: every mesh has an optimum, proven or with its gap', async () => {
    const graph = load('torch/lstm16/joint.expanded');
    const comparison = await compare(graph, { devices: 4, cluster: 'dgx-h100' });
    const optima = comparison.plans.filter(({ plan }) => plan === 'optimum');
    expect(optima).toHaveLength(
      comparison.meshes.filter(({ status }) => status === 'solved').length,
    );
    expect(comparison.meshes.map(({ status }) => status)).not.toContain('refused');
    for (const { seconds, proof } of optima) {
      expect(proof!.bound).toBeLessThanOrEqual(seconds);
      expect(proof!.gap).toBeLessThan(0.01);
    }
  });

  test('resnet50 (joint) on 2 x 4 x 8: answered without a limit, at most half a percent from its bound', async () => {
    const graph = load('torch/resnet50/joint.expanded');
    const plan = await planFor(graph, 'a=2,b=4,c=8');
    expect(plan.proof.gap).toBeLessThan(0.005);
    expect(plan.proof.bound).toBeLessThanOrEqual(plan.objective.seconds);
  }, 600_000);

  test('compare of the unrolled LSTM on 64 devices: every mesh has an optimum, proven or with its gap', async () => {
    const graph = load('torch/lstm16/joint.expanded');
    const comparison = await compare(graph, { devices: 64, cluster: 'dgx-h100' });
    for (const { plan, proof } of comparison.plans)
      if (plan === 'optimum') expect(proof!.gap).toBeLessThan(0.01);
  }, 600_000);
}
