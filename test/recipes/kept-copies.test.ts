/** The command's plan keeps copies for the backward pass where that makes its step shorter. */
import { describe, expect, test } from 'vitest';

import { fitProbability } from '../../src/cost/error-bands.ts';
import { defined } from '../../src/defined.ts';
import type { Graph } from '../../src/graph/types.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import type { PlanRequest } from '../../src/plan/request/request.ts';
import type { Answer } from '../../src/recipes/answer.ts';
import { shard } from '../../src/shard.ts';
import { mseLoss } from '../../src/trace/tensor/functional.ts';
import { input, parameter, type Tensor, trace } from '../../src/trace/trace.ts';
import { differencesOf } from '../plan/support.ts';

const COUNT = 4;
const WIDTH = 4096;

/** Products with square weights, of so few rows that gathering the weights is most of the step. */
function products(): Graph {
  const batch = input([4096, WIDTH]);
  const ws = Array.from({ length: COUNT }, () => parameter([WIDTH, WIDTH]));
  const loss = (given: { x: Tensor; y: Tensor; ws: readonly Tensor[] }): Tensor =>
    mseLoss(
      given.ws.reduce((h, w) => h.matmul(w).relu(), given.x),
      given.y,
    );
  return jointGraph(trace(loss, { x: batch, y: batch, ws }));
}

const pins = [
  ...Array.from({ length: COUNT }, (_, i) => ({ node: `ws.${i}`, spec: 'S(0)' })),
  { node: 'x', spec: 'S(0)' },
  { node: 'y', spec: 'S(0)' },
];
const WEIGHT = WIDTH * WIDTH * 4;

type Planned = Exclude<Answer, { readonly status: 'infeasible' }>;

async function answered(more: Partial<PlanRequest> = {}): Promise<Planned> {
  const found = await shard(products(), {
    mesh: 'dp=16',
    cluster: 'dgx-h100',
    pins,
    ...more,
  });
  if (found.status === 'infeasible') throw new Error(found.conflict.join());
  return found;
}

describe('weights that both passes gather', () => {
  test('are gathered once where they fit, with a bound of plans that may keep copies', async () => {
    const pass = await answered({ copies: 'pass' });
    const kept = await answered();
    expect(kept.plan.request.copies).toBe('step');
    expect(kept.plan.step?.stepSeconds).toBeLessThan(0.995 * (pass.plan.step?.stepSeconds ?? 0));
    expect(kept.plan.proof.bound).toBeLessThan(pass.plan.proof.bound);
    expect(kept.plan.proof.bound).toBeLessThanOrEqual(kept.plan.objective.seconds * (1 + 1e-9));
    expect(differencesOf(kept)).toEqual([]);
    // The gathers of a kept plan are of the forward pass.
    const gathers = kept.plan.nodes.filter(
      ({ phase, redistributions }) =>
        phase === 'backward' &&
        redistributions.some((m) => m.collectives.some((c) => c.kind === 'all_gather')),
    );
    expect(gathers).toEqual([]);
  }, 60_000);

  test('are gathered twice where a request says so, or where they do not fit', async () => {
    const pass = await answered({ copies: 'pass' });
    expect(pass.plan.request.copies).toBe('pass');
    const memoryBytes = pass.plan.memory.peakBytes + WEIGHT / 2;
    const tight = await answered({ memoryBytes, risk: 0 });
    expect(tight.plan.memory.peakBytes).toBeLessThanOrEqual(memoryBytes);
  }, 60_000);
});

describe('the first plan stays where the answer with kept copies', () => {
  const free = (memoryBytes: number, copies?: 'pass'): Promise<Planned> =>
    answered({ mesh: 'dp=8', pins: [], risk: 0.99, memoryBytes, ...defined({ copies }) });

  test.each([
    ['is not a faster', 488_216_990],
    ['fits less surely', 610_271_238],
  ])(
    '%s',
    async (_, memoryBytes) => {
      const [pass, kept] = [await free(memoryBytes, 'pass'), await free(memoryBytes)];
      const [first, step] = [pass.plan.step, kept.plan.step];
      if (first === undefined || step === undefined) throw new Error('no step');
      // Copies that one pass has, as where the request says so.
      expect(kept.plan.request.copies).toBeUndefined();
      expect(kept.plan.nodes).toEqual(pass.plan.nodes);
      expect(step).toEqual(first);
      const fits = [first, step].map(({ peakBytes }) => fitProbability(peakBytes, memoryBytes));
      expect(fits[1]).toBeGreaterThanOrEqual(Math.min(0.99, fits[0]));
    },
    60_000,
  );
});
