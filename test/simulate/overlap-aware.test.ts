import { describe, expect, it } from 'vitest';
import type { Graph } from '../../src/graph/types.ts';
import { prepare } from '../../src/plan/prepare.ts';
import { overlapAware, type OverlapAware } from '../../src/simulate/timeline/overlap-aware.ts';
import { simulate } from '../../src/simulate/timeline/simulate.ts';
import { load, planFor, request, TABLE } from '../plan/support.ts';

const FFN_STATE = 2 * 1024 * 4096 * 16;
const BLOCK_STATE = (4 * 6144 * 6144 + 2 * 6144 * 24576) * 16;
const ON_2D = { inputs: 'S(0)R', outputs: 'S(0)R' } as const;

async function both(graph: Graph, mesh: string, memoryBytes: number): Promise<OverlapAware> {
  const asked = { ...ON_2D, memoryBytes };
  const found = await overlapAware(prepare(graph, request(mesh, asked), TABLE));
  // The plan without overlap is the planner's own, and both figures are those of a fresh simulation.
  const plan = await planFor(graph, mesh, asked);
  expect(found.base.serialSeconds).toBeCloseTo(plan.proof.recheckedSeconds, 12);
  expect(Math.abs(plan.proof.recheckedSeconds - plan.objective.seconds)).toBeLessThan(plan.proof.roundingSeconds!);
  for (const { plan: simulated, simulatedSeconds } of [found.base, found.best])
    expect(simulate(graph, simulated, TABLE).timeline.seconds).toBe(simulatedSeconds);
  return found;
}

describe('plans with overlap in view', () => {
  const cases = [
    ['FFN', 'peers/ffn-65536', FFN_STATE],
    ['TB', 'peers/block-256', BLOCK_STATE],
  ] as const;
  for (const [name, file, state] of cases)
    for (const [what, share] of [
      ['one share of memory', 1 / 256],
      ['an eighth of the states', 1 / 8],
    ] as const)
      it(`CM-34 ${name} on (32, 8) with ${what}: no degenerate plan`, async () => {
        const { base, best, rounds } = await both(load(file), 'x=32,y=8', state * share);
        expect(best.serialSeconds).toBeLessThanOrEqual(1.05 * base.serialSeconds);
        expect(best.simulatedSeconds).toBeLessThanOrEqual(base.simulatedSeconds);
        expect(rounds.length).toBeGreaterThan(1);
        for (const { discount, serialSeconds, simulatedSeconds } of rounds) {
          expect(Math.max(discount.gathers, discount.reductions)).toBeLessThanOrEqual(0.9);
          // The plain optimum is the cheapest of all, one after another; launches and hiding come on top and off.
          expect(serialSeconds).toBeGreaterThanOrEqual(base.serialSeconds * (1 - 1e-12));
          expect(simulatedSeconds).toBeGreaterThan(0);
        }
      });

  it('CM-34 a plan that is more expensive one after another and faster beside compute is found, and confirmed', async () => {
    const graph = load('peers/block-2048');
    const { base, best } = await both(graph, 'x=32,y=8', Math.floor((BLOCK_STATE / 64) * 1.0001));
    expect(best.simulatedSeconds).toBeLessThan(base.simulatedSeconds);
    expect(best.serialSeconds).toBeGreaterThan(base.serialSeconds);
    expect(best.serialSeconds).toBeLessThanOrEqual(1.05 * base.serialSeconds);
  });
});
