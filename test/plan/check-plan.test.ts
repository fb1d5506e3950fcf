/** Plans that the search makes are plans that the check of a written plan accepts. */
import { readFileSync } from 'node:fs';

import { describe, expect, it } from 'vitest';

import { parseGraph } from '../../src/graph/text/parse.ts';
import type { LeastCostResult } from '../../src/plan/choice/result.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { checkPlan } from '../../src/plan/questions/check-plan.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../src/plan/request/request.ts';
import { differencesOf, load, TABLE } from './support.ts';

type Planned = Extract<LeastCostResult, { readonly status: 'planned' }>;

async function planned(
  ...[graph, asked]: readonly [ReturnType<typeof load>, PlanRequest]
): Promise<Planned> {
  const result = await leastCostPlan(graph, asked, { table: TABLE });
  if (result.status !== 'planned') throw new Error(`infeasible: ${result.conflict.join(', ')}`);
  return result;
}

const request = (more: Partial<PlanRequest>): PlanRequest => ({
  ...DEFAULT_REQUEST,
  mesh: 'd=2',
  cluster: 'dgx-h100',
  ...more,
});

describe('a plan under a budget', () => {
  const file = new URL('../fixtures/plans/two-products.swg', import.meta.url);
  const products = parseGraph(readFileSync(file, 'utf8'), 'two-products.swg');

  // Messages alone prove the optimum, and the row of the peak cuts nothing off.
  it.each(['dtensor', 'nccl', 'alpha-beta'])(
    'has a certificate of the problem with its row, at prices of %s',
    async (cost) => {
      const free = await planned(products, request({ cost }));
      const memoryBytes = free.plan.memory.peakBytes - 1;
      const made = await planned(products, request({ cost, memoryBytes }));
      expect(made.certificate.within).toBeDefined();
      expect(differencesOf(made)).toEqual([]);
    },
  );

  it('whose row cuts nothing off has a certificate of the problem with that row, too', async () => {
    const graph = load('torch/mlp-loss/joint.expanded');
    const free = await planned(graph, request({ mesh: 'dp=2,tp=2' }));
    const memoryBytes = free.plan.memory.peakBytes - 1;
    expect(
      differencesOf(await planned(graph, request({ mesh: 'dp=2,tp=2', memoryBytes }))),
    ).toEqual([]);
  });
});

describe('what the certificate must not decide', () => {
  it('is what comes first: an optimum of least memory needs a proof of the least bytes', async () => {
    // Copies of a small weight on all devices are faster than its pieces, and more bytes.
    const graph = load('torch/mlp-loss/joint.expanded');
    const asked = request({ mesh: 'dp=2,tp=2', activations: 'report' });
    const fastest = await planned(graph, asked);
    const least = await planned(graph, { ...asked, objective: 'parameter-memory' });
    expect(least.plan.memory.parameterBytes).toBeLessThan(fastest.plan.memory.parameterBytes);
    expect(least.plan.proof.status).toBe('optimal');
    expect(differencesOf(least)).toEqual([]);
    // The fastest plan, whose request is forged to ask for the least bytes.
    const ofLeast = { ...fastest.plan.request, objective: 'parameter-memory' } as const;
    const forged = {
      plan: { ...fastest.plan, request: ofLeast },
      certificate: fastest.certificate,
      program: graph,
      request: ofLeast,
    };
    expect(forged.plan.proof.status).toBe('optimal');
    expect(checkPlan(forged, TABLE).differences.map((d) => d.path)).toContain('$.proof.status');
  });

  it('is which problem it is about: whether nodes may be recomputed is the word of the request', async () => {
    const graph = load('torch/mlp-loss/joint.expanded');
    const free = await planned(graph, request({ mesh: 'dp=2,tp=2' }));
    const memoryBytes = Math.floor(0.8 * free.plan.memory.peakBytes);
    const made = await planned(
      graph,
      request({ mesh: 'dp=2,tp=2', memoryBytes, checkpoint: 'auto' }),
    );
    expect(differencesOf(made)).toEqual([]);
    const { recomputation, ...silent } = made.prepared.question.request;
    expect(recomputation).toBe('chosen');
    const folder = {
      plan: { ...made.plan, request: silent },
      certificate: made.certificate,
      program: made.prepared.question.program,
      request: silent,
    };
    expect(checkPlan(folder as never, TABLE).differences).not.toEqual([]);
  });
});
