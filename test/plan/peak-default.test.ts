/**
 * The budget holds peak memory where nobody says otherwise. The judge of a peak is the schedule
 * that `simulate` plays, which is worked out from plan and graph by other code than the planner's.
 */
import { describe, expect, test } from 'vitest';

import { usableMemoryBytes } from '../../src/cost/hardware/cluster.ts';
import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import type { LeastCostResult } from '../../src/plan/choice/result.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { planTexts, readPlanFolder } from '../../src/plan/record/folder.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import { askedGap } from '../../src/plan/request/request.ts';
import { priceRecipes } from '../../src/recipes/compare/compare.ts';
import { planSchedule } from '../../src/simulate/timeline/from-plan.ts';
import { play } from '../../src/simulate/timeline/play.ts';
import { serial } from '../support/serial-schedule.ts';
import { load, planFor, request, solveFor, TABLE } from './support.ts';

const MESH = 'dp=2,tp=2';
const MLP = load('torch/mlp-loss/joint.expanded');
const playedPeak = (result: Extract<LeastCostResult, { status: 'planned' }>): number =>
  play(serial(planSchedule(result.graph, result.plan, TABLE))).memory.peakBytes;

/** Everything of a plan but what the budget holds and the clock. */
function chosen({ nodes, outputs, parameters, objective, proof }: Plan): unknown {
  return {
    nodes,
    outputs,
    parameters,
    objective,
    status: proof.status,
    bound: proof.bound,
    gap: proof.gap,
  };
}

describe('a budget without a word on activations', () => {
  test('that does not bind: the plan, its proof and its prices are those of states alone', async () => {
    const states = await planFor(MLP, MESH, { activations: 'report' });
    const plan = await planFor(MLP, MESH);
    expect(chosen(plan)).toEqual(chosen(states));
    expect(plan.request.activations).toBeUndefined();
    expect(plan.proof.status).toBe('optimal');
    expect(plan.memory.peakBytes).toBe(states.memory.timeline?.peakBytes);
    expect(plan.memory.peakBytes).toBeGreaterThan(states.memory.peakBytes);
  });

  test('that binds between states and peak: the peak of the schedule fits, and the request says what limits it', async () => {
    const states = await planFor(MLP, MESH, { activations: 'report' });
    const memoryBytes = states.memory.timeline!.peakBytes - 1;
    expect(memoryBytes).toBeGreaterThan(states.memory.peakBytes);
    const result = await solveFor(MLP, MESH, { memoryBytes });
    if (result.status === 'infeasible') throw new Error('a plan is known to fit below');
    const { plan } = result;
    expect(playedPeak(result)).toBe(plan.memory.peakBytes);
    expect(plan.memory.peakBytes).toBeLessThanOrEqual(memoryBytes);
    expect(plan.request.activations).toBe('constraint');
    expect(plan.objective.seconds).toBeGreaterThanOrEqual(states.objective.seconds);
    expect(askedGap(plan.request)).toBe(0.01);
    // What no plan of fewer limits is below, none of more is.
    expect(plan.proof.bound).toBeGreaterThanOrEqual(states.proof.bound * (1 - 1e-9));
    // The same budget for states alone does not know of the peak.
    const blind = await planFor(MLP, MESH, { memoryBytes, activations: 'report' });
    expect(blind.memory.timeline!.peakBytes).toBeGreaterThan(memoryBytes);
  });

  test('that nothing fits: what every plan needs, and the peak of one that is known, which then is a budget with a plan', async () => {
    const none = await solveFor(MLP, 'd=4', { memoryBytes: 1000 });
    if (none.status !== 'infeasible') throw new Error('1,000 bytes hold no plan');
    expect(none.smallestBudgetBytes).toBeUndefined();
    expect(none.enoughBytes).toBeGreaterThanOrEqual(none.neededBytes!);
    const enough = await solveFor(MLP, 'd=4', { memoryBytes: none.enoughBytes! });
    if (enough.status === 'infeasible') throw new Error('a plan of that peak is known');
    expect(playedPeak(enough)).toBeLessThanOrEqual(none.enoughBytes!);
  });

  test('a recipe that fits is an answer, and none that fits takes less than the plan', async () => {
    const free = prepare(MLP, request(MESH), TABLE);
    const fitting = (await priceRecipes(free)).flatMap((r) => (r.status === 'priced' ? [r] : []));
    const leanest = fitting.reduce((a, b) => (b.peakBytes < a.peakBytes ? b : a));
    const held = prepare(MLP, request(MESH, { memoryBytes: leanest.peakBytes }), TABLE);
    const result = await leastCostPlanOf(held, { starts: [leanest.choice] });
    if (result.status === 'infeasible') throw new Error('the recipe fits');
    expect(playedPeak(result)).toBeLessThanOrEqual(leanest.peakBytes);
    expect(result.plan.objective.seconds).toBeLessThanOrEqual(leanest.seconds * (1 + 1e-9));
  });
});

describe('the memory of a device', () => {
  // nvidia-smi of each device, MiB.
  test.each([
    ['dgx-a100-80gb', 81_920],
    ['dgx-h100', 81_559],
    ['dgx-h200', 143_771],
    ['dgx-b200', 183_359],
    ['gb200-nvl72', 189_471],
    ['gb300-nvl72', 284_208],
  ])('%s: what the driver reports, less 5 %%', (name, mib) => {
    const cluster = loadCluster(name);
    expect(cluster.memoryBytes).toBe(mib * 2 ** 20);
    expect(usableMemoryBytes(cluster)).toBeCloseTo(0.95 * mib * 2 ** 20, -1);
    expect(usableMemoryBytes(cluster, { headroom: 0 })).toBe(cluster.memoryBytes);
    expect(usableMemoryBytes(cluster, { headroom: 0.1, memoryBytes: 7 })).toBe(7);
  });

  test("a user's cluster states its own", () => {
    const own = loadCluster(
      JSON.stringify({ base: 'dgx-h100', memoryBytes: 24e9, reservedBytes: 1e9 }),
    );
    expect(usableMemoryBytes(own)).toBe(23e9);
    expect(
      usableMemoryBytes(loadCluster(JSON.stringify({ base: 'dgx-h100', memoryBytes: 24e9 }))),
    ).toBe(22.8e9);
  });
});

describe('a plan folder that does not say what its budget holds', () => {
  const reread = (plan: Plan): ReturnType<typeof readPlanFolder> => {
    const { activations: _, ...silent } = plan.request;
    const { certificate: __, ...texts } = planTexts({ ...plan, request: silent }, MLP, {
      domains: [],
    } as never);
    return readPlanFolder(texts, 'plan.json');
  };

  test('is read as one that holds the peak, whatever its memory counts', async () => {
    const [peak, states, off] = await Promise.all([
      planFor(MLP, MESH),
      planFor(MLP, MESH, { activations: 'report' }),
      planFor(MLP, MESH, { activations: 'off' }),
    ]);
    for (const plan of [peak, states, off]) {
      const folder = reread(plan);
      expect(folder.request?.activations).toBeUndefined();
      expect(folder.isAsWritten).toBe(true);
    }
  });
});
