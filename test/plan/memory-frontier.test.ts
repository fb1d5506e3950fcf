import { describe, expect, test } from 'vitest';

import type { Graph } from '../../src/graph/types.ts';
import { jointGraph } from '../../src/passes/autodiff/joint.ts';
import { recomputeInBackward } from '../../src/passes/checkpoint/recompute.ts';
import { prepare } from '../../src/plan/prepare/prepare.ts';
import {
  type Frontier,
  type FrontierStep,
  memoryFrontier,
} from '../../src/plan/questions/memory-frontier.ts';
import type { PlanRequest } from '../../src/plan/request/request.ts';
import { planSchedule } from '../../src/simulate/timeline/from-plan.ts';
import { play } from '../../src/simulate/timeline/play.ts';
import { input, parameter } from '../../src/trace/record/spec.ts';
import type { Tensor } from '../../src/trace/tensor/tensor.ts';
import { trace } from '../../src/trace/trace.ts';
import { memoryFront } from '../recipes/memory-front.ts';
import { FULL } from '../support/full.ts';
import { serial } from '../support/serial-schedule.ts';
import { paretoByWalking, undominated } from './pareto.ts';
import { load, planFor, request, TABLE } from './support.ts';

const ROWS = 65_536;
const WIDTH = 512;
const LAYERS = 5;

/** Residual feed-forward layers, forward and backward: activations far beyond the weights. */
function deep(): Graph {
  const specs: Record<string, ReturnType<typeof parameter>> = { x: input([ROWS, WIDTH]) };
  for (let i = 0; i < LAYERS; i++) {
    specs[`w${i}`] = parameter([4 * WIDTH, WIDTH]);
    specs[`v${i}`] = parameter([WIDTH, 4 * WIDTH]);
  }
  const f = (w: Record<string, Tensor>): Tensor => {
    let x = w.x;
    for (let i = 0; i < LAYERS; i++) x = x.add(x.linear(w[`w${i}`]).gelu().linear(w[`v${i}`]));
    return x.mul(x).sum();
  };
  return jointGraph(trace(f, specs), { seed: 1 });
}

/**
 * What must hold of every frontier, worked out from the plans by other code than the one that chose
 * them.
 */
function check(frontier: Frontier): void {
  const { points, knee, neededBytes, misses } = frontier;
  points.forEach((p, i) => {
    const { graph, plan } = p.result;
    const { memory } = play(serial(planSchedule(graph, plan, TABLE)));
    expect(memory.peakBytes).toBe(p.peakBytes);
    expect(p.peakBytes).toBeLessThanOrEqual(p.budgetBytes);
    expect(Math.abs(plan.proof.recheckedSeconds / p.seconds - 1)).toBeLessThan(1e-6);
    expect(p.boundSeconds).toBeLessThanOrEqual(p.seconds);
    expect(p.gap).toBeCloseTo(1 - p.boundSeconds / p.seconds, 12);
    if (i === 0) return;
    expect(p.peakBytes).toBeLessThan(points[i - 1].peakBytes);
    expect(p.seconds).toBeGreaterThan(points[i - 1].seconds);
    expect(p.boundSeconds).toBeGreaterThanOrEqual(points[i - 1].boundSeconds);
  });
  const [last, first] = [points[points.length - 1], points[0]];
  if (neededBytes !== undefined) expect(last.peakBytes).toBeGreaterThanOrEqual(neededBytes);
  for (const m of misses.filter((each) => each.status === 'infeasible'))
    expect(m.budgetBytes).toBeLessThan(last.peakBytes);
  if (points.length < 2) return;
  const distance = points.map((p) =>
    Math.hypot(
      (p.peakBytes - last.peakBytes) / (first.peakBytes - last.peakBytes),
      (p.seconds - first.seconds) / (last.seconds - first.seconds),
    ),
  );
  expect(knee).toBe(distance.indexOf(Math.min(...distance)));
}

describe('the frontier of seconds against peak bytes', () => {
  test('five feed-forward layers on 2 devices: at least 8 points, each a checked plan, strictly falling, with its knee', async () => {
    const steps: FrontierStep[] = [];
    const graph = deep();
    const asked = request('d=2', { optimizer: 'none', gap: 0.05 });
    const frontier = await memoryFrontier(graph, asked, {
      table: TABLE,
      onBudget: (e) => void steps.push(e),
    });
    check(frontier);
    const { points } = frontier;
    expect(points.length).toBeGreaterThanOrEqual(8);
    expect(steps.length).toBe(frontier.asked);
    expect(steps.at(-1)?.points).toBe(points.length);
    // The first is the plan of least seconds; every further one runs more of the forward pass
    // again.
    const free = await planFor(graph, 'd=2', { optimizer: 'none' });
    expect(points[0].seconds).toBe(free.objective.seconds);
    expect(points[0].recomputedNodes).toBe(0);
    expect(points.at(-1)!.peakBytes).toBeLessThan(points[0].peakBytes / 2);
    for (let i = 1; i < points.length; i++) {
      expect(points[i].recomputedNodes).toBeGreaterThan(0);
      expect(points[i].recomputeSeconds).toBeLessThan(points[i].seconds / 3);
    }
  });

  // Those of the next test on one mesh dim are checked in every run.
  test.runIf(FULL)(
    'without recomputation only placements trade: fewer points, none invented',
    async () => {
      const graph = load('peers/ffn-65536');
      const more = { inputs: 'S(0)R', outputs: 'S(0)R', gap: 0.02, checkpoint: 'none' } as const;
      const frontier = await memoryFrontier(graph, request('x=32,y=8', more), {
        table: TABLE,
        points: 3,
      });
      check(frontier);
      expect(frontier.points.length).toBeGreaterThanOrEqual(2);
      for (const p of frontier.points) expect(p.recomputedNodes).toBe(0);
    },
  );

  // Without pins every subset takes ten seconds to walk.
  const subsets: readonly (readonly string[])[] = [[], ['mm'], ['relu'], ['mm', 'relu']];
  const walked: readonly (readonly [
    string,
    readonly string[],
    readonly (readonly string[])[],
    Partial<PlanRequest>,
  ])[] = [
    ['the first weight whole and nothing twice', ['primals_1'], [[]], { checkpoint: 'none' }],
    ...(FULL ? ([['nothing pinned, any recomputation', [], subsets, {}]] as const) : []),
  ];
  test.each(walked)(
    'an FFN on 8 devices, %s: all trades that walking through every placement finds, and no other',
    async (_, pinned, again, more) => {
      const asked = request('d=8', {
        inputs: 'S(0)',
        outputs: 'S(0)',
        sharing: false,
        gap: 0.01,
        pins: pinned.map((node) => ({ node, spec: 'R' })),
        ...more,
      });
      const graph = load('peers/ffn-65536');
      const plain = prepare(graph, asked, TABLE);
      const found: [number, number][] = [];
      const fixed = new Map(pinned.map((node) => [node, 'R']));
      for (const names of again) {
        const { graph: twice, originalOf } = recomputeInBackward(plain.model.graph, new Set(names));
        found.push(
          ...paretoByWalking(
            names.length === 0 ? plain : prepare(twice, asked, TABLE),
            originalOf,
            fixed,
          ),
        );
      }
      const all = undominated(found);
      const frontier = await memoryFrontier(graph, asked, { table: TABLE });
      check(frontier);
      const { points } = frontier;
      // Without recomputation only placements trade.
      if (more.checkpoint === 'none') for (const p of points) expect(p.recomputedNodes).toBe(0);
      expect(points.map((p) => p.peakBytes)).toEqual(all.map(([, bytes]) => bytes));
      points.forEach((p, i) => expect(Math.abs(p.seconds / all[i][0] - 1)).toBeLessThan(1e-6));
      expect(points.length).toBeGreaterThan(1);
    },
    600_000,
  );

  test('a budget that nothing keeps has no points and says what is needed', async () => {
    const frontier = await memoryFrontier(
      load('torch/mlp/joint.expanded'),
      request('dp=2,tp=2', { memoryBytes: 4096 }),
      { table: TABLE },
    );
    expect(frontier).toMatchObject({
      points: [],
      asked: 1,
      misses: [{ budgetBytes: 4096, status: 'infeasible' }],
    });
    expect(frontier.knee).toBeUndefined();
    expect(frontier.neededBytes).toBeGreaterThan(4096);
  });

  test('pins that contradict each other are a result, and say nothing of memory', async () => {
    const pins = [
      { node: 'fc1.weight', spec: 'S(0)' },
      { node: 'fc1.weight', spec: 'S(1)' },
    ];
    const frontier = await memoryFrontier(
      load('torch/mlp/joint.expanded'),
      request('d=2', { pins }),
      { table: TABLE },
    );
    expect(frontier.points).toEqual([]);
    expect(frontier.neededBytes).toBeUndefined();
    expect(frontier.misses[0].conflict?.length).toBeGreaterThan(0);
  });

  test('states alone: points of the walk over every trade, down to the least, each proven', async () => {
    const graph = load('torch/mlp/joint.expanded');
    const asked = request(FULL ? 'a=2,b=2' : 'a=4', { activations: 'off', gap: 0 });
    const {
      model,
      left: { compact },
    } = prepare(graph, asked, TABLE);
    const walk = memoryFront(compact.problem, compact.problem.rows![0].name);
    const frontier = await memoryFrontier(graph, asked, { table: TABLE, points: walk.length });
    const { points, neededBytes } = frontier;
    expect(points.map((p) => p.gap)).toEqual(points.map(() => 0));
    expect(points[0].peakBytes).toBe(walk[0].amount);
    for (const p of points) {
      const answer = walk.find((w) => w.amount <= p.peakBytes);
      expect(p.seconds * model.unitsPerSecond).toBeCloseTo(answer!.cost, 6);
      expect(p.recomputedNodes).toBe(0);
    }
    // Ranges of less than a 256th of the largest peak are not looked into.
    const least = walk.at(-1)!.amount;
    expect(points.at(-1)!.peakBytes - least).toBeLessThan(walk[0].amount / 256);
    expect(neededBytes).toBeLessThanOrEqual(least);
  });

  test('one point, and propagation, are refused', async () => {
    const graph = load('torch/mlp/joint.expanded');
    await expect(
      memoryFrontier(graph, request('d=2'), { table: TABLE, points: 1 }),
    ).rejects.toThrow(/frontier of 1 points/);
    const propagate = request('d=2', { solver: 'propagate' });
    await expect(memoryFrontier(graph, propagate, { table: TABLE })).rejects.toThrow(
      /has no peak memory budget/,
    );
  });
});
