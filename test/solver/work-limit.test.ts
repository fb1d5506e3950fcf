import { describe, expect, it } from 'vitest';

import { evaluate, verifyCertificate } from '../../src/solver/check/verify.ts';
import { solve } from '../../src/solver/solve.ts';
import type { Problem } from '../../src/solver/types.ts';
import { build } from './support.ts';

/** A grid of variables with random costs, and a row that half of the cheap values would break. */
function grid(width: number, height: number, values: number): Problem {
  let seed = 7;
  const random = (most: number): number => (seed = (seed * 48271) % 2147483647) % most;
  const many = (count: number, most: number): number[] =>
    Array.from({ length: count }, () => random(most));
  const n = width * height;
  const edges: [number, number, number[]][] = [];
  for (let v = 0; v < n; v++) {
    if (v % width > 0) edges.push([v - 1, v, many(values * values, 100)]);
    if (v >= width) edges.push([v - width, v, many(values * values, 100)]);
  }
  const amounts = Array.from({ length: n }, () => many(values, 1000));
  return build({
    unary: Array.from({ length: n }, () => many(values, 100)),
    edges,
    rows: [
      { name: 'memory', variables: [...Array(n).keys()], amounts, bound: Math.floor(n * 300) },
    ],
  });
}

describe('a limit by work', () => {
  const problem = grid(4, 5, 4);

  it.each([1, 20_000, 200_000])(
    '%i: the same choice and bound each time, both true',
    async (workLimit) => {
      const [a, b, optimum] = await Promise.all([
        solve(problem, { engine: 'exact', workLimit }),
        solve(problem, { engine: 'exact', workLimit }),
        solve(problem, { engine: 'exact' }),
      ]);
      expect(optimum.status).toBe('optimal');
      expect([...a.choice]).toEqual([...b.choice]);
      expect(a.bound).toBe(b.bound);
      expect(evaluate(problem, a.choice).violations).toEqual([]);
      expect(a.objective).toBeGreaterThanOrEqual(optimum.objective);
      expect(a.bound).toBeLessThanOrEqual(optimum.objective);
      expect(verifyCertificate(problem, a).accepted).toBe(true);
    },
  );

  it('stops what would go on, and more of it closes the gap', async () => {
    const gaps: number[] = [];
    for (const workLimit of [1, 1e9])
      gaps.push((await solve(problem, { engine: 'exact', workLimit })).gap);
    expect(gaps[0]).toBeGreaterThan(0);
    expect(gaps[1]).toBe(0);
  });
});
