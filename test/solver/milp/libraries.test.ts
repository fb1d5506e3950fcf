import { describe, expect, it } from 'vitest';

import { evaluate } from '../../../src/solver/check/verify.ts';
import { solveWithLibrary, withSecondOpinion } from '../../../src/solver/milp/dispatch.ts';
import {
  decodeColumns,
  encode,
  encodeChoice,
  programSize,
} from '../../../src/solver/milp/encode.ts';
import { HIGHS } from '../../../src/solver/milp/highs.ts';
import { JSLP } from '../../../src/solver/milp/jslp.ts';
import { askLibrary } from '../../../src/solver/milp/library.ts';
import { type LinearProgram, scaled } from '../../../src/solver/milp/linear-program.ts';
import { consult, TooLargeForLibrary } from '../../../src/solver/milp/verdict.ts';
import { ProblemBuilder } from '../../../src/solver/problem/builder.ts';
import { solve, solveNow } from '../../../src/solver/solve.ts';
import type { Solution } from '../../../src/solver/types.ts';
import { FULL } from '../../support/full.ts';
import {
  build,
  enumerate,
  exhaust,
  limitedInstance,
  mulberry32,
  type PlainProblem,
  randomProblem,
} from '../support.ts';

/** Rounds costs in seconds to integer units; Infinity stays. */
function toUnits(seconds: Float64Array, scale: number): Float64Array {
  return seconds.map((s) => (s === Infinity ? Infinity : Math.round(s * scale)));
}

/**
 * Integer units per second for a problem whose costs are in seconds: the largest power of two for
 * which `largestTotal` (an upper bound of any choice's total, e.g. the sum of all largest finite
 * costs) stays below 2^52 units.
 */
function unitsPerSecond(largestTotal: number): number {
  if (!(largestTotal >= 0) || largestTotal === Infinity)
    throw new Error('internal: unitsPerSecond needs a finite total');
  if (largestTotal === 0) return 1;
  const exponent = Math.floor(Math.log2(2 ** 52 / largestTotal));
  let scale = 2 ** exponent;
  while (largestTotal * scale >= 2 ** 52) scale /= 2;
  return scale;
}

const BACKENDS = [HIGHS, JSLP];

/** A program by hand: rows are [coefficients, lower, upper]. */
function program(
  cost: number[],
  upper: number[],
  rows: readonly (readonly [number[], number, number])[],
): LinearProgram {
  const columns = cost.length;
  const indices = rows.flatMap(([r]) => r.flatMap((c, j) => (c === 0 ? [] : [j])));
  const values = rows.flatMap(([r]) => r.filter((c) => c !== 0));
  const counts = rows.map(([r]) => r.filter((c) => c !== 0).length);
  return {
    name: 'by hand',
    constant: 0,
    columns,
    rows: rows.length,
    cost: Float64Array.from(cost),
    lower: new Float64Array(columns),
    upper: Float64Array.from(upper),
    integer: new Uint8Array(columns).fill(1),
    starts: Int32Array.from([
      0,
      ...counts.map((_, r) => counts.slice(0, r + 1).reduce((a, b) => a + b, 0)),
    ]),
    indices: Int32Array.from(indices),
    values: Float64Array.from(values),
    rowLower: Float64Array.from(rows, (r) => r[1]),
    rowUpper: Float64Array.from(rows, (r) => r[2]),
    columnName: (j) => 'xyzuvw'[j],
    rowName: (r) => `c${r}`,
  };
}

/**
 * A chain with chords: 50 variables of 4 values under one memory row, its bound a third of the way
 * up.
 */
function hard(n = 50, chord = 7): PlainProblem {
  const next = mulberry32(7);
  const int = (n: number): number => Math.floor(next() * n);
  const unary = Array.from({ length: n }, () => Array.from({ length: 4 }, () => int(100)));
  const edges = Array.from({ length: n }, (_, i) =>
    [i + 1, i + chord].filter((j) => j < n).map((j) => [i, j] as const),
  )
    .flat()
    .map(([i, j]): [number, number, number[]] => [
      i,
      j,
      Array.from({ length: 16 }, () => int(100)),
    ]);
  const amounts = unary.map(() => Array.from({ length: 4 }, () => (1 + int(80)) * 2 ** 30));
  const least = amounts.reduce((s, u) => s + Math.min(...u), 0);
  const most = amounts.reduce((s, u) => s + Math.max(...u), 0);
  const variables = unary.map((_, i) => i);
  return {
    unary,
    edges,
    rows: [{ name: 'memory', variables, amounts, bound: least + Math.floor((most - least) / 3) }],
  };
}

describe('adapters', () => {
  it.each(BACKENDS)(
    '$library: x + y = 1, 81e9 x + 40e9 y <= 80e9 is feasible with y = 1',
    async (backend) => {
      const plain = {
        unary: [[0, 5]],
        edges: [],
        rows: [{ name: 'memory', variables: [0], amounts: [[81e9, 40e9]], bound: 80e9 }],
      };
      const verdict = await consult(build(plain), backend);
      expect([verdict.objective, [...(verdict.choice ?? [])]]).toEqual([5, [1]]);
      const raw = program(
        [0, 5],
        [1, 1],
        [
          [[1, 1], 1, 1],
          [[81e9, 40e9], -Infinity, 80e9],
        ],
      );
      const answer = await askLibrary(
        backend.library,
        scaled(raw, backend.costTarget, backend.rowTarget).program,
      );
      expect([...(answer.values ?? [])].map(Math.round)).toEqual([0, 1]);
    },
  );

  it.each(BACKENDS)('$library: an objective of 3e-9 s survives', async (backend) => {
    const seconds = [Float64Array.of(5e-9, 3e-9, 4e-9), Float64Array.of(0, 1e-9)];
    const scale = unitsPerSecond(6e-9);
    const b = new ProblemBuilder();
    for (const s of seconds) b.addVariable(toUnits(s, scale));
    b.addEdge(0, 1, Float64Array.of(0, 0, Math.round(1e-9 * scale), 0, 0, 0));
    const verdict = await consult(b.build(), backend);
    // 4e-9 with no edge cost ties with 3e-9 + 1e-9: both are 4e-9.
    expect((verdict.objective ?? 0) / scale).toBeCloseTo(4e-9, 16);
    const raw = program([5e-9, 3e-9], [1, 1], [[[1, 1], 1, 1]]);
    const answer = await askLibrary(
      backend.library,
      scaled(raw, backend.costTarget, backend.rowTarget).program,
    );
    expect([...(answer.values ?? [])].map(Math.round)).toEqual([0, 1]);
  });

  it.each(BACKENDS)(
    '$library: X14, max x + 2y under 6x + 2y <= 19, x <= 3, y <= 2',
    async (backend) => {
      const raw = program([-1, -2], [3, 2], [[[6, 2], -Infinity, 19]]);
      const answer = await askLibrary(
        backend.library,
        scaled(raw, backend.costTarget, backend.rowTarget).program,
      );
      expect([...(answer.values ?? [])].map((x) => Math.round(x * 1e6) / 1e6)).toEqual([2, 2]);
    },
  );

  it('javascript-lp-solver: 200 binaries and a memory row: a checked choice and a bound soon after the time limit', async () => {
    const problem = build(hard());
    const timeLimitSeconds = FULL ? 1 : 0.25;
    const began = performance.now();
    const solution = await solve(problem, { engine: 'javascript-lp-solver', timeLimitSeconds });
    expect((performance.now() - began) / 1000).toBeLessThan(timeLimitSeconds + 1);
    expect(evaluate(problem, solution.choice)).toMatchObject({
      violations: [],
      cost: BigInt(solution.objective),
    });
    expect(solution.bound).toBeGreaterThan(0);
    expect(solution.bound).toBeLessThanOrEqual(solution.objective);
    expect(solution.evidence?.join('; ')).toContain('javascript-lp-solver');
    // Whatever the library claims at its time limit, only a closed bound of our own makes an answer
    // optimal.
    expect(solution.status).toBe(solution.bound >= solution.objective ? 'optimal' : 'feasible');
  });

  it('javascript-lp-solver: a late answer is rejected or checked, never taken at its word', async () => {
    const problem = build(hard());
    const verdict = await consult(problem, JSLP, { timeLimitSeconds: FULL ? 0.2 : 0.1 });
    expect(verdict.seconds).toBeLessThan(2);
    if (verdict.choice === undefined)
      expect(verdict.word).toMatch(/rejected|terminated|infeasible/);
    else
      expect(evaluate(problem, verdict.choice)).toMatchObject({
        violations: [],
        cost: BigInt(verdict.objective ?? -1),
      });
  });

  it('HiGHS and our engine agree on a smaller one', async () => {
    const problem = build(hard(FULL ? 30 : 20, 4));
    const verdict = await consult(problem, HIGHS, { timeLimitSeconds: 60 });
    const ours = await solve(problem, { engine: 'exact' });
    expect(verdict.word).toBe('Optimal');
    expect([ours.status, ours.objective]).toEqual(['optimal', verdict.objective]);
  });

  it('HiGHS: improving choices are reported while it runs, an abort ends it at once with the last of them', async () => {
    const problem = build(hard());
    const abort = new AbortController();
    const seen: number[] = [];
    let abortedAt = Infinity;
    const verdict = await consult(problem, HIGHS, {
      timeLimitSeconds: 60,
      signal: abort.signal,
      onChoice: (choice, objective) => {
        expect(evaluate(problem, choice)).toMatchObject({
          violations: [],
          cost: BigInt(objective),
        });
        seen.push(objective);
        if (seen.length > 1) return;
        abortedAt = performance.now();
        abort.abort();
      },
    });
    expect(performance.now() - abortedAt).toBeLessThan(200);
    expect(verdict.word).toBe('stopped by the caller');
    expect(verdict.objective).toBe(Math.min(...seen));
  });

  it('refuses a problem above the size guard with its counts, before allocating the program', async () => {
    const cells = new Float64Array(1_000_000).map((_, c) => (c * 7919) % 1009);
    const b = new ProblemBuilder();
    b.addVariable(new Float64Array(1000));
    b.addVariable(new Float64Array(1000));
    b.addEdge(0, 1, cells);
    const problem = b.build();
    for (const [engine, expected] of [
      ['highs', '2000 binaries, 1002000 columns'],
      ['javascript-lp-solver', 'at most 500 binaries, 7000 columns'],
    ] as const) {
      const before = process.memoryUsage().arrayBuffers;
      const refusal = solve(problem, { engine });
      await expect(refusal).rejects.toThrow(TooLargeForLibrary);
      await expect(refusal).rejects.toThrow(expected);
      expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(4e6);
    }
  });
});

describe('bounds and words', () => {
  const lying =
    (objective: number, bound: number): ((p: unknown) => Solution) =>
    () => ({
      status: objective === bound ? 'optimal' : 'feasible',
      choice: new Int32Array(0),
      objective: Infinity,
      bound,
      gap: 0,
      solver: 'elimination',
      seconds: 0,
      statistics: {},
      ties: 'engine',
    });

  it('a library alone is never optimal: with a weak bound of ours its optimum is feasible', async () => {
    const plain = limitedInstance(3);
    const optimum = exhaust(plain).objective;
    for (const engine of ['highs', 'javascript-lp-solver'] as const) {
      const solution = await solveWithLibrary(
        engine,
        build(plain),
        {},
        lying(optimum, optimum - 50),
      );
      expect(solution).toMatchObject({
        status: 'feasible',
        objective: optimum,
        bound: optimum - 50,
        solver: engine,
      });
      expect(solution.gap).toBeCloseTo(50 / optimum, 12);
    }
  });

  it('a bound of ours above a checked choice is shown as an internal error and not claimed', async () => {
    const plain = limitedInstance(3);
    const optimum = exhaust(plain).objective;
    const solution = await solveWithLibrary(
      'highs',
      build(plain),
      {},
      lying(optimum + 9, optimum + 9),
    );
    expect(solution).toMatchObject({ status: 'feasible', objective: optimum });
    expect(solution.bound).toBeLessThanOrEqual(optimum);
    expect(solution.evidence?.join()).toContain('internal error');
  });

  it('the second opinion refutes a wrong optimum of ours, and agrees on an infeasible problem', async () => {
    const { limit: _limit, pieces: _pieces, ...free } = limitedInstance(1);
    const problem = build(free);
    const ours = solveNow(problem);
    expect((await withSecondOpinion(problem, ours)).secondOpinion).toBe(
      'javascript-lp-solver agrees: 487',
    );
    const worse = { ...ours, objective: 500, bound: 500 };
    const refuted = await withSecondOpinion(problem, worse);
    expect(refuted).toMatchObject({ status: 'feasible', objective: 487 });
    expect(refuted.evidence?.join()).toContain('internal error');
    const impossible = build({
      unary: [
        [0, 1],
        [0, 1],
      ],
      edges: [
        [0, 1, [Infinity, 1, 1, Infinity]],
        [0, 1, [0, Infinity, Infinity, 0]],
      ],
    });
    const none = await solve(impossible);
    expect(none.status).toBe('infeasible');
    expect(none.secondOpinion).toBe('javascript-lp-solver agrees: infeasible');
  });

  it('no second opinion where a row can bind, and none with the engine `exact`', async () => {
    expect((await solve(build(limitedInstance(1)))).evidence).toBeUndefined();
    const { limit: _limit, pieces: _pieces, ...free } = limitedInstance(1);
    expect((await solve(build(free), { engine: 'exact' })).evidence).toBeUndefined();
  });
});

describe('encode', () => {
  it('starts decode to themselves, cost what the checker says and keep every row, with and without classes', () => {
    for (let seed = 0; seed < 60; seed++) {
      const plain = randomProblem(seed, { most: 7, values: 4, row: true, usage: true });
      const best = enumerate(plain) < Infinity ? exhaust(plain).choices[0] : undefined;
      if (best === undefined) continue;
      for (const compress of [false, true]) {
        const problem = build(plain, compress);
        const lp = encode(problem);
        const x = encodeChoice(problem, lp, Int32Array.from(best));
        expect([...(decodeColumns(problem, lp, x) ?? [])]).toEqual(best);
        const cost = lp.cost.reduce((s, c, j) => s + c * x[j], lp.constant);
        expect(cost).toBe(Number(evaluate(problem, best).cost));
        for (let r = 0; r < lp.rows; r++) {
          let sum = 0;
          for (let k = lp.starts[r]; k < lp.starts[r + 1]; k++)
            sum += lp.values[k] * x[lp.indices[k]];
          expect(sum, lp.rowName(r)).toBeGreaterThanOrEqual(lp.rowLower[r]);
          expect(sum, lp.rowName(r)).toBeLessThanOrEqual(lp.rowUpper[r]);
        }
        const size = programSize(problem);
        expect([size.columns, size.binaries]).toEqual([lp.columns, lp.choiceVariable.length]);
        expect(lp.rows).toBeLessThanOrEqual(size.rows);
        expect(lp.values.length).toBeLessThanOrEqual(size.nonzeros);
      }
    }
  });

  it('fractional, partial and double answers are not a choice', () => {
    const problem = build({
      unary: [
        [0, 1],
        [0, 1],
      ],
      edges: [],
    });
    const lp = encode(problem);
    expect(decodeColumns(problem, lp, [1, 0, 0, 1])).toEqual(Int32Array.of(0, 1));
    expect(decodeColumns(problem, lp, [0.999999, 1e-7, 0, 1])).toEqual(Int32Array.of(0, 1));
    for (const values of [
      [0.5, 0.5, 0, 1],
      [0, 0, 0, 1],
      [1, 1, 0, 1],
      [2, 0, 0, 1],
      [NaN, 0, 0, 1],
    ]) {
      expect(decodeColumns(problem, lp, values)).toBeUndefined();
    }
  });

  it('leaves out forbidden values and cells, zero and separable edges', () => {
    const problem = build({
      unary: [
        [0, Infinity, 2],
        [0, 0],
        [0, 0],
        [5, 5, 5],
      ],
      edges: [
        [0, 1, [1, 2, 3, 4, 6, 8]], // separable over the live values? rows 0 and 2: 1,2 and 6,8: no
        [1, 2, [1, 3, 2, 4]], // separable
        [2, 3, [0, 0, 0, 0, 0, 0]], // zero
        [1, 1, [7, 9, 9, Infinity]], // with itself: forbids value 1
      ],
    });
    const lp = encode(problem);
    expect(lp.choiceVariable).toHaveLength(2 + 1 + 2 + 3);
    expect(lp.columns - lp.choiceVariable.length).toBe(2);
    expect(Array.from({ length: lp.columns }, (_, j) => lp.columnName(j)).slice(-2)).toEqual([
      'y_0_0_0',
      'y_0_2_0',
    ]);
  });
});
