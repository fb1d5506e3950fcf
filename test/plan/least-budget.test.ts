/**
 * The hint of a budget that is too small: the least one that has a plan. The judge is planning at
 * the hinted budget and just below it, and, on a small program, every choice that there is.
 */
import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import type { Graph } from '../../src/graph/types.ts';
import { choicePeakBytes } from '../../src/plan/choice/timeline.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { evaluate } from '../../src/solver/check/verify.ts';
import { spec } from '../../src/trace/record/spec.ts';
import { param } from '../../src/trace/tensor/state.ts';
import { type Tensor, trace } from '../../src/trace/trace.ts';
import { FULL } from '../support/full.ts';
import { load, request, TABLE } from './support.ts';

/** The budget that the answer to too small a budget says is enough. */
async function hinted(graph: Graph, mesh: string): Promise<number> {
  const none = await leastCostPlan(graph, request(mesh, { memoryBytes: 1024 }), {
    table: TABLE,
    findsBudget: true,
  });
  if (none.status !== 'infeasible' || none.enoughBytes === undefined)
    throw new Error('1,024 bytes hold a plan, or no budget does');
  return none.enoughBytes;
}

/** Whether planning within a budget finds a plan, whose peak is then within it. */
async function hasPlan(graph: Graph, mesh: string, memoryBytes: number): Promise<boolean> {
  try {
    const asked = request(mesh, { memoryBytes });
    const result = await leastCostPlan(graph, asked, { table: TABLE });
    if (result.status === 'infeasible') return false;
    expect(result.plan.memory.peakBytes).toBeLessThanOrEqual(memoryBytes);
    return true;
  } catch (error) {
    if (error instanceof ShardwrightError && error.code === 'E_LIMIT') return false;
    throw error;
  }
}

/**
 * The distance from a hint to a budget that has no plan: one part in 256, which the three digits
 * that are printed show in most sizes, and at least 2 KiB.
 */
const LEAST_DISTANCE = 2048;
const distanceOf = (bytes: number): number => Math.max(LEAST_DISTANCE, Math.ceil(bytes / 256));
const small = (): Graph =>
  trace(({ x }: { x: Tensor }) => x.matmul(param('w1', [64, 96])).relu(), {
    x: spec([48, 64]),
  });

describe('the budget that a refusal for memory names', () => {
  test.each([
    [
      'a training step of an MLP',
      load('torch/mlp-loss/joint.expanded'),
      FULL ? 'dp=2,tp=2' : 'd=4',
    ],
    ['a training step of a convolutional network', load('torch/convnet/joint.expanded'), 'd=2'],
    ['a product', small(), 'd=4'],
    ...(FULL
      ? ([['a training step of a graph network', load('torch/gcn/joint.expanded'), 'd=2']] as const)
      : []),
  ] as const)(
    '%s: it has a plan, and one part in 256 below none is found',
    async (_, graph, mesh) => {
      const enough = await hinted(graph, mesh);
      expect(await hasPlan(graph, mesh, enough)).toBe(true);
      expect(await hasPlan(graph, mesh, enough - distanceOf(enough))).toBe(false);
    },
  );

  test.runIf(FULL)(
    'of a large program it has a plan too, and is below the peak of the plan without a budget',
    async () => {
      const graph = load('torch/gpt2-2l/joint.expanded');
      const free = await leastCostPlan(graph, request('dp=2,tp=2', { activations: 'report' }), {
        table: TABLE,
      });
      if (free.status !== 'planned') throw new Error('a request without a budget has a plan');
      const enough = await hinted(graph, 'dp=2,tp=2');
      expect(enough).toBeLessThan(free.plan.memory.timeline?.peakBytes ?? 0);
      expect(await hasPlan(graph, 'dp=2,tp=2', enough)).toBe(true);
    },
    120_000,
  );

  test('it is the least peak of all choices of a small program', async () => {
    const { model, left } = prepare(small(), request('d=4'), TABLE);
    let least = Infinity;
    for (const choice of choices(model.problem.domains)) {
      if (evaluate({ ...left.problem, rows: [] }, choice).violations.length > 0) continue;
      least = Math.min(least, choicePeakBytes(model, choice));
    }
    const enough = await hinted(small(), 'd=4');
    expect(enough).toBeGreaterThanOrEqual(least);
    expect(enough - least).toBeLessThan(LEAST_DISTANCE);
  });
});

function* choices(domains: Int32Array): Generator<Int32Array> {
  const choice = new Int32Array(domains.length);
  for (;;) {
    yield choice;
    let v = domains.length - 1;
    while (v >= 0 && choice[v] === domains[v] - 1) choice[v--] = 0;
    if (v < 0) return;
    choice[v]++;
  }
}
