/**
 * Dual ascent by sequential message passing (TRW-S, V. Kolmogorov, "Convergent tree-reweighted message passing for energy
 * minimization", PAMI 2006), in integers: every message moves cost between an edge and a variable, so whatever the
 * rounding, the sum of all minima is a lower bound on every choice.
 *
 * All messages live in one flat array; a sweep allocates nothing. Repeated layers are not the concern of this file: see
 * `fold/fold.ts`, which runs the sweeps on a shortened network and spreads the messages over the long one.
 */
import {
  addMapped,
  addSlice,
  firstLeast,
  leastByClass,
  leastByAlternative,
  lesserAlternative,
  smallest,
  throughColumns,
  throughRows,
} from './inner-loops.ts';
import type { Network } from '../network/network.ts';
import type { MinPairs } from '../store/min-pairs.ts';

/** The messages of a pairwise network. Slot 2 * edge + side names the message from an edge to its variable on that side. */
export class Trws {
  readonly net: Network;
  readonly rank: Int32Array;
  /** Start of each slot in `to` and `shifts`; the message of slot s covers start[s] .. start[s + 1] - 1. */
  readonly start: Int32Array;
  /** Messages over the classes of their side. */
  readonly to: Float64Array;
  /** Shift of every edge side after the last backward sweep: the cost that left the edge for the variable. */
  readonly shifts: Float64Array;
  /** Least cost that is left on every edge after the last backward sweep. */
  readonly least: Float64Array;
  /** Variables in the order of a forward sweep. */
  readonly order: Int32Array;
  /** Sides of variable i: #begin[i] .. #begin[i + 1] - 1 in the arrays below, earlier neighbours first. */
  readonly #weight: Float64Array;
  /** Part of its cost that a variable gives each edge. */
  readonly #share: Float64Array;
  readonly #begin: Int32Array;
  readonly #middle: Int32Array;
  readonly #slot: Int32Array;
  readonly #other: Int32Array;
  readonly #maps: Int32Array[] = [];
  readonly #unary: Float64Array[] = [];
  readonly #cells: Float64Array[] = [];
  /** The table of each side taken apart, and whether along this side's axis (2) or the other's (1). */
  readonly #minPairs: (MinPairs | null)[] = [];
  readonly #along: Uint8Array;
  /** Where kernels find the table that a side's messages go through; -1: nowhere. */
  readonly #place: Int32Array;
  readonly #total: Float64Array;
  readonly #rest: Float64Array;
  readonly #best: Float64Array;
  readonly #alternative: Float64Array;
  #steps = 0;
  /** Sweeps so far. */
  sweeps = 0;

  /**
   * Zero messages on a pairwise network; variables are swept in ascending rank. `weights` (per slot): how many equal edges
   * of its variable a slot stands for, on a network that stands for a longer one; default 1.
   */
  constructor(net: Network, rank = net.place, weights?: Float64Array) {
    this.net = net;
    this.rank = rank;
    const { pool, factors } = net;
    this.start = new Int32Array(2 * factors.length + 1);
    let length = 0;
    let widest = 1;
    for (let e = 0; e < factors.length; e++) {
      const f = factors[e];
      this.start[2 * e] = length;
      if (f !== undefined) {
        if (f.vars.length !== 2) throw new Error('internal: message passing needs a pairwise network');
        length += f.table.dims[0];
        this.start[2 * e + 1] = length;
        length += f.table.dims[1];
        widest = Math.max(widest, f.table.dims[0], f.table.dims[1]);
      } else {
        this.start[2 * e + 1] = length;
      }
    }
    this.start[2 * factors.length] = length;
    this.to = new Float64Array(length);
    this.shifts = new Float64Array(length);
    this.least = new Float64Array(factors.length);
    const order: number[] = [];
    let largest = 1;
    let sides = 0;
    for (let i = 0; i < net.count; i++) {
      if (net.gone[i] === 1) continue;
      order.push(i);
      sides += net.incident[i].length;
      largest = Math.max(largest, net.size[i]);
    }
    order.sort((a, b) => rank[a] - rank[b] || a - b);
    this.order = Int32Array.from(order);
    const place = new Int32Array(net.count);
    order.forEach((i, k) => (place[i] = k));
    this.#total = new Float64Array(largest);
    this.#rest = new Float64Array(largest);
    this.#best = new Float64Array(widest);
    this.#alternative = new Float64Array(widest);
    this.#along = new Uint8Array(sides);
    this.#place = new Int32Array(sides);
    this.#begin = new Int32Array(net.count + 1);
    this.#middle = new Int32Array(net.count);
    this.#slot = new Int32Array(sides);
    this.#weight = new Float64Array(sides).fill(1);
    this.#share = new Float64Array(net.count);
    this.#other = new Int32Array(sides);
    let at = 0;
    for (let i = 0; i < net.count; i++) {
      this.#begin[i] = at;
      this.#unary.push(pool.vectorOf(Math.max(0, net.unary[i])));
      for (const later of [false, true]) {
        if (later) this.#middle[i] = at;
        if (net.gone[i] === 1) continue;
        for (const edge of net.incident[i]) {
          const f = factors[edge];
          if (f === undefined) continue;
          const side = f.vars[0] === i ? 0 : 1;
          const other = f.vars[1 - side];
          if (place[other] > place[i] !== later) continue;
          this.#slot[at] = 2 * edge + side;
          if (weights !== undefined) this.#weight[at] = weights[2 * edge + side];
          const own = splitAlong(net, edge, side);
          const pairs = own ?? splitAlong(net, edge, side === 0 ? 1 : 0);
          this.#along[at] = own !== null ? 2 : 1;
          const [rows, columns] = f.table.dims;
          this.#place[at] =
            pairs === null
              ? pool.kernels.place(f.table.cells, rows, columns)
              : pool.kernels.place(pairs.cells, pairs.count, pairs.cells.length / pairs.count);
          this.#minPairs.push(pairs);
          this.#other[at++] = other;
          this.#maps.push(pool.mapOf(f.maps[side]));
          this.#cells.push(f.table.cells);
        }
      }
    }
    this.#begin[net.count] = at;
    for (let i = 0; i < net.count; i++) {
      let earlier = 0;
      let later = 0;
      for (let s = this.#begin[i]; s < this.#middle[i]; s++) earlier += this.#weight[s];
      for (let s = this.#middle[i]; s < this.#begin[i + 1]; s++) later += this.#weight[s];
      this.#share[i] = 1 / Math.max(earlier, later, 1);
    }
  }

  /** Steps taken so far (one variable in one direction). */
  get steps(): number {
    return this.#steps;
  }

  /**
   * One forward and one backward sweep; returns the lower bound it proves. Afterwards `shifts` hold the reparametrisation
   * behind the bound: all beliefs and reduced edges are non-negative but for their minima.
   */
  sweep(): number {
    const { order } = this;
    for (const i of order) this.#step(i, true);
    let bound = this.net.constant;
    for (let k = order.length - 1; k >= 0; k--) bound += this.#step(order[k], false);
    this.sweeps++;
    this.#steps += 2 * order.length;
    return bound;
  }

  /** Sends the messages of variable i to its later (forward) or earlier neighbours; returns its part of the bound. */
  #step(i: number, forward: boolean): number {
    const from = forward ? this.#middle[i] : this.#begin[i];
    const end = forward ? this.#begin[i + 1] : this.#middle[i];
    if (forward && from === end) return 0;
    const size = this.net.size[i];
    const total = this.#total;
    const rest = this.#rest;
    const best = this.#best;
    const { start, to, shifts } = this;
    this.#gather(i, total);
    if (!forward) for (let a = 0; a < size; a++) rest[a] = total[a];
    const share = this.#share[i];
    let gain = 0;
    for (let s = from; s < end; s++) {
      const slot = this.#slot[s];
      const own = start[slot];
      const classes = start[slot + 1] - own;
      const map = this.#maps[s];
      leastByClass(best, classes, total, size, map);
      for (let c = 0; c < classes; c++) if (best[c] !== Infinity) best[c] = Math.floor(best[c] * share) - to[own + c];
      if (!forward) {
        for (let c = 0; c < classes; c++) shifts[own + c] = best[c] === Infinity ? 0 : -best[c];
        const weight = this.#weight[s];
        for (let a = 0; a < size; a++) rest[a] += weight * (shifts[own + map[a]] - to[own + map[a]]);
      }
      const there = start[slot ^ 1];
      const width = start[(slot ^ 1) + 1] - there;
      this.#through(s, slot, best, classes, width, there);
      const least = smallest(to, there, there + width);
      gain += least;
      if (!forward) this.least[slot >> 1] = least;
      if (least !== Infinity) for (let c = there; c < there + width; c++) to[c] -= least;
      if (!forward) for (let c = there; c < there + width; c++) shifts[c] = to[c];
    }
    if (forward) return 0;
    return gain + smallest(rest, 0, size);
  }

  /** to[there + y] = the least of best[x] + cell(x, y), for the table of side s read from its own side. */
  #through(s: number, slot: number, best: Float64Array, classes: number, width: number, there: number): void {
    const { to } = this;
    const pairs = this.#minPairs[s];
    const alternative = this.#alternative;
    if (pairs === null) {
      if ((slot & 1) === 0) this.#throughRows(s, this.#cells[s], best, classes, width, to, there);
      else this.#throughColumns(s, this.#cells[s], best, width, classes, to, there);
    } else if (this.#along[s] === 2) {
      leastByAlternative(alternative, pairs.count, best, pairs.first, pairs.second);
      this.#throughRows(s, pairs.cells, alternative, pairs.count, width, to, there);
    } else {
      this.#throughColumns(s, pairs.cells, best, pairs.count, classes, alternative, 0);
      lesserAlternative(to, there, alternative, pairs.first, pairs.second);
    }
  }

  #throughRows(s: number, cells: Float64Array, costs: Float64Array, rows: number, columns: number, to: Float64Array, there: number): void {
    const place = this.#place[s];
    if (place < 0) throughRows(cells, costs, rows, columns, to, there);
    else this.net.pool.kernels.throughRows(place, costs, rows, columns, to, there);
  } // prettier-ignore

  #throughColumns(s: number, cells: Float64Array, costs: Float64Array, rows: number, columns: number, to: Float64Array, there: number): void {
    const place = this.#place[s];
    if (place < 0) throughColumns(cells, costs, rows, columns, to, there);
    else this.net.pool.kernels.throughColumns(place, costs, rows, columns, to, there);
  } // prettier-ignore

  /** Cost of each value of variable i with all messages it has received. */
  #gather(i: number, total: Float64Array): void {
    const size = this.net.size[i];
    total.set(this.#unary[i]);
    for (let s = this.#begin[i]; s < this.#begin[i + 1]; s++)
      addMapped(total, size, this.#maps[s], this.to, this.start[this.#slot[s]], this.#weight[s]);
  }

  /** A choice of positions: each variable in order takes the best value given the earlier ones and later messages. */
  decode(): Int32Array {
    const { net, start } = this;
    const at = new Int32Array(net.count).fill(-1);
    const total = this.#total;
    for (const i of this.order) {
      const size = net.size[i];
      total.set(this.#unary[i]);
      for (let s = this.#begin[i]; s < this.#begin[i + 1]; s++) {
        const map = this.#maps[s];
        const slot = this.#slot[s];
        if (s >= this.#middle[i]) {
          addMapped(total, size, map, this.to, start[slot], 1);
          continue;
        }
        const f = net.factors[slot >> 1];
        if (f === undefined) continue;
        const side = slot & 1;
        const c = net.pool.mapOf(f.maps[1 - side])[at[this.#other[s]]];
        const width = f.table.dims[1];
        if (side === 0) addSlice(total, size, map, this.#cells[s], c, width);
        else addSlice(total, size, map, this.#cells[s], c * width, 1);
      }
      at[i] = firstLeast(total, size);
    }
    return at;
  }
}

/** The table of an edge taken apart along one of its axes, where the variable there is known to be a pair of alternatives. */
function splitAlong(net: Network, edge: number, side: 0 | 1): MinPairs | null {
  const f = net.factors[edge];
  if (f === undefined) return null;
  const v = f.vars[side];
  const first = net.minPairs[2 * v];
  const second = net.minPairs[2 * v + 1];
  return first < 0 || second < 0 ? null : net.pool.minPairsMemo.find(f.table, side, f.maps[side], first, second);
}
