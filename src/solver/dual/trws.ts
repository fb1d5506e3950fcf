/**
 * Dual ascent by sequential message passing (TRW-S, V. Kolmogorov, "Convergent tree-reweighted
 * message passing for energy minimization", PAMI 2006), in integers: every message moves cost
 * between an edge and a variable, so whatever the rounding, the sum of all minima is a lower bound
 * on every choice.
 *
 * All messages live in one flat array; a sweep allocates nothing. Repeated layers are not the
 * concern of this file: see `fold/fold.ts`, which runs the sweeps on a shortened network and
 * spreads the messages over the long one.
 */
import type { Network } from '../network/network.ts';
import type { MinPairs } from '../store/min-pairs.ts';
import {
  addMapped,
  addShifted,
  addSlice,
  areEqual,
  copyEntries,
  firstLeast,
  giveShare,
  leastByAlternative,
  leastByClass,
  lesserAlternative,
  lower,
  moveEntries,
  smallest,
  storeShifts,
  throughColumns,
  throughRows,
} from './inner-loops.ts';
import { type Sides, sidesOf } from './sides.ts';

/**
 * The messages of a pairwise network. Slot 2 * edge + side names the message from an edge to its
 * variable on that side.
 */
export class Trws {
  readonly net: Network;
  readonly rank: Int32Array;
  /**
   * Start of each slot in `to` and `shifts`; the message of slot s covers start[s] .. start[s + 1]
   * - 1.
   */
  readonly start: Int32Array;
  /** Messages over the classes of their side. */
  readonly to: Float64Array;
  /**
   * Shift of every edge side after the last backward sweep: the cost that left the edge for the
   * variable.
   */
  readonly shifts: Float64Array;
  /** Least cost that is left on every edge after the last backward sweep. */
  readonly least: Float64Array;
  /** Variables in the order of a forward sweep. */
  readonly order: Int32Array;
  private readonly sides: Sides;
  /** The arrays of the sides once more, where the inner loops find them. */
  private readonly weight: Float64Array;
  private readonly share: Float64Array;
  private readonly begin: Int32Array;
  private readonly middle: Int32Array;
  private readonly slot: Int32Array;
  private readonly other: Int32Array;
  private readonly maps: readonly Int32Array[];
  private readonly cells: readonly Float64Array[];
  private readonly minPairs: readonly (MinPairs | null)[];
  private readonly along: Uint8Array;
  private readonly place: Int32Array;
  private readonly unary: Float64Array[] = [];
  private readonly total: Float64Array;
  private readonly rest: Float64Array;
  private readonly best: Float64Array;
  private readonly alternative: Float64Array;
  private stepCount = 0;
  /** Sweeps so far. */
  sweeps = 0;

  /**
   * Zero messages on a pairwise network; variables are swept in ascending rank. `weights` (per
   * slot): the number of equal edges of its variable that a slot represents, on a network that
   * represents a longer one; default 1.
   */
  constructor(
    net: Network,
    rank = net.place,
    weights?: Float64Array,
    sides = sidesOf(net, rank, weights),
  ) {
    this.net = net;
    this.rank = rank;
    this.sides = sides;
    this.start = sides.start;
    this.order = sides.order;
    this.weight = sides.weight;
    this.share = sides.share;
    this.begin = sides.begin;
    this.middle = sides.middle;
    this.slot = sides.slot;
    this.other = sides.other;
    this.maps = sides.maps;
    this.cells = sides.cells;
    this.minPairs = sides.minPairs;
    this.along = sides.along;
    this.place = sides.place;
    const length = sides.start[2 * net.factors.length];
    this.to = new Float64Array(length);
    this.shifts = new Float64Array(length);
    this.least = new Float64Array(net.factors.length);
    for (const id of net.unary) this.unary.push(net.pool.vectorOf(Math.max(0, id)));
    this.total = new Float64Array(sides.largest);
    this.rest = new Float64Array(sides.largest);
    this.best = new Float64Array(sides.widest);
    this.alternative = new Float64Array(sides.widest);
  }

  /**
   * The same messages on a network that differs in the costs of its variables only, as one at
   * another price does.
   */
  on(net: Network): Trws {
    const other = new Trws(net, this.rank, undefined, this.sides);
    other.to.set(this.to);
    return other;
  }

  /** Steps taken so far (one variable in one direction). */
  get steps(): number {
    return this.stepCount;
  }

  /**
   * One forward and one backward sweep; returns the lower bound it proves. Afterwards `shifts` hold
   * the reparametrisation behind the bound: all beliefs and reduced edges are non-negative but for
   * their minima.
   */
  sweep(): number {
    const { order } = this;
    const { isTwin } = this.sides;
    for (let k = 0; k < order.length; k++)
      if (isTwin[k] === 0 || !this.repeat(order[k], order[k - 1], true)) this.step(order[k], true);
    let bound = this.net.constant;
    let gain = 0;
    for (let k = order.length - 1; k >= 0; k--) {
      // Of equal layers that advance in lock step, each repeats the steps of the one before it.
      const isLike =
        k + 1 < order.length && isTwin[k + 1] === 1 && this.repeat(order[k], order[k + 1], false);
      if (!isLike) gain = this.step(order[k], false);
      bound += gain;
    }
    this.sweeps++;
    this.stepCount += 2 * order.length;
    return bound;
  }

  /**
   * Does for variable i what was done just now for its twin j, where both have the same costs and
   * messages; else false.
   */
  private repeat(i: number, j: number, forward: boolean): boolean {
    if (this.unary[i] !== this.unary[j]) return false;
    const { start, to, shifts, least } = this;
    const slots = this.slot;
    const ahead = this.begin[j] - this.begin[i];
    for (let s = this.begin[i]; s < this.begin[i + 1]; s++) {
      const own = start[slots[s]];
      if (!areEqual(to, own, start[slots[s + ahead]], start[slots[s] + 1] - own)) return false;
    }
    const from = forward ? this.middle[i] : this.begin[i];
    const end = forward ? this.begin[i + 1] : this.middle[i];
    for (let s = from; s < end; s++) {
      const slot = slots[s];
      const like = slots[s + ahead];
      const there = start[slot ^ 1];
      const width = start[(slot ^ 1) + 1] - there;
      moveEntries(to, start[like ^ 1], there, width);
      if (forward) continue;
      moveEntries(shifts, start[like], start[slot], start[slot + 1] - start[slot]);
      moveEntries(shifts, start[like ^ 1], there, width);
      least[slot >> 1] = least[like >> 1];
    }
    return true;
  }

  /**
   * Sends the messages of variable i to its later (forward) or earlier neighbours; returns its part
   * of the bound.
   */
  private step(i: number, forward: boolean): number {
    const from = forward ? this.middle[i] : this.begin[i];
    const end = forward ? this.begin[i + 1] : this.middle[i];
    if (forward && from === end) return 0;
    const size = this.net.size[i];
    const total = this.total;
    const rest = this.rest;
    const best = this.best;
    const { start, to, shifts } = this;
    this.gather(i, total);
    if (!forward) copyEntries(rest, total, 0, size);
    const share = this.share[i];
    let gain = 0;
    for (let s = from; s < end; s++) {
      const slot = this.slot[s];
      const own = start[slot];
      const classes = start[slot + 1] - own;
      const map = this.maps[s];
      leastByClass(best, classes, total, size, map);
      giveShare(best, classes, share, to, own);
      if (!forward) {
        storeShifts(shifts, own, classes, best);
        addShifted(rest, size, map, this.weight[s], shifts, to, own);
      }
      const there = start[slot ^ 1];
      const width = start[(slot ^ 1) + 1] - there;
      this.through(s, slot, best, classes, width, there);
      const least = smallest(to, there, there + width);
      gain += least;
      if (!forward) this.least[slot >> 1] = least;
      if (least !== Infinity) lower(to, there, there + width, least);
      if (!forward) copyEntries(shifts, to, there, there + width);
    }
    if (forward) return 0;
    return gain + smallest(rest, 0, size);
  }

  /**
   * to[there + y] = the least of best[x] + cell(x, y), for the table of side s read from its own
   * side.
   */
  private through(
    s: number,
    slot: number,
    best: Float64Array,
    classes: number,
    width: number,
    there: number,
  ): void {
    const { to } = this;
    const pairs = this.minPairs[s];
    const alternative = this.alternative;
    if (pairs === null) {
      if ((slot & 1) === 0) this.throughRows(s, this.cells[s], best, classes, width, to, there);
      else this.throughColumns(s, this.cells[s], best, width, classes, to, there);
    } else if (this.along[s] === 2) {
      leastByAlternative(alternative, pairs.count, best, pairs.first, pairs.second);
      this.throughRows(s, pairs.cells, alternative, pairs.count, width, to, there);
    } else {
      this.throughColumns(s, pairs.cells, best, pairs.count, classes, alternative, 0);
      lesserAlternative(to, there, alternative, pairs.first, pairs.second);
    }
  }

  private throughRows(
    s: number,
    cells: Float64Array,
    costs: Float64Array,
    rows: number,
    columns: number,
    to: Float64Array,
    there: number,
  ): void {
    const place = this.place[s];
    if (place < 0) throughRows(cells, costs, rows, columns, to, there);
    else this.net.pool.kernels.throughRows(place, costs, rows, columns, to, there);
  }

  private throughColumns(
    s: number,
    cells: Float64Array,
    costs: Float64Array,
    rows: number,
    columns: number,
    to: Float64Array,
    there: number,
  ): void {
    const place = this.place[s];
    if (place < 0) throughColumns(cells, costs, rows, columns, to, there);
    else this.net.pool.kernels.throughColumns(place, costs, rows, columns, to, there);
  }

  /** Cost of each value of variable i with all messages it has received. */
  private gather(i: number, total: Float64Array): void {
    const size = this.net.size[i];
    total.set(this.unary[i]);
    for (let s = this.begin[i]; s < this.begin[i + 1]; s++)
      addMapped(total, size, this.maps[s], this.to, this.start[this.slot[s]], this.weight[s]);
  }

  /**
   * A choice of positions: each variable in order takes the best value given the earlier ones and
   * later messages.
   */
  decode(): Int32Array {
    const { net, start } = this;
    const at = new Int32Array(net.count).fill(-1);
    const total = this.total;
    for (const i of this.order) {
      const size = net.size[i];
      total.set(this.unary[i]);
      for (let s = this.begin[i]; s < this.begin[i + 1]; s++) {
        const map = this.maps[s];
        const slot = this.slot[s];
        if (s >= this.middle[i]) {
          addMapped(total, size, map, this.to, start[slot], 1);
          continue;
        }
        const f = net.factors[slot >> 1];
        if (f === undefined) continue;
        const side = slot & 1;
        const c = net.pool.mapOf(f.maps[1 - side])[at[this.other[s]]];
        const width = f.table.dims[1];
        if (side === 0) addSlice(total, size, map, this.cells[s], c, width);
        else addSlice(total, size, map, this.cells[s], c * width, 1);
      }
      at[i] = firstLeast(total, size);
    }
    return at;
  }
}
