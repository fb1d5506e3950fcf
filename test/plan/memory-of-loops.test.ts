import { describe, expect, test } from 'vitest';

import { jointGraph } from '../../src/entries/graph.ts';
import { builtinOperators } from '../../src/entries/ops.ts';
import { DEFAULT_REQUEST } from '../../src/entries/plan.ts';
import { cond, scan, whileLoop } from '../../src/entries/trace.ts';
import { type Graph, input, parameter, type Plan, trace } from '../../src/index.ts';
import { openBodies } from '../../src/passes/plannable/open-bodies.ts';
import { leastCostPlan } from '../../src/plan/least-cost-plan.ts';
import { regionLives } from '../../src/plan/model/region-lives.ts';
import { PAPER } from '../export/running-plans.ts';

/** What a device holds while loops run: bodies stand once in line, and run trip after trip. */
const table = builtinOperators();
const [BATCH, WIDTH] = [8, 16];
/** Bytes of one row, of all rows of a device. */
const ROW = BATCH * WIDTH * 8;

async function planned(graph: Graph): Promise<Plan> {
  const result = await leastCostPlan(
    graph,
    { ...DEFAULT_REQUEST, mesh: 'dp=1', cluster: 'dgx-h100', optimizer: 'none' },
    { table },
  );
  if (result.status === 'infeasible') throw new Error(result.conflict.join());
  return result.plan;
}

const inputs = (trips: number) => ({
  xs: input([trips, BATCH, WIDTH], 'f64'),
  w: parameter([WIDTH, WIDTH], 'f64'),
});

describe('peak memory of a scan', () => {
  const forward = (trips: number): Graph =>
    trace(({ xs, w }) => {
      const [last, ys] = scan((h, x) => [h.add(x.matmul(w)), h], xs.select(0, 0).mul(0), xs);
      return last.mean().add(ys.mean());
    }, inputs(trips));

  test('grows by what each further trip reads and stacks', async () => {
    const [four, nine] = [await planned(forward(4)), await planned(forward(9))];
    expect(nine.memory.peakBytes - four.memory.peakBytes).toBe(5 * 2 * ROW);
  });

  test('of a trained one: the whole stacks that the backward pass reads', async () => {
    const trained = (trips: number): Graph =>
      jointGraph(
        trace(({ xs, w }) => {
          const [last] = scan(
            (h, x) => [h.matmul(w).add(x).tanh(), null],
            xs.select(0, 0).mul(0),
            xs,
          );
          return last.mean();
        }, inputs(trips)),
        { seed: 1 },
      );
    const [four, nine] = [await planned(trained(4)), await planned(trained(9))];
    // The rows of xs, and two stacks that the forward pass hands over: the state before each trip
    // and after it.
    expect(nine.memory.peakBytes - four.memory.peakBytes).toBe(5 * 3 * ROW);
  });
});

test('under a budget a looped program recomputes nothing, and its trips keep their price', async () => {
  const graph = jointGraph(
    trace(({ xs, w }) => {
      const [last, ys] = scan((h, x) => [h.matmul(w).add(x).tanh(), h], xs.select(0, 0).mul(0), xs);
      return last.mean().add(ys.sin().mean());
    }, inputs(12)),
    { seed: 1 },
  );
  const request = { ...DEFAULT_REQUEST, mesh: 'dp=2,tp=2', cluster: PAPER, headroom: 0 };
  const free = await leastCostPlan(graph, request, { table });
  if (free.status === 'infeasible') throw new Error('there is no plan');
  const { peakBytes } = free.plan.memory;
  let found = 0;
  for (const share of [0.95, 0.9, 0.85]) {
    const memoryBytes = Math.floor(peakBytes * share);
    const asked = await leastCostPlan(
      graph,
      { ...request, memoryBytes, checkpoint: 'auto' },
      { table },
    );
    if (asked.status === 'infeasible') continue;
    found++;
    expect(asked.plan.objective.seconds).toBeGreaterThanOrEqual(free.plan.objective.seconds);
    expect(asked.plan.memory.peakBytes).toBeLessThanOrEqual(memoryBytes);
    expect(asked.plan.nodes.map(({ name }) => name)).toEqual(
      free.plan.nodes.map(({ name }) => name),
    );
    expect(asked.plan.assumptions.join('\n')).toContain('--checkpoint auto recomputes nothing');
  }
  expect(found).toBeGreaterThan(0);
});

describe('how long control flow holds values', () => {
  const opened = openBodies(
    trace(({ xs, w }) => {
      const [last] = scan(
        (h, x) => {
          const [inner] = whileLoop(
            ([v]) => v.mean().gt(1),
            ([v]) => [v.matmul(w).add(x)],
            [h] as const,
          );
          return [
            cond(
              inner.mean().gt(0),
              () => inner.tanh(),
              () => inner.add(w.sum()),
            ),
            inner,
          ];
        },
        xs.select(0, 0),
        xs,
      );
      return last.mean();
    }, inputs(3)),
    table,
    { mesh: 'dp=2' },
  );
  if (opened === undefined) throw new Error('there is no control flow');
  const { graph, regions } = opened;
  const lives = regionLives(graph, regions);
  const [loop, inner, branch] = (['scan', 'while', 'branch'] as const).map((kind) =>
    regions.find((r) => r.kind === kind)!,
  );
  const at = (name: string): number => graph.nodes.findIndex((node) => node.name === name);
  const readers = (of: string): number[] =>
    graph.nodes.flatMap(({ args }, n) =>
      JSON.stringify(args).includes(`"name":"${of}"`) ? [n] : [],
    );

  test('what all trips read is there until the outermost loop ends', () => {
    for (const reader of readers('w')) expect(lives.heldUntil(at('w'), reader)).toBe(loop.end - 1);
    for (const reader of readers('w')) expect(lives.heldFrom(at('w'), reader)).toBe(loop.start);
  });

  test('what an inner loop reads of the body around it is there until the inner one ends', () => {
    if (loop.kind !== 'scan' || inner.kind !== 'while') throw new Error('other regions');
    const row = (loop.rows[0].row as { name: string }).name;
    const read = readers(row).filter((n) => n >= inner.start && n < inner.end);
    expect(read.length).toBeGreaterThan(0);
    for (const reader of read) expect(lives.heldUntil(at(row), reader)).toBe(inner.end - 1);
  });

  test('what a loop starts from is handed to its first trip, and its carry is there through all of them', () => {
    if (loop.kind !== 'scan') throw new Error('other regions');
    const carry = at((loop.carries[0] as { name: string }).name);
    const [init] = graph.nodes[carry].args as readonly { readonly name: string }[];
    expect(lives.heldUntil(at(init.name), carry)).toBe(carry);
    expect(lives.carryUntil(carry)).toBe(loop.end - 1);
  });

  test('stacks are there from the first trip on', () => {
    if (loop.kind !== 'scan') throw new Error('other regions');
    expect(lives.stackedFrom(at(loop.stacks[0]!.whole))).toBe(loop.start);
  });

  test('a branching holds its operands until it returns', () => {
    for (let n = branch.start; n < branch.end; n++)
      for (let p = 0; p < branch.start; p++)
        expect(lives.heldUntil(p, n)).toBeGreaterThanOrEqual(branch.end - 1);
  });
});
