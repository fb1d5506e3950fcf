/**
 * The five-node instance of XLA's auto-sharding solver tests, as far as the solver's
 * own types express it.
 */
import { describe, expect, it } from 'vitest';

import { evaluate } from '../../../src/solver/check/verify.ts';
import { HIGHS } from '../../../src/solver/milp/highs.ts';
import { JSLP } from '../../../src/solver/milp/jslp.ts';
import { consult } from '../../../src/solver/milp/verdict.ts';
import { solve } from '../../../src/solver/solve.ts';
import { build, exhaust, type PlainProblem } from '../support.ts';

const [A, B, C, D, E] = [0, 1, 2, 3, 4];
const computation = [
  [10, 11, 12, 13],
  [20, 21, 22],
  [30, 31, 32, 33],
  [40, 41, 42, 43],
  [50, 51, 52],
];
const communication = [
  [100, 110, 120, 130],
  [200, 210, 220],
  [300, 310, 320, 330],
  [400, 410, 420, 430],
  [500, 510, 520],
];
const memory = [
  [100000, 110000, 990000, 130000],
  [200000, 210000, 220000],
  [300000, 310000, 320000, 330000],
  [400000, 410000, 420000, 430000],
  [500000, 510000, 520000],
];
const intervals = [
  [0, 5],
  [0, 5],
  [2, 4],
  [3, 5],
  [0, 0],
];

/** Row a of a table: first + step * a + {0, 100, 200, 300}. */
const ramp = (rows: number, first: number): number[] =>
  Array.from({ length: rows * 4 }, (_, c) => first + 1000 * Math.floor(c / 4) + 100 * (c % 4));
const equal = (k: number): number[] =>
  Array.from({ length: k * k }, (_, c) => (Math.floor(c / k) === c % k ? 0 : Infinity));

const unary = computation.map((row, i) => row.map((c, a) => c + communication[i][a]));
const X1: PlainProblem = {
  unary,
  edges: [
    [A, C, ramp(4, 1000)],
    [B, C, ramp(3, 5000)],
    [C, D, equal(4)],
    [B, E, equal(3)],
  ],
  pieces: memory.map((amounts, variable) => ({
    variable,
    lo: intervals[variable][0],
    hi: intervals[variable][1],
    amounts,
  })),
  limit: 1500000,
};
const departures = {
  name: 'departures',
  variables: [A, B, C, D, E],
  amounts: unary.map((row) => row.map((_, a) => (a === 1 ? 0 : 1))),
};
const replaceUnary = (i: number, values: readonly number[]): PlainProblem => ({
  ...X1,
  unary: unary.map((u, v) => (v === i ? values : u)),
});
const forbidCell = (edge: number, cell: number): PlainProblem => ({
  ...X1,
  edges: X1.edges.map(([i, j, t], e) => [
    i,
    j,
    e === edge ? t.map((w, c) => (c === cell ? Infinity : w)) : t,
  ]),
});

/** X7: constant costs, two places where another choice costs more, an alias that is not an equality. */
const X7: PlainProblem = {
  unary: [
    [110, 110, 110, 110],
    [220, 220, 220],
    [330, 330, 330, 331, 330, 330, 330],
    [440, 440, 440, 440, 440, 440, 450],
    [550, 550, 550],
  ],
  edges: [
    [
      A,
      C,
      [1000, 2000, 3000, 4000].flatMap((w, a) =>
        Array.from({ length: 7 }, (_, c) => (a === 2 && c === 4 ? 3100 : w)),
      ),
    ],
    [B, C, [5000, 6000, 7000].flatMap((w) => new Array<number>(7).fill(w))],
    [C, D, equal(7)],
    [
      C,
      E,
      Array.from({ length: 7 }, (_, c) =>
        c === 5 ? [Infinity, 0, Infinity] : [0, Infinity, 0],
      ).flat(),
    ],
  ],
  pieces: [
    { variable: A, lo: 0, hi: 5, amounts: [10000, 10000, 10000, 10000] },
    { variable: B, lo: 0, hi: 5, amounts: [20000, 20000, 20000] },
    { variable: C, lo: 2, hi: 4, amounts: [30000, 30000, 30000, 31000, 30000, 30000, 30000] },
    { variable: D, lo: 3, hi: 5, amounts: new Array<number>(7).fill(40000) },
    { variable: E, lo: 0, hi: 0, amounts: [50000, 50000, 50000] },
  ],
  limit: 1500000,
};

const CASES: readonly (readonly [string, PlainProblem, number, readonly number[]])[] = [
  ['X1: as is', X1, 7650, [0, 0, 0, 0, 0]],
  [
    'X3: at most 3 departures',
    { ...X1, rows: [{ ...departures, bound: 3 }] },
    7872,
    [0, 0, 1, 1, 0],
  ],
  [
    'X4: A[0..2] forbidden',
    replaceUnary(A, [Infinity, Infinity, Infinity, 143]),
    10683,
    [3, 0, 0, 0, 0],
  ],
  ['X5: cell (A,C)[0][0] forbidden', forbidCell(0, 0), 7872, [0, 0, 1, 1, 0]],
  [
    'X6: an edge (B,D) that folds through the follow',
    { ...X1, edges: [...X1.edges, [B, D, ramp(3, 5000)]] },
    12650,
    [0, 0, 0, 0, 0],
  ],
  ['X7: the second instance', X7, 7650, [0, 0, 0, 0, 0]],
  [
    'X15: an edge (C,D) that collapses inside the follow set',
    {
      ...X1,
      edges: [
        ...X1.edges,
        [
          C,
          D,
          [
            9000, 5100, 5200, 5300, 6000, 6100, 6200, 6300, 7000, 7100, 7200, 7300, 8000, 8100,
            8200, 8300,
          ],
        ],
      ],
    },
    13972,
    [0, 0, 1, 1, 0],
  ],
];

describe('the XLA instance', () => {
  it.each(CASES)('%s', async (_, plain, optimum, first) => {
    const all = exhaust(plain);
    expect(all.objective).toBe(optimum);
    expect(all.choices[0]).toEqual(first);
    for (const compress of [false, true]) {
      const problem = build(plain, compress);
      const solution = await solve(problem);
      expect(solution).toMatchObject({ status: 'optimal', objective: optimum, bound: optimum });
      expect(all.choices).toContainEqual([...solution.choice]);
      if (solution.ties === 'lexicographic') expect([...solution.choice]).toEqual(first);
      for (const backend of [HIGHS, JSLP]) {
        const verdict = await consult(problem, backend);
        expect(verdict.objective, `${backend.library}: ${verdict.word}`).toBe(optimum);
      }
    }
  });

  it('X2: a limit below every choice is infeasible, one of 1000000 is not', async () => {
    expect((await solve(build({ ...X1, limit: 100000 }))).status).toBe('infeasible');
    expect((await solve(build({ ...X1, limit: 999999 }))).status).toBe('infeasible');
    expect((await solve(build({ ...X1, limit: 1000000 }))).status).toBe('optimal');
    for (const engine of ['highs', 'javascript-lp-solver'] as const) {
      const solution = await solve(build({ ...X1, limit: 100000 }), { engine });
      expect(solution.status).toBe('infeasible');
      expect(solution.evidence?.join()).toMatch(/nfeasible/);
    }
  });

  it('in instance X7 nine choices tie', () => {
    const { choices } = exhaust(X7);
    expect(choices).toHaveLength(9);
    expect(choices).toContainEqual([0, 0, 5, 5, 1]);
  });

  it('X9, X10: the evaluator names every violation', () => {
    const ok = evaluate(build(X1), [3, 1, 2, 2, 1]);
    expect(ok).toMatchObject({ violations: [], unaryCost: 1749n, edgeCost: 10400n, cost: 12149n });
    const codes = (plain: PlainProblem, choice: number[]): unknown[] =>
      evaluate(build(plain), choice).violations.map((v) => [
        v.code,
        'edge' in v ? v.edge : 'variable' in v ? v.variable : '',
      ]);
    expect(codes(X1, [3, 1, 2, 1, 1])).toEqual([['forbidden-edge', 2]]);
    expect(codes(X1, [3, 1, 2, 2, 0])).toEqual([['forbidden-edge', 3]]);
    const over = evaluate(build(X1), [2, 1, 2, 2, 1]);
    expect(over.violations.map((v) => v.code)).toEqual(['memory']);
    expect([over.cost, over.peak]).toEqual([11138n, 1940000n]);
    expect(codes(replaceUnary(A, [Infinity, Infinity, Infinity, 143]), [0, 1, 2, 2, 1])).toEqual([
      ['forbidden-node', A],
    ]);
    expect(codes(forbidCell(0, 2), [0, 1, 2, 2, 1])).toEqual([['forbidden-edge', 0]]);
  });

  it('X16: departures as the objective reach 0 at (1,1,1,1,1); a start does not change X1', async () => {
    const fewest = {
      ...X1,
      unary: departures.amounts,
      edges: X1.edges.map(([i, j, t]): PlainProblem['edges'][number] => [
        i,
        j,
        t.map((w) => (w === Infinity ? w : 0)),
      ]),
    };
    const solution = await solve(build(fewest));
    expect([solution.objective, [...solution.choice]]).toEqual([0, [1, 1, 1, 1, 1]]);
    const hinted = await solve(build(X1), { starts: [Int32Array.of(1, 0, 0, 0, 0)] });
    expect([hinted.objective, [...hinted.choice]]).toEqual([7650, [0, 0, 0, 0, 0]]);
  });
});
