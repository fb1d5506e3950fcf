/**
 * Reduced-cost fixing on the search model: what a value, or a pair of values on an edge, must cost
 * at least under the prices and messages of a bound. Whatever exceeds the distance to the incumbent
 * is in no better choice and can go.
 *
 * Floating point: the numbers steer a finisher and prove nothing. What is proven is derived again
 * in integers elsewhere.
 */
import { Dual } from '../bound/trws.ts';
import type { Model } from '../model/model.ts';
import type { BoundReport } from '../run/member.ts';

/** Prices and messages of a bound: what fixing starts from. */
export type BoundSource = Pick<BoundReport, 'lambda' | 'toFirst' | 'toSecond'>;

/**
 * A model with its costs moved by prices and messages so that all of them are at least zero, and
 * what was fixed.
 */
export interface Fixed {
  readonly model: Model;
  /** Lower bound of the model: what every choice pays before the costs below. */
  readonly bound: number;
  readonly lambda: Float64Array;
  /** Cost of every value beyond the least one of its variable; values as in `model.start`. */
  readonly unary: Float64Array;
  /**
   * Cost of every pair of values beyond the least one of its edge; edge e begins at `cellAt[e]`,
   * row-major.
   */
  readonly cells: Float64Array;
  readonly cellAt: Int32Array;
  /** 1 for values and pairs that may be in a choice below the limit. */
  readonly liveValue: Uint8Array;
  readonly liveCell: Uint8Array;
}

/** Sweeps that settle the messages before they are used. */
const SWEEPS = 2;
/** Deletions start this far beyond the limit, in parts of the objective: a margin for rounding. */
const ROOM = 1e-12;

/**
 * Fixes against a limit: every choice of the model that keeps its rows and costs at most `limit`
 * uses live values and live pairs only. `choice`, if given, stays live whatever it costs (the
 * incumbent itself costs more than the limit).
 */
export function fix(
  model: Model,
  source: BoundSource,
  limit: number,
  choice?: ArrayLike<number>,
): Fixed {
  const dual = new Dual(model);
  dual.lambda.set(source.lambda);
  dual.toFirst.set(source.toFirst);
  dual.toSecond.set(source.toSecond);
  dual.reprice();
  for (let k = 0; k < SWEEPS; k++) dual.sweep();
  const shifted = shift(dual);
  const { bound, unary, cells, cellAt } = shifted;
  const { count, start, sizes, first, second } = model;
  const room = limit - bound + ROOM * Math.max(1, Math.abs(limit));
  // Least cost of every row and column of an edge: what the edge adds when one end is forced.
  const [byFirst, bySecond] = sides(dual, shifted);
  const forced = unary.slice();
  first.forEach((i, e) => {
    const j = second[e];
    for (let a = 0; a < sizes[i]; a++) forced[start[i] + a] += byFirst[dual.firstAt[e] + a];
    for (let b = 0; b < sizes[j]; b++) forced[start[j] + b] += bySecond[dual.secondAt[e] + b];
  });
  const liveValue = new Uint8Array(start[count]);
  for (let v = 0; v < liveValue.length; v++) liveValue[v] = forced[v] <= room ? 1 : 0;
  const liveCell = new Uint8Array(cells.length);
  first.forEach((i, e) => {
    const j = second[e];
    for (let a = 0, at = cellAt[e]; a < sizes[i]; a++) {
      const own = forced[start[i] + a] - byFirst[dual.firstAt[e] + a];
      for (let b = 0; b < sizes[j]; b++, at++) {
        const both = own + forced[start[j] + b] - bySecond[dual.secondAt[e] + b] + cells[at];
        const ends = liveValue[start[i] + a] + liveValue[start[j] + b];
        liveCell[at] = ends === 2 && both <= room ? 1 : 0;
      }
    }
  });
  if (choice !== undefined) {
    for (let i = 0; i < count; i++) liveValue[start[i] + choice[i]] = 1;
    first.forEach(
      (i, e) => (liveCell[cellAt[e] + choice[i] * sizes[second[e]] + choice[second[e]]] = 1),
    );
  }
  return { model, bound, lambda: dual.lambda, unary, cells, cellAt, liveValue, liveCell };
}

type Shifted = Pick<Fixed, 'bound' | 'unary' | 'cells' | 'cellAt'>;

/** Moves the messages into the variables and all minima into the bound. */
function shift(dual: Dual): Shifted {
  const { model, toFirst, firstAt, secondAt, lambda } = dual;
  const { count, start, sizes, first, second, table, cells: from, capacity } = model;
  const toSecond = dual.settled();
  const unary = dual.priced.slice();
  const cellAt = new Int32Array(first.length + 1);
  for (let e = 0; e < first.length; e++)
    cellAt[e + 1] = cellAt[e] + sizes[first[e]] * sizes[second[e]];
  const cells = new Float64Array(cellAt[first.length]);
  let bound = model.constant;
  for (let t = 0; t < model.rows; t++) if (lambda[t] > 0) bound -= lambda[t] * capacity[t];
  for (let e = 0; e < first.length; e++) {
    const [i, j] = [first[e], second[e]];
    for (let a = 0; a < sizes[i]; a++) unary[start[i] + a] += toFirst[firstAt[e] + a];
    for (let b = 0; b < sizes[j]; b++) unary[start[j] + b] += toSecond[secondAt[e] + b];
    for (let a = 0, at = cellAt[e]; a < sizes[i]; a++)
      for (let b = 0; b < sizes[j]; b++, at++)
        cells[at] = lowered(
          from[table[e] + a * sizes[j] + b],
          toFirst[firstAt[e] + a],
          toSecond[secondAt[e] + b],
        );
    bound += settleLeast(cells, cellAt[e], cellAt[e + 1]);
  }
  for (let i = 0; i < count; i++) bound += settleLeast(unary, start[i], start[i + 1]);
  return { bound, unary, cells, cellAt };
}

/** Cell less its messages; an end that cannot be chosen at all has an infinite one. */
function lowered(cell: number, x: number, y: number): number {
  return cell === Infinity || x === Infinity || y === Infinity ? Infinity : cell - x - y;
}

/** Subtracts the least of a range from all of it and returns it. */
function settleLeast(values: Float64Array, from: number, to: number): number {
  let least = Infinity;
  for (let k = from; k < to; k++) if (values[k] < least) least = values[k];
  if (least === Infinity) return Infinity;
  for (let k = from; k < to; k++) values[k] -= least;
  return least;
}

/** Least cell of every row (by `firstAt`) and column (by `secondAt`) of every edge. */
function sides(dual: Dual, { cells, cellAt }: Shifted): [Float64Array, Float64Array] {
  const { sizes, first, second } = dual.model;
  const byFirst = new Float64Array(dual.toFirst.length).fill(Infinity);
  const bySecond = new Float64Array(dual.toSecond.length).fill(Infinity);
  for (let e = 0; e < first.length; e++) {
    const [x, y] = [dual.firstAt[e], dual.secondAt[e]];
    for (let a = 0, at = cellAt[e]; a < sizes[first[e]]; a++) {
      for (let b = 0; b < sizes[second[e]]; b++, at++) {
        if (cells[at] < byFirst[x + a]) byFirst[x + a] = cells[at];
        if (cells[at] < bySecond[y + b]) bySecond[y + b] = cells[at];
      }
    }
  }
  return [byFirst, bySecond];
}
