/**
 * The cheapest choice among some values of a problem, against exhaustive search and plain
 * elimination.
 */
import { describe, expect, it } from 'vitest';

import type { AllowedValues } from '../../../src/solver/problem/restrict.ts';
import { PreparedProblem } from '../../../src/solver/search/prepared.ts';
import { RestrictedSolver } from '../../../src/solver/search/restricted.ts';
import { solveNow } from '../../../src/solver/solve.ts';
import { FULL } from '../../support/full.ts';
import { eliminatePlainly, layered } from '../layered.ts';
import {
  build,
  costOf,
  exhaust,
  mulberry32,
  type PlainProblem,
  randomProblem,
} from '../support.ts';

/**
 * Random lists of values that are left, equal lists with equal ids; about a third of the variables
 * keep all values.
 */
function randomLeft(
  next: () => number,
  sizes: readonly number[],
  placeOf: (variable: number) => number,
): (AllowedValues | undefined)[] {
  const lists = new Map<string, AllowedValues>();
  const places = new Map<number, AllowedValues | undefined>();
  return sizes.map((size, v) => {
    const place = placeOf(v);
    if (places.has(place)) return places.get(place);
    const keep = next() < 0.5 ? 0.3 : 0.8;
    const values = Array.from({ length: size }, (_, a) => a).filter(() => next() < keep);
    if (values.length === 0) values.push(Math.floor(next() * size));
    const key = values.join();
    const list = lists.get(key) ?? { id: lists.size, values: Int32Array.from(values) };
    lists.set(key, list);
    const left = next() < 0.3 ? undefined : list;
    places.set(place, left);
    return left;
  });
}

/** The same problem with the other values forbidden. */
function forbidden(
  plain: PlainProblem,
  left: readonly (AllowedValues | undefined)[],
): PlainProblem {
  const unary = plain.unary.map((costs, v) =>
    costs.map((c, a) => (left[v] === undefined || left[v].values.includes(a) ? c : Infinity)),
  );
  return { ...plain, unary };
}

/** Least cost of choices that are equal in every layer. */
function tiedLeast(plain: PlainProblem, width: number): number {
  const sizes = plain.unary.slice(0, width).map((u) => u.length);
  const all = sizes.reduce((product, k) => product * k, 1);
  let best = Infinity;
  for (let code = 0; code < all; code++) {
    let rest = code;
    const layer = sizes.map((k) => {
      const a = rest % k;
      rest = Math.floor(rest / k);
      return a;
    });
    best = Math.min(
      best,
      costOf(
        plain,
        plain.unary.map((_, v) => layer[v % width]),
      ),
    );
  }
  return best;
}

describe('the cheapest choice of a restricted problem', () => {
  it('equals exhaustive search on random problems, several sets of values of one prepared problem', () => {
    let found = 0;
    const count = FULL ? 300 : 60;
    for (let seed = 1; seed <= count; seed++) {
      const plain = randomProblem(seed, { most: 8, values: 4 });
      const restricted = new RestrictedSolver(new PreparedProblem(build(plain, seed % 2 === 0)));
      const next = mulberry32(seed);
      for (let k = 0; k < 3; k++) {
        const left = randomLeft(
          next,
          plain.unary.map((u) => u.length),
          (v) => v,
        );
        const truth = exhaust(forbidden(plain, left)).free;
        const answer = restricted.solve(left, () => false);
        if (answer === undefined) {
          expect(truth, `seed ${seed}`).toBe(Infinity);
          continue;
        }
        found++;
        expect(answer.objective, `seed ${seed}`).toBe(truth);
        expect(costOf(forbidden(plain, left), Array.from(answer.choice))).toBe(truth);
      }
    }
    expect(found).toBeGreaterThan(count);
  });

  it('lies between plain elimination and one decision for all layers, where folded layers keep the same values', () => {
    let [found, equal] = [0, 0];
    const seeds = FULL ? 5 : 1;
    for (let seed = 1; seed <= seeds; seed++) {
      const { plain, width } = layered(seed, 800);
      const prepared = new PreparedProblem(build(plain));
      expect(prepared.fold, `seed ${seed}`).toBeDefined();
      const restricted = new RestrictedSolver(prepared);
      const next = mulberry32(seed);
      for (let k = 0; k < 3; k++) {
        const left = randomLeft(
          next,
          plain.unary.map((u) => u.length),
          (v) => v % width,
        );
        const answer = restricted.solve(left, () => false);
        if (answer === undefined) continue;
        found++;
        const rest = forbidden(plain, left);
        const truth = eliminatePlainly(rest);
        expect(costOf(rest, Array.from(answer.choice)), `seed ${seed}`).toBe(answer.objective);
        expect(answer.objective).toBeGreaterThanOrEqual(truth);
        expect(answer.objective).toBeLessThanOrEqual(tiedLeast(rest, width));
        if (answer.objective === truth) equal++;
      }
    }
    expect(found).toBeGreaterThanOrEqual(seeds * 2 - 1);
    expect(equal).toBeGreaterThan(found / 2);
  });

  it('does not answer for folded layers of which one keeps other values', () => {
    const { plain, width } = layered(3, 800);
    const restricted = new RestrictedSolver(new PreparedProblem(build(plain)));
    const left = plain.unary.map((u, v): AllowedValues | undefined =>
      v === 400 * width && u.length > 1 ? { id: 0, values: Int32Array.of(0) } : undefined,
    );
    expect(restricted.solve(left, () => false)).toBeUndefined();
  });

  it('leaves the prepared problem as it is: a solve with it answers as one without', () => {
    for (let seed = 1; seed <= (FULL ? 40 : 6); seed++) {
      const plain = randomProblem(seed, { most: 9, values: 4, row: true });
      const problem = build(plain);
      const prepared = new PreparedProblem(problem);
      const restricted = new RestrictedSolver(prepared);
      restricted.solve(
        randomLeft(
          mulberry32(seed),
          plain.unary.map((u) => u.length),
          (v) => v,
        ),
        () => false,
      );
      const [own, shared] = [solveNow(problem), solveNow(problem, { prepared })];
      expect([shared.status, shared.objective], `seed ${seed}`).toEqual([
        own.status,
        own.objective,
      ]);
      // What was prepared for another problem is ignored.
      const other = solveNow(build(randomProblem(seed + 1000, { most: 9, values: 4, row: true })), {
        prepared,
      });
      expect(other.objective).toBe(
        solveNow(build(randomProblem(seed + 1000, { most: 9, values: 4, row: true }))).objective,
      );
    }
  });
});
