import { describe, expect, it } from 'vitest';

import { messageBound } from '../../../src/solver/search/messages/bound.ts';
import { FULL } from '../../support/full.ts';
import { eliminatePlainly, layered } from '../layered.ts';
import { build, exhaust, randomProblem } from '../support.ts';

const FAR = { minGain: 1e-6, sweeps: 200, stopped: () => false };

describe('the bound by messages', () => {
  it('is never above the optimum of all choices, and mostly reaches it', () => {
    let [tight, possible] = [0, 0];
    for (let seed = 1; seed <= (FULL ? 300 : 100); seed++) {
      const plain = randomProblem(seed, { most: 6, values: 4 });
      const { free, freeChoices } = exhaust(plain);
      const problem = build(plain, seed % 2 === 0);
      const found = messageBound(problem, FAR);
      if (found === undefined) continue;
      expect(found.bound).toBeLessThanOrEqual(free);
      expect(found.choice?.length ?? problem.domains.length).toBe(problem.domains.length);
      if (free === Infinity) continue;
      possible++;
      if (found.bound >= free - 1e-6 * Math.abs(free)) tight++;
      // Where there is one cheapest choice, messages that prove it point at it.
      if (found.bound === free && freeChoices.length === 1 && found.choice !== undefined)
        expect([...found.choice]).toEqual(freeChoices[0]);
    }
    expect(possible).toBeGreaterThan(FULL ? 100 : 33);
    expect(tight).toBeGreaterThan(0.8 * possible);
  });

  it.each(FULL ? [1, 2, 3, 4] : [1])(
    'of equal layers with equal edges of two variables says of many what it says of few (seed %i)',
    (seed) => {
      const share = (layers: number): number => {
        const { plain } = layered(seed, layers);
        const twice = {
          ...plain,
          edges: plain.edges.flatMap((edge, e) => (e % 3 === 0 ? [edge, edge] : [edge])),
        };
        const least = eliminatePlainly(twice);
        expect(least).toBeLessThan(Infinity);
        const { bound } = messageBound(build(twice), FAR) ?? { bound: NaN };
        expect(bound).toBeLessThanOrEqual(least);
        return bound / least;
      };
      // Folded, and as they are.
      expect(share(600)).toBeGreaterThan(share(100) - 0.01);
    },
  );

  it('of fewer sweeps is a bound too', () => {
    const { plain } = layered(7, 600);
    const least = eliminatePlainly(plain);
    const bounds = [1, 2, 200].map(
      (sweeps) => messageBound(build(plain), { ...FAR, sweeps })?.bound ?? NaN,
    );
    expect(bounds[2]).toBeLessThanOrEqual(least);
    expect(Math.max(bounds[0], bounds[1])).toBeLessThanOrEqual(least);
  });
});
