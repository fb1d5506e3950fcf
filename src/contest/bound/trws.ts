/**
 * Lower bounds: prices on the rows (Lagrangian relaxation) over sequential tree-reweighted message
 * passing (TRW-S, V. Kolmogorov, PAMI 2006). For any prices >= 0 and any messages the sum of all
 * minima is at most the cost of every choice that keeps the rows; sweeps and price steps only make
 * it larger. Floating point: what counts is proven elsewhere.
 */
import { Arena } from '../../solver/store/kernels.ts';
import type { Model } from '../model/model.ts';

/**
 * Models with at least this many cells keep a copy where kernels reach it; sweeps of smaller ones
 * are quick anyway.
 */
const KERNEL_CELLS = 100_000;
/** Tables from this many cells on are worth the call of a kernel. */
const KERNEL_TABLE = 48;
/** Numbers past the end that a kernel may look at. */
const MARGIN = 8;

export class Dual {
  readonly model: Model;
  /** Price per row. */
  readonly lambda: Float64Array;
  /** Unary cost plus price of every value. */
  readonly priced: Float64Array;
  /**
   * Sum of the messages at every value after the last backward sweep, plus its priced cost, less
   * the least of its variable.
   */
  readonly marginal: Float64Array;
  /** Message to the first and to the second end of every edge. */
  readonly toFirst: Float64Array;
  readonly toSecond: Float64Array;
  readonly firstAt: Int32Array;
  readonly secondAt: Int32Array;
  private readonly middle: Int32Array;
  private readonly gamma: Float64Array;
  private readonly total: Float64Array;
  private readonly rest: Float64Array;
  private readonly prefix: Float64Array;
  /** 1 for every value that may be chosen; undefined where all may. */
  private live: Uint8Array | undefined;
  /** The model's cells from 0 on, then two rows of numbers, as wide as the largest variable. */
  private readonly arena: Arena | undefined;
  private readonly ownAt: number;
  private readonly leastAt: number;

  constructor(model: Model) {
    const { count, sizes, first, second, incident, edge } = model;
    this.model = model;
    this.lambda = new Float64Array(model.rows);
    this.priced = model.unary.slice();
    this.marginal = new Float64Array(model.unary.length);
    const edges = first.length;
    this.firstAt = new Int32Array(edges + 1);
    this.secondAt = new Int32Array(edges + 1);
    for (let e = 0; e < edges; e++) {
      this.firstAt[e + 1] = this.firstAt[e] + sizes[first[e]];
      this.secondAt[e + 1] = this.secondAt[e] + sizes[second[e]];
    }
    this.toFirst = new Float64Array(this.firstAt[edges]);
    this.toSecond = new Float64Array(this.secondAt[edges]);
    this.middle = new Int32Array(count);
    this.gamma = new Float64Array(count);
    let widest = 1;
    for (let i = 0; i < count; i++) {
      widest = Math.max(widest, sizes[i]);
      let earlier = 0;
      for (let k = incident[i]; k < incident[i + 1]; k++) if (second[edge[k]] === i) earlier++;
      this.middle[i] = earlier;
      this.gamma[i] = 1 / Math.max(earlier, incident[i + 1] - incident[i] - earlier, 1);
    }
    this.total = new Float64Array(widest);
    this.rest = new Float64Array(widest);
    this.prefix = new Float64Array(model.rows + 1);
    const { cells } = model;
    this.ownAt = cells.length;
    this.leastAt = cells.length + widest;
    if (cells.length < KERNEL_CELLS) return;
    this.arena = new Arena();
    this.arena.need(this.leastAt + widest + MARGIN);
    this.arena.numbers.set(cells);
  }

  /** Bounds choices of the marked values alone from the next `reprice` on. */
  restrict(live: Uint8Array): void {
    this.live = live;
  }

  /** Recomputes the priced unaries after a change of `lambda`. */
  reprice(): void {
    priceValues(this.model, this.lambda, this.prefix, this.priced);
    const live = this.live;
    if (live === undefined) return;
    for (let v = 0; v < live.length; v++) if (live[v] === 0) this.priced[v] = Infinity;
  }

  /** Sum of the messages into variable i and its priced cost, into `total`. */
  private gather(i: number): void {
    const { sizes, start, incident, edge, first } = this.model;
    const size = sizes[i];
    const total = this.total;
    const at = start[i];
    for (let a = 0; a < size; a++) total[a] = this.priced[at + a];
    for (let k = incident[i]; k < incident[i + 1]; k++) {
      const e = edge[k];
      const side = first[e] === i;
      const messages = side ? this.toFirst : this.toSecond;
      const from = side ? this.firstAt[e] : this.secondAt[e];
      for (let a = 0; a < size; a++) total[a] += messages[from + a];
    }
  }

  /**
   * Messages to the second ends as the last backward sweep left them: with `toFirst` they move cost
   * so that the bound is the sum of the least value of every variable and the least cell of every
   * edge. Not finite at values without a partner.
   */
  settled(): Float64Array {
    const { first, second, start, sizes } = this.model;
    const out = this.toSecond.slice();
    for (let e = 0; e < first.length; e++) {
      const i = second[e];
      const gamma = this.gamma[i];
      for (let a = 0; a < sizes[i]; a++)
        out[this.secondAt[e] + a] -= gamma * this.marginal[start[i] + a];
    }
    return out;
  }

  /** One forward and one backward sweep; returns the bound after the backward sweep. */
  sweep(): number {
    const { model } = this;
    const { count, first, second, incident, edge, sizes, start } = model;
    for (let i = 0; i < count; i++) {
      this.gather(i);
      const gamma = this.gamma[i];
      for (let k = incident[i]; k < incident[i + 1]; k++) {
        const e = edge[k];
        if (first[e] !== i) continue;
        this.send(
          gamma,
          sizes[i],
          this.toFirst,
          this.firstAt[e],
          this.toSecond,
          this.secondAt[e],
          sizes[second[e]],
          model.table[e],
        );
      }
    }
    let bound = model.constant;
    const total = this.total;
    for (let i = count - 1; i >= 0; i--) {
      this.gather(i);
      const size = sizes[i];
      let least = Infinity;
      for (let a = 0; a < size; a++) if (total[a] < least) least = total[a];
      const at = start[i];
      for (let a = 0; a < size; a++) {
        total[a] -= least;
        this.marginal[at + a] = total[a];
      }
      bound += least;
      const gamma = this.gamma[i];
      for (let k = incident[i]; k < incident[i + 1]; k++) {
        const e = edge[k];
        if (second[e] !== i) continue;
        bound += this.send(
          gamma,
          size,
          this.toSecond,
          this.secondAt[e],
          this.toFirst,
          this.firstAt[e],
          sizes[first[e]],
          model.transposed[e],
        );
      }
    }
    for (let t = 0; t < model.rows; t++)
      if (this.lambda[t] > 0) bound -= this.lambda[t] * model.capacity[t];
    return bound;
  }

  /**
   * Message over one edge from a side of `size` values; returns the minimum that was subtracted.
   */
  private send(
    gamma: number,
    size: number,
    back: Float64Array,
    backAt: number,
    to: Float64Array,
    toAt: number,
    width: number,
    view: number,
  ): number {
    const { cells } = this.model;
    const total = this.total;
    const rest = this.rest;
    let least = Infinity;
    if (this.arena !== undefined && size * width >= KERNEL_TABLE) {
      const { numbers, kernel } = this.arena;
      const own = this.ownAt;
      for (let a = 0; a < size; a++) numbers[own + a] = gamma * total[a] - back[backAt + a];
      const from = this.leastAt;
      kernel.send(8 * own, size, 8 * view, 8 * width, 8 * width, 8 * from);
      for (let b = 0; b < width; b++) if (numbers[from + b] < least) least = numbers[from + b];
      for (let b = 0; b < width; b++) to[toAt + b] = numbers[from + b] - least;
      return least;
    }
    for (let b = 0; b < width; b++) rest[b] = Infinity;
    for (let a = 0, at = view; a < size; a++, at += width) {
      const own = gamma * total[a] - back[backAt + a];
      if (own === Infinity) continue;
      for (let b = 0; b < width; b++) {
        const c = own + cells[at + b];
        if (c < rest[b]) rest[b] = c;
      }
    }
    for (let b = 0; b < width; b++) if (rest[b] < least) least = rest[b];
    for (let b = 0; b < width; b++) to[toAt + b] = rest[b] - least;
    return least;
  }

  /**
   * A choice by sequential rounding: each variable in order takes its best value given the decided
   * ones and the messages of the undecided ones.
   */
  decode(): Int32Array {
    const { count, sizes, start, incident, edge, other, view, first, cells } = this.model;
    const choice = new Int32Array(count);
    const total = this.total;
    for (let i = 0; i < count; i++) {
      const size = sizes[i];
      const at = start[i];
      for (let a = 0; a < size; a++) total[a] = this.priced[at + a];
      for (let k = incident[i]; k < incident[i + 1]; k++) {
        const e = edge[k];
        if (first[e] === i) {
          for (let a = 0; a < size; a++) total[a] += this.toFirst[this.firstAt[e] + a];
        } else {
          const j = other[k];
          const column = view[k] + choice[j];
          for (let a = 0; a < size; a++) total[a] += cells[column + a * sizes[j]];
        }
      }
      let best = 0;
      for (let a = 1; a < size; a++) if (total[a] < total[best]) best = a;
      choice[i] = best;
    }
    return choice;
  }

  /** The value of least marginal of every variable. */
  argmin(): Int32Array {
    const { count, sizes, start } = this.model;
    const choice = new Int32Array(count);
    for (let i = 0; i < count; i++) {
      let best = 0;
      for (let a = 1; a < sizes[i]; a++)
        if (this.marginal[start[i] + a] < this.marginal[start[i] + best]) best = a;
      choice[i] = best;
    }
    return choice;
  }
}

/** out = unary + prices: every segment charges its amounts times the prices of its rows. */
export function priceValues(
  model: Model,
  lambda: Float64Array,
  prefix: Float64Array,
  out: Float64Array,
): void {
  const { count, sizes, start, segment, lo, hi, amount, amounts } = model;
  out.set(model.unary);
  for (let t = 0; t < model.rows; t++) prefix[t + 1] = prefix[t] + lambda[t];
  for (let i = 0; i < count; i++) {
    for (let s = segment[i]; s < segment[i + 1]; s++) {
      const price = prefix[hi[s]] - prefix[lo[s]];
      if (price <= 0) continue;
      for (let a = 0, at = start[i], u = amount[s]; a < sizes[i]; a++)
        out[at + a] += price * amounts[u + a];
    }
  }
}

/** Usage of every row under a choice. */
export function usageOf(model: Model, choice: ArrayLike<number>): Float64Array {
  const { count, segment, lo, hi, amount, amounts, rows } = model;
  const usage = new Float64Array(rows + 1);
  for (let i = 0; i < count; i++) {
    for (let s = segment[i]; s < segment[i + 1]; s++) {
      const u = amounts[amount[s] + choice[i]];
      usage[lo[s]] += u;
      usage[hi[s]] -= u;
    }
  }
  for (let t = 1; t < rows; t++) usage[t] += usage[t - 1];
  return usage.subarray(0, rows);
}

/** Cost of a choice; Infinity when it is forbidden. Rows are not looked at. */
export function costOf(model: Model, choice: ArrayLike<number>): number {
  const { count, start, unary, first, second, table, cells, sizes } = model;
  let sum = model.constant;
  for (let i = 0; i < count; i++) sum += unary[start[i] + choice[i]];
  for (let e = 0; e < first.length; e++)
    sum += cells[table[e] + choice[first[e]] * sizes[second[e]] + choice[second[e]]];
  return sum;
}
