/**
 * The inner loop of elimination: minimise a sum of tables over one variable.
 *
 * The result runs over the joint classes of the other variables. Tables enter the partial sum as
 * soon as their last variable is fixed, so the innermost loop adds only the tables that see the
 * last axis; candidates of the eliminated variable whose partial sum exceeds `slack` are dropped on
 * the way down (all later summands are non-negative, which is the caller's promise whenever `slack`
 * is finite).
 */

/** One table as the kernel wants it: cells with the eliminated variable's candidates last. */
export interface KernelInput {
  /** Result axes that the table sees, ascending. */
  readonly axes: readonly number[];
  /**
   * Per seen axis: joint class -> offset into `cells` (multiples of the candidate count included).
   */
  readonly offsets: readonly Int32Array[];
  readonly cells: Float64Array;
}

/**
 * min over candidates c of base[c] + sum of inputs, for every combination of joint classes.
 * Returns the cells row-major over `dims`; Infinity where no candidate remains at or below `slack`.
 */
export function minimise(
  dims: readonly number[],
  base: Float64Array,
  inputs: readonly KernelInput[],
  slack: number,
): Float64Array {
  return new Minimisation(dims, base.length, inputs, slack).run(base);
}

class Minimisation {
  private readonly rank: number;
  private readonly out: Float64Array;
  /** Inputs by the level at which they become fully known; at level 0 those that see no axis. */
  private readonly levels: readonly KernelInput[][];
  /** Per level: partial sums of the candidates that are left, these candidates, and their count. */
  private readonly sums: readonly Float64Array[];
  private readonly lists: readonly Int32Array[];
  private readonly counts: Int32Array;
  /** The joint class of each axis that is fixed. */
  private readonly at: Int32Array;

  constructor(
    private readonly dims: readonly number[],
    candidates: number,
    inputs: readonly KernelInput[],
    private readonly slack: number,
  ) {
    const rank = dims.length;
    let total = 1;
    for (const d of dims) total *= d;
    this.rank = rank;
    this.out = new Float64Array(total).fill(Infinity);
    this.levels = Array.from({ length: rank + 1 }, () => []);
    for (const input of inputs)
      this.levels[input.axes.length === 0 ? 0 : input.axes[input.axes.length - 1] + 1].push(input);
    this.sums = Array.from({ length: rank + 1 }, () => new Float64Array(candidates));
    this.lists = Array.from({ length: rank + 1 }, () => new Int32Array(candidates));
    this.counts = new Int32Array(rank + 1);
    this.at = new Int32Array(rank);
  }

  run(base: Float64Array): Float64Array {
    this.seed(base);
    if (this.counts[0] === 0) return this.out;
    if (this.rank === 0) this.out[0] = leastOf(this.sums[0], this.counts[0]);
    else this.descend(0, 0);
    return this.out;
  }

  /** Level 0: the base and the inputs that see no axis. */
  private seed(base: Float64Array): void {
    const { slack } = this;
    const sums = this.sums[0];
    const list = this.lists[0];
    let live = 0;
    for (let c = 0; c < base.length; c++) {
      let s = base[c];
      for (const input of this.levels[0]) s += input.cells[c];
      if (s <= slack && s !== Infinity) {
        sums[live] = s;
        list[live++] = c;
      }
    }
    this.counts[0] = live;
  }

  private descend(axis: number, index: number): void {
    const width = this.dims[axis];
    if (axis === this.rank - 1) {
      this.innermost(index * width);
      return;
    }
    for (let x = 0; x < width; x++) {
      this.at[axis] = x;
      if (this.fix(axis)) this.descend(axis + 1, index * width + x);
    }
  }

  /** Adds the inputs that are known once an axis is fixed; false when no candidate is left. */
  private fix(axis: number): boolean {
    const level = this.levels[axis + 1];
    if (level.length > 0) {
      const kept = level.length === 1 ? this.addOne(axis, level[0]) : this.addAll(axis, level);
      this.counts[axis + 1] = kept;
      return kept > 0;
    }
    const count = this.counts[axis];
    this.sums[axis + 1].set(this.sums[axis].subarray(0, count));
    this.lists[axis + 1].set(this.lists[axis].subarray(0, count));
    this.counts[axis + 1] = count;
    return true;
  }

  private addOne(axis: number, input: KernelInput): number {
    const { slack } = this;
    const { cells } = input;
    const previous = this.sums[axis];
    const list = this.lists[axis];
    const count = this.counts[axis];
    const mySums = this.sums[axis + 1];
    const myList = this.lists[axis + 1];
    const o = this.offsetOf(input);
    let kept = 0;
    for (let q = 0; q < count; q++) {
      const c = list[q];
      const s = previous[q] + cells[o + c];
      if (s <= slack && s !== Infinity) {
        mySums[kept] = s;
        myList[kept++] = c;
      }
    }
    return kept;
  }

  private addAll(axis: number, level: readonly KernelInput[]): number {
    const { slack } = this;
    const previous = this.sums[axis];
    const list = this.lists[axis];
    const count = this.counts[axis];
    const mySums = this.sums[axis + 1];
    const myList = this.lists[axis + 1];
    const offsets = level.map((input) => this.offsetOf(input));
    let kept = 0;
    for (let q = 0; q < count; q++) {
      const c = list[q];
      let s = previous[q];
      for (let k = 0; k < level.length; k++) s += level[k].cells[offsets[k] + c];
      if (s <= slack && s !== Infinity) {
        mySums[kept] = s;
        myList[kept++] = c;
      }
    }
    return kept;
  }

  /** The last axis runs in one tight loop over the cells of the result. */
  private innermost(index: number): void {
    const { rank } = this;
    const level = this.levels[rank];
    this.at[rank - 1] = 0;
    if (level.length === 0) {
      const least = leastOf(this.sums[rank - 1], this.counts[rank - 1]);
      this.out.fill(least, index, index + this.dims[rank - 1]);
    } else if (level.length === 1) this.innermostOne(index, level[0]);
    else if (level.length === 2) this.innermostTwo(index, level[0], level[1]);
    else this.innermostAll(index, level);
  }

  private innermostOne(index: number, input: KernelInput): void {
    const { out, slack } = this;
    const { offsets, cells } = input;
    const last = this.rank - 1;
    const previous = this.sums[last];
    const list = this.lists[last];
    const count = this.counts[last];
    const width = this.dims[last];
    const steps = offsets[offsets.length - 1];
    const base = this.offsetOf(input) - steps[0];
    for (let x = 0; x < width; x++) {
      const o = base + steps[x];
      let least = Infinity;
      for (let q = 0; q < count; q++) {
        const s = previous[q] + cells[o + list[q]];
        if (s < least) least = s;
      }
      if (least <= slack) out[index + x] = least;
    }
  }

  private innermostTwo(index: number, first: KernelInput, second: KernelInput): void {
    const { out, slack } = this;
    const last = this.rank - 1;
    const previous = this.sums[last];
    const list = this.lists[last];
    const count = this.counts[last];
    const width = this.dims[last];
    const firstSteps = first.offsets[first.offsets.length - 1];
    const secondSteps = second.offsets[second.offsets.length - 1];
    const firstBase = this.offsetOf(first) - firstSteps[0];
    const secondBase = this.offsetOf(second) - secondSteps[0];
    const a = first.cells;
    const b = second.cells;
    for (let x = 0; x < width; x++) {
      const o = firstBase + firstSteps[x];
      const p = secondBase + secondSteps[x];
      let least = Infinity;
      for (let q = 0; q < count; q++) {
        const c = list[q];
        const s = previous[q] + a[o + c] + b[p + c];
        if (s < least) least = s;
      }
      if (least <= slack) out[index + x] = least;
    }
  }

  private innermostAll(index: number, level: readonly KernelInput[]): void {
    const { out, slack } = this;
    const last = this.rank - 1;
    const previous = this.sums[last];
    const list = this.lists[last];
    const count = this.counts[last];
    const width = this.dims[last];
    const bases = level.map(
      (input) => this.offsetOf(input) - input.offsets[input.offsets.length - 1][0],
    );
    const acc = this.sums[last + 1];
    for (let x = 0; x < width; x++) {
      for (let q = 0; q < count; q++) acc[q] = previous[q];
      for (let k = 0; k < level.length; k++) {
        const { cells, offsets } = level[k];
        const o = bases[k] + offsets[offsets.length - 1][x];
        for (let q = 0; q < count; q++) acc[q] += cells[o + list[q]];
      }
      const least = leastOf(acc, count);
      if (least <= slack) out[index + x] = least;
    }
  }

  /** Where the joint classes that are fixed lie in the cells of an input. */
  private offsetOf({ axes, offsets }: KernelInput): number {
    const { at } = this;
    let o = 0;
    for (let k = 0; k < axes.length; k++) o += offsets[k][at[axes[k]]];
    return o;
  }
}

function leastOf(sums: Float64Array, count: number): number {
  let least = Infinity;
  for (let q = 0; q < count; q++) if (sums[q] < least) least = sums[q];
  return least;
}
