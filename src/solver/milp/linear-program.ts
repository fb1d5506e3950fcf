/**
 * One neutral mixed-integer program: what `encode` makes of a choice problem and what every library
 * backend and the LP writer read. Minimise constant + cost . x subject to rowLower <= A x <=
 * rowUpper, lower <= x <= upper.
 */

/**
 * A mixed-integer linear program with its matrix in compressed rows. Infinite bounds are -Infinity
 * and Infinity.
 */
export interface LinearProgram {
  readonly name: string;
  readonly constant: number;
  readonly columns: number;
  readonly rows: number;
  readonly cost: Float64Array;
  readonly lower: Float64Array;
  readonly upper: Float64Array;
  /** 1 where the column must be an integer. */
  readonly integer: Uint8Array;
  /**
   * Row r holds the entries starts[r] .. starts[r + 1] of `indices` (columns, none twice in a row)
   * and `values`.
   */
  readonly starts: Int32Array;
  readonly indices: Int32Array;
  readonly values: Float64Array;
  readonly rowLower: Float64Array;
  readonly rowUpper: Float64Array;
  readonly columnName: (column: number) => string;
  readonly rowName: (row: number) => string;
}

/** How a program was scaled: solver objective = objective * costScale. */
interface ScaledProgram {
  readonly program: LinearProgram;
  readonly costScale: number;
}

function greatestCommonDivisor(a: number, b: number): number {
  while (b !== 0) [a, b] = [b, a % b];
  return a;
}

/**
 * Largest power of two s with largest * s <= target, or 1 when nothing needs shrinking or growing.
 */
function powerScale(largest: number, target: number): number {
  return largest === 0 ? 1 : 2 ** Math.floor(Math.log2(target / largest));
}

/**
 * A copy for floating-point solvers, whose tolerances are absolute (about 1e-6 for HiGHS, 1e-8 for
 * javascript-lp-solver).
 *
 * Costs are multiplied by one power of two so that the largest is about `costTarget`. A row of
 * integers is divided by the greatest common divisor of its entries first, its bounds rounded
 * inwards (no integer point is lost: continuous columns never occur in such rows with entries
 * beyond 1), then brought to at most `rowTarget` by a power of two.
 */
export function scaled(lp: LinearProgram, costTarget: number, rowTarget: number): ScaledProgram {
  const costScale = powerScale(
    lp.cost.reduce((most, c) => Math.max(most, Math.abs(c)), 0),
    costTarget,
  );
  const values = lp.values.slice();
  const rowLower = lp.rowLower.slice();
  const rowUpper = lp.rowUpper.slice();
  for (let r = 0; r < lp.rows; r++) {
    let divisor = 0;
    let largest = 0;
    for (let k = lp.starts[r]; k < lp.starts[r + 1]; k++) {
      largest = Math.max(largest, Math.abs(values[k]));
      const whole = lp.integer[lp.indices[k]] === 1 && Number.isSafeInteger(values[k]);
      divisor = whole && divisor >= 0 ? greatestCommonDivisor(divisor, Math.abs(values[k])) : -1;
    }
    if (largest <= 1) continue;
    let factor = 1;
    if (divisor > 1) {
      for (let k = lp.starts[r]; k < lp.starts[r + 1]; k++) values[k] /= divisor;
      rowLower[r] = Math.ceil(rowLower[r] / divisor);
      rowUpper[r] = Math.floor(rowUpper[r] / divisor);
      largest /= divisor;
    }
    if (largest > rowTarget) factor = powerScale(largest, rowTarget);
    for (let k = lp.starts[r]; k < lp.starts[r + 1]; k++) values[k] *= factor;
    rowLower[r] *= factor;
    rowUpper[r] *= factor;
  }
  return {
    program: {
      ...lp,
      cost: lp.cost.map((c) => c * costScale),
      values,
      rowLower,
      rowUpper,
      constant: 0,
    },
    costScale,
  };
}
