/** Ties by preference against all choices of small random problems. */
import { expect, test } from 'vitest';

import { type Preference, preferredOptimum } from '../../src/solver/preferences.ts';
import { ProblemBuilder } from '../../src/solver/problem/builder.ts';
import type { Problem } from '../../src/solver/types.ts';
import { FULL } from '../support/full.ts';
import { mulberry32 } from './support.ts';

const SIZES = [2, 3, 2, 3, 2, 3] as const;

/** Few different costs, so that many choices tie. */
function randomProblem(random: () => number, unit = 1, forbidden = 0.1): Problem {
  const below = (n: number): number => Math.floor(random() * n);
  const cost = (n: number): number => unit * below(n);
  const builder = new ProblemBuilder();
  for (const size of SIZES) builder.addVariable(Float64Array.from({ length: size }, () => cost(2)));
  SIZES.forEach((rows, i) => {
    SIZES.forEach((columns, j) => {
      if (j <= i || random() < 0.4) return;
      const cell = (): number => (random() < forbidden ? Infinity : cost(3));
      builder.addEdge(i, j, Float64Array.from({ length: rows * columns }, cell));
    });
  });
  builder.addRow({
    name: 'row',
    variables: Int32Array.of(0, 1, 2, 3),
    amounts: SIZES.slice(0, 4).map((size) => Float64Array.from({ length: size }, () => below(4))),
    bound: 7,
  });
  return builder.build();
}

function* allChoices(): Generator<Int32Array> {
  const at = new Int32Array(SIZES.length);
  for (;;) {
    yield at.slice();
    let k = SIZES.length - 1;
    while (k >= 0 && ++at[k] === SIZES[k]) at[k--] = 0;
    if (k < 0) return;
  }
}

function costOf({ vectors, unary, edges, tables, rows = [] }: Problem, choice: Int32Array): number {
  let sum = 0;
  choice.forEach((a, i) => (sum += vectors[unary[i]][a]));
  edges.first.forEach(
    (i, e) =>
      (sum +=
        tables[edges.table[e]].costs[
          choice[i] * tables[edges.table[e]].columns + choice[edges.second[e]]
        ]),
  );
  for (const { variables, amounts, bound } of rows) {
    let used = 0;
    variables.forEach((v, k) => (used += amounts[k][choice[v]]));
    if (used > bound) return Infinity;
  }
  return sum;
}

test('the preferred choice is the least one, level by level, among all choices of least cost', () => {
  const random = mulberry32(17);
  let decided = 0;
  for (let round = 0; round < (FULL ? 200 : 60); round++) {
    const problem = randomProblem(random);
    const weights = Array.from({ length: 40 }, () => Math.floor(random() * 3));
    const levels: Preference[] = [
      {
        equal: [
          [0, 2],
          [2, 4],
          [1, 3],
        ],
      },
      { pair: (edge, a, b) => weights[(7 * edge + 3 * a + b) % 40] },
      { value: (variable, a) => weights[(5 * variable + a) % 40] },
    ];
    const amounts = (choice: Int32Array): number[] =>
      levels.map(({ equal = [], pair, value }) => {
        let sum = equal.filter(([i, j]) => choice[i] !== choice[j]).length;
        if (value !== undefined) choice.forEach((a, i) => (sum += value(i, a)));
        const { first, second } = problem.edges;
        if (pair !== undefined)
          first.forEach((i, e) => (sum += pair(e, choice[i], choice[second[e]])));
        return sum;
      });
    const least = Math.min(...Array.from(allChoices(), (choice) => costOf(problem, choice)));
    if (least === Infinity) continue;
    const optima = Array.from(allChoices()).filter((choice) => costOf(problem, choice) === least);
    const wanted = optima.map(amounts).sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2])[0];
    const found = preferredOptimum(problem, optima[optima.length - 1], least, levels);
    expect(found, `round ${round}`).toBeDefined();
    expect(costOf(problem, found!)).toBe(least);
    expect(amounts(found!), `round ${round}`).toEqual(wanted);
    if (optima.length > 1) decided++;
  }
  expect(decided).toBeGreaterThan(FULL ? 100 : 30);
});

test.each([
  [
    'with costs near the largest exact sums, which what an edge forbids outweighs',
    2 ** 47 + 1,
    0.1,
  ],
  ['with most pairs forbidden, where values without a partner are none', 1, 0.45],
])('a preferred optimum costs the least, %s', (_, unit, forbidden) => {
  const random = mulberry32(18);
  let decided = 0;
  for (let round = 0; round < (FULL ? 400 : 130); round++) {
    const problem = randomProblem(random, unit, forbidden);
    const choices = Array.from(allChoices());
    const least = Math.min(...choices.map((choice) => costOf(problem, choice)));
    if (least === Infinity) continue;
    const optimum = choices.find((choice) => costOf(problem, choice) === least)!;
    const found = preferredOptimum(problem, optimum, least, [
      { value: (variable, a) => (variable + a) % 3 },
    ]);
    if (found === undefined) continue;
    decided++;
    expect(costOf(problem, found), `round ${round}`).toBe(least);
  }
  expect(decided).toBeGreaterThan(FULL ? 30 : 10);
});
