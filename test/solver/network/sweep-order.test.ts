/** The order of sweeps: breadth first, every variable once. */
import fc from 'fast-check';
import { expect, it } from 'vitest';

import { networkOf } from '../../../src/solver/network/from-problem.ts';
import { sweepPlaces } from '../../../src/solver/network/sweep-order.ts';
import { Pool } from '../../../src/solver/store/pool.ts';
import { build, randomProblem } from '../support.ts';

it('visits every variable once, and none but the first of a component before all of its neighbours', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 1e6 }), (seed) => {
      const net = networkOf(build(randomProblem(seed, { most: 12, values: 3 })), new Pool());
      const place = sweepPlaces(net);
      expect([...place].sort((a, b) => a - b)).toEqual([...place.keys()]);
      const distance = new Map<number, number>();
      const byPlace = [...place.keys()].sort((a, b) => place[a] - place[b]);
      for (const i of byPlace) {
        const before = net.incident[i]
          .flatMap((e) => net.factors[e]?.vars ?? [])
          .filter((v) => place[v] < place[i]);
        distance.set(
          i,
          before.length === 0 ? 0 : 1 + Math.min(...before.map((v) => distance.get(v) ?? 0)),
        );
      }
      // Within a component distances from its first variable never fall.
      let last = 0;
      for (const i of byPlace) {
        const own = distance.get(i) ?? 0;
        if (own > 0) expect(own).toBeGreaterThanOrEqual(last);
        last = own;
      }
    }),
    { numRuns: 50 },
  );
});
