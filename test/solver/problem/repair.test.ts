import { describe, expect, it } from 'vitest';

import { evaluate } from '../../../src/solver/check/verify.ts';
import { repairRows } from '../../../src/solver/problem/repair.ts';
import { build, type PlainProblem } from '../support.ts';

/**
 * Two layers of a large and a small value each; the large one is cheaper and needs the next to be
 * large too.
 */
const rows = [
  {
    name: 'memory',
    variables: [0, 1],
    amounts: [
      [10, 2],
      [10, 2],
    ],
    bound: 12,
  },
];
const layers: PlainProblem = {
  unary: [
    [0, 4],
    [0, 9],
  ],
  edges: [[0, 1, [0, 3, 3, 0]]],
  rows,
};

describe('repair of a choice that breaks a row', () => {
  it('takes the move that costs least for what it takes less', () => {
    expect(repairRows(build(layers), Int32Array.of(0, 0))).toEqual(Int32Array.of(1, 0));
  });

  it('counts what a move costs beside the moves before it', () => {
    const problem = build({ ...layers, rows: rows.map((row) => ({ ...row, bound: 4 })) });
    const kept = repairRows(problem, Int32Array.of(0, 0));
    expect(kept).toEqual(Int32Array.of(1, 1));
    expect(evaluate(problem, kept ?? [])).toMatchObject({ cost: 13n, violations: [] });
  });

  it('gives the choice itself where it keeps the rows, and nothing where no move helps', () => {
    const choice = Int32Array.of(1, 0);
    expect(repairRows(build(layers), choice)).toBe(choice);
    const forbidden = {
      ...layers,
      unary: [
        [0, Infinity],
        [0, Infinity],
      ],
    };
    expect(repairRows(build(forbidden), Int32Array.of(0, 0))).toBeUndefined();
  });

  it('is not an answer where it breaks another row', () => {
    const other = { name: 'other', variables: [0], amounts: [[0, 1]], bound: 0 };
    expect(
      repairRows(build({ ...layers, rows: [...rows, other] }), Int32Array.of(0, 0)),
    ).toBeUndefined();
  });
});
