import { describe, expect, test } from 'vitest';

import { budgetSearch, searchWithin } from '../../../src/plan/budget/hold-budget.ts';
import { bestOf, type Found } from '../../../src/plan/budget/types.ts';
import { prepare } from '../../../src/plan/prepare/prepare.ts';
import { memoryFrontier } from '../../../src/plan/questions/memory-frontier.ts';
import { type Clock, Deadline } from '../../../src/plan/request/deadline.ts';
import { solve } from '../../../src/solver/solve.ts';
import { FULL } from '../../support/full.ts';
import { load, planFor, request, TABLE } from '../support.ts';

// The long runs belong to `npm run test:full`.

const LOOK_SECONDS = 1000;

/** A clock on which every look takes a thousand seconds: work is counted, whatever the machine. */
function counting(): Clock & { looks: number } {
  return {
    looks: 0,
    now() {
      return this.looks++ * LOOK_SECONDS * 1e3;
    },
  };
}

describe('the time limit is one of the whole solve', () => {
  test('what is left falls with the clock, down to nothing; without a limit nobody looks', () => {
    const clock = counting();
    const deadline = new Deadline(2.5 * LOOK_SECONDS, { clock });
    expect(deadline.leftSeconds).toBe(1500);
    expect(deadline.solveOptions).toEqual({ timeLimitSeconds: 500 });
    expect(deadline.isOver).toBe(true);
    // What was begun just before gets a millisecond, not nothing.
    expect(deadline.solveOptions).toEqual({ timeLimitSeconds: 1e-3 });
    const before = clock.looks;
    const none = new Deadline(undefined, { clock });
    expect([none.leftSeconds, none.isOver, none.solveOptions]).toEqual([Infinity, false, {}]);
    expect(clock.looks).toBe(before);
  });

  test('sharding first, both at once and the bound share it: nothing is begun when it is over, and what is said stays true', async () => {
    const graph = load('torch/mlp/joint.expanded');
    const peak = (await planFor(graph, 'dp=2,tp=2')).memory.timeline?.peakBytes ?? NaN;
    const memoryBytes = Math.floor(peak * 0.7);
    const asked = request('dp=2,tp=2', { memoryBytes, checkpoint: 'auto' });
    const prepared = prepare(graph, asked, TABLE);
    const { problem } = prepared.left.compact;
    // The first stage is known before this search begins.
    const free = await solve(problem, { engine: 'exact', gap: 0, seed: 0 });
    const within = async (
      looks: number,
    ): Promise<Found & { readonly rounds: number; readonly looks: number }> => {
      const clock = counting();
      const deadline = new Deadline((looks + 0.5) * LOOK_SECONDS, { clock });
      const search = budgetSearch(prepared, { free, problem }, { deadline });
      const found = await searchWithin(search);
      return { ...found, rounds: search.seen.rounds, looks: clock.looks };
    };
    const whole = await within(1e6);
    const best = bestOf(whole)!;
    expect(whole.isOutOfTime).toBe(false);
    let rounds = 0;
    for (const looks of [0, 2, Math.floor(whole.looks / 2)]) {
      const found = await within(looks);
      expect(found.isOutOfTime).toBe(true);
      // Every subproblem looks at the clock before it is begun.
      expect(found.rounds).toBeLessThanOrEqual(looks);
      expect(found.rounds).toBeGreaterThanOrEqual(rounds);
      rounds = found.rounds;
      expect(found.proven.boundSeconds).toBeLessThanOrEqual(best.seconds);
      const plan = bestOf(found);
      if (looks === 0) {
        expect(plan).toBeUndefined();
        expect(found).toMatchObject({ rounds: 0, proven: { boundSeconds: 0 } });
      }
      if (plan !== undefined) expect(plan.peakBytes).toBeLessThanOrEqual(memoryBytes);
    }
    expect(rounds).toBeGreaterThan(0);
  });

  test.runIf(FULL)('all budgets of a frontier share it', async () => {
    const graph = load('torch/mlp/joint.expanded');
    const asked = request('d=2', { gap: 0.05 });
    const all = await memoryFrontier(graph, asked, { table: TABLE });
    const whole = counting();
    await memoryFrontier(
      graph,
      { ...asked, timeLimitSeconds: 1e9 * LOOK_SECONDS },
      { table: TABLE, clock: whole },
    );
    // What comes before the solver looks at the clock, too: half of all looks are enough for some
    // budgets.
    const timeLimitSeconds = (Math.floor(whole.looks / 2) + 0.5) * LOOK_SECONDS;
    const some = await memoryFrontier(
      graph,
      { ...asked, timeLimitSeconds },
      { table: TABLE, clock: counting() },
    );
    expect(some.asked).toBeLessThan(all.asked);
    expect(some.points.length).toBeGreaterThan(0);
    expect(some.points[0].seconds).toBe(all.points[0].seconds);
  });
});
