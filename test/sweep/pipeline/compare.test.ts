import { beforeAll, describe, expect, it } from 'vitest';

import { leastCostPlan } from '../../../src/plan/least-cost-plan.ts';
import { Deadline } from '../../../src/plan/request/deadline.ts';
import { DEFAULT_REQUEST } from '../../../src/plan/request/request.ts';
import type { Comparison } from '../../../src/recipes/compare/comparison.ts';
import { mergeComparisons } from '../../../src/recipes/compare/conclude-comparison.ts';
import { asComparison } from '../../../src/report/model/comparison-schema.ts';
import { compare } from '../../../src/sweep/pipeline/compare.ts';
import { planGraphStages } from '../../../src/sweep/pipeline/graph-stages.ts';
import { load, TABLE } from '../../plan/support.ts';

const MLP = load('torch/mlp-loss/joint.expanded');
const REQUEST = { cluster: 'dgx-h100', devices: 4, accumulate: 8 } as const;
const run = (options: Parameters<typeof compare>[2] = {}): Promise<Comparison> =>
  compare(MLP, REQUEST, { table: TABLE, ...options });

describe('a comparison of the MLP on 4 devices, of 8 microbatches a step', () => {
  let all: Comparison;
  beforeAll(async () => void (all = await run()));

  it('has a plan in stages for each mesh, with the step and the bytes of that plan', async () => {
    const staged = all.plans.filter(({ plan }) => plan === 'pp+optimum');
    expect(staged.map(({ mesh }) => mesh)).toEqual(['pp=2,d0=2']);
    const [row] = staged;
    const found = await planGraphStages(
      MLP,
      // The memory within which a plan fits with 90 %.
      { ...DEFAULT_REQUEST, mesh: 'd0=2', cluster: 'dgx-h100', memoryBytes: all.safeBytes! },
      { devices: 2, microbatches: 8, schedule: '1f1b', virtual: 1 },
      { table: TABLE, deadline: new Deadline(undefined) },
    );
    if ('infeasible' in found) throw new Error(found.part);
    const { seconds, stages, cuts, bubbleSeconds } = found.pipeline;
    expect([row.stepSeconds, row.seconds]).toEqual([seconds, seconds]);
    expect(row.peakBytes).toBe(Math.max(...stages.map(({ peakBytes }) => peakBytes)));
    expect(row.pipeline).toEqual({
      schedule: '1f1b',
      microbatches: 8,
      cuts,
      bubbleSeconds,
      gap: 0,
    });
  });

  it('ranks it by the step of all microbatches, as it ranks the others', () => {
    expect(all.microbatches).toBe(8);
    const steps = all.plans.filter(({ fits }) => fits).map(({ stepSeconds }) => stepSeconds!);
    expect(steps).toEqual([...steps].sort((a, b) => a - b));
    for (const { why } of all.plans.slice(1)) expect(why).toMatch(/slower|equal/);
    expect(asComparison(JSON.parse(JSON.stringify(all)), 'all.json')).toEqual(
      JSON.parse(JSON.stringify(all)),
    );
  });

  it('has the costs of all passes one after another, gradients reduced once', async () => {
    const asked = { ...DEFAULT_REQUEST, mesh: 'd0=4', cluster: 'dgx-h100', accumulate: 8 };
    const result = await leastCostPlan(MLP, asked, { table: TABLE });
    if (result.status !== 'planned') throw new Error('none');
    const { objective, proof } = result.plan;
    const row = all.plans.find(({ plan, mesh }) => plan === 'optimum' && mesh === 'd0=4')!;
    expect(row.seconds).toBeCloseTo(8 * objective.seconds, 12);
    expect(row.communicationSeconds).toBeCloseTo(8 * objective.communicationSeconds, 12);
    expect(row.proof?.bound).toBeCloseTo(8 * proof.bound, 12);
    // A played step hides communication, and no compute.
    expect(row.stepSeconds).toBeGreaterThan(row.seconds - row.communicationSeconds);
  });

  it('in pieces gives the plans of the whole', async () => {
    const pieces = await Promise.all([0, 1, 2].map((index) => run({ slice: { index, count: 3 } })));
    const merged = mergeComparisons(pieces);
    expect(merged.microbatches).toBe(8);
    expect(merged.plans.map(({ name }) => name)).toEqual(all.plans.map(({ name }) => name));
    expect(merged.best).toBe(all.best);
  });
});

it('has no stages of a step that is one pass, and says what they need', async () => {
  const { accumulate: _, ...pass } = REQUEST;
  const { plans } = await compare(MLP, pass, { table: TABLE, plans: ['optimum'] });
  expect(plans.map(({ plan }) => plan)).not.toContain('pp+optimum');
  await expect(compare(MLP, pass, { plans: ['pp+optimum'] })).rejects.toThrow(
    /pp\+optimum needs a step of several microbatches/,
  );
});

it('refuses microbatches of a program without gradients before it plans anything', async () => {
  const forward = { ...MLP, outputs: MLP.outputs.filter(({ role }) => role !== 'grad') };
  await expect(compare(forward, REQUEST, { table: TABLE })).rejects.toThrow(
    /the program returns no gradients, which --accumulate adds up/,
  );
});

it('plans in stages alone where nothing else is asked for, and none within no time', async () => {
  const { plans } = await run({ plans: ['pp+optimum'] });
  expect(plans.map(({ plan }) => plan)).toEqual(['pp+optimum']);
  const over = new Deadline(0);
  await expect(run({ plans: ['pp+optimum'], deadline: over })).rejects.toMatchObject({
    code: 'E_TIME_LIMIT',
  });
});
