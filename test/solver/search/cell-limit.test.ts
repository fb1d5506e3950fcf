import { describe, expect, it } from 'vitest';

import { verifyCertificate } from '../../../src/solver/check/verify.ts';
import { solveNow } from '../../../src/solver/solve.ts';
import { build, costOf, noise } from '../support.ts';

/**
 * The search keeps all that it makes; a limit on that ends it with a gap before the memory of the
 * machine does.
 */

describe('the limit on stored numbers', () => {
  const plain = noise(14, 16);
  const problem = build(plain);
  // Tables and unaries of the problem itself are about 25,000 numbers.
  const asked = { cellLimit: 200_000 };

  it('ends a search with a choice, a replayed bound and a gap, and says so', () => {
    const found = solveNow(problem, asked);
    expect([found.status, found.objective]).toEqual(['feasible', costOf(plain, [...found.choice])]);
    expect(found.gap).toBeGreaterThan(0);
    expect(found.evidence).toEqual(['the search ended at its limit of 200000 stored numbers']);
    const replayed = verifyCertificate(problem, {
      choice: [],
      objective: Infinity,
      certificate: found.certificate!,
    });
    expect([replayed.accepted, Number(replayed.bound)]).toEqual([true, found.bound]);
  });

  it('gives the same answer every time, and a better one with more room', () => {
    const { choice, bound, statistics } = solveNow(problem, asked);
    const again = solveNow(problem, asked);
    expect([[...again.choice], again.bound, again.statistics.nodes]).toEqual([
      [...choice],
      bound,
      statistics.nodes,
    ]);
    const roomy = solveNow(problem, { cellLimit: 600_000 });
    expect(roomy.statistics.nodes).toBeGreaterThan(statistics.nodes);
    expect(roomy.objective).toBeLessThanOrEqual(again.objective);
  });

  it('does not show where there is room', () => {
    const small = build(noise(5, 6));
    expect(solveNow(small, { cellLimit: 1e7 })).toMatchObject({ status: 'optimal', gap: 0 });
    expect(solveNow(small).evidence).toBeUndefined();
  });
});
