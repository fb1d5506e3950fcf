/**
 * The contest's public files through the anytime solver. They are not ours to copy: read beside the
 * checkout, skipped without.
 */
import { existsSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

import { describe, expect, it } from 'vitest';

import { solveAnytime } from '../../../src/contest/anytime.ts';
import { costOf, usageOf } from '../../../src/contest/bound/trws.ts';
import { readIopddl } from '../../../src/contest/iopddl.ts';
import { presolve } from '../../../src/contest/model/presolve.ts';
import { firstChoice } from '../../../src/contest/run/member.ts';
import { evaluate, verifyCertificate } from '../../../src/solver/check/verify.ts';
import type { Problem } from '../../../src/solver/types.ts';
import { FULL } from '../../support/full.ts';
import { mulberry32 } from '../support.ts';

// The long runs belong to `npm run test:full`.

const FILES = new URL('../../../../shared/fixtures/iopddl/', import.meta.url);
const has = (letter: string): boolean => existsSync(new URL(`${letter}.json.gz`, FILES));
const read = (letter: string): Problem =>
  readIopddl(
    JSON.parse(gunzipSync(readFileSync(new URL(`${letter}.json.gz`, FILES))).toString('latin1')),
  );

const full = FULL;

/** Optima that others have proven or that two solvers agree on. */
const PROVEN: readonly (readonly [string, number, boolean])[] = [
  ['B', 532843, full],
  ['G', 217039, full],
  ['C', 84102392579, full],
  ['P', 651833115436, full],
];

describe('IOPDDL: public files, proven (../shared/fixtures/iopddl)', () => {
  for (const [letter, optimum, always] of PROVEN) {
    it.skipIf(!has(letter) || !always)(
      `${letter} is proven optimal with a certificate that the checker accepts`,
      async () => {
        const problem = read(letter);
        const solution = await solveAnytime(problem, { threads: 2, rounds: 8 });
        const { choice, certificate } = solution;
        expect([solution.objective, solution.bound]).toEqual([optimum, optimum]);
        expect(evaluate(problem, choice)).toMatchObject({ violations: [], cost: BigInt(optimum) });
        if (certificate === undefined) throw new Error('an optimum without certificate');
        const verdict = verifyCertificate(problem, { choice, objective: optimum, certificate });
        expect([verdict.accepted, verdict.bound]).toEqual([true, BigInt(optimum)]);
      },
      300_000,
    );
  }
});

/** Published lower bounds and best published costs: our first choice lies above, whatever else. */
const BOUNDS: readonly (readonly [string, number, number])[] = [
  ['K', 34932, 2.06562e9],
  ['S', 28526, 1.51124e9],
  ['V', 816, 1617084],
];

describe('IOPDDL: public files, reduction (../shared/fixtures/iopddl)', () => {
  for (const [letter, nodes, bound] of BOUNDS) {
    it.skipIf(!has(letter) || ('KS'.includes(letter) && !FULL))(
      `${letter} has a feasible first choice, the same in the model and the file`,
      () => {
        const problem = read(letter);
        const reduced = presolve(problem);
        if (reduced === undefined) throw new Error('it has choices');
        const { model, expand } = reduced;
        const first = firstChoice(model);
        if (first === undefined) throw new Error('least usage fits');
        expect(usageOf(model, first).every((u, t) => u <= model.capacity[t])).toBe(true);
        const choice = expand(first);
        expect(choice).toHaveLength(nodes);
        expect(evaluate(problem, choice)).toMatchObject({
          violations: [],
          cost: BigInt(costOf(model, first)),
        });
        expect(costOf(model, first)).toBeGreaterThanOrEqual(bound);
      },
    );
  }
});

/**
 * 70,000 nodes in chains with cross edges, 110,000 edges, one node with 2,000 strategies, half of
 * the pairs tied.
 */
function large(): unknown {
  const next = mulberry32(1);
  const int = (k: number): number => Math.floor(next() * k);
  const n = 70_000;
  const sizes = Array.from({ length: n }, (_, i) => (i === 0 ? 2000 : 3));
  const list = (k: number, most: number): number[] => Array.from({ length: k }, () => int(most));
  const pairs = Array.from({ length: 110_000 }, (_, e) =>
    e < n - 1 ? [e, e + 1] : [int(n - 200), 0],
  );
  pairs.forEach((pair, e) => {
    if (e >= n - 1) pair[1] = pair[0] + 1 + int(199);
  });
  const table = ([i, j]: number[]): number[] =>
    i > 0 && int(2) === 0
      ? [0, 1e18, 1e18, 1e18, 0, 1e18, 1e18, 1e18, 0]
      : list(sizes[i] * sizes[j], 1000);
  const usages = sizes.map((k) => list(k, 100).map((u) => u + 1));
  const intervals = sizes.map((_, i) => [i, i + 1 + int(20)]);
  const level = new Float64Array(n + 32);
  intervals.forEach(([lo, hi], i) => {
    for (let t = lo; t < hi; t++) level[t] += Math.max(...usages[i]);
  });
  const usage_limit = Math.ceil(level.reduce((a, b) => Math.max(a, b), 0) * 0.97);
  return {
    problem: {
      nodes: { intervals, costs: sizes.map((k) => list(k, 1000)), usages },
      edges: { nodes: pairs, costs: pairs.map(table) },
      usage_limit,
    },
  };
}

describe('IOPDDL: size', () => {
  it.runIf(full)(
    '70,000 nodes, 110,000 edges and a domain of 2,000: a checked choice and a bound',
    async () => {
      const problem = readIopddl(large());
      const solution = await solveAnytime(problem, { threads: 1, rounds: 2 });
      expect(evaluate(problem, solution.choice)).toMatchObject({
        violations: [],
        cost: BigInt(solution.objective),
      });
      expect(solution.bound).toBeGreaterThan(0);
      expect(solution.bound).toBeLessThanOrEqual(solution.objective);
      const { certificate } = solution;
      if (certificate === undefined) throw new Error('a bound without certificate');
      expect(verifyCertificate(problem, solution)).toEqual({
        accepted: true,
        bound: BigInt(solution.bound),
      });
    },
    300_000,
  );
});
