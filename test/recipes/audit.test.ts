import { describe, expect, it } from 'vitest';

import { type Audit, audit, auditChoice } from '../../src/audit.ts';
import { peakOf } from '../../src/cost/memory/peak.ts';
import { stateMemory } from '../../src/plan/choice/decode.ts';
import { planMemoryTimeline } from '../../src/plan/choice/timeline.ts';
import { leastCostPlanOf } from '../../src/plan/least-cost-plan.ts';
import { prepare, withPins } from '../../src/plan/prepare/prepare.ts';
import type { Prepared } from '../../src/plan/prepare/prepared.ts';
import { changeRequest } from '../../src/plan/questions/what-if.ts';
import { priceRestriction } from '../../src/recipes/compare/price.ts';
import { applyRecipe } from '../../src/recipes/recipes.ts';
import { namedRecipe, recipeOf } from '../../src/recipes/registry.ts';
import { load, request, TABLE } from '../plan/support.ts';

async function recipeChoice(prepared: Prepared, name: string): Promise<Int32Array> {
  const applied = applyRecipe(prepared.model, recipeOf(namedRecipe(name))!);
  if ('refused' in applied) throw new Error(applied.refused);
  const priced = await priceRestriction(prepared, applied.restriction);
  if ('refused' in priced) throw new Error(priced.refused);
  return priced.choice;
}

async function audited(prepared: Prepared, choice: Int32Array, edits: number): Promise<Audit> {
  const result = await auditChoice(prepared, choice, { edits });
  if ('conflict' in result) throw new Error(result.conflict.join());
  return result;
}

describe('audit', () => {
  const prepared = prepare(load('torch/mlp-loss/joint.expanded'), request('dp=2,tp=4'), TABLE);

  it('the optimum has no regret and needs no edit', async () => {
    const best = await leastCostPlanOf(prepared);
    if (best.status !== 'planned') throw new Error('infeasible');
    const result = await audited(prepared, best.choice, 3);
    expect(result.regret).toBe(0);
    expect(result.edits).toEqual([]);
    expect(result.status).toBe('optimal');
    expect(result.bound).toBe(result.optimumSeconds);
  });

  it('what edits save adds up to the edited plan, which is not better than the bound', async () => {
    for (const name of ['hsdp', 'dp+tp', 'fsdp+tp']) {
      const result = await audited(prepared, await recipeChoice(prepared, name), 4);
      expect(result.regret).toBeGreaterThan(0);
      expect(result.provenRegret).toBeGreaterThanOrEqual(result.regret);
      expect(result.edits.length).toBeGreaterThan(0);
      expect(result.edits.length).toBeLessThanOrEqual(4);
      const saved = result.edits.reduce((sum, e) => sum + e.secondsSaved, 0);
      const freed = result.edits.reduce((sum, e) => sum + e.bytesFreed, 0);
      expect(result.seconds - saved).toBeCloseTo(result.editedSeconds, 12);
      const offStep = result.edits.reduce((sum, e) => sum + (e.savedStepSeconds ?? NaN), 0);
      expect(result.stepSeconds - offStep).toBeCloseTo(result.editedStepSeconds ?? NaN, 12);
      expect(result.peakBytes - freed).toBe(result.editedPeakBytes);
      expect(result.editedSeconds).toBeLessThan(result.seconds);
      expect(result.editedSeconds).toBeGreaterThanOrEqual(result.bound * (1 - 1e-12));
    }
  });

  it('a plan is audited as its choice is, and what it was bound to is free in the optimum', async () => {
    const pins = [{ node: prepared.model.graph.nodes[0].name, spec: 'RR' }];
    const pinned = withPins(
      prepared,
      changeRequest(prepared.question.request, (draft) => void draft.pins.push(...pins)).request,
    );
    const found = await leastCostPlanOf(pinned);
    if (found.status !== 'planned') throw new Error('infeasible');
    const graph = load('torch/mlp-loss/joint.expanded');
    const result = await audit(graph, found.plan, { table: TABLE });
    expect(result).toEqual(await audited(prepared, found.choice, 3));
  });

  it('the first edit of a parameter is the best of all, as pins and a solve for each of them say', async () => {
    const choice = await recipeChoice(prepared, 'fsdp+tp');
    const result = await audited(prepared, choice, 2);
    const [activations, edit] = result.edits;
    expect(activations.node).toBe('(activations)');
    const { graph, strategies, space, nodeVariable } = prepared.model;
    const best = await leastCostPlanOf(prepared);
    if (best.status !== 'planned') throw new Error('infeasible');
    const pins = graph.nodes.flatMap((node, n) => {
      if (
        node.kind !== 'placeholder' ||
        (node.meta.role !== 'parameter' && node.meta.role !== 'input')
      )
        return [];
      const { set } = strategies.nodes[n]!;
      const v = nodeVariable[n];
      return [
        {
          node: node.name,
          input: node.meta.role === 'input',
          moved: choice[v] !== best.choice[v],
          spec: space.text(set.specs[choice[v]]),
        },
      ];
    });
    const solveWith = async (kept: typeof pins): Promise<number> => {
      const { request: pinned } = changeRequest(prepared.question.request, (draft) => {
        draft.pins = kept.map(({ node, spec }) => ({ node, spec }));
      });
      const solved = await leastCostPlanOf(withPins(prepared, pinned));
      if (solved.status !== 'planned') throw new Error('infeasible');
      return solved.plan.objective.seconds;
    };
    expect(result.seconds - activations.secondsSaved).toBeCloseTo(await solveWith(pins), 12);
    let least = Infinity;
    for (const pin of pins)
      if (!pin.input && pin.moved)
        least = Math.min(least, await solveWith(pins.filter((p) => p !== pin)));
    least = Math.min(least, await solveWith(pins.filter((p) => !p.input)));
    const after = result.seconds - activations.secondsSaved - edit.secondsSaved;
    expect(after).toBeCloseTo(least, 12);
  }, 30_000);

  it('a plan over the budget is first made to fit', async () => {
    const small = prepare(
      load('torch/mlp-loss/joint.expanded'),
      request('dp=8', { memoryBytes: 64 * 2 ** 20 }),
      TABLE,
    );
    const choice = await recipeChoice(small, 'dp');
    const result = await audited(small, choice, 6);
    expect(result.fits).toBe(false);
    const { intervals } = planMemoryTimeline(small.model, choice);
    expect(result.overBytes).toBe(peakOf(intervals).peakBytes - 64 * 2 ** 20);
    expect(result.overBytes).toBeGreaterThan(
      stateMemory(small.model, choice).peakBytes - 64 * 2 ** 20,
    );
    expect(result.edits.some((e) => e.bytesFreed > 0)).toBe(true);
    expect(result.editedPeakBytes).toBeLessThanOrEqual(64 * 2 ** 20);
  });
});
