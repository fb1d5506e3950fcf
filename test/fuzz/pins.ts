/**
 * Random programs with random pins, taken from a random plan. Every pinned plan obeys its pins, is
 * accepted by the re-costing, is not a cheaper than the free one and no more expensive than the random
 * plan, which obeys them too.
 */
import { expect } from 'vitest';

import type { Plan } from '../../src/plan/record/types.ts';
import { type Asked, pinnedRequests, planOf, randomPins } from './programs.ts';
import { fuzzer } from './runner.ts';

/**
 * Seconds that a plan states node by node: compute, collectives inside of rules, and moves that are
 * not of a copy made before.
 */
function sumOf({ nodes, outputs }: Pick<Plan, 'nodes' | 'outputs'>): number {
  let seconds = 0;
  for (const node of nodes)
    seconds += (node.times ?? 1) * (node.seconds + (node.internalSeconds ?? 0));
  for (const { redistributions } of [...nodes, ...outputs])
    for (const move of redistributions)
      if (move.copy !== 'reused') seconds += (move.times ?? 1) * move.seconds;
  return seconds;
}

/**
 * Doubles of other orders of sums: where a plan is called optimal, the rounding that it states may
 * be this share of its step.
 */
const close = (a: number): number => a * 1e-9;

/** The plan of an optimum, which costs what its nodes state and what the re-costing finds. */
async function checked(asked: Asked): Promise<Plan> {
  const plan = await planOf(asked);
  const { seconds } = plan.objective;
  expect(plan.proof).toMatchObject({ status: 'optimal', gap: 0 });
  const { recheckedSeconds, roundingSeconds = NaN } = plan.proof;
  expect(roundingSeconds, 'rounding').toBeLessThanOrEqual(close(seconds));
  const stated = roundingSeconds + seconds * 1e-12;
  expect(Math.abs(recheckedSeconds - seconds), 're-cost').toBeLessThanOrEqual(stated);
  expect(Math.abs(sumOf(plan) - seconds), 'sum of the nodes').toBeLessThanOrEqual(stated);
  return plan;
}

export const PINS = fuzzer('pins', 25, pinnedRequests(6), async ({ asked, random, picks }) => {
  const { drawn, pins } = randomPins(asked, random, picks);
  const free = await checked(asked);
  const pinned = await checked({ ...asked, request: { ...asked.request, pins } });
  for (const pin of pins)
    expect(pinned.nodes.find(({ name }) => name === pin.node)?.outputs).toEqual([pin.spec]);
  const { seconds } = pinned.objective;
  expect(free.objective.seconds, 'free').toBeLessThanOrEqual(seconds + close(seconds));
  expect(seconds, 'random').toBeLessThanOrEqual(sumOf(drawn) + close(seconds));
  return free.objective.seconds < seconds - close(seconds)
    ? 'more expensive than the free plan'
    : 'as cheap';
});
