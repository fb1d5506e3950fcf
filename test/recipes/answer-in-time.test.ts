/** What follows the search of a plan keeps its time limit too. Clocks count looks: no test measures. */
import { describe, expect, it } from 'vitest';

import { prepare } from '../../src/plan/prepare/prepare.ts';
import { type Clock, Deadline } from '../../src/plan/request/deadline.ts';
import { prepareToAnswer } from '../../src/recipes/answer.ts';
import { priceRecipes } from '../../src/recipes/compare/compare.ts';
import { LATE } from '../../src/recipes/compare/price.ts';
import { simulateSeconds } from '../../src/simulate/timeline/simulate.ts';
import { load, planFor, request, TABLE } from '../plan/support.ts';

const GRAPH = load('torch/mlp-loss/joint.expanded');

/** A clock that goes one second at every look. */
function counting(): Clock & { looks: number } {
  return {
    looks: 0,
    now() {
      return this.looks++ * 1e3;
    },
  };
}

describe('the time limit of a plan', () => {
  it('keeps as long for writing the folder as preparing took, and more for re-costing', () => {
    const clock = counting();
    const whole = new Deadline(1e5, { clock });
    const asked = request('dp=2,tp=2');
    const { deadline, search } = prepareToAnswer(GRAPH, asked, TABLE, whole, true);
    const [prepared, left] = [clock.looks, whole.leftSeconds];
    expect(left - deadline.leftSeconds).toBeGreaterThanOrEqual(prepared - 8);
    expect(deadline.leftSeconds - search.leftSeconds).toBeGreaterThan(0);
    const unwritten = prepareToAnswer(GRAPH, asked, TABLE, new Deadline(1e5, { clock }));
    expect(unwritten.deadline.leftSeconds - unwritten.search.leftSeconds).toBeLessThan(
      left - deadline.leftSeconds,
    );
  });

  it('leaves recipes unpriced once it is over', async () => {
    const recipes = await priceRecipes(
      prepare(GRAPH, request('dp=2,tp=2'), TABLE),
      new Deadline(0),
    );
    expect(recipes.length).toBeGreaterThan(2);
    for (const recipe of recipes) expect(recipe).toMatchObject({ reason: LATE });
  });

  it('ends the trial of orders: one is simulated in any case', async () => {
    const plan = await planFor(GRAPH, 'dp=2,tp=2');
    let looks = 0;
    const one = simulateSeconds(GRAPH, plan, TABLE, { stopped: () => ++looks > 0 });
    const asWritten = { order: 'program', bucketBytes: 0 } as const;
    expect(one).toBeGreaterThanOrEqual(simulateSeconds(GRAPH, plan, TABLE, asWritten));
    expect(one).toBeGreaterThanOrEqual(simulateSeconds(GRAPH, plan, TABLE));
    expect(looks).toBeGreaterThan(0);
    expect(looks).toBeLessThan(8);
  });
});
