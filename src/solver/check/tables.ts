/**
 * Reads tables for the checker: lowered by messages, levelled by a cut, seen from one variable.
 *
 * A lowered or levelled table is not written out: after a cut most of its classes die, and only
 * what lives is ever asked for (`pick`). It is written for the checker alone.
 */
import { Refused } from './refused.ts';
import { type Grid, LARGEST, level, type Part, type Store } from './store.ts';

/**
 * Amounts per class of a (refined) map: which class of the old table each comes from, and what it
 * loses.
 */
export interface ByClass {
  readonly id: number;
  readonly map: number;
  readonly origin: Int32Array;
  readonly amounts: Float64Array;
}

/** A table less an amount per row and per column. */
export class LoweredGrid implements Grid {
  readonly dims: readonly number[];
  readonly least: number;
  readonly most: number;
  readonly top: number;
  private readonly base: Grid;
  private readonly rows: ByClass;
  private readonly columns: ByClass;
  private grid: Float64Array | undefined;

  constructor(
    readonly id: number,
    base: Grid,
    rows: ByClass,
    columns: ByClass,
  ) {
    this.base = base;
    this.rows = rows;
    this.columns = columns;
    this.dims = [rows.amounts.length, columns.amounts.length];
    const { cells } = base;
    const width = base.dims[1];
    const { origin, amounts } = columns;
    let least = Infinity;
    let top = -Infinity;
    for (let x = 0; x < rows.amounts.length; x++) {
      const from = rows.origin[x] * width;
      const amount = rows.amounts[x];
      for (let y = 0; y < amounts.length; y++) {
        const c = cells[from + origin[y]] - amount - amounts[y];
        if (c < least) least = c;
        if (c !== Infinity && c > top) top = c;
      }
    }
    this.least = least;
    this.top = top;
    this.most = least === Infinity ? 0 : Math.max(Math.abs(least), Math.abs(top));
    if (this.most > LARGEST)
      throw new Refused(`a cost of ${this.most} is not an integer of at most 2^52`);
  }

  get cells(): Float64Array {
    return (this.grid ??= this.pick(all(this.dims[0]), all(this.dims[1])));
  }

  pick(rows: Int32Array, columns: Int32Array): Float64Array {
    const { cells } = this.base;
    const width = this.base.dims[1];
    const out = new Float64Array(rows.length * columns.length);
    let to = 0;
    for (const x of rows) {
      const from = this.rows.origin[x] * width;
      const amount = this.rows.amounts[x];
      for (const y of columns)
        out[to++] = cells[from + this.columns.origin[y]] - amount - this.columns.amounts[y];
    }
    return out;
  }
}

/** A table less its minimum, with all above the slack forbidden. Its `top` may be too large. */
export class LevelledGrid implements Grid {
  readonly dims: readonly number[];
  readonly least: number;
  readonly most: number;
  readonly top: number;
  private readonly base: Grid;
  private readonly slack: number;
  private grid: Float64Array | undefined;

  constructor(
    readonly id: number,
    base: Grid,
    slack: number,
  ) {
    this.base = base;
    this.slack = slack;
    this.dims = base.dims;
    // The minimum itself is never above the slack.
    this.least = base.least === Infinity ? Infinity : 0;
    this.top = Math.min(base.top - base.least, slack);
    this.most = Math.max(0, this.top);
    // What is forbidden may be of any size; what is left may not.
    if (this.top > LARGEST) this.cells.forEach(refuseLarge);
  }

  get cells(): Float64Array {
    return (this.grid ??= level(this.base.cells, this.base.least, this.slack));
  }

  pick(rows: Int32Array, columns: Int32Array): Float64Array {
    const cells = this.base.pick?.(rows, columns);
    if (cells === undefined) throw new Error('internal: a levelled table of a written one');
    return level(cells, this.base.least, this.slack);
  }
}

function refuseLarge(cost: number): void {
  if (cost !== Infinity && cost > LARGEST)
    throw new Refused(`a cost of ${cost} is not an integer of at most 2^52`);
}

function all(n: number): Int32Array {
  return Int32Array.from({ length: n }, (_, k) => k);
}

/**
 * A factor as one of its variables sees it: its own classes against the living classes of the other
 * variable.
 */
export class View {
  private readonly store: Store;
  private readonly part: Part;
  private readonly side: number;
  private readonly own: Int32Array;
  private readonly stride: number;
  /** Per own class: 1 some partner is finite, 2 none is, 0 not looked at. */
  private readonly known: Uint8Array;
  private living: Int32Array | undefined;

  constructor(store: Store, part: Part, side: number) {
    const { dims } = part.grid;
    this.store = store;
    this.part = part;
    this.side = side;
    this.own = store.maps[part.maps[side]];
    this.stride = side === 0 ? dims[1] : 1;
    this.known = new Uint8Array(dims[side]);
  }

  /**
   * Offsets of the living classes of the other variable; undefined in a factor of more than two
   * variables.
   */
  private get others(): Int32Array | undefined {
    if (this.living !== undefined || this.part.vars.length !== 2) return this.living;
    const step = this.side === 0 ? 1 : this.part.grid.dims[1];
    const living = new Set<number>();
    for (const c of this.store.maps[this.part.maps[1 - this.side]])
      if (c >= 0) living.add(c * step);
    this.living = Int32Array.from(living);
    return this.living;
  }

  /** Tells whether the value has a finite partner. */
  allows(a: number): boolean {
    const c = this.own[a];
    if (c < 0) return false;
    if (this.known[c] === 0) {
      // A wide factor is in its smallest form, where a class without a partner is -1.
      const others = this.others;
      if (others === undefined) return true;
      const base = c * this.stride;
      const { cells } = this.part.grid;
      this.known[c] = 2;
      this.store.work.spend(others.length);
      for (const b of others) {
        if (cells[base + b] === Infinity) continue;
        this.known[c] = 1;
        break;
      }
    }
    return this.known[c] === 1;
  }

  /**
   * Largest cost by which value w exceeds value d, which has a finite partner, where d is allowed.
   */
  worst(w: number, d: number): number {
    const [x, y] = [this.own[w], this.own[d]];
    if (x === y) return 0;
    if (x < 0) return Infinity;
    const others = this.others;
    if (others === undefined) throw new Refused('a value next to a wide factor cannot be replaced');
    const [here, there] = [x * this.stride, y * this.stride];
    const { cells } = this.part.grid;
    let most = -Infinity;
    this.store.work.spend(others.length);
    for (let k = 0; k < others.length; k++) {
      const b = others[k];
      if (cells[there + b] === Infinity) continue;
      const more = cells[here + b] - cells[there + b];
      if (more > most) most = more;
    }
    return most;
  }
}

/** For each class of the side: the one position of the other variable that it allows. */
export function functionOf(grid: Grid, side: number, other: Int32Array): Int32Array {
  const { dims, cells } = grid;
  const step = side === 0 ? 1 : dims[1];
  const stride = side === 0 ? dims[1] : 1;
  const position = new Int32Array(dims[1 - side]).fill(-1);
  const shared = new Uint8Array(dims[1 - side]);
  other.forEach((c, p) => {
    if (c < 0) return;
    if (position[c] >= 0) shared[c] = 1;
    position[c] = p;
  });
  const out = new Int32Array(dims[side]).fill(-1);
  for (let a = 0; a < out.length; a++) {
    for (let b = 0; b < dims[1 - side]; b++) {
      if (cells[a * stride + b * step] === Infinity || position[b] < 0) continue;
      if (out[a] >= 0 || shared[b] === 1)
        throw new Refused('a merged variable is not a function of the other');
      out[a] = position[b];
    }
  }
  return out;
}

/** Row and column costs whose sums are the table. */
export function splitOf(store: Store, grid: Grid): readonly [number, number] {
  const [rows, columns] = grid.dims;
  const { cells } = grid;
  store.work.spend(cells.length);
  let least = Infinity;
  for (let b = 0; b < columns; b++) least = Math.min(least, cells[b]);
  const top = Float64Array.from({ length: columns }, (_, b) => cells[b] - least);
  const left = Float64Array.from({ length: rows }, (_, a) => cells[a * columns] - top[0]);
  for (let a = 0; a < rows; a++) {
    for (let b = 0; b < columns; b++) {
      const c = cells[a * columns + b];
      if (c === Infinity || c !== left[a] + top[b])
        throw new Refused('a separated edge is not a sum of two costs');
    }
  }
  return [store.vector(left), store.vector(top)];
}

/** An amount per class; classes whose positions get different amounts are split. */
export function byClass(store: Store, map: number, vector: number): ByClass {
  const list = store.vectors[vector];
  const old = store.maps[map];
  // New classes of an old one form a chain; nearly always it has one link.
  const first = new Int32Array(store.classes[map]).fill(-1);
  const next: number[] = [];
  const origin: number[] = [];
  const amounts: number[] = [];
  const classes = new Int32Array(old.length).fill(-1);
  for (let p = 0; p < old.length; p++) {
    const c = old[p];
    if (c < 0) continue;
    let k = first[c];
    while (k >= 0 && amounts[k] !== list[p]) {
      store.work.spend(1);
      k = next[k];
    }
    if (k < 0) {
      k = origin.length;
      next.push(first[c]);
      first[c] = k;
      origin.push(c);
      amounts.push(list[p]);
    }
    classes[p] = k;
  }
  const split = store.map(classes);
  const costs = Float64Array.from(amounts);
  const id = store.tuple(store.tuple(-1, store.vector(costs)), store.map(Int32Array.from(origin)));
  return { id, map: split, origin: Int32Array.from(origin), amounts: costs };
}
