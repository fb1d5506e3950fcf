/**
 * The checker's own minimisation of a sum of tables over one variable. Written for the checker
 * alone.
 */
import { Refused } from './refused.ts';
import { exactSum, type Grid, type Store } from './store.ts';

/**
 * One table that sees the variable: per axis the place of its variable among the result's axes (-1:
 * the variable).
 */
export interface Summand {
  readonly grid: Grid;
  readonly maps: readonly number[];
  readonly places: readonly number[];
}

/** Largest result, in cells: what it takes of memory. */
const MOST_CELLS = 8_000_000;

/** A table laid out with the candidates of the minimised variable last. */
interface Layout {
  readonly axes: readonly number[];
  /** Per axis: class of the result -> offset. */
  readonly offsets: readonly Int32Array[];
  readonly cells: Float64Array;
}

/**
 * min over the values a of unary[a] + sum of the summands, for all joint classes of the other
 * variables (row-major over `joints`). Entries above `slack` come out as Infinity; a finite slack
 * supposes that no cost is negative.
 */
export function minimise(
  store: Store,
  unary: number,
  own: number,
  joints: readonly number[],
  summands: readonly Summand[],
  slack: number,
): Float64Array {
  exactSum(store.mosts[unary], ...summands.map((s) => s.grid.most));
  const { candidates, base } = candidatesOf(store, unary, own, slack);
  const width = candidates.length;
  const dims = joints.map((j) => store.classes[j]);
  let total = 1;
  for (const d of dims) total *= d;
  if (total > MOST_CELLS)
    throw new Refused(`an elimination of ${total} cells is too wide to replay`);
  store.work.spend(total * (1 + width * (1 + summands.length)));
  const out = new Float64Array(total).fill(Infinity);
  if (width === 0 || total === 0) return out;
  const layouts = summands.map((s) => lay(store, s, own, joints, candidates));
  if (dims.length === 0) out[0] = leastWithoutAxes(base, layouts, slack);
  else new Sweep(base, dims, layouts, slack).run(out);
  return out;
}

/** The classes of the variable that some value at or below the slack has, and their least costs. */
function candidatesOf(
  store: Store,
  unary: number,
  own: number,
  slack: number,
): { readonly candidates: readonly number[]; readonly base: Float64Array } {
  const costs = store.vectors[unary];
  const classOf = store.maps[own];
  const best = new Float64Array(store.classes[own]).fill(Infinity);
  for (let a = 0; a < classOf.length; a++) {
    if (classOf[a] >= 0 && costs[a] <= slack && costs[a] < best[classOf[a]])
      best[classOf[a]] = costs[a];
  }
  const candidates: number[] = [];
  for (let c = 0; c < best.length; c++) if (best[c] !== Infinity) candidates.push(c);
  return { candidates, base: Float64Array.from(candidates, (c) => best[c]) };
}

function leastWithoutAxes(base: Float64Array, layouts: readonly Layout[], slack: number): number {
  let least = Infinity;
  for (let c = 0; c < base.length; c++) {
    let sum = base[c];
    for (const s of layouts) sum += s.cells[c];
    if (sum < least && sum <= slack) least = sum;
  }
  return least;
}

/** Runs over all cells of the result; the last axis is the inner loop. */
class Sweep {
  private readonly last: number;
  /** Tables that do not see the last axis, and those that do, with their offsets along it. */
  private readonly outer: readonly Layout[];
  private readonly inner: readonly Layout[];
  private readonly steps: readonly Int32Array[];
  private readonly bases: Int32Array;
  private readonly at: Int32Array;
  /** Candidates that are left before the last axis is fixed, and their sums. */
  private readonly live: Int32Array;
  private readonly sums: Float64Array;

  constructor(
    private readonly base: Float64Array,
    private readonly dims: readonly number[],
    layouts: readonly Layout[],
    private readonly slack: number,
  ) {
    const last = dims.length - 1;
    this.last = last;
    this.outer = layouts.filter(({ axes }) => !axes.includes(last));
    this.inner = layouts.filter(({ axes }) => axes.includes(last));
    this.steps = this.inner.map((s) => s.offsets[s.axes.indexOf(last)]);
    this.bases = new Int32Array(this.inner.length);
    this.at = new Int32Array(dims.length);
    this.live = new Int32Array(base.length);
    this.sums = new Float64Array(base.length);
  }

  run(out: Float64Array): void {
    const { at, dims, last } = this;
    for (let index = 0; index < out.length; index += dims[last]) {
      const count = this.sumOuter();
      if (count > 0) this.writeRow(out, index, count);
      let k = last - 1;
      while (k >= 0 && ++at[k] === dims[k]) at[k--] = 0;
    }
  }

  /** Adds the tables that do not see the last axis; the number of candidates that are left. */
  private sumOuter(): number {
    const { base, outer, slack, sums, live, at } = this;
    const rows = outer.map((s) => offset(s, at));
    let count = 0;
    for (let c = 0; c < base.length; c++) {
      let sum = base[c];
      for (let k = 0; k < outer.length; k++) sum += outer[k].cells[rows[k] + c];
      if (sum <= slack && sum !== Infinity) {
        sums[count] = sum;
        live[count++] = c;
      }
    }
    return count;
  }

  private writeRow(out: Float64Array, index: number, count: number): void {
    const { inner, steps, bases, at, last, sums, live, slack } = this;
    at[last] = 0;
    for (let k = 0; k < inner.length; k++) bases[k] = offset(inner[k], at) - steps[k][0];
    const width = this.dims[last];
    for (let x = 0; x < width; x++) {
      let least = Infinity;
      if (inner.length === 1) {
        least = leastOfOne(sums, live, count, inner[0].cells, bases[0] + steps[0][x]);
      } else if (inner.length === 2) {
        const [first, second] = inner;
        const from = bases[0] + steps[0][x];
        const other = bases[1] + steps[1][x];
        least = leastOfTwo(sums, live, count, first.cells, from, second.cells, other);
      } else least = this.leastOfAll(count, x);
      if (least <= slack) out[index + x] = least;
    }
  }

  private leastOfAll(count: number, x: number): number {
    const { inner, steps, bases, sums, live } = this;
    let least = Infinity;
    for (let q = 0; q < count; q++) {
      let sum = sums[q];
      for (let k = 0; k < inner.length; k++)
        sum += inner[k].cells[bases[k] + steps[k][x] + live[q]];
      if (sum < least) least = sum;
    }
    return least;
  }
}

function leastOfOne(
  sums: Float64Array,
  live: Int32Array,
  count: number,
  cells: Float64Array,
  from: number,
): number {
  let least = Infinity;
  for (let q = 0; q < count; q++) {
    const sum = sums[q] + cells[from + live[q]];
    if (sum < least) least = sum;
  }
  return least;
}

function leastOfTwo(
  sums: Float64Array,
  live: Int32Array,
  count: number,
  first: Float64Array,
  from: number,
  second: Float64Array,
  other: number,
): number {
  let least = Infinity;
  for (let q = 0; q < count; q++) {
    const c = live[q];
    const sum = sums[q] + first[from + c] + second[other + c];
    if (sum < least) least = sum;
  }
  return least;
}

function offset(layout: Layout, at: Int32Array): number {
  let sum = 0;
  for (let k = 0; k < layout.axes.length; k++) sum += layout.offsets[k][at[layout.axes[k]]];
  return sum;
}

function lay(
  store: Store,
  s: Summand,
  own: number,
  joints: readonly number[],
  candidates: readonly number[],
): Layout {
  const { dims, cells } = s.grid;
  const strides = dims.map((_, k) => dims.slice(k + 1).reduce((a, b) => a * b, 1));
  const ownAxis = s.places.indexOf(-1);
  const toOwn = store.project(own, s.maps[ownAxis]);
  const along = candidates.map((c) => toOwn[c] * strides[ownAxis]);
  const axes: number[] = [];
  dims.forEach((_, k) => {
    if (k !== ownAxis) axes.push(k);
  });
  let rows = 1;
  for (const k of axes) rows *= dims[k];
  store.work.spend(rows * candidates.length);
  const out = new Float64Array(rows * candidates.length);
  const at = new Int32Array(axes.length);
  let to = 0;
  for (let row = 0; row < rows; row++) {
    let base = 0;
    for (let k = 0; k < axes.length; k++) base += at[k] * strides[axes[k]];
    for (const step of along) out[to++] = cells[base + step];
    let k = axes.length - 1;
    while (k >= 0 && ++at[k] === dims[axes[k]]) at[k--] = 0;
  }
  let step = candidates.length;
  const offsets: Int32Array[] = new Array<Int32Array>(axes.length);
  for (let k = axes.length - 1; k >= 0; k--) {
    const scale = step;
    offsets[k] = store.project(joints[s.places[axes[k]]], s.maps[axes[k]]).map((c) => c * scale);
    step *= dims[axes[k]];
  }
  return { axes: axes.map((k) => s.places[k]), offsets, cells: out };
}
