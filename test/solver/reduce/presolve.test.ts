/**
 * The reduced problem plus its constant has the optimum of the whole problem, and its choices expand
 * to choices of the whole.
 */
import { describe, expect, it } from 'vitest';

import { evaluate } from '../../../src/solver/check/verify.ts';
import { networkOf } from '../../../src/solver/network/from-problem.ts';
import type { Network } from '../../../src/solver/network/network.ts';
import { addPrices, dropRows, installRows, plainRows } from '../../../src/solver/network/rows.ts';
import { Reducer } from '../../../src/solver/reduce/presolve.ts';
import { Pool } from '../../../src/solver/store/pool.ts';
import { build, enumerate, limitedInstance, type PlainProblem, randomProblem } from '../support.ts';

/**
 * Optimum of what is left of a network, by depth-first enumeration of positions, with the positions
 * that reach it.
 */
function enumerateNetwork(net: Network): { objective: number; at: Int32Array } {
  const { pool } = net;
  const present = [...net.gone.keys()].filter((i) => net.gone[i] === 0);
  const at = new Int32Array(net.count);
  let objective = Infinity;
  let best = at.slice();
  const used = net.rows.map(() => 0);
  const step = (k: number, cost: number): void => {
    if (k === present.length) {
      if (net.rows.some((row, r) => used[r] > row.bound) || cost >= objective) return;
      objective = cost;
      best = at.slice();
      return;
    }
    const i = present[k];
    for (let a = 0; a < net.size[i]; a++) {
      at[i] = a;
      let more = cost + pool.vectorOf(net.unary[i])[a];
      for (const id of net.incident[i]) {
        const f = net.factors[id];
        if (f === undefined || Math.max(...f.vars.map((v) => present.indexOf(v))) !== k) continue;
        const place = f.vars.map((v, axis) => pool.mapOf(f.maps[axis])[at[v]]);
        more += place.includes(-1)
          ? Infinity
          : f.table.cells[place[0] * f.table.dims[1] + place[1]];
      }
      if (more === Infinity) continue;
      const amounts = net.rows.map((row) =>
        row.amounts[i] < 0 ? 0 : pool.vectorOf(row.amounts[i])[a],
      );
      amounts.forEach((u, r) => (used[r] += u));
      step(k + 1, more);
      amounts.forEach((u, r) => (used[r] -= u));
    }
  };
  step(0, net.constant);
  return { objective, at: best };
}

function check(
  plain: PlainProblem,
  compress: boolean,
  label: string,
): { before: number; after: number } {
  const problem = build(plain, compress);
  const optimum = enumerate(plain);
  const net = networkOf(problem, new Pool());
  installRows(net, plainRows(problem));
  const alive = new Reducer().reduce(net);
  const before = plain.unary.reduce((s, u) => s + u.length, 0);
  if (!alive) {
    expect(optimum, label).toBe(Infinity);
    return { before, after: 0 };
  }
  const { objective, at } = enumerateNetwork(net);
  expect(objective, label).toBe(optimum);
  if (optimum < Infinity) {
    const whole = net.complete(at);
    expect(evaluate(problem, whole), label).toMatchObject({
      violations: [],
      cost: BigInt(optimum),
    });
  }
  return {
    before,
    after: [...net.gone.keys()].reduce((s, i) => s + (net.gone[i] === 1 ? 0 : net.size[i]), 0),
  };
}

describe('reduction', () => {
  it('the sixteen limited instances keep their optimum, with and without their limit', () => {
    for (let seed = 1; seed <= 16; seed++) {
      const plain = limitedInstance(seed);
      const { limit: _limit, pieces: _pieces, ...free } = plain;
      check(plain, false, `seed ${seed}`);
      check(free, false, `seed ${seed}, free`);
    }
  });

  it('300 further problems of every kind', () => {
    let [before, after] = [0, 0];
    for (let seed = 7000; seed < 7300; seed++) {
      const plain = randomProblem(seed, {
        most: 8,
        values: 4,
        row: seed % 2 === 0,
        usage: seed % 3 === 0,
      });
      const sizes = check(plain, seed % 4 < 2, `seed ${seed}`);
      before += sizes.before;
      after += sizes.after;
    }
    expect(after).toBeLessThan(before * 0.8);
  });

  it('duplicate and reversed edges, an isolated variable, an empty interval, forbidden values', () => {
    const plain: PlainProblem = {
      unary: [
        [4, 0, Infinity],
        [1, 2],
        [5, 3],
        [Infinity, 8],
      ],
      edges: [
        [0, 1, [1, 9, 4, 2, 0, 0]],
        [1, 0, [3, 0, 0, 2, 7, 0]],
        [0, 1, [0, 1, 5, 0, 0, 0]],
        [1, 3, [0, Infinity, 0, 6]],
      ],
      pieces: [
        { variable: 0, lo: 0, hi: 3, amounts: [2, 5, 0] },
        { variable: 1, lo: 2, hi: 2, amounts: [1000, 1000] },
        { variable: 1, lo: 1, hi: 4, amounts: [3, 1] },
        { variable: 2, lo: 2, hi: 3, amounts: [0, 4] },
      ],
      limit: 7,
    };
    check(plain, false, 'by hand');
    // Variable 3 must take 1, so variable 1 must (2 + 8 + 6); variable 0 best takes 1 (2 + 7 + 0);
    // at [2,3) that leaves no room for value 1 of variable 2 (5 + 1 + 4 > 7), so 16 + 9 + 5.
    expect(enumerate(plain)).toBe(30);
  });

  it('what rows were charged is cost where the rows are left out, also for dominance', () => {
    let removed = 0;
    for (let seed = 7400; seed < 7500; seed++) {
      const problem = build(randomProblem(seed, { most: 6, values: 4, row: true }), false);
      const net = networkOf(problem, new Pool());
      installRows(net, plainRows(problem));
      const prices = net.rows.map((_, r) => BigInt((1 + ((seed + r) % 3)) << 20));
      addPrices(net, prices);
      dropRows(net);
      const { objective } = enumerateNetwork(net);
      const values = (): number =>
        net.size.reduce((sum, size, i) => sum + (net.gone[i] === 1 ? 0 : size), 0);
      const before = values();
      if (!new Reducer().reduce(net, true)) {
        expect(objective, `seed ${seed}`).toBe(Infinity);
        continue;
      }
      expect(enumerateNetwork(net).objective, `seed ${seed}`).toBe(objective);
      removed += before - values();
    }
    expect(removed).toBeGreaterThan(0);
  });
});
