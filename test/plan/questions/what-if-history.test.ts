import { beforeEach, describe, expect, test } from 'vitest';

import type { LeastCostResult } from '../../../src/plan/choice/result.ts';
import { leastCostPlan } from '../../../src/plan/least-cost-plan.ts';
import { WhatIfHistory } from '../../../src/plan/questions/what-if-history.ts';
import { input, parameter, trace } from '../../../src/trace/trace.ts';
import { request, TABLE } from '../support.ts';

const GRAPH = trace(({ x, w1, w2 }) => x.matmul(w1).relu().matmul(w2), {
  x: input([4096, 4096]),
  w1: parameter([4096, 16384]),
  w2: parameter([16384, 4096]),
});
const ASKED = request('dp=2,tp=2', { pins: [{ node: 'mm', spec: 'S(0)R' }] });

type Planned = Extract<LeastCostResult, { readonly status: 'planned' }>;

async function solved(pins: readonly string[]): Promise<Planned> {
  const given = pins.map((pin) => pin.split('=')).map(([node, spec]) => ({ node, spec }));
  const result = await leastCostPlan(GRAPH, { ...ASKED, pins: given }, { table: TABLE });
  if (result.status === 'infeasible') throw new Error(result.conflict.join('\n'));
  return result;
}

describe('what-if questions, one on top of another', () => {
  let plan: Planned;
  let history: WhatIfHistory;
  beforeEach(async () => {
    plan = await solved(['mm=S(0)R']);
    history = new WhatIfHistory(plan);
  });
  const pins = (): string[] => history.asked.map(({ pin }) => `${pin.node}=${pin.spec}`);

  test('cost what a plan with all of their pins costs', async () => {
    await history.ask('w1', 'RR');
    await history.ask('w2', 'RS(1)');
    const other = await solved(['mm=S(0)R', 'w1=RR', 'w2=RS(1)']);
    const { together } = history;
    expect(together.plan.objective.seconds).toBe(other.plan.objective.seconds);
    expect(together.globalSeconds).toBe(other.plan.objective.seconds - plan.plan.objective.seconds);
    expect(together.changes).toEqual(['pins: + w1=RR', 'pins: + w2=RS(1)']);
    const terms = together.attribution.reduce((sum, { delta }) => sum + delta, 0);
    expect(terms).toBeCloseTo(together.globalSeconds, 12);
  });

  test('are taken back one by one to the plan and its request, and taken up again as they were', async () => {
    await history.ask('w1', 'RR');
    await history.ask('w2', 'RS(1)');
    const before = [history.together, pins()];
    history.undo();
    expect(pins()).toEqual(['w1=RR']);
    expect(history.together.changes).toEqual(['pins: + w1=RR']);
    history.undo();
    history.undo();
    expect([history.canUndo, history.canRedo]).toEqual([false, true]);
    expect(history.together).toMatchObject({ changes: [], globalSeconds: 0, changedNodes: [] });
    expect(history.together.plan).toBe(plan.plan);
    history.redo();
    history.redo();
    history.redo();
    expect([history.together, pins()]).toEqual(before);
    expect([history.canUndo, history.canRedo]).toEqual([true, false]);
  });

  test('that were taken back are forgotten when another one is asked', async () => {
    await history.ask('w1', 'RR');
    history.undo();
    await history.ask('w2', 'RS(1)');
    expect(history.canRedo).toBe(false);
    expect(pins()).toEqual(['w2=RS(1)']);
    const other = await solved(['mm=S(0)R', 'w2=RS(1)']);
    expect(history.together.plan.objective.seconds).toBe(other.plan.objective.seconds);
  });

  test('about a pinned node replace its pin, and undo puts it back', async () => {
    await history.ask('mm', 'RR');
    expect(history.together.changes).toEqual(['pins: - mm=S(0)R', 'pins: + mm=RR']);
    await history.ask('mm', 'RS(1)');
    expect(history.together.changes).toEqual(['pins: - mm=S(0)R', 'pins: + mm=RS(1)']);
    history.undo();
    history.undo();
    await history.ask('w1', 'RR');
    const other = await solved(['mm=S(0)R', 'w1=RR']);
    expect(history.together.plan.objective.seconds).toBe(other.plan.objective.seconds);
  });

  test('that cannot be answered change nothing', async () => {
    await history.ask('w1', 'RR');
    await expect(history.ask('w2', 'S(9)R')).rejects.toThrow('S(9)');
    await expect(history.ask('nowhere', 'RR')).rejects.toThrow("no node 'nowhere'");
    expect(pins()).toEqual(['w1=RR']);
    expect(history.canRedo).toBe(false);
  });
});
