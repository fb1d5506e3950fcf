/** SO-34: equal layers share work and never decisions. */
import { describe, expect, it } from 'vitest';
import { ProblemBuilder } from '../../src/solver/problem.ts';
import { solve } from '../../src/solver/solve.ts';
import type { Problem, Solution } from '../../src/solver/types.ts';
import { build, costOf, mulberry32, type PlainProblem } from './support.ts';

interface Layered {
  readonly plain: PlainProblem;
  readonly width: number;
}

/**
 * Layers of `width` variables: a random graph inside a layer, edges from each layer to the next, and a skip stream from
 * first variable to first variable. All layers have one set of tables unless `odd` names layers that have another.
 */
function layered(seed: number, layers: number, odd: readonly number[] = []): Layered {
  const next = mulberry32(seed);
  const int = (n: number): number => Math.floor(next() * n);
  const width = 2 + int(3);
  const sizes = Array.from({ length: width }, () => 2 + int(3));
  const inside: [number, number][] = [];
  for (let i = 0; i < width; i++)
    for (let j = i + 1; j < width; j++) if (j === i + 1 || next() < 0.3) inside.push([i, j]);
  const across: [number, number][] = [[0, 0], [width - 1, int(width)]]; // prettier-ignore
  const table = (k: number, l: number): number[] =>
    Array.from({ length: k * l }, () => (next() < 0.08 ? Infinity : int(50)));
  const kind = (): { unary: number[][]; inside: number[][]; across: number[][] } => ({
    unary: sizes.map((k) => Array.from({ length: k }, () => int(30))),
    inside: inside.map(([i, j]) => table(sizes[i], sizes[j])),
    across: across.map(([i, j]) => table(sizes[i], sizes[j])),
  });
  const kinds = [kind(), kind()];
  const unary: number[][] = [];
  const edges: [number, number, number[]][] = [];
  for (let l = 0; l < layers; l++) {
    const at = kinds[odd.includes(l) ? 1 : 0];
    unary.push(...at.unary);
    inside.forEach(([i, j], e) => edges.push([l * width + i, l * width + j, at.inside[e]]));
    if (l === 0) continue;
    across.forEach(([i, j], e) => edges.push([(l - 1) * width + i, l * width + j, at.across[e]]));
  }
  return { plain: { unary, edges }, width };
}

/** Plain variable elimination in index order, without sharing, compression or reduction: the reference. */
function eliminatePlainly(plain: PlainProblem): number {
  let factors: { vars: number[]; at: (x: Map<number, number>) => number }[] = [
    ...plain.unary.map((u, i) => ({ vars: [i], at: (x: Map<number, number>) => u[x.get(i) ?? 0] })),
    ...plain.edges.map(([i, j, t]) => ({
      vars: [i, j],
      at: (x: Map<number, number>) => t[(x.get(i) ?? 0) * plain.unary[j].length + (x.get(j) ?? 0)],
    })),
  ];
  let constant = 0;
  for (let v = 0; v < plain.unary.length; v++) {
    const bucket = factors.filter((f) => f.vars.includes(v));
    const scope = [...new Set(bucket.flatMap((f) => f.vars))].filter((u) => u !== v).sort((a, b) => a - b);
    const strides = scope.map((_, k) => scope.slice(k + 1).reduce((s, u) => s * plain.unary[u].length, 1));
    const cells = scope.reduce((s, u) => s * plain.unary[u].length, 1);
    const least = new Float64Array(cells);
    for (let c = 0; c < cells; c++) {
      const x = new Map(scope.map((u, k) => [u, Math.floor(c / strides[k]) % plain.unary[u].length]));
      let best = Infinity;
      for (let a = 0; a < plain.unary[v].length; a++) {
        x.set(v, a);
        best = Math.min(best, bucket.reduce((s, f) => s + f.at(x), 0)); // prettier-ignore
      }
      least[c] = best;
    }
    factors = factors.filter((f) => !f.vars.includes(v));
    if (scope.length === 0) constant += least[0];
    else
      factors.push({ vars: scope, at: (x) => least[scope.reduce((s, u, k) => s + (x.get(u) ?? 0) * strides[k], 0)] });
  }
  return constant;
}

/** A solution without what a clock measured. */
function withoutClocks({ seconds: _seconds, statistics, ...rest }: Solution): unknown {
  return { ...rest, statistics: Object.entries(statistics).filter(([key]) => !/seconds$/i.test(key)) };
}

describe('SO-34: layers', () => {
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
    const order = plain.unary.map((_, i) => ({ i, key: next() })).sort((a, b) => a.key - b.key).map((o) => o.i); // prettier-ignore
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
    expect(costOf(plain, [...place].map((p) => other.choice[p]))).toBe(one.objective); // prettier-ignore
  });

  it('tying the layers to one decision costs at least as much, and sometimes more', async () => {
    let dearer = 0;
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
      if (tied.objective > free.objective) dearer++;
    }
    expect(dearer).toBeGreaterThan(0);
  });
});
