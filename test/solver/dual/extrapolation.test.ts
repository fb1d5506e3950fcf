import { describe, expect, it } from 'vitest';

import { ascend } from '../../../src/solver/dual/ascent.ts';
import { Extrapolation } from '../../../src/solver/dual/extrapolation.ts';
import { Trws } from '../../../src/solver/dual/trws.ts';
import { networkOf } from '../../../src/solver/network/from-problem.ts';
import { Pool } from '../../../src/solver/store/pool.ts';
import { build, exhaust, randomProblem } from '../support.ts';

const SHAPE = { most: 9, values: 3 };

/** Bounds of sweeps of a random problem with cycles. */
function boundsOf(seed: number, extrapolates: boolean, sweeps: number): number {
  const messages = new Trws(networkOf(build(randomProblem(seed, SHAPE)), new Pool()));
  const limits = { sweeps, minProgress: 0, minSweeps: sweeps, close: 0, extrapolates };
  return ascend(messages, {
    ...limits,
    propose: () => undefined,
    target: () => Infinity,
    stopped: () => false,
  });
}

describe('extrapolated messages', () => {
  it('prove no more than the optimum', () => {
    for (let seed = 1; seed <= 60; seed++) {
      const { free } = exhaust(randomProblem(seed, SHAPE));
      for (const sweeps of [4, 5, 9, 30])
        expect(boundsOf(seed, true, sweeps)).toBeLessThanOrEqual(free);
    }
  });

  it.each([2, 4, 5, 6])('go back where the next sweep proves less: problem %i', (seed) => {
    const messages = new Trws(networkOf(build(randomProblem(seed, SHAPE)), new Pool()));
    const extrapolation = new Extrapolation(messages);
    expect(messages.to.length).toBeGreaterThan(0);
    // Two sweeps, then a third whose gain is half of the one before: messages move on by as much
    // again.
    expect(extrapolation.after(1, 0)).toBe(true);
    messages.to.fill(10);
    expect(extrapolation.after(2, 100)).toBe(true);
    messages.to.fill(14);
    expect(extrapolation.after(3, 150)).toBe(true);
    expect(messages.to.every((m) => m === 18)).toBe(true);
    messages.to.fill(99);
    expect(extrapolation.after(4, 120)).toBe(false);
    expect(messages.to.every((m) => m === 14)).toBe(true);
  });
});
