import { expect, test } from 'vitest';

import { leastUseChoice } from '../../../src/solver/milp/least-use.ts';
import { ProblemBuilder } from '../../../src/solver/problem/builder.ts';
import type { Problem } from '../../../src/solver/types.ts';

/**
 * Variables of two values, with rows over all of them.
 *
 * @param rows amounts by variable and value, and the bound
 */
function problem(
  costs: readonly (readonly number[])[],
  ...rows: readonly (readonly [amounts: readonly (readonly number[])[], bound: number])[]
): Problem {
  const builder = new ProblemBuilder();
  const variables = costs.map((own) => builder.addVariable(Float64Array.from(own)));
  rows.forEach(([amounts, bound], k) =>
    builder.addRow({
      name: `row ${k}`,
      variables: Int32Array.from(variables),
      amounts: amounts.map((own) => Float64Array.from(own)),
      bound,
    }),
  );
  return builder.build();
}

const chosen = (asked: Problem): number[] | undefined => {
  const choice = leastUseChoice(asked);
  return choice === undefined ? undefined : [...choice];
};

test('the value that uses least is taken, whatever it costs', () => {
  const costs = [
    [0, 100],
    [0, 100],
  ];
  // Both cheap values together exceed the row.
  const row = [
    [
      [6, 1],
      [6, 1],
    ],
    10,
  ] as const;
  expect(chosen(problem(costs, row))).toEqual([1, 1]);
});

test('the uses of several rows count as shares of their bounds', () => {
  // Half of the bytes against nine tenths of the slots.
  const bytes = [[[5e8, 0]], 1e9] as const;
  const slots = [[[0, 9]], 10] as const;
  expect(chosen(problem([[7, 3]], bytes, slots))).toEqual([0]);
});

test('equal uses are decided by the costs, forbidden values are none', () => {
  expect(chosen(problem([[5, 2, 9]], [[[1, 1, 1]], 1]))).toEqual([1]);
  expect(chosen(problem([[Infinity, 2, 9]], [[[0, 4, 1]], 4]))).toEqual([2]);
  expect(chosen(problem([[Infinity, Infinity]], [[[0, 0]], 4]))).toBeUndefined();
  // The least use of all breaks the row.
  expect(chosen(problem([[0, 0]], [[[5, 6]], 4]))).toBeUndefined();
});
