/**
 * Pareto fronts of labels in flat arrays. A label is `2 + rows` numbers, one after another: reduced
 * cost, priced part of it, amount of every row. Of the sums of labels, scalars and lists of labels,
 * it keeps those within the limits that no other sum beats in true cost and every amount.
 *
 * One object serves a whole elimination: its arrays grow to the largest list and are written again
 * for every cell, because millions of cells hold a handful of labels each, and an array for each of
 * them would keep the garbage collector busy.
 */

/** Sums that would take more than the limits allow. */
export class TooLarge extends Error {}

interface FrontLimits {
  /** Largest reduced cost that may still matter. */
  readonly slack: number;
  /** Most of every row. */
  readonly budget: Float64Array;
  /** Most work in all, see `LabelLimits`. */
  readonly work: number;
  /** Labels that are kept of a front, spread over it; Infinity: all. */
  readonly most: number;
}

/** Shorter lists are sorted by insertion. */
const SHORT = 24;

export class LabelFront {
  /** The labels; the first `count` are valid. */
  data = new Float64Array(1024);
  count = 0;
  /** Work done: combinations tried, and comparisons of labels with more than one row. */
  work = 0;
  private readonly width: number;
  private readonly limits: FrontLimits;
  private other = new Float64Array(1024);
  private order = new Int32Array(64);
  private merged = new Int32Array(64);
  /** True cost of every label of a list. */
  private costs = new Float64Array(64);

  constructor(limits: FrontLimits) {
    this.limits = limits;
    this.width = 2 + limits.budget.length;
  }

  clear(): void {
    this.count = 0;
  }

  /** Counts work. @throws TooLarge */
  spend(work: number): void {
    this.work += work;
    if (this.work > this.limits.work) throw new TooLarge();
  }

  /** Tells whether the label at `at` of `data` keeps the limits. */
  isWithin(data: Float64Array, at: number): boolean {
    const { slack, budget } = this.limits;
    if (!(data[at] <= slack) || data[at] === Infinity) return false;
    for (let r = 0; r < budget.length; r++) if (data[at + 2 + r] > budget[r]) return false;
    return true;
  }

  /** Appends labels `from` to `to` (exclusive) of `data` as they are. */
  append(data: Float64Array, from: number, to: number): void {
    const width = this.width;
    this.reserve((this.count + to - from) * width);
    this.data.set(data.subarray(from * width, to * width), this.count * width);
    this.count += to - from;
  }

  /** Appends one label with another reduced cost. */
  appendAtCost(data: Float64Array, label: number, cost: number): void {
    this.append(data, label, label + 1);
    this.data[(this.count - 1) * this.width] = cost;
  }

  /**
   * Replaces the labels by their sums with labels `from` to `to` (exclusive) of `data`. @throws
   * TooLarge
   */
  addLabels(data: Float64Array, from: number, to: number): void {
    const width = this.width;
    const { slack, budget } = this.limits;
    const rows = budget.length;
    this.spend(this.count * (to - from));
    const most = this.count * (to - from) * width;
    if (this.other.length < most) this.other = new Float64Array(roomFor(most));
    const mine = this.data;
    const sums = this.other;
    let at = 0;
    for (let a = 0; a < this.count * width; a += width) {
      const cost = mine[a];
      const priced = mine[a + 1];
      for (let b = from * width; b < to * width; b += width) {
        const sum = cost + data[b];
        if (!(sum <= slack)) continue;
        let r = 0;
        for (; r < rows; r++) {
          const amount = mine[a + 2 + r] + data[b + 2 + r];
          if (amount > budget[r]) break;
          sums[at + 2 + r] = amount;
        }
        if (r < rows) continue;
        sums[at] = sum;
        sums[at + 1] = priced + data[b + 1];
        at += width;
      }
    }
    this.other = mine;
    this.data = sums;
    this.count = at / width;
    this.reduce();
  }

  /**
   * Keeps the labels that no other beats in true cost and every amount; of equal ones the first.
   * @throws TooLarge
   */
  reduce(): void {
    const { count } = this;
    if (count < 2) return;
    const width = this.width;
    const rows = width - 2;
    const { data } = this;
    if (this.order.length < count) {
      this.order = new Int32Array(roomFor(count));
      this.merged = new Int32Array(roomFor(count));
      this.costs = new Float64Array(roomFor(count));
    }
    const costs = this.costs;
    for (let l = 0; l < count; l++) costs[l] = data[l * width] - data[l * width + 1];
    const isSorted = this.sort();
    const order = this.order;
    // In place where the order is that of the list: a label moves towards the front only.
    if (!isSorted && this.other.length < count * width)
      this.other = new Float64Array(roomFor(count * width));
    const out = isSorted ? data : this.other;
    let kept = 0;
    let least = Infinity;
    let compared = 0;
    for (let k = 0; k < count; k++) {
      const from = (isSorted ? k : order[k]) * width;
      if (rows === 1) {
        if (data[from + 2] >= least) continue;
        least = data[from + 2];
      } else {
        compared += kept;
        if (isDominated(out, kept, data, from, rows)) continue;
      }
      const to = kept++ * width;
      if (out !== data || to !== from) for (let i = 0; i < width; i++) out[to + i] = data[from + i];
    }
    if (out !== data) {
      this.other = data;
      this.data = out;
    }
    this.count = kept;
    this.spend(compared);
    this.spread();
  }

  /** Keeps at most the labels of the limit, the ends of the front among them. */
  private spread(): void {
    const { most } = this.limits;
    if (this.count <= most) return;
    const width = this.width;
    for (let k = 0; k < most; k++) {
      const from = Math.round((k * (this.count - 1)) / (most - 1)) * width;
      this.data.copyWithin(k * width, from, from + width);
    }
    this.count = most;
  }

  /**
   * Orders the labels by true cost, amounts and reduced cost, keeping the order of equal ones; true
   * if they were in order.
   */
  private sort(): boolean {
    const { count } = this;
    let sorted = 1;
    while (sorted < count && this.compare(sorted - 1, sorted) <= 0) sorted++;
    if (sorted === count) return true;
    const order = this.order;
    for (let k = 0; k < count; k++) order[k] = k;
    for (let start = 0; start < count; start += SHORT) {
      const end = Math.min(start + SHORT, count);
      for (let k = start + 1; k < end; k++) {
        const l = order[k];
        let at = k;
        while (at > start && this.compare(order[at - 1], l) > 0) {
          order[at] = order[at - 1];
          at--;
        }
        order[at] = l;
      }
    }
    for (let run = SHORT; run < count; run *= 2) this.mergeRuns(run);
    return false;
  }

  /** Merges neighbouring runs of this length. */
  private mergeRuns(run: number): void {
    const { count } = this;
    const order = this.order;
    const merged = this.merged;
    for (let start = 0; start < count; start += 2 * run) {
      const middle = Math.min(start + run, count);
      const end = Math.min(start + 2 * run, count);
      let a = start;
      let b = middle;
      for (let to = start; to < end; to++) {
        const takesFirst = a < middle && (b === end || this.compare(order[a], order[b]) <= 0);
        merged[to] = takesFirst ? order[a++] : order[b++];
      }
    }
    this.order = merged;
    this.merged = order;
  }

  private compare(a: number, b: number): number {
    const byCost = this.costs[a] - this.costs[b];
    if (byCost !== 0) return byCost;
    const width = this.width;
    const { data } = this;
    const x = a * width;
    const y = b * width;
    for (let i = 2; i < width; i++)
      if (data[x + i] !== data[y + i]) return data[x + i] - data[y + i];
    return data[x] - data[y];
  }

  private reserve(length: number): void {
    if (this.data.length >= length) return;
    const larger = new Float64Array(roomFor(length));
    larger.set(this.data.subarray(0, this.count * this.width));
    this.data = larger;
  }
}

/**
 * Tells whether one of the first `count` labels of `list` has no more of any row than the label at
 * `at` of `data`.
 */
function isDominated(
  list: Float64Array,
  count: number,
  data: Float64Array,
  at: number,
  rows: number,
): boolean {
  const width = 2 + rows;
  for (let l = 0; l < count * width; l += width) {
    let r = 0;
    while (r < rows && list[l + 2 + r] <= data[at + 2 + r]) r++;
    if (r === rows) return true;
  }
  return false;
}

/** Room for so many numbers and some more. */
function roomFor(length: number): number {
  return Math.max(64, length + (length >> 1));
}
