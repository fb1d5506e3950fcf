import { readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { expect, test } from 'vitest';

import { exportSource } from '../../src/backend/target.ts';
import { ATTENTION_SHARE, computeCost } from '../../src/cost/compute.ts';
import { builtinOperators } from '../../src/entries/ops.ts';
import { DEFAULT_REQUEST } from '../../src/entries/plan.ts';
import { median } from '../../src/fidelity/metrics.ts';
import type { Node } from '../../src/graph/types.ts';
import { importGraph } from '../../src/index.ts';
import type { DeviceProgram } from '../../src/lower/program/program.ts';
import { callContext, tensorMetas } from '../../src/passes/call-context.ts';
import { compiledTraffic } from '../../src/passes/fusion/fusion.ts';
import { type LeastCostResult, planOfChoice } from '../../src/plan/choice/result.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import { priceRestriction } from '../../src/recipes/compare/price.ts';
import { applyRecipe, meshRecipes } from '../../src/recipes/recipes.ts';

/**
 * Programs of one device that `bench/local-programs.py` timed on an H100, their collectives
 * replaced by copies, beside the compute seconds of their plans. The graph is what PyTorch captured
 * on that device.
 */
interface Measured {
  readonly plan: string;
  readonly copyKernelSeconds: number;
  /**
   * Steps one behind another after 1.5 s of them; kernels of three steps behind a pause, before
   * clocks fell (bench/local-programs.md).
   */
  readonly eager: {
    readonly stepSeconds: number;
    readonly kernelSeconds: number;
    readonly peakBytes: number;
  };
  readonly compiled: { readonly stepSeconds: number; readonly kernelSeconds: number };
}
const fixture = (name: string): URL =>
  new URL(`../fixtures/local-programs/${name}`, import.meta.url);
const { model, mesh, cluster, programs } = JSON.parse(
  readFileSync(fixture('h100.json'), 'utf8'),
) as { model: string; mesh: string; cluster: string; programs: Measured[] };
const table = builtinOperators();

const planned = (async () => {
  const graph = importGraph(gunzipSync(readFileSync(fixture(model))));
  const best = await leastCostPlan(
    graph,
    { ...DEFAULT_REQUEST, mesh, cluster, cost: 'nccl' },
    { table },
  );
  if (best.status !== 'planned') throw new Error('no plan');
  const found = new Map([['optimum', best]]);
  for (const recipe of meshRecipes(best.prepared.model)) {
    if (!programs.some(({ plan }) => plan === recipe.name)) continue;
    const applied = applyRecipe(best.prepared.model, recipe);
    if ('refused' in applied) throw new Error(applied.refused);
    const priced = await priceRestriction(best.prepared, applied.restriction);
    if ('refused' in priced) throw new Error(priced.refused);
    found.set(
      recipe.name,
      planOfChoice(best.prepared, priced.choice, best.plan, best.certificate, []),
    );
  }
  return programs.map(
    ({ plan }) => found.get(plan) as Extract<LeastCostResult, { status: 'planned' }>,
  );
})();

/** Positions of plans, the fastest first. */
const order = (of: readonly number[]): number[] =>
  of.map((_, k) => k).sort((a, b) => of[a] - of[b]);

/**
 * Errors of compute seconds against sustained steps less their copies; whole steps in the order
 * that they were measured in.
 */
function expectSteps(
  predicted: readonly number[],
  mode: 'eager' | 'compiled',
  middle: number,
  worst: number,
): void {
  const steps = programs.map((program) => program[mode].stepSeconds);
  const errors = predicted.map((seconds, k) =>
    Math.abs(seconds / (steps[k] - programs[k].copyKernelSeconds) - 1),
  );
  expect(median(errors)).toBeLessThan(middle);
  expect(Math.max(...errors)).toBeLessThan(worst);
  expect(order(predicted.map((seconds, k) => seconds + programs[k].copyKernelSeconds))).toEqual(
    order(steps),
  );
}

test('compute seconds of five plans are those of sustained steps on an H100, in their order', async () => {
  const predicted = (await planned).map(({ plan }) => plan.objective.computeSeconds);
  expectSteps(predicted, 'eager', 0.03, 0.05);
  // Kernels at the clocks of a rested device take 7 % less.
  const kernels = programs.map(
    ({ eager, copyKernelSeconds }) => eager.kernelSeconds - copyKernelSeconds,
  );
  expect(
    Math.max(...predicted.map((seconds, k) => Math.abs(seconds / kernels[k] - 1))),
  ).toBeLessThan(0.08);
});

/** The nodes without the copies that moves make, whose kernels were measured apart. */
function computing({ graph }: DeviceProgram): Node[] {
  return graph.nodes.filter(({ target }) => target !== 'aten.contiguous.default');
}

test('under torch.compile compute seconds of the five are those of sustained steps and of the joined kernels, in their order', async () => {
  const results = await planned;
  const request = { ...DEFAULT_REQUEST, mesh, cluster, cost: 'nccl', compiled: true } as const;
  const { model: compiled } = prepare(
    importGraph(gunzipSync(readFileSync(fixture(model)))),
    request,
    table,
  );
  const predicted = results.map(({ choice }) =>
    compiled.strategies.nodes.reduce((sum, entry, n) => {
      const seconds = entry === null ? undefined : compiled.nodeSeconds.get(entry.content);
      return sum + (seconds?.compute[choice[compiled.nodeVariable[n]]] ?? 0);
    }, 0),
  );
  const measured = programs.map(
    ({ compiled: of, copyKernelSeconds }) => of.kernelSeconds - copyKernelSeconds,
  );
  const errors = predicted.map((seconds, k) => Math.abs(seconds / measured[k] - 1));
  expect(median(errors)).toBeLessThan(0.05);
  expect(Math.max(...errors)).toBeLessThan(0.08);
  expect(order(predicted)).toEqual(order(measured));
  expectSteps(predicted, 'compiled', 0.02, 0.03);
  // The program of each device, joined after it was cut, comes to the same.
  for (const [k, { plan, graph, prepared }] of results.entries()) {
    const lowered = exportSource({ plan, program: graph }, table).lowered();
    const [metas, traffic] = [tensorMetas(lowered.graph), compiledTraffic(lowered.graph, table)];
    let seconds = 0;
    for (const node of computing(lowered)) {
      const record = node.kind === 'call' ? table.get(node.target) : undefined;
      const call = record === undefined ? undefined : callContext(node, record, metas);
      if (record !== undefined && call !== undefined)
        seconds += computeCost(record, call, prepared.model.cluster, {
          attentionShare: ATTENTION_SHARE,
          traffic: traffic.get(node.name),
        }).seconds;
    }
    expect(Math.abs(predicted[k] / seconds - 1)).toBeLessThan(0.025);
  }
});

test('the peak that an H100 allocated is that of the plan, less the optimizer state that the program does not hold', async () => {
  (await planned).forEach(({ plan: { memory } }, k) => {
    const ratio = programs[k].eager.peakBytes / (memory.peakBytes - memory.optimizerBytes);
    expect(ratio).toBeGreaterThan(0.99);
    expect(ratio).toBeLessThan(1.01);
  });
});

test('a plan is priced as the calls that its devices run, whatever form an operator takes there', async () => {
  for (const { plan, graph, prepared } of await planned) {
    const lowered = exportSource({ plan, program: graph }, table).lowered();
    const metas = tensorMetas(lowered.graph);
    let seconds = 0;
    for (const node of computing(lowered)) {
      const record = node.kind === 'call' ? table.get(node.target) : undefined;
      const call = record === undefined ? undefined : callContext(node, record, metas);
      if (record !== undefined && call !== undefined)
        seconds += computeCost(record, call, prepared.model.cluster, {
          attentionShare: ATTENTION_SHARE,
        }).seconds;
    }
    expect(Math.abs(plan.objective.computeSeconds / seconds - 1)).toBeLessThan(0.01);
  }
});
