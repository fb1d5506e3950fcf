/** Equal layers share work and never decisions. */
import { describe, expect, it } from 'vitest';

import { ProblemBuilder } from '../../src/solver/problem/builder.ts';
import { solve } from '../../src/solver/solve.ts';
import type { Problem, Solution } from '../../src/solver/types.ts';
import { eliminatePlainly, layered } from './layered.ts';
import { build, costOf, mulberry32, type PlainProblem } from './support.ts';

/** A solution without what a clock measured. */
function withoutClocks({ seconds: _seconds, statistics, ...rest }: Solution): unknown {
  return {
    ...rest,
    statistics: Object.entries(statistics).filter(([key]) => !/seconds$/i.test(key)),
  };
}

describe('layers', () => {
  it('hash-consed elimination equals plain elimination on 50 random layered problems', async () => {
    let finite = 0;
    for (let seed = 0; seed < 50; seed++) {
      const { plain } = layered(seed, 3 + (seed % 10), seed % 3 === 0 ? [1, 4] : []);
      const optimum = eliminatePlainly(plain);
      const solution = await solve(build(plain, seed % 2 === 0), { engine: 'exact' });
      expect(solution.objective, `seed ${seed}`).toBe(optimum);
      if (optimum === Infinity) continue;
      finite++;
      expect(solution.status, `seed ${seed}`).toBe('optimal');
      expect(costOf(plain, [...solution.choice]), `seed ${seed}`).toBe(optimum);
    }
    expect(finite).toBeGreaterThan(40);
  });

  it('a thousand layers compute hardly more eliminations than four', async () => {
    for (const seed of [3, 5, 8]) {
      const few = await solve(build(layered(seed, 4).plain), { engine: 'exact' });
      const some = await solve(build(layered(seed, 40).plain), { engine: 'exact' });
      const many = await solve(build(layered(seed, 1000).plain), { engine: 'exact' });
      expect(many.status).toBe('optimal');
      const [a, b, c] = [few, some, many].map((s) => s.statistics.eliminationsComputed);
      // The transient of the (min,+) chain ends once; after it nothing new is computed.
      expect(c, `seed ${seed}: ${a}, ${b}, ${c}`).toBeLessThanOrEqual(b + 4);
      expect(c, `seed ${seed}: ${a}, ${b}, ${c}`).toBeLessThanOrEqual(Math.max(30, 4 * a));
      expect(many.statistics.eliminationsFound).toBeGreaterThan(500);
    }
  });

  it('names change nothing, and neither does another order of the variables change the optimum', async () => {
    const { plain } = layered(11, 12);
    const problem = build(plain);
    const renamed: Problem = { ...problem, name: 'llama/layers.7.self_attn.q_proj (model.py:312)' };
    const [one, two] = [await solve(problem), await solve(renamed)];
    expect(withoutClocks(two)).toEqual(withoutClocks(one));

    const n = plain.unary.length;
    const next = mulberry32(5);
    const order = plain.unary
      .map((_, i) => ({ i, key: next() }))
      .sort((a, b) => a.key - b.key)
      .map((o) => o.i);
    const place = new Int32Array(n);
    order.forEach((old, now) => (place[old] = now));
    const shuffled: PlainProblem = {
      unary: order.map((old) => plain.unary[old]),
      edges: [...plain.edges]
        .reverse()
        .map(([i, j, t]): [number, number, readonly number[]] => [place[i], place[j], t]),
    };
    const other = await solve(build(shuffled));
    expect(other.objective).toBe(one.objective);
    expect(
      costOf(
        plain,
        [...place].map((p) => other.choice[p]),
      ),
    ).toBe(one.objective);
  });

  it('tying the layers to one decision costs at least as much, and sometimes more', async () => {
    let moreExpensive = 0;
    for (let seed = 0; seed < 12; seed++) {
      const { plain, width } = layered(seed, 6);
      const free = await solve(build(plain));
      const b = new ProblemBuilder();
      for (const u of plain.unary) b.addVariable(Float64Array.from(u));
      for (const [i, j, t] of plain.edges) b.addEdge(i, j, Float64Array.from(t));
      for (let v = width; v < plain.unary.length; v++) {
        const k = plain.unary[v].length;
        b.addEdge(
          v - width,
          v,
          new Float64Array(k * k).map((_, c) => (Math.floor(c / k) === c % k ? 0 : Infinity)),
        );
      }
      const tied = await solve(b.build());
      expect(tied.objective).toBeGreaterThanOrEqual(free.objective);
      if (tied.objective > free.objective) moreExpensive++;
    }
    expect(moreExpensive).toBeGreaterThan(0);
  });
});
