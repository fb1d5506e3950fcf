import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import type { RedistributionCharges } from '../../src/cost/redistribution/charges.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { TableBuilder } from '../../src/plan/model/tables.ts';
import { prepare, withPins } from '../../src/plan/prepare/prepare.ts';
import { priceRecipes } from '../../src/recipes/compare/compare.ts';
import { recipeTable } from '../../src/report/text/summary.ts';
import { solveNow } from '../../src/solver/solve.ts';
import { cli, fixture } from '../cli/support.ts';
import { FULL } from '../support/full.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { load, planFor, request, TABLE } from './support.ts';

const LLAMA = 'torch/llama3-8b-2l-b16/joint.expanded';

/** dgx-h100 whose links between hosts start so many seconds late. */
const far = (latencySeconds: number): string =>
  JSON.stringify({ base: 'dgx-h100', inter: { latencySeconds } });

describe('prices that are far apart', () => {
  it.each<readonly [string, number]>([
    ['torch/mlp-loss/joint.expanded', 1e6],
    ['torch/mlp-loss/joint.expanded', 1e15],
    ...(FULL ? ([[LLAMA, 1e12]] as const) : []),
  ])(
    '%s: links of %d s are never used, the plan is the one of links of 1,000 s',
    async (name, seconds) => {
      const graph = load(name);
      const near = await planFor(graph, 'dp=8,tp=8', { cluster: far(1e3) });
      const plan = await planFor(graph, 'dp=8,tp=8', { cluster: far(seconds) });
      expect(plan.proof).toMatchObject({ status: 'optimal', gap: 0 });
      expect(plan.proof.roundingSeconds).toBeLessThanOrEqual(1e-9 * plan.objective.seconds);
      expect(plan.objective.seconds / near.objective.seconds - 1).toBeCloseTo(0, 7);
      expect(plan.assumptions.join('\n')).toMatch(
        /Prices above .* are left out: a recipe costs no more/,
      );
    },
  );

  it('no recipe is cheaper than the plan, and one that needs the far links is priced with them', async () => {
    const asked = request('dp=8,tp=8', { cluster: far(1e12) });
    const prepared = prepare(load('torch/mlp-loss/joint.expanded'), asked, TABLE);
    const recipes = await priceRecipes(prepared);
    const result = await leastCostPlanOf(prepared);
    if (result.status !== 'planned') throw new Error('infeasible');
    const { plan } = result;
    for (const r of recipes)
      if (r.status === 'priced') expect(r.seconds).toBeGreaterThanOrEqual(plan.objective.seconds);
    const fsdp = recipes.find((r) => r.name === 'FSDP (dp)');
    expect(fsdp).toMatchObject({ status: 'priced' });
    expect(fsdp?.status === 'priced' && fsdp.seconds).toBeGreaterThanOrEqual(1e12);
    expect(recipeTable(recipes, plan)).toMatch(/FSDP \(dp\) +[\d.e+]+ s/);
  });

  it('a pin that needs the far links is priced with them', () => {
    const graph = load('torch/mlp-loss/joint.expanded');
    const prepared = prepare(graph, request('dp=8,tp=8', { cluster: far(1e12) }), TABLE);
    expect(prepared.model.ceilingSeconds).toBeLessThan(1e12);
    const [{ name }] = graph.nodes.filter(
      ({ kind, meta }) => kind === 'placeholder' && meta.role === 'parameter',
    );
    const pinned = withPins(prepared, {
      ...prepared.question.request,
      pins: [{ node: name, spec: 'S(0)R' }],
    });
    const { status, objective } = solveNow(pinned.left.compact.problem);
    expect(status).toBe('optimal');
    expect(objective / pinned.model.unitsPerSecond / 1e12).toBeCloseTo(1, 9);
  });

  it('where no plan is known to be cheaper, rounding is part of the gap: the step is re-costed, nothing is optimal', async () => {
    // Under a budget on peak memory the cheapest plan may not fit, so that no price can be left
    // out.
    const held = { cluster: far(1e12), activations: 'constraint' } as const;
    const { proof, objective } = await planFor(load('torch/mlp/joint.expanded'), 'dp=8,tp=8', held);
    expect(proof.status).toBe('feasible');
    expect(proof.roundingSeconds).toBeGreaterThan(1e-9 * objective.seconds);
    // What the plan of usual links costs that uses none between hosts: launches of its kernels, as
    // re-costed.
    expect(objective.seconds).toBe(proof.recheckedSeconds);
    expect(objective.seconds).toBeGreaterThan(1e-5);
    expect(proof).toMatchObject({ bound: 0, gap: 1 });
  });

  it('such an answer exits 4 and says the gap; a usual one says how far rounding can go', async () => {
    const argv = ['plan', '-v', fixture('mlp'), '--mesh', 'dp=8,tp=8', '--cost', 'alpha-beta'];
    const usual = await cli(...argv, '--cluster', 'dgx-h100');
    expect(usual.code).toBe(0);
    expect(usual.out).toMatch(/re-costed .* from the plan alone, rounding at most \S+ [nµ]?s/);
    const file = join(temporaryFolder(), 'far.json');
    writeFileSync(file, far(1e12));
    const coarse = await cli(...argv, '--cluster', file, '--activations', 'constraint');
    expect(coarse.code).toBe(4);
    expect(coarse.out).toMatch(/feasible: no plan is below 0 s \(gap 100 %\)/);
    expect(coarse.out).not.toMatch(/step time +0 s/);
  });
});

describe('units', () => {
  const charges = {} as RedistributionCharges;
  const one = (...seconds: number[]): TableBuilder => {
    const tables = new TableBuilder(charges);
    tables.addVariable(
      { kind: 'node', node: 0 },
      seconds.length,
      tables.vector('v', () => Float64Array.from(seconds)),
    );
    return tables;
  };

  it('what rounding changes is measured: units times their length are within it of every price', () => {
    const seconds = [1e-3, Math.PI * 1e-5, 1 / 3, 7e9];
    const { problem, unitsPerSecond, roundingSeconds } = one(...seconds).finish();
    const errors = seconds.map((s, i) => Math.abs(problem.vectors[0][i] / unitsPerSecond - s));
    expect(Math.max(...errors)).toBeLessThanOrEqual(roundingSeconds * (1 + 1e-12));
    expect(roundingSeconds).toBeGreaterThan(0);
  });

  it('a price above the ceiling is forbidden before the unit is chosen', () => {
    const { problem, unitsPerSecond, roundingSeconds } = one(1e-3, 1e12).finish(1);
    expect(problem.vectors[0][1]).toBe(Infinity);
    expect(Math.abs(problem.vectors[0][0] / unitsPerSecond - 1e-3)).toBeLessThanOrEqual(
      roundingSeconds,
    );
    expect(roundingSeconds).toBeLessThan(1e-15);
  });

  it('prices that cannot be added are refused', () => {
    const { error } = ((): { error: unknown } => {
      try {
        return { error: one(1, 1e300).finish() };
      } catch (e) {
        return { error: e };
      }
    })();
    expect(error).toMatchObject({ code: 'E_LIMIT' });
  });
});
