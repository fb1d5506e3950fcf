/**
 * Solves a game of two players with a matrix: one chooses rows and wants little, the other columns
 * and wants much. It gives shares of both that are close to best. The method is regret matching
 * (Tammelin, Solving large imperfect information games using CFR+, 2014): each player gives every
 * choice a share by how much it would have been better so far, in turn; the mean over all rounds,
 * later ones weighing more, comes near to the best shares. It spreads shares over choices of equal
 * worth, as no vertex of a linear program does.
 */

interface GameShares {
  /** At least 0, together 1. */
  readonly rows: Float64Array;
  readonly columns: Float64Array;
}

const ROUNDS = 1500;

export function gameShares(matrix: readonly (readonly number[])[]): GameShares {
  const [m, n] = [matrix.length, matrix[0].length];
  const rows = new Regrets(m);
  const columns = new Regrets(n);
  const rowWorth = new Float64Array(m);
  const columnWorth = new Float64Array(n);
  for (let round = 1; round <= ROUNDS; round++) {
    columnWorth.fill(0);
    for (let i = 0; i < m; i++) {
      const share = rows.shares[i];
      if (share > 0) for (let j = 0; j < n; j++) columnWorth[j] += share * matrix[i][j];
    }
    columns.learn(columnWorth, 1, round);
    for (let i = 0; i < m; i++) {
      let sum = 0;
      for (let j = 0; j < n; j++) sum += columns.shares[j] * matrix[i][j];
      rowWorth[i] = sum;
    }
    rows.learn(rowWorth, -1, round);
  }
  return { rows: rows.mean(), columns: columns.mean() };
}

class Regrets {
  readonly shares: Float64Array;
  private readonly regrets: Float64Array;
  private readonly sums: Float64Array;

  constructor(count: number) {
    this.shares = new Float64Array(count).fill(1 / count);
    this.regrets = new Float64Array(count);
    this.sums = new Float64Array(count);
  }

  /** @param sign 1: the player wants much, -1: little */
  learn(worth: Float64Array, sign: 1 | -1, weight: number): void {
    const { shares, regrets, sums } = this;
    let now = 0;
    for (let i = 0; i < shares.length; i++) now += shares[i] * worth[i];
    let total = 0;
    for (let i = 0; i < shares.length; i++)
      total += regrets[i] = Math.max(0, regrets[i] + sign * (worth[i] - now));
    for (let i = 0; i < shares.length; i++) {
      shares[i] = total > 0 ? regrets[i] / total : 1 / shares.length;
      sums[i] += weight * shares[i];
    }
  }

  mean(): Float64Array {
    const total = this.sums.reduce((a, b) => a + b, 0);
    return this.sums.map((s) => s / total);
  }
}
