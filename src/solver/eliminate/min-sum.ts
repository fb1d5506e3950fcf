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
  const rank = dims.length;
  const candidates = base.length;
  let total = 1;
  for (const d of dims) total *= d;
  const out = new Float64Array(total).fill(Infinity);
  // Inputs by the level (axis) at which they become fully known; level -1 sees no axis at all.
  const levels: KernelInput[][] = Array.from({ length: rank + 1 }, () => []);
  for (const input of inputs)
    levels[input.axes.length === 0 ? 0 : input.axes[input.axes.length - 1] + 1].push(input);
  const sums: Float64Array[] = Array.from({ length: rank + 1 }, () => new Float64Array(candidates));
  const lists: Int32Array[] = Array.from({ length: rank + 1 }, () => new Int32Array(candidates));
  const counts = new Int32Array(rank + 1);
  const at = new Int32Array(rank);

  const offsetOf = (input: KernelInput): number => {
    let o = 0;
    for (let k = 0; k < input.axes.length; k++) o += input.offsets[k][at[input.axes[k]]];
    return o;
  };

  let live = 0;
  for (let c = 0; c < candidates; c++) {
    let s = base[c];
    for (const input of levels[0]) s += input.cells[c];
    if (s <= slack && s !== Infinity) {
      sums[0][live] = s;
      lists[0][live++] = c;
    }
  }
  counts[0] = live;
  if (live === 0) return out;
  if (rank === 0) {
    let least = Infinity;
    for (let q = 0; q < live; q++) if (sums[0][q] < least) least = sums[0][q];
    out[0] = least;
    return out;
  }

  /** Level rank: the last axis runs in one tight loop. */
  const innermost = (index: number): void => {
    const level = levels[rank];
    const previous = sums[rank - 1];
    const list = lists[rank - 1];
    const count = counts[rank - 1];
    const width = dims[rank - 1];
    if (level.length === 0) {
      let least = Infinity;
      for (let q = 0; q < count; q++) if (previous[q] < least) least = previous[q];
      for (let x = 0; x < width; x++) out[index + x] = least;
      return;
    }
    const first = level[0];
    const firstSteps = first.offsets[first.offsets.length - 1];
    at[rank - 1] = 0;
    const firstBase = offsetOf(first) - firstSteps[0];
    if (level.length === 1) {
      const { cells } = first;
      for (let x = 0; x < width; x++) {
        const o = firstBase + firstSteps[x];
        let least = Infinity;
        for (let q = 0; q < count; q++) {
          const s = previous[q] + cells[o + list[q]];
          if (s < least) least = s;
        }
        if (least <= slack) out[index + x] = least;
      }
      return;
    }
    if (level.length === 2) {
      const second = level[1];
      const secondSteps = second.offsets[second.offsets.length - 1];
      const secondBase = offsetOf(second) - secondSteps[0];
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
      return;
    }
    const bases = level.map(
      (input) => offsetOf(input) - input.offsets[input.offsets.length - 1][0],
    );
    const acc = sums[rank];
    for (let x = 0; x < width; x++) {
      for (let q = 0; q < count; q++) acc[q] = previous[q];
      for (let k = 0; k < level.length; k++) {
        const { cells, offsets } = level[k];
        const o = bases[k] + offsets[offsets.length - 1][x];
        for (let q = 0; q < count; q++) acc[q] += cells[o + list[q]];
      }
      let least = Infinity;
      for (let q = 0; q < count; q++) if (acc[q] < least) least = acc[q];
      if (least <= slack) out[index + x] = least;
    }
  };

  const descend = (axis: number, index: number): void => {
    if (axis === rank - 1) {
      innermost(index * dims[axis]);
      return;
    }
    const level = levels[axis + 1];
    const previous = sums[axis];
    const list = lists[axis];
    const count = counts[axis];
    const mySums = sums[axis + 1];
    const myList = lists[axis + 1];
    for (let x = 0; x < dims[axis]; x++) {
      at[axis] = x;
      if (level.length === 0) {
        mySums.set(previous.subarray(0, count));
        myList.set(list.subarray(0, count));
        counts[axis + 1] = count;
      } else {
        let kept = 0;
        const { cells } = level[0];
        const o = offsetOf(level[0]);
        if (level.length === 1) {
          for (let q = 0; q < count; q++) {
            const c = list[q];
            const s = previous[q] + cells[o + c];
            if (s <= slack && s !== Infinity) {
              mySums[kept] = s;
              myList[kept++] = c;
            }
          }
        } else {
          const offsets = level.map(offsetOf);
          for (let q = 0; q < count; q++) {
            const c = list[q];
            let s = previous[q];
            for (let k = 0; k < level.length; k++) s += level[k].cells[offsets[k] + c];
            if (s <= slack && s !== Infinity) {
              mySums[kept] = s;
              myList[kept++] = c;
            }
          }
        }
        counts[axis + 1] = kept;
        if (kept === 0) continue;
      }
      descend(axis + 1, index * dims[axis] + x);
    }
  };
  descend(0, 0);
  return out;
}
