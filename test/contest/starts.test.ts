import { describe, expect, it } from 'vitest';

import { solveAnytime } from '../../src/contest/anytime.ts';
import { forestKnapsack } from '../../src/contest/bound/forest-knapsack.ts';
import { PriceAscent } from '../../src/contest/bound/row-prices.ts';
import { costOf, Dual, usageOf } from '../../src/contest/bound/trws.ts';
import { presolve } from '../../src/contest/model/presolve.ts';
import { evaluate } from '../../src/solver/check/verify.ts';
import { solve } from '../../src/solver/solve.ts';
import {
  build,
  costOf as plainCost,
  enumerate,
  limitedInstance,
  mulberry32,
  peakOf,
  type PlainProblem,
  randomProblem,
  rowsHold,
} from '../solver/support.ts';

/** Feasible choices of a problem, each with its cost, by walking through all. */
function feasible(plain: PlainProblem): { readonly choice: Int32Array; readonly cost: number }[] {
  const found: { choice: Int32Array; cost: number }[] = [];
  const x = plain.unary.map(() => 0);
  for (;;) {
    const cost = plainCost(plain, x);
    if (cost < Infinity && peakOf(plain, x) <= (plain.limit ?? Infinity) && rowsHold(plain, x))
      found.push({ choice: Int32Array.from(x), cost });
    let i = x.length - 1;
    while (i >= 0 && ++x[i] === plain.unary[i].length) x[i--] = 0;
    if (i < 0) return found;
  }
}

const plainOf = (seed: number): PlainProblem =>
  seed <= 16
    ? limitedInstance(seed)
    : randomProblem(seed, { most: 6, values: 4, usage: true, row: seed % 2 === 0 });

/** A random tree or, with `extra` edges, near-tree of variables whose amounts stand in one row. */
function knapsack(seed: number, variables: number, extra: number): PlainProblem {
  const next = mulberry32(seed);
  const int = (n: number): number => Math.floor(next() * n);
  const unary = Array.from({ length: variables }, () =>
    Array.from({ length: 2 + int(2) }, () => int(100)),
  );
  const edges: [number, number, number[]][] = [];
  const add = (i: number, j: number): void =>
    void edges.push([
      i,
      j,
      Array.from({ length: unary[i].length * unary[j].length }, () => int(60)),
    ]);
  for (let j = 1; j < variables; j++) add(int(j), j);
  for (let k = 0; k < extra; k++) add(k, variables - 1 - k);
  const amounts = unary.map((u) => u.map(() => int(1000)));
  const least = amounts.reduce((sum, a) => sum + Math.min(...a), 0);
  const most = amounts.reduce((sum, a) => sum + Math.max(...a), 0);
  const bound = least + Math.floor(0.3 * (most - least));
  return {
    unary,
    edges,
    rows: [{ name: 'memory', variables: unary.map((_, i) => i), amounts, bound }],
  };
}

describe('choices known beforehand', () => {
  it('become choices of the reduced model that keep its rows and cost no more', () => {
    let [seen, cheaper] = [0, 0];
    for (let seed = 1; seed <= 80; seed++) {
      const plain = plainOf(seed);
      const problem = build(plain, seed % 2 === 0);
      const reduced = presolve(problem);
      for (const { choice, cost } of feasible(plain).slice(0, 200)) {
        const small = reduced?.contract(choice);
        if (reduced === undefined || small === undefined)
          throw new Error(`seed ${seed}: a feasible choice has no place`);
        expect(costOf(reduced.model, small), `seed ${seed}`).toBeLessThanOrEqual(cost);
        expect(usageOf(reduced.model, small).every((u, t) => u <= reduced.model.capacity[t])).toBe(
          true,
        );
        const { cost: again, violations } = evaluate(problem, reduced.expand(small));
        expect([Number(again), violations]).toEqual([costOf(reduced.model, small), []]);
        seen++;
        if (costOf(reduced.model, small) < cost) cheaper++;
      }
    }
    expect(seen).toBeGreaterThan(1000);
    expect(cheaper).toBeGreaterThan(100);
  });

  it('are where mode anytime begins: no answer is worse, and those that break a row are ignored', async () => {
    let taken = 0;
    for (let seed = 1; seed <= 60; seed++) {
      const plain = plainOf(seed);
      const problem = build(plain);
      const choices = feasible(plain);
      if (choices.length === 0) continue;
      const best = choices.reduce((a, b) => (b.cost < a.cost ? b : a));
      const broken = Int32Array.from(plain.unary, (u) => u.length - 1);
      const options = {
        rounds: 0,
        threads: 1,
        close: false,
        certify: false,
      } as const;
      const found = await solve(problem, {
        ...options,
        starts: [broken, best.choice, choices[0].choice, new Int32Array(0)],
      });
      expect(found.objective, `seed ${seed}`).toBe(best.cost);
      expect(found.bound).toBeLessThanOrEqual(best.cost);
      if ((await solveAnytime(problem, options)).objective > best.cost) taken++;
    }
    expect(taken).toBeGreaterThan(5);
  });

  it('and a bound known beforehand end the search once they meet', async () => {
    const plain = limitedInstance(5);
    const problem = build(plain);
    const best = feasible(plain).reduce((a, b) => (b.cost < a.cost ? b : a));
    const options = {
      threads: 1,
      close: false,
      starts: [best.choice],
      rounds: 50,
    } as const;
    const known = await solveAnytime(problem, { ...options, lowerBound: best.cost });
    expect([known.objective, known.statistics.rounds]).toEqual([best.cost, 1]);
    expect(known.bound).toBeLessThan(best.cost);
  });
});

describe('the knapsack over a spanning forest', () => {
  it('keeps its row, costs no less than the optimum, and on trees mostly meets it', () => {
    const met = { 0: 0, 2: 0 };
    for (const extra of [0, 2] as const) {
      for (let seed = 1; seed <= 60; seed++) {
        const plain = knapsack(seed, 9, extra);
        const optimum = enumerate(plain);
        const reduced = presolve(build(plain));
        if (reduced === undefined) throw new Error(`seed ${seed}: infeasible`);
        const { model } = reduced;
        const ascent = new PriceAscent(new Dual(model));
        for (let k = 0; k < 40; k++) ascent.step();
        const choice = forestKnapsack(ascent.dual);
        // Nothing is packed where the row does not bind.
        expect(choice === undefined, `seed ${seed}`).toBe(
          ascent.dual.lambda.every((price) => price === 0),
        );
        if (choice === undefined) continue;
        expect(usageOf(model, choice)[0], `seed ${seed}`).toBeLessThanOrEqual(model.capacity[0]);
        expect(costOf(model, choice)).toBeGreaterThanOrEqual(optimum);
        expect(forestKnapsack(ascent.dual)).toEqual(choice);
        if (costOf(model, choice) === optimum) met[extra]++;
      }
    }
    expect(met[0]).toBeGreaterThan(40);
    expect(met[2]).toBeGreaterThan(20);
  });

  it('has no answer without a price', () => {
    const reduced = presolve(build({ ...knapsack(3, 6, 0), rows: [] }));
    if (reduced === undefined) throw new Error('infeasible');
    const dual = new Dual(reduced.model);
    dual.sweep();
    expect(forestKnapsack(dual)).toBeUndefined();
  });
});
