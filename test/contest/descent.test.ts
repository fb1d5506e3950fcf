import { describe, expect, it } from 'vitest';

import { PriceAscent } from '../../src/contest/bound/row-prices.ts';
import { costOf, Dual, usageOf } from '../../src/contest/bound/trws.ts';
import { type BlockMove, BlockSearch } from '../../src/contest/lns/block-search.ts';
import { LargeBlockDescent } from '../../src/contest/lns/large-block.ts';
import type { SharedState } from '../../src/contest/lns/operators.ts';
import { arrange } from '../../src/contest/lns/order.ts';
import type { Model } from '../../src/contest/model/model.ts';
import { presolve } from '../../src/contest/model/presolve.ts';
import { Random } from '../../src/contest/model/random.ts';
import { firstChoice } from '../../src/contest/run/member.ts';
import {
  build,
  enumerate,
  mulberry32,
  type PlainProblem,
  randomProblem,
} from '../solver/support.ts';

/** A random graph as sets of neighbours. */
function graph(seed: number, n: number, degree: number): Set<number>[] {
  const next = mulberry32(seed);
  const near = Array.from({ length: n }, () => new Set<number>());
  for (let k = 0; k < (n * degree) / 2; k++) {
    const [i, j] = [Math.floor(next() * n), Math.floor(next() * n)];
    if (i === j) continue;
    near[i].add(j);
    near[j].add(i);
  }
  return near;
}

/** Variables of three to five values, most of them in a tight memory, on a ring with chords. */
function ring(seed: number, n: number): PlainProblem {
  const next = mulberry32(seed);
  const int = (k: number): number => Math.floor(next() * k);
  const unary = Array.from({ length: n }, () =>
    Array.from({ length: 3 + int(2) }, () => int(1000)),
  );
  const edges: [number, number, number[]][] = [];
  for (let i = 0; i < n; i++) {
    for (const j of new Set([(i + 1) % n, (i + 2 + int(3)) % n])) {
      const [a, b] = i < j ? [i, j] : [j, i];
      if (a !== b)
        edges.push([
          a,
          b,
          Array.from({ length: unary[a].length * unary[b].length }, () => int(500)),
        ]);
    }
  }
  const pieces = unary.map((u, variable) => {
    const lo = int(n);
    return { variable, lo, hi: lo + 1 + int(5), amounts: u.map(() => 1 + int(100)) };
  });
  const least = pieces.map(({ lo }) =>
    pieces.reduce((s, p) => (p.lo <= lo && lo < p.hi ? s + Math.min(...p.amounts) : s), 0),
  );
  return { unary, edges, pieces, limit: Math.floor(1.15 * Math.max(...least)) };
}

function modelOf(plain: PlainProblem): Model | undefined {
  return presolve(build(plain))?.model;
}

const WHOLE: BlockMove = {
  cap: 1e6,
  candidates: 1 << 20,
  injected: [],
  factor: 1,
  ceiling: Infinity,
  noise: 0,
  spared: 0,
  tolerance: 0,
  attempts: 8,
};

describe('(elimination orders of the search)', () => {
  it('every variable is ordered or frozen, and no table is larger than the cap', () => {
    let frozenInAll = 0;
    for (let seed = 1; seed <= 30; seed++) {
      const n = 20 + seed;
      const near = graph(seed, n, 2 + (seed % 5));
      const sizes = Int32Array.from({ length: n }, (_, i) => 2 + ((i * seed) % 4));
      const cap = [50, 500, 5000][seed % 3];
      const random = new Random(seed);
      const job = { near: near.map((s) => new Set(s)), sizes, count: n, cap, spared: 3 };
      const order = new Int32Array(n);
      const frozen = new Uint8Array(n);
      const luck = seed % 2 === 0 ? { luck: () => random.next() } : {};
      const { ordered } = arrange({ ...job, ...luck }, order, frozen);
      const stays = Array.from(frozen.keys()).filter((v) => frozen[v] === 1);
      frozenInAll += stays.length;
      const all = [...order.subarray(0, ordered), ...stays].sort((a, b) => a - b);
      expect(all).toEqual(Array.from({ length: n }, (_, i) => i));
      for (const v of stays) for (const w of near[v]) near[w].delete(v);
      for (const v of order.subarray(0, ordered)) {
        const around = [...near[v]];
        expect(around.reduce((cells, w) => cells * sizes[w], sizes[v])).toBeLessThanOrEqual(cap);
        for (const a of around) {
          near[a].delete(v);
          for (const b of around) if (a !== b) near[a].add(b);
        }
      }
    }
    expect(frozenInAll).toBeGreaterThan(0);
  });

  it('a generous cap freezes nothing', () => {
    const order = new Int32Array(30);
    const frozen = new Uint8Array(30).fill(1);
    const sizes = new Int32Array(30).fill(2);
    expect(
      arrange({ near: graph(4, 30, 2), sizes, count: 30, cap: 1e9, spared: 0 }, order, frozen)
        .ordered,
    ).toBe(30);
    expect(frozen.includes(1)).toBe(false);
  });
});

describe('(whole models as one block)', () => {
  it('without rows a block of everything is the optimum', () => {
    for (let seed = 1; seed <= 20; seed++) {
      const plain = randomProblem(seed, { most: 9, values: 3, usage: false, row: false });
      const model = modelOf(plain);
      if (model === undefined) continue;
      const start = firstChoice(model);
      if (start === undefined) continue;
      const blocks = new BlockSearch(model, start, new Random(seed));
      blocks.improve([...model.sizes.keys()], WHOLE);
      expect(blocks.cost, `seed ${seed}`).toBe(enumerate(plain));
      expect(costOf(model, blocks.x)).toBe(blocks.cost);
    }
  });

  it('under rows no block breaks one, costs more, or costs less than the optimum', () => {
    let better = 0;
    for (let seed = 1; seed <= 60; seed++) {
      const plain = ring(seed, 8);
      const model = modelOf(plain);
      const start = model === undefined ? undefined : firstChoice(model);
      if (model === undefined || start === undefined) continue;
      const blocks = new BlockSearch(model, start, new Random(seed));
      const before = blocks.cost;
      for (let k = 0; k < 5; k++) blocks.improve([...model.sizes.keys()], WHOLE);
      expect(usageOf(model, blocks.x).every((u, t) => u <= model.capacity[t])).toBe(true);
      expect(Array.from(blocks.usage.subarray(0, model.rows))).toEqual(
        Array.from(usageOf(model, blocks.x)),
      );
      expect(costOf(model, blocks.x)).toBe(blocks.cost);
      expect(blocks.cost).toBeLessThanOrEqual(before);
      expect(blocks.cost).toBeGreaterThanOrEqual(enumerate(plain));
      if (blocks.cost < before) better++;
    }
    expect(better).toBeGreaterThan(40);
  });
});

describe('(descents)', () => {
  const newsOf = (model: Model): SharedState | undefined => {
    const choice = firstChoice(model);
    if (choice === undefined) return undefined;
    const ascent = new PriceAscent(new Dual(model));
    for (let k = 0; k < 60; k++) ascent.step();
    const { dual } = ascent;
    return {
      choice,
      cost: costOf(model, choice),
      injected: [dual.decode()],
      lambda: ascent.kept,
      marginal: dual.marginal,
      limit: Infinity,
      scale: 1,
    };
  };

  it('reaches the optimum of nearly all small problems with usage over time, and never less', () => {
    let optimal = 0;
    let tried = 0;
    for (let seed = 1; seed <= 20; seed++) {
      const plain = ring(seed, 9);
      const model = modelOf(plain);
      const shared = model === undefined ? undefined : newsOf(model);
      if (model === undefined || shared === undefined) continue;
      const descent = new LargeBlockDescent(model, seed, shared, () => false);
      descent.receive(shared);
      descent.run(2e6);
      const optimum = enumerate(plain);
      expect(descent.cost).toBeGreaterThanOrEqual(optimum);
      expect(costOf(model, descent.best)).toBe(descent.cost);
      expect(usageOf(model, descent.best).every((u, t) => u <= model.capacity[t])).toBe(true);
      tried++;
      if (descent.cost === optimum) optimal++;
    }
    expect(tried).toBeGreaterThan(15);
    expect(optimal).toBeGreaterThan(0.8 * tried);
  });

  it('depends on its seed alone, takes over what is better, and stops when told', () => {
    const model = modelOf(ring(5, 60));
    const shared = model === undefined ? undefined : newsOf(model);
    if (model === undefined || shared === undefined) throw new Error('it has choices');
    const run = (): LargeBlockDescent => {
      const descent = new LargeBlockDescent(model, 3, shared, () => false);
      descent.receive(shared);
      descent.run(3e6);
      return descent;
    };
    const [one, two] = [run(), run()];
    expect([one.cost, one.steps, [...one.best]]).toEqual([two.cost, two.steps, [...two.best]]);
    expect(one.cost).toBeLessThan(shared.cost);
    const late = new LargeBlockDescent(model, 4, shared, () => true);
    late.receive({ ...shared, choice: one.best, cost: one.cost });
    late.run(1e9);
    expect([late.cost, late.steps]).toEqual([one.cost, 0]);
  });
});
