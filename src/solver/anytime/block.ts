/**
 * Exact minimisation of a block: some variables with candidate values, costs per candidate, tables between pairs of them.
 * Bucket elimination along a greedy order; variables whose elimination would make too large a table are frozen at their
 * present value before the numbers are touched.
 *
 * One object is reused for all blocks of a thread: nothing is allocated in the loop once the buffers have grown.
 */

import { arrange } from './order.ts';

/** Cells between two looks at whether to stop. */
const LOOK_EVERY = 2e6;

interface Factor {
  /** Local variables, the one that is eliminated first last. */
  vars: number[];
  /** Where the cells begin; row-major over `vars`. */
  at: number;
}

export class Block {
  /** Number of local variables. */
  count = 0;
  /** Number of candidates of each local variable, and the candidate that is the present value. */
  readonly sizes: Int32Array;
  readonly present: Int32Array;
  /** Where the candidate costs of each local variable begin in `costs`. */
  readonly start: Int32Array;
  costs = new Float64Array(4096);
  /** Result: the chosen candidate of each local variable. */
  readonly chosen: Int32Array;
  /** Cells of all numbers that were minimised over, for step counting. */
  work = 0;

  readonly #frozen: Uint8Array;
  readonly #order: Int32Array;
  readonly #stopped: () => boolean;
  #ordered = 0;
  readonly #near: Set<number>[] = [];
  readonly #edgeFirst: number[] = [];
  readonly #edgeSecond: number[] = [];
  readonly #edgeAt: number[] = [];
  /** Cells of the edges, then of the tables that eliminations make. */
  #cells = new Float64Array(1 << 16);
  #used = 0;
  #edgeEnd = 0;
  #picks = new Uint16Array(1 << 16);
  #picked = 0;
  readonly #plan: { v: number; axes: number[]; at: number }[] = [];
  readonly #sums: Float64Array[] = [];
  readonly #buckets: Factor[][] = [];

  /** For blocks of at most `most` variables; `stopped` is asked now and then and ends a minimisation early. */
  constructor(most: number, stopped: () => boolean = () => false) {
    this.sizes = new Int32Array(most);
    this.present = new Int32Array(most);
    this.start = new Int32Array(most + 1);
    this.chosen = new Int32Array(most);
    this.#frozen = new Uint8Array(most);
    this.#order = new Int32Array(most);
    this.#stopped = stopped;
  }

  /** Starts a new block. */
  begin(): void {
    this.count = 0;
    this.#used = 0;
    this.#edgeFirst.length = 0;
    this.#edgeSecond.length = 0;
    this.#edgeAt.length = 0;
  }

  /** Adds a variable; its costs are to be written to `costs` from the returned place. */
  add(size: number, present: number): number {
    const i = this.count++;
    this.sizes[i] = size;
    this.present[i] = present;
    const at = this.start[i];
    this.start[i + 1] = at + size;
    if (at + size > this.costs.length) {
      const bigger = new Float64Array(2 * (at + size));
      bigger.set(this.costs);
      this.costs = bigger;
    }
    let near = this.#near[i];
    if (near === undefined) {
      near = new Set();
      this.#near[i] = near;
    }
    near.clear();
    return at;
  }

  /** Adds an edge between local variables i and j; returns where its cells are to be written in `cells()`. */
  join(i: number, j: number): number {
    const at = this.#used;
    this.#need(at + this.sizes[i] * this.sizes[j]);
    this.#used = at + this.sizes[i] * this.sizes[j];
    this.#edgeFirst.push(i);
    this.#edgeSecond.push(j);
    this.#edgeAt.push(at);
    this.#near[i].add(j);
    this.#near[j].add(i);
    return at;
  }

  /** The buffer of cells; it may move when an edge is added. */
  cells(): Float64Array {
    return this.#cells;
  }

  #need(length: number): void {
    if (length <= this.#cells.length) return;
    const bigger = new Float64Array(2 * length);
    bigger.set(this.#cells.subarray(0, this.#used));
    this.#cells = bigger;
  }

  /**
   * Fixes the elimination order for tables of at most `cap` cells (`order.ts`); call once, before any `minimise`. The first
   * `spared` variables are frozen only when nothing else is left to freeze; `luck` is a random factor on who is frozen.
   */
  arrange(cap: number, spared: number, luck?: () => number): void {
    const { count, sizes } = this;
    this.#edgeEnd = this.#used;
    const job = { near: this.#near, sizes, count, cap, spared, ...(luck === undefined ? {} : { luck }) };
    const { ordered, work } = arrange(job, this.#order, this.#frozen);
    this.#ordered = ordered;
    this.work += work;
  }

  /** Number of variables that take part (are not frozen). */
  get free(): number {
    return this.#ordered;
  }

  /**
   * Minimises; returns the least cost (of the costs as they are now) and leaves the minimiser in `chosen`. NaN when it was
   * stopped before it had one.
   */
  minimise(): number {
    const { sizes, present, start, count } = this;
    this.#used = this.#edgeEnd;
    this.#picked = 0;
    this.#plan.length = 0;
    const place = new Int32Array(count).fill(-1);
    for (let k = 0; k < this.#ordered; k++) place[this.#order[k]] = k;
    const unary = this.costs.slice(0, start[count]);
    let total = 0;
    while (this.#buckets.length < count) this.#buckets.push([]);
    for (let k = 0; k < count; k++) this.#buckets[k].length = 0;
    for (let v = 0; v < count; v++) {
      if (this.#frozen[v] === 1) {
        this.chosen[v] = present[v];
        total += unary[start[v] + present[v]];
      }
    }
    for (let e = 0; e < this.#edgeFirst.length; e++) {
      const i = this.#edgeFirst[e];
      const j = this.#edgeSecond[e];
      const at = this.#edgeAt[e];
      const columns = sizes[j];
      if (this.#frozen[i] === 1 && this.#frozen[j] === 1) {
        total += this.#cells[at + present[i] * columns + present[j]];
      } else if (this.#frozen[i] === 1) {
        for (let b = 0; b < columns; b++) unary[start[j] + b] += this.#cells[at + present[i] * columns + b];
      } else if (this.#frozen[j] === 1) {
        for (let a = 0; a < sizes[i]; a++) unary[start[i] + a] += this.#cells[at + a * columns + present[j]];
      } else if (place[i] < place[j]) {
        this.#buckets[place[i]].push({ vars: [j, i], at: this.#flip(at, sizes[i], columns) });
      } else this.#buckets[place[j]].push({ vars: [i, j], at });
    }
    let next = this.work + LOOK_EVERY;
    for (let k = 0; k < this.#ordered; k++) {
      total += this.#eliminate(k, place, unary);
      if (this.work < next) continue;
      if (this.#stopped()) return NaN;
      next = this.work + LOOK_EVERY;
    }
    for (let k = this.#ordered - 1; k >= 0; k--) {
      const { v, axes, at } = this.#plan[k];
      let cell = 0;
      for (const w of axes) cell = cell * sizes[w] + this.chosen[w];
      this.chosen[v] = this.#picks[at + cell];
    }
    return total;
  }

  #flip(at: number, rows: number, columns: number): number {
    const to = this.#used;
    this.#need(to + rows * columns);
    this.#used = to + rows * columns;
    const cells = this.#cells;
    for (let a = 0; a < rows; a++)
      for (let b = 0; b < columns; b++) cells[to + b * rows + a] = cells[at + a * columns + b];
    return to;
  }

  /** Eliminates the k-th variable of the order; returns what became constant. */
  #eliminate(k: number, place: Int32Array, unary: Float64Array): number {
    const { sizes, start } = this;
    const v = this.#order[k];
    const d = sizes[v];
    const from = start[v];
    const factors = this.#buckets[k];
    const axes: number[] = [];
    for (const f of factors)
      for (let x = 0; x < f.vars.length - 1; x++) if (!axes.includes(f.vars[x])) axes.push(f.vars[x]);
    // Axes that are eliminated later come first, so that the result's cells suit the next elimination.
    axes.sort((a, b) => place[b] - place[a]);
    let product = 1;
    for (const w of axes) product *= sizes[w];
    const pick = this.#picked;
    this.#picked += product;
    if (this.#picked > this.#picks.length) {
      const bigger = new Uint16Array(2 * this.#picked);
      bigger.set(this.#picks);
      this.#picks = bigger;
    }
    this.#plan.push({ v, axes, at: pick });
    this.work += product * d;
    if (axes.length === 0) {
      let best = 0;
      for (let a = 1; a < d; a++) if (unary[from + a] < unary[from + best]) best = a;
      this.#picks[pick] = best;
      return unary[from + best];
    }
    const to = this.#used;
    this.#need(to + product);
    this.#used = to + product;
    if (axes.length === 1) this.#line(axes[0], d, unary, from, factors, to, pick);
    else this.#grid(axes, d, unary, from, factors, to, pick);
    if (axes.length === 1) {
      const w = axes[0];
      const cells = this.#cells;
      for (let b = 0; b < sizes[w]; b++) unary[start[w] + b] += cells[to + b];
      this.#used = to;
    } else {
      // The axis that is eliminated next is last.
      this.#buckets[place[axes[axes.length - 1]]].push({ vars: axes, at: to });
    }
    return 0;
  }

  #line(w: number, d: number, unary: Float64Array, from: number, factors: Factor[], to: number, pick: number): void {
    const cells = this.#cells;
    const picks = this.#picks;
    const width = this.sizes[w];
    const one = factors.length === 1 ? factors[0].at : -1;
    for (let b = 0; b < width; b++) {
      let least = Infinity;
      let best = 0;
      for (let a = 0; a < d; a++) {
        let c = unary[from + a];
        if (one >= 0) c += cells[one + b * d + a];
        else for (const f of factors) c += cells[f.at + b * d + a];
        if (c < least) {
          least = c;
          best = a;
        }
      }
      cells[to + b] = least;
      picks[pick + b] = best;
    }
  }

  /** Two axes or more: partial sums per level, the last level fused with the minimum. */
  #grid(
    axes: number[],
    d: number,
    unary: Float64Array,
    from: number,
    factors: Factor[],
    to: number,
    pick: number,
  ): void {
    const cells = this.#cells;
    const picks = this.#picks;
    const rank = axes.length;
    const sizes = axes.map((w) => this.sizes[w]);
    // Per factor: stride of each axis (0 where it does not see it), and the level at which it becomes known.
    const levels: { at: number; strides: number[] }[][] = Array.from({ length: rank }, () => []);
    for (const f of factors) {
      const strides = new Array<number>(rank).fill(0);
      let stride = d;
      let level = 0;
      for (let x = f.vars.length - 2; x >= 0; x--) {
        const axis = axes.indexOf(f.vars[x]);
        strides[axis] = stride;
        level = Math.max(level, axis);
        stride *= this.sizes[f.vars[x]];
      }
      levels[level].push({ at: f.at, strides });
    }
    while (this.#sums.length <= rank) this.#sums.push(new Float64Array(64));
    for (let l = 0; l <= rank; l++) if (this.#sums[l].length < d) this.#sums[l] = new Float64Array(2 * d);
    const base = this.#sums[0];
    for (let a = 0; a < d; a++) base[a] = unary[from + a];
    const at = new Int32Array(rank);
    let cell = 0;
    let level = 0;
    const last = rank - 1;
    const inner = levels[last];
    const innerAt = new Int32Array(inner.length);
    const innerStep = inner.map((f) => f.strides[last]);
    for (;;) {
      // Partial sums from the level that changed down to the last but one.
      for (; level < last; level++) {
        const before = this.#sums[level];
        const after = this.#sums[level + 1];
        for (let a = 0; a < d; a++) after[a] = before[a];
        for (const f of levels[level]) {
          let o = f.at;
          for (let x = 0; x <= level; x++) o += f.strides[x] * at[x];
          for (let a = 0; a < d; a++) after[a] += cells[o + a];
        }
      }
      const sum = this.#sums[last];
      for (let k = 0; k < inner.length; k++) {
        let o = inner[k].at;
        for (let x = 0; x < last; x++) o += inner[k].strides[x] * at[x];
        innerAt[k] = o;
      }
      const width = sizes[last];
      if (inner.length === 1) {
        let o = innerAt[0];
        const step = innerStep[0];
        for (let b = 0; b < width; b++, o += step) {
          let least = Infinity;
          let best = 0;
          for (let a = 0; a < d; a++) {
            const c = sum[a] + cells[o + a];
            if (c < least) {
              least = c;
              best = a;
            }
          }
          cells[to + cell] = least;
          picks[pick + cell++] = best;
        }
      } else if (inner.length === 2) {
        let o = innerAt[0];
        let p = innerAt[1];
        const [stepO, stepP] = innerStep;
        for (let b = 0; b < width; b++, o += stepO, p += stepP) {
          let least = Infinity;
          let best = 0;
          for (let a = 0; a < d; a++) {
            const c = sum[a] + cells[o + a] + cells[p + a];
            if (c < least) {
              least = c;
              best = a;
            }
          }
          cells[to + cell] = least;
          picks[pick + cell++] = best;
        }
      } else {
        const final = this.#sums[rank];
        for (let b = 0; b < width; b++) {
          for (let a = 0; a < d; a++) final[a] = sum[a];
          for (let k = 0; k < inner.length; k++) {
            const o = innerAt[k] + b * innerStep[k];
            for (let a = 0; a < d; a++) final[a] += cells[o + a];
          }
          let least = Infinity;
          let best = 0;
          for (let a = 0; a < d; a++) {
            if (final[a] < least) {
              least = final[a];
              best = a;
            }
          }
          cells[to + cell] = least;
          picks[pick + cell++] = best;
        }
      }
      level = last - 1;
      while (level >= 0 && ++at[level] === sizes[level]) at[level--] = 0;
      if (level < 0) return;
    }
  }
}
