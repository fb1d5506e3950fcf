/**
 * Copies that stay from the forward to the backward pass (`copies: 'step'`): what they save, what
 * they hold, and that plans with them compute what the program does.
 */
import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { decode } from '../../src/plan/choice/decode.ts';
import { randomChoice, randomPlan } from '../../src/plan/choice/random-plan.ts';
import { recost } from '../../src/plan/choice/recost.ts';
import { choicePeakBytes } from '../../src/plan/choice/timeline.ts';
import { choiceOfPlan } from '../../src/plan/choice/transfer.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import type { Plan } from '../../src/plan/record/types.ts';
import type { PlanRequest } from '../../src/plan/request/request.ts';
import { verify } from '../../src/simulate/verify.ts';
import { evaluate } from '../../src/solver/check/verify.ts';
import { mseLoss } from '../../src/trace/tensor/functional.ts';
import { input, parameter, type Tensor, trace } from '../../src/trace/trace.ts';
import { FULL } from '../support/full.ts';
import { load, planFor, request, TABLE } from './support.ts';

/** Square products of a batch, `relu` after every other, and their loss. */
function linears(count: number, width: number, rows: number): Graph {
  const batch = input([rows, width]);
  const weights = Array.from({ length: count }, () => parameter([width, width]));
  const loss = ({ x, y, ws }: { x: Tensor; y: Tensor; ws: readonly Tensor[] }): Tensor =>
    mseLoss(
      ws.reduce((h, w, i) => (i % 2 === 0 ? h.matmul(w).relu() : h.matmul(w)), x),
      y,
    );
  return jointGraph(trace(loss, { x: batch, y: batch, ws: weights }));
}

/** Collectives of a kind that move at least so many bytes. */
function collectives({ nodes, outputs }: Plan, kind: string, atLeastBytes: number): number {
  const moves = [...nodes, ...outputs].flatMap(({ redistributions }) => redistributions);
  return moves
    .flatMap((move) => move.collectives)
    .filter((c) => c.kind === kind && c.bytes >= atLeastBytes).length;
}

const STEP = { copies: 'step' } as const;

describe('a copy that stays from the forward to the backward pass', () => {
  test('six products under tensor parallelism reduce five activations, as Alpa does, not eight', async () => {
    const graph = linears(6, 8192, 4096);
    const asked = { cost: 'nccl', inputs: 'R', outputs: 'R', objective: 'serial' } as const;
    const pass = await planFor(graph, 'tp=8', asked);
    const step = await planFor(graph, 'tp=8', { ...asked, ...STEP });
    const activation = 4096 * 8192 * 4;
    // Three in the forward pass, and two in the backward pass: the first product needs no gradient
    // of the batch.
    expect(collectives(step, 'all_reduce', activation / 8)).toBe(5);
    expect(step.objective.seconds).toBeLessThan(0.97 * pass.objective.seconds);
  }, 60_000);

  test('weights cut over data ranks are gathered once, and their gathered bytes stay', async () => {
    // Wide layers of few rows: moving weights is what a step takes, and nothing else is large.
    const [count, width] = [3, 2048];
    const graph = linears(count, width, 16_384);
    const pins = [
      ...Array.from({ length: count }, (_, i) => ({ node: `ws.${i}`, spec: 'S(0)' })),
      { node: 'x', spec: 'S(0)' },
      { node: 'y', spec: 'S(0)' },
    ];
    const pass = await planFor(graph, 'dp=4', { pins, cost: 'nccl', objective: 'serial' });
    const step = await planFor(graph, 'dp=4', { pins, cost: 'nccl', objective: 'serial', ...STEP });
    const weight = width * width * 4;
    // The first weight has no backward use: its batch needs no gradient.
    expect(collectives(pass, 'all_gather', weight)).toBe(2 * count - 1);
    expect(collectives(step, 'all_gather', weight)).toBe(count);
    expect(step.memory.peakBytes - pass.memory.peakBytes).toBeGreaterThanOrEqual(
      (count - 2) * weight,
    );
    expect(step.memory.peakBytes - pass.memory.peakBytes).toBeLessThanOrEqual((count - 1) * weight);
  }, 60_000);

  test('where the kept bytes do not fit, a plan gathers again, and no plan that fits is below its bound', async () => {
    const graph = linears(3, 512, 2048);
    const pins = [
      ...[0, 1, 2].map((i) => ({ node: `ws.${i}`, spec: 'S(0)' })),
      { node: 'x', spec: 'S(0)' },
    ];
    const free = await planFor(graph, 'dp=4', { pins, ...STEP });
    const passPeak = (await planFor(graph, 'dp=4', { pins })).memory.peakBytes;
    expect(free.memory.peakBytes).toBeGreaterThan(passPeak);
    const memoryBytes = free.memory.peakBytes - 1;
    const tight = await planFor(graph, 'dp=4', { pins, ...STEP, memoryBytes, budgetGap: 0 });
    expect(tight.memory.peakBytes).toBeLessThanOrEqual(memoryBytes);
    expect(tight.objective.seconds).toBeGreaterThanOrEqual(free.objective.seconds);
    const asked = request('dp=4', { pins, ...STEP });
    const prepared = prepare(graph, asked, TABLE);
    let fitting = 0;
    for (let seed = 0; seed < 400; seed++) {
      const choice = randomChoice(prepared.model, seed);
      const { cost, violations } = evaluate(prepared.left.problem, choice);
      if (violations.length > 0 || !Number.isFinite(Number(cost))) continue;
      if (choicePeakBytes(prepared.model, choice) > memoryBytes) continue;
      fitting++;
      const seconds = Number(cost) / prepared.model.unitsPerSecond;
      expect(seconds).toBeGreaterThanOrEqual(tight.proof.bound * (1 - 1e-9));
    }
    expect(fitting).toBeGreaterThan(0);
  }, 60_000);

  test.each(['torch/mlp-loss/joint.expanded', 'torch/llama-tiny/joint.expanded'])(
    '%s: plans drawn at random are re-costed to their seconds, and their choice is found again',
    (name) => {
      const graph = load(name);
      const asked = request('a=2,b=2', STEP);
      const prepared = prepare(graph, asked, TABLE);
      const { model } = prepared;
      let kept = 0;
      for (let seed = 0; seed < (FULL ? 6 : 2); seed++) {
        const choice = randomChoice(model, seed);
        const plan = decode(model, choice);
        kept += keptCopies(plan);
        const seconds = plan.computeSeconds + plan.communicationSeconds;
        expect(recost(plan, model)).toBeCloseTo(seconds, 12);
        const again = decode(model, choiceOfPlan(plan, model));
        expect(again.nodes).toEqual(plan.nodes);
        expect(again.outputs).toEqual(plan.outputs);
      }
      expect(kept).toBeGreaterThan(0);
    },
    60_000,
  );

  test('plans drawn at random compute what the program does', () => {
    const graph = linears(4, 16, 8);
    const prepared = prepare(graph, request('a=2,b=2', STEP), TABLE);
    let kept = 0;
    for (let seed = 0; seed < (FULL ? 40 : 12); seed++) {
      const plan = randomPlan(prepared, seed);
      kept += keptCopies(plan);
      const found = verify(graph, plan, { table: TABLE, seed });
      expect(found.mismatches, `seed ${seed}`).toEqual([]);
      expect(found.collectives).toEqual(found.promised);
    }
    expect(kept).toBeGreaterThan(FULL ? 20 : 6);
  }, 60_000);

  test('the least seconds are no more than those of copies of one pass', async () => {
    for (const [name, mesh] of [
      ['torch/mlp/joint.expanded', 'a=2,b=2'],
      ...(FULL ? [['torch/llama-tiny/joint.expanded', 'dp=4'] as const] : []),
      ['torch/gpt2-2l/joint.expanded', 'tp=4'],
    ] as const) {
      const graph = load(name);
      const seconds = async (more: Partial<PlanRequest>): Promise<number> =>
        (await planFor(graph, mesh, { cost: 'nccl', ...more })).objective.seconds;
      expect(await seconds(STEP), name).toBeLessThanOrEqual((await seconds({})) * (1 + 1e-9));
    }
  }, 120_000);
});

/** Copies that one pass makes and the other takes. */
function keptCopies({ nodes }: Pick<Plan, 'nodes'>): number {
  const made = new Map<number, string | undefined>();
  const kept = new Set<number>();
  for (const { phase, redistributions } of nodes)
    for (const { copy, copyId = -1 } of redistributions) {
      if (copy === 'made') made.set(copyId, phase);
      if (copy === 'reused' && made.get(copyId) !== phase) kept.add(copyId);
    }
  return kept.size;
}
