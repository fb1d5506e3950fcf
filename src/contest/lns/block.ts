/**
 * Exact minimisation of a block: some variables with candidate values, costs per candidate, tables
 * between pairs of them. Bucket elimination along a greedy order; variables whose elimination would
 * make too large a table are frozen at their present value before the numbers are touched.
 *
 * One object is reused for all blocks of a thread: nothing is allocated in the loop once the
 * buffers have grown.
 */

import { defined } from '../../defined.ts';
import { Arena } from '../../solver/store/kernels.ts';
import { arrange } from './order.ts';

/**
 * The memory of the tables of all blocks of a thread. A block's tables live from `begin` to the
 * last `minimise`, and blocks are worked on one after the other, so that one memory is enough.
 */
const tables = new Arena();
/** Numbers past the end of a table that a kernel may look at. */
const MARGIN = 8;

/** Cells between two looks at whether to stop. */
const LOOK_EVERY = 2e6;

interface Factor {
  /** Local variables, the one that is eliminated first last. */
  vars: number[];
  /** The place where the cells begin; row-major over `vars`. */
  at: number;
}

/** A table with the stride of each of the axes that it sees. */
interface Strided {
  readonly at: number;
  readonly axes: readonly number[];
  readonly strides: readonly number[];
}

/** The tables that become known at one level, with the stride of every axis. */
type Level = readonly { readonly at: number; readonly strides: readonly number[] }[];

/** The last level of a grid, in the form that kernels read. */
interface Innermost {
  readonly factors: Level;
  /** Per table, the place of its cells at the axes that are fixed, and the last axis' stride. */
  readonly at: Int32Array;
  readonly step: readonly number[];
  /** Candidates of the eliminated variable, and the same as a multiple of four. */
  readonly d: number;
  readonly padded: number;
  /** Size of the last axis. */
  readonly width: number;
}

export class Block {
  /** Number of local variables. */
  count = 0;
  /** Number of candidates of each local variable, and the candidate that is the present value. */
  readonly sizes: Int32Array;
  readonly present: Int32Array;
  /** The places in `costs` where the candidate costs of each local variable begin. */
  readonly start: Int32Array;
  costs = new Float64Array(4096);
  /** Result: the chosen candidate of each local variable. */
  readonly chosen: Int32Array;
  /** Cells of all numbers that were minimised over, for step counting. */
  work = 0;

  private readonly frozen: Uint8Array;
  private readonly order: Int32Array;
  private readonly stopped: () => boolean;
  private ordered = 0;
  private readonly near: Set<number>[] = [];
  private readonly edgeFirst: number[] = [];
  private readonly edgeSecond: number[] = [];
  private readonly edgeAt: number[] = [];
  /**
   * Numbers of `tables` in use: cells of the edges, two rows of sums, then the tables that
   * eliminations make.
   */
  private used = 0;
  private edgeEnd = 0;
  private sumAt = 0;
  private lastAt = 0;
  /** The tables that were summed to eliminate each variable, in the order of the sum. */
  private readonly plan: (readonly Strided[])[] = [];
  private readonly sums: Float64Array[] = [];
  private readonly buckets: Factor[][] = [];

  /**
   * For blocks of at most `most` variables; `stopped` is asked now and then and ends a minimisation
   * early.
   */
  constructor(most: number, stopped: () => boolean = () => false) {
    this.sizes = new Int32Array(most);
    this.present = new Int32Array(most);
    this.start = new Int32Array(most + 1);
    this.chosen = new Int32Array(most);
    this.frozen = new Uint8Array(most);
    this.order = new Int32Array(most);
    this.stopped = stopped;
  }

  /** Starts a new block. */
  begin(): void {
    this.count = 0;
    this.used = 0;
    this.edgeFirst.length = 0;
    this.edgeSecond.length = 0;
    this.edgeAt.length = 0;
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
    let near = this.near[i];
    if (near === undefined) {
      near = new Set();
      this.near[i] = near;
    }
    near.clear();
    return at;
  }

  /**
   * Adds an edge between local variables i and j; returns where its cells are to be written in
   * `cells()`.
   */
  join(i: number, j: number): number {
    const at = this.used;
    tables.need(MARGIN + at + this.sizes[i] * this.sizes[j]);
    this.used = at + this.sizes[i] * this.sizes[j];
    this.edgeFirst.push(i);
    this.edgeSecond.push(j);
    this.edgeAt.push(at);
    this.near[i].add(j);
    this.near[j].add(i);
    return at;
  }

  /** The buffer of cells; it may move when an edge is added. */
  cells(): Float64Array {
    return tables.numbers;
  }

  /**
   * Fixes the elimination order for tables of at most `cap` cells (`order.ts`); call once, before
   * any `minimise`. The first `spared` variables are frozen only when nothing else is left to
   * freeze; `luck` is a random factor on who is frozen.
   */
  arrange(cap: number, spared: number, luck?: () => number): void {
    const { count, sizes } = this;
    this.edgeEnd = this.used;
    const job = {
      near: this.near,
      sizes,
      count,
      cap,
      spared,
      ...defined({ luck }),
    };
    const { ordered, work } = arrange(job, this.order, this.frozen);
    this.ordered = ordered;
    this.work += work;
  }

  /** Number of variables that take part (are not frozen). */
  get free(): number {
    return this.ordered;
  }

  /**
   * Minimises; returns the least cost (of the costs as they are now) and leaves the minimiser in
   * `chosen`. NaN when it was stopped before it had one.
   */
  minimise(): number {
    const { sizes, present, start, count } = this;
    this.plan.length = 0;
    this.makeSums();
    const cells = tables.numbers;
    const place = new Int32Array(count).fill(-1);
    for (let k = 0; k < this.ordered; k++) place[this.order[k]] = k;
    const unary = this.costs.slice(0, start[count]);
    let total = 0;
    while (this.buckets.length < count) this.buckets.push([]);
    for (let k = 0; k < count; k++) this.buckets[k].length = 0;
    for (let v = 0; v < count; v++) {
      if (this.frozen[v] === 1) {
        this.chosen[v] = present[v];
        total += unary[start[v] + present[v]];
      }
    }
    for (let e = 0; e < this.edgeFirst.length; e++) {
      const i = this.edgeFirst[e];
      const j = this.edgeSecond[e];
      const at = this.edgeAt[e];
      const columns = sizes[j];
      if (this.frozen[i] === 1 && this.frozen[j] === 1) {
        total += cells[at + present[i] * columns + present[j]];
      } else if (this.frozen[i] === 1) {
        for (let b = 0; b < columns; b++)
          unary[start[j] + b] += cells[at + present[i] * columns + b];
      } else if (this.frozen[j] === 1) {
        for (let a = 0; a < sizes[i]; a++)
          unary[start[i] + a] += cells[at + a * columns + present[j]];
      } else if (place[i] < place[j]) {
        this.buckets[place[i]].push({ vars: [j, i], at: this.flip(at, sizes[i], columns) });
      } else this.buckets[place[j]].push({ vars: [i, j], at });
    }
    let next = this.work + LOOK_EVERY;
    for (let k = 0; k < this.ordered; k++) {
      total += this.eliminate(k, place, unary);
      if (this.work < next) continue;
      if (this.stopped()) return NaN;
      next = this.work + LOOK_EVERY;
    }
    for (let k = this.ordered - 1; k >= 0; k--) this.pick(k, unary);
    return total;
  }

  /** Room for two rows of sums, as wide as the largest variable and padded for the kernels. */
  private makeSums(): void {
    let widest = 1;
    for (let i = 0; i < this.count; i++) if (this.sizes[i] > widest) widest = this.sizes[i];
    const row = 4 * Math.ceil(widest / 4);
    this.sumAt = this.edgeEnd;
    this.lastAt = this.edgeEnd + row;
    this.used = this.edgeEnd + 2 * row;
    // The flipped tables of the edges follow.
    tables.need(MARGIN + this.used + this.edgeEnd);
  }

  /**
   * The best value of the k-th variable of the order, all later ones being chosen: the first least
   * of the same sums.
   */
  private pick(k: number, unary: Float64Array): void {
    const cells = tables.numbers;
    const v = this.order[k];
    const from = this.start[v];
    const d = this.sizes[v];
    const sum = this.sums[0];
    for (let a = 0; a < d; a++) sum[a] = unary[from + a];
    for (const { at, axes, strides } of this.plan[k]) {
      let o = at;
      for (let x = 0; x < axes.length; x++) o += strides[x] * this.chosen[axes[x]];
      for (let a = 0; a < d; a++) sum[a] += cells[o + a];
    }
    let best = 0;
    for (let a = 1; a < d; a++) if (sum[a] < sum[best]) best = a;
    this.chosen[v] = best;
  }

  private flip(at: number, rows: number, columns: number): number {
    const to = this.used;
    tables.need(MARGIN + to + rows * columns);
    this.used = to + rows * columns;
    const cells = tables.numbers;
    for (let a = 0; a < rows; a++)
      for (let b = 0; b < columns; b++) cells[to + b * rows + a] = cells[at + a * columns + b];
    return to;
  }

  /** Eliminates the k-th variable of the order; returns what became constant. */
  private eliminate(k: number, place: Int32Array, unary: Float64Array): number {
    const { sizes, start } = this;
    const v = this.order[k];
    const d = sizes[v];
    const from = start[v];
    const factors = this.buckets[k];
    const axes: number[] = [];
    for (const f of factors)
      for (let x = 0; x < f.vars.length - 1; x++)
        if (!axes.includes(f.vars[x])) axes.push(f.vars[x]);
    // Axes that are eliminated later come first, so that the result's cells suit the next
    // elimination.
    axes.sort((a, b) => place[b] - place[a]);
    let product = 1;
    for (const w of axes) product *= sizes[w];
    this.work += product * d;
    while (this.sums.length <= axes.length) this.sums.push(new Float64Array(64));
    for (let l = 0; l <= axes.length; l++)
      if (this.sums[l].length < d) this.sums[l] = new Float64Array(2 * d);
    if (axes.length === 0) {
      this.plan.push([]);
      let least = unary[from];
      for (let a = 1; a < d; a++) if (unary[from + a] < least) least = unary[from + a];
      return least;
    }
    const to = this.used;
    tables.need(MARGIN + to + product);
    this.used = to + product;
    this.grid(axes, d, unary, from, factors, to);
    if (axes.length === 1) {
      const w = axes[0];
      const cells = tables.numbers;
      for (let b = 0; b < sizes[w]; b++) unary[start[w] + b] += cells[to + b];
      this.used = to;
    } else {
      // The axis that is eliminated next is last.
      this.buckets[place[axes[axes.length - 1]]].push({ vars: axes, at: to });
    }
    return 0;
  }

  /**
   * Partial sums per level (axis), the last level fused with the minimum; writes the table over
   * `axes` to `to`.
   */
  private grid(
    axes: number[],
    d: number,
    unary: Float64Array,
    from: number,
    factors: Factor[],
    to: number,
  ): void {
    const rank = axes.length;
    const last = rank - 1;
    const sizes = axes.map((w) => this.sizes[w]);
    const levels = this.levelsOf(axes, d, factors);
    const base = this.sums[0];
    for (let a = 0; a < d; a++) base[a] = unary[from + a];
    const at = new Int32Array(rank);
    const inner = this.innermostOf(levels, d, sizes[last]);
    let cell = to;
    let level = 0;
    for (;;) {
      // Partial sums from the level that changed down to the last but one.
      for (; level < last; level++) this.addLevel(levels[level], level, d, at);
      this.leastCells(inner, at, cell);
      cell += inner.width;
      level = last - 1;
      while (level >= 0 && ++at[level] === sizes[level]) at[level--] = 0;
      if (level < 0) return;
    }
  }

  /**
   * Factors by the level at which they become known, with the stride of each axis, 0 where they do
   * not see it. The plan keeps them for reading the choice back.
   */
  private levelsOf(axes: readonly number[], d: number, factors: readonly Factor[]): Level[] {
    const levels = axes.map((): { at: number; strides: number[] }[] => []);
    const parts = axes.map((): Strided[] => []);
    for (const f of factors) {
      const strides = new Array<number>(axes.length).fill(0);
      const own = f.vars.slice(0, -1);
      const steps = new Array<number>(own.length).fill(0);
      let stride = d;
      let level = 0;
      for (let x = own.length - 1; x >= 0; x--) {
        const axis = axes.indexOf(own[x]);
        strides[axis] = stride;
        steps[x] = stride;
        level = Math.max(level, axis);
        stride *= this.sizes[own[x]];
      }
      levels[level].push({ at: f.at, strides });
      parts[level].push({ at: f.at, axes: own, strides: steps });
    }
    this.plan.push(parts.flat());
    return levels;
  }

  private innermostOf(levels: readonly Level[], d: number, width: number): Innermost {
    const last = levels.length - 1;
    const factors = levels[last];
    // Kernels look at whole multiples of four numbers.
    const padded = 4 * Math.ceil(d / 4);
    const cells = tables.numbers;
    cells.fill(Infinity, this.sumAt, this.sumAt + padded);
    cells.fill(Infinity, this.lastAt, this.lastAt + padded);
    return {
      factors,
      at: new Int32Array(factors.length),
      step: factors.map((f) => f.strides[last]),
      d,
      padded,
      width,
    };
  }

  /** Partial sums of the level after this one: the factors that its axis makes known join. */
  private addLevel(factors: Level, level: number, d: number, at: Int32Array): void {
    const cells = tables.numbers;
    const before = this.sums[level];
    const after = this.sums[level + 1];
    for (let a = 0; a < d; a++) after[a] = before[a];
    for (const f of factors) {
      let o = f.at;
      for (let x = 0; x <= level; x++) o += f.strides[x] * at[x];
      for (let a = 0; a < d; a++) after[a] += cells[o + a];
    }
  }

  /** Writes a row of the table: the least sums over the eliminated variable. */
  private leastCells(inner: Innermost, at: Int32Array, cell: number): void {
    const { kernel, numbers: cells } = tables;
    const { factors, d, padded, width, at: starts, step } = inner;
    const last = at.length - 1;
    const sum = this.sums[last];
    const first = this.sumAt;
    for (let k = 0; k < factors.length; k++) {
      let o = factors[k].at;
      for (let x = 0; x < last; x++) o += factors[k].strides[x] * at[x];
      starts[k] = o;
    }
    for (let a = 0; a < d; a++) cells[first + a] = sum[a];
    if (factors.length === 1) {
      kernel.least(8 * first, 8 * padded, 8 * starts[0], 8 * step[0], width, 8 * cell);
    } else if (factors.length === 2) {
      const [x, y] = starts;
      const [xStep, yStep] = step;
      kernel.leastOfTwo(8 * first, 8 * padded, 8 * x, 8 * xStep, 8 * y, 8 * yStep, width, 8 * cell);
    } else this.leastOfMany(inner, sum, cell);
  }

  private leastOfMany(inner: Innermost, sum: Float64Array, cell: number): void {
    const { kernel, numbers: cells } = tables;
    const { d, padded, width, at: starts, step } = inner;
    const final = this.lastAt;
    const most = starts.length - 1;
    for (let b = 0; b < width; b++) {
      for (let a = 0; a < d; a++) cells[final + a] = sum[a];
      for (let k = 0; k < most; k++) {
        const o = starts[k] + b * step[k];
        for (let a = 0; a < d; a++) cells[final + a] += cells[o + a];
      }
      const o = starts[most] + b * step[most];
      kernel.least(8 * final, 8 * padded, 8 * o, 0, 1, 8 * (cell + b));
    }
  }
}
