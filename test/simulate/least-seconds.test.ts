import { describe, expect, it } from 'vitest';

import { itemAt } from '../../src/item-at.ts';
import { decode, stateMemory } from '../../src/plan/choice/decode.ts';
import { randomChoice } from '../../src/plan/choice/random-plan.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Prepared } from '../../src/plan/prepare/prepared.ts';
import { Deadline } from '../../src/plan/request/deadline.ts';
import { priceRecipes } from '../../src/recipes/compare/compare.ts';
import { CandidatePool } from '../../src/simulate/overlap/candidates.ts';
import { overlappedStep } from '../../src/simulate/overlap/known-plan.ts';
import { simulate, type SimulateOptions } from '../../src/simulate/timeline/simulate.ts';
import { longestPath } from '../../src/simulate/work/longest-path.ts';
import { StepWork } from '../../src/simulate/work/step-work.ts';
import { load, request, TABLE } from '../plan/support.ts';
import { FULL } from '../support/full.ts';

const COSTS = { launchSeconds: 1e-6, bucketBytes: 25 * 2 ** 20 };
/** Orders, buckets, distances of gathers, and limits on memory. */
const WAYS: readonly SimulateOptions[] = [
  {},
  { order: 'program', bucketBytes: 0, prefetch: 0 },
  { order: 'program', prefetch: 16, memoryBytes: 'none' },
  { bucketBytes: 25 * 2 ** 20, overlapSlowdown: 1.2 },
];

function played(
  { model, question: { program, request: asked, budgetBytes } }: Prepared,
  choice: Int32Array,
  options: SimulateOptions,
): number {
  const { nodes, outputs } = decode(model, choice);
  const plan = {
    request: asked,
    nodes,
    outputs,
    memory: { ...stateMemory(model, choice), budgetBytes },
  };
  return simulate(program, plan, { ...options, table: TABLE }).timeline.seconds;
}

describe('the least seconds of a step', () => {
  it.each([
    ['mlp-loss', 'x=2,y=8', 'alpha-beta', FULL ? 6 : 2],
    ['mlp-loss', 'x=2,y=8', 'nccl', FULL ? 6 : 2],
    ...(FULL ? [['gpt2-2l', 'x=8', 'nccl', 2] as const] : []),
    ['hop-scan-joint', 'x=2', 'nccl', 6],
  ] as const)(
    'of %s on %s under %s: no random plan is played faster in any order',
    (name, mesh, cost, plans) => {
      const prepared = prepare(
        load(`torch/${name}/joint.expanded`),
        request(mesh, { cost }),
        TABLE,
      );
      const works = (['share', 'added'] as const).map(
        (bucketPrice) => new StepWork(prepared.model, { ...COSTS, bucketPrice }),
      );
      for (let seed = 0; seed < plans; seed++) {
        const choice = randomChoice(prepared.model, seed);
        const bounds = works.map((work) => longestPath(work, choice).seconds);
        const bound = Math.max(...bounds);
        expect(Math.min(...bounds)).toBeGreaterThan(0);
        for (const options of WAYS)
          expect(bound).toBeLessThanOrEqual(played(prepared, choice, options));
      }
    },
  );

  it.each([
    ['gpt2-2l', 'dp=8', 'nccl'],
    ...(FULL ? [['mixtral-tiny', 'dp=8', 'alpha-beta'] as const] : []),
  ] as const)(
    '%s on %s under %s: the plan that is taken is that of simulating all recipes, and the bound is below all',
    async (name, mesh, cost) => {
      const prepared = prepare(
        load(`torch/${name}/joint.expanded`),
        request(mesh, { cost }),
        TABLE,
      );
      const recipes = await priceRecipes(prepared);
      const known = recipes.flatMap((r) =>
        r.status === 'priced' ? [{ name: r.name, choice: r.choice }] : [],
      );
      const result = await leastCostPlanOf(prepared, { starts: known.map((r) => r.choice) });
      if (result.status !== 'planned') throw new Error('no plan');
      const all = new CandidatePool(result.prepared, {}, result.choice);
      const [base] = all.candidates;
      for (const { choice } of known) if (all.admits(choice)) all.add(choice);
      const step = await overlappedStep(result, known, new Deadline(undefined));
      const { best } = all;
      const recipe = best.simulatedSeconds < base.simulatedSeconds * (1 - 0.005) ? best : base;
      expect(step.baseSimulatedSeconds).toBe(base.simulatedSeconds);
      expect(step.simulatedSeconds).toBe(recipe.simulatedSeconds);
      // Each known plan has its own step or less than it, and the fastest its own.
      const ofKnown = new Map(
        known.map((r) => [
          r.name,
          itemAt(new CandidatePool(result.prepared, {}, r.choice).candidates, 0).simulatedSeconds,
        ]),
      );
      for (const { name: recipe, stepSeconds, isAtLeast } of step.known)
        if (isAtLeast) expect(stepSeconds).toBeLessThanOrEqual(ofKnown.get(recipe) ?? 0);
        else expect(stepSeconds).toBe(ofKnown.get(recipe));
      const fastest = Math.min(...ofKnown.values());
      expect(step.known.find((r) => r.stepSeconds === fastest)?.isAtLeast).toBe(false);
      // The bound is below every plan that was simulated.
      expect(step.boundSeconds).toBeGreaterThan(0);
      for (const { simulatedSeconds } of all.candidates)
        expect(step.boundSeconds).toBeLessThanOrEqual(simulatedSeconds * (1 + 1e-9));
      expect(step.gap).toBeCloseTo(1 - (step.boundSeconds ?? NaN) / step.simulatedSeconds, 12);
      // What a recipe takes at least is below what it takes, and above nothing.
      const work = new StepWork(result.prepared.model, COSTS);
      for (const { choice, simulatedSeconds } of all.candidates)
        expect(longestPath(work, choice).seconds).toBeLessThanOrEqual(simulatedSeconds);
    },
  );

  it.each(['gpt2-2l', 'mlp-loss'])(
    'a copy of %s is made for the use that a kernel waits for first',
    (name) => {
      const { model } = prepare(load(`torch/${name}/joint.expanded`), request('x=2,y=4'), TABLE);
      const work = new StepWork(model, COSTS);
      model.copies.forEach((_, c) => {
        const uses = model.uses.flatMap((use, k) => (use.copy === c ? [k] : []));
        const least = Math.min(...uses.map((k) => work.useSites[k].before));
        expect(work.useSites[work.firstUse[c]].before).toBe(least);
      });
    },
  );

  it('counts what a kernel waits for at once, though something that can wait is written first', () => {
    // The attention's result is kept for the backward pass before the next layer reads it: both
    // uses share one copy.
    const { model } = prepare(load('torch/gpt2-2l/joint.expanded'), request('x=2,y=4'), TABLE);
    const work = new StepWork(model, COSTS);
    const later = model.copies.flatMap((_, c) => {
      const first = model.uses.findIndex((use) => use.copy === c);
      return work.firstUse[c] === first
        ? []
        : [work.useSites[work.firstUse[c]].before - work.useSites[first].before];
    });
    expect(later.length).toBeGreaterThan(0);
    for (const kernels of later) expect(kernels).toBeLessThan(0);
  });
});
