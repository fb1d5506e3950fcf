import { describe, expect, it } from 'vitest';

import { gameShares } from '../../../src/solver/dual/matrix-game.ts';

/** What the columns are worth at least, and the rows at most. */
function between(matrix: readonly (readonly number[])[]): readonly [number, number] {
  const { rows, columns } = gameShares(matrix);
  expect(rows.reduce((a, b) => a + b)).toBeCloseTo(1, 12);
  expect(columns.reduce((a, b) => a + b)).toBeCloseTo(1, 12);
  const byRow = matrix.map((row) => row.reduce((sum, x, j) => sum + x * columns[j], 0));
  const byColumn = matrix[0].map((_, j) =>
    matrix.reduce((sum, row, i) => sum + row[j] * rows[i], 0),
  );
  return [Math.min(...byRow), Math.max(...byColumn)];
}

describe('a game of two players with a matrix', () => {
  it.each([
    ['one choice each', [[3]], 3],
    [
      'a saddle point',
      [
        [4, 1],
        [5, 6],
      ],
      4,
    ],
    [
      'rock, paper and scissors about 2',
      [
        [2, 3, 1],
        [1, 2, 3],
        [3, 1, 2],
      ],
      2,
    ],
    // Mixed: 4 - 2 p = 2 + 2 p at p = 1/2.
    [
      'two by two without a saddle point',
      [
        [4, 2],
        [2, 4],
      ],
      3,
    ],
    [
      'a column that is best in no row alone',
      [
        [4, 0, 2.5],
        [0, 4, 2.5],
      ],
      2.5,
    ],
  ])('%s: shares of both come within a thousandth of its value', (_, matrix, value) => {
    const [least, most] = between(matrix);
    expect(least).toBeLessThanOrEqual(value + 1e-12);
    expect(most).toBeGreaterThanOrEqual(value - 1e-12);
    expect(most - least).toBeLessThan(1e-3 * value);
  });
});
