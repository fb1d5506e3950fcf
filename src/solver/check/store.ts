/**
 * Content store of the checker: vectors, class maps and tables are kept once, named by small
 * integers, so that what was checked for one layer of a model need not be checked again for the
 * next. Written for the checker alone.
 *
 * All costs are integers of at most 2^52 in size or Infinity (forbidden): a sum of two is exact,
 * and whoever adds more than two asks `exactSum` first.
 */
import { Refused } from './refused.ts';
import type { Work } from './work.ts';

/** Costs over classes, row-major. */
export interface Grid {
  readonly id: number;
  readonly dims: readonly number[];
  readonly cells: Float64Array;
  readonly least: number;
  /** Largest finite size. */
  readonly most: number;
  /** Largest finite cost; -Infinity where there is none. */
  readonly top: number;
  /** Two-dimensional tables that are not written out: the cells of these rows and columns. */
  pick?(rows: Int32Array, columns: Int32Array): Float64Array;
}

/** A table over variables; `maps[k]` sends the positions of `vars[k]` to classes of axis k. */
export interface Part {
  readonly vars: readonly number[];
  readonly maps: readonly number[];
  readonly grid: Grid;
  /** No class is without a value or a finite cell, and no two say the same. */
  readonly tidy: boolean;
  /** Every class has a value, so that the least of the table is that of the part. */
  readonly alive?: true;
}

/** Largest size of a cost, so that the sum of two is exact. */
export const LARGEST = 2 ** 52;

/** Refuses unless sums whose terms have these sizes are exact. */
export function exactSum(...sizes: readonly number[]): void {
  let total = 0;
  for (const s of sizes) total += s;
  if (total > 2 * LARGEST) throw new Refused('sums exceed 2^53: the replay would not be exact');
}

/** The costs less their minimum; what exceeds the slack then is forbidden. */
export function level(costs: Float64Array, least: number, slack: number): Float64Array {
  const out = new Float64Array(costs.length);
  for (let k = 0; k < out.length; k++) {
    const c = costs[k] - least;
    out[k] = c > slack ? Infinity : c;
  }
  return out;
}

function wordsOf(cells: Float64Array): Int32Array {
  return new Int32Array(cells.buffer, cells.byteOffset, 2 * cells.length);
}

/** Index of integer arrays by content. */
class Index {
  private readonly slots = new Map<number, number[]>();
  private readonly content: Int32Array[] = [];

  constructor(private readonly work: Work) {}

  find(words: Int32Array): number {
    let h = 0x811c9dc5;
    for (let k = 0; k < words.length; k++) h = Math.imul(h ^ words[k] ^ (h >>> 13), 0x01000193);
    h = Math.imul(h ^ words.length, 0x01000193);
    const slot = this.slots.get(h);
    const fresh = this.content.length;
    if (slot === undefined) {
      this.slots.set(h, [fresh]);
    } else {
      this.work.spend(slot.length);
      for (const id of slot) if (equal(this.content[id], words)) return id;
      slot.push(fresh);
    }
    this.content.push(words);
    return fresh;
  }
}

function equal(a: Int32Array, b: Int32Array): boolean {
  if (a.length !== b.length) return false;
  for (let k = 0; k < a.length; k++) if (a[k] !== b[k]) return false;
  return true;
}

/**
 * Numbers pairs of integers (-1 and above) in order of first appearance; one probe sequence in flat
 * arrays.
 */
class Pairs {
  private first = new Int32Array(32);
  private second = new Int32Array(32);
  private number = new Int32Array(32).fill(-1);
  count = 0;

  /** Number of the pair; equal to the former `count` when it is new. */
  of(a: number, b: number): number {
    const mask = this.number.length - 1;
    let at = spread(a, b) & mask;
    while (this.number[at] >= 0) {
      if (this.first[at] === a && this.second[at] === b) return this.number[at];
      at = (at + 1) & mask;
    }
    this.first[at] = a;
    this.second[at] = b;
    this.number[at] = this.count++;
    const name = this.count - 1;
    if (this.count * 2 > mask) this.double();
    return name;
  }

  private double(): void {
    const [first, second, number] = [this.first, this.second, this.number];
    const size = 2 * number.length;
    this.first = new Int32Array(size);
    this.second = new Int32Array(size);
    this.number = new Int32Array(size).fill(-1);
    for (let from = 0; from < number.length; from++) {
      if (number[from] < 0) continue;
      let at = spread(first[from], second[from]) & (size - 1);
      while (this.number[at] >= 0) at = (at + 1) & (size - 1);
      this.first[at] = first[from];
      this.second[at] = second[from];
      this.number[at] = number[from];
    }
  }
}

function spread(a: number, b: number): number {
  const h = Math.imul(a ^ Math.imul(b, 0x27d4eb2f), 0x165667b1);
  return h ^ (h >>> 16);
}

/** Memo over two integers of at least -1. */
export class PairMemo<T> {
  private readonly pairs = new Pairs();
  private readonly values: T[] = [];

  get(a: number, b: number, make: () => T): T {
    const before = this.values.length;
    const id = this.pairs.of(a, b);
    if (id < before) return this.values[id];
    // The value of a pair may ask for other pairs of this memo while it is made.
    this.values.push(undefined as T);
    const value = make();
    this.values[id] = value;
    return value;
  }
}

export class Store {
  readonly vectors: Float64Array[] = [];
  readonly leasts: number[] = [];
  /** Largest finite size of each vector. */
  readonly mosts: number[] = [];
  readonly maps: Int32Array[] = [];
  /** Number of classes of each map. */
  readonly classes: number[] = [];
  readonly grids: Grid[] = [];
  private readonly vectorIndex: Index;
  private readonly mapIndex: Index;
  private readonly gridIndex = new Map<string, { readonly index: Index; readonly ids: number[] }>();
  private readonly tuples = new Pairs();
  private readonly composed = new PairMemo<number>();
  private readonly gathered = new PairMemo<number>();
  private readonly gatheredZero = new PairMemo<number>();
  private readonly sums = new PairMemo<number>();
  private readonly joins = new PairMemo<number>();
  private readonly identities = new Map<number, number>();

  constructor(readonly work: Work) {
    this.vectorIndex = new Index(work);
    this.mapIndex = new Index(work);
  }

  /** Number of a sequence of small integers, built up from its prefix (start with -1). */
  tuple(prefix: number, next: number): number {
    return this.tuples.of(prefix, next);
  }

  vector(v: Float64Array): number {
    this.work.spend(v.length);
    const id = this.vectorIndex.find(wordsOf(v));
    if (id === this.vectors.length) {
      const { least, most } = range(v);
      this.vectors.push(v);
      this.leasts.push(least);
      this.mosts.push(most);
    }
    return id;
  }

  map(m: Int32Array): number {
    this.work.spend(m.length);
    const id = this.mapIndex.find(m);
    if (id === this.maps.length) {
      this.maps.push(m);
      let top = -1;
      for (const c of m) if (c > top) top = c;
      this.classes.push(top + 1);
    }
    return id;
  }

  identity(n: number): number {
    let id = this.identities.get(n);
    if (id === undefined) {
      id = this.map(Int32Array.from({ length: n }, (_, a) => a));
      this.identities.set(n, id);
    }
    return id;
  }

  grid(dims: readonly number[], cells: Float64Array): Grid {
    this.work.spend(cells.length);
    const shape = dims.join(',');
    let shelf = this.gridIndex.get(shape);
    if (shelf === undefined) {
      shelf = { index: new Index(this.work), ids: [] };
      this.gridIndex.set(shape, shelf);
    }
    const local = shelf.index.find(wordsOf(cells));
    if (local < shelf.ids.length) return this.grids[shelf.ids[local]];
    const grid: Grid = { id: this.grids.length, dims, cells, ...range(cells) };
    shelf.ids.push(grid.id);
    this.grids.push(grid);
    return grid;
  }

  /** A table that is remembered by how it was made: its content is not looked up. */
  admit(make: (id: number) => Grid): Grid {
    const grid = make(this.grids.length);
    this.grids.push(grid);
    return grid;
  }

  /** a -> outer[inner[a]]; -1 stays. */
  compose(outer: number, inner: number): number {
    return this.composed.get(outer, inner, () => {
      const o = this.maps[outer];
      return this.map(this.maps[inner].map((x) => (x < 0 ? -1 : o[x])));
    });
  }

  /** a -> vector[map[a]], Infinity where the map is -1. */
  gather(vector: number, map: number): number {
    return this.gathered.get(vector, map, () =>
      this.vector(pick(this.vectors[vector], this.maps[map], Infinity)),
    );
  }

  /** a -> vector[map[a]], 0 where the map is -1. */
  gatherOrZero(vector: number, map: number): number {
    return this.gatheredZero.get(vector, map, () =>
      this.vector(pick(this.vectors[vector], this.maps[map], 0)),
    );
  }

  sum(a: number, b: number): number {
    return this.sums.get(Math.min(a, b), Math.max(a, b), () => {
      const y = this.vectors[b];
      return this.vector(this.vectors[a].map((c, k) => c + y[k]));
    });
  }

  /** Common refinement, classes numbered by first occurrence; -1 where either is. */
  join(a: number, b: number): number {
    if (a === b) return a;
    return this.joins.get(a, b, () => {
      const x = this.maps[a];
      const y = this.maps[b];
      const width = this.classes[b] + 1;
      const seen = new Map<number, number>();
      return this.map(
        x.map((c, k) => {
          if (c < 0 || y[k] < 0) return -1;
          const pair = c * width + y[k];
          const known = seen.get(pair);
          if (known !== undefined) return known;
          seen.set(pair, seen.size);
          return seen.size - 1;
        }),
      );
    });
  }

  /** For a map that refines `coarse`: the coarse class of each of its classes. */
  project(fine: number, coarse: number): Int32Array {
    const f = this.maps[fine];
    const c = this.maps[coarse];
    const out = new Int32Array(this.classes[fine]);
    for (let a = 0; a < f.length; a++) if (f[a] >= 0) out[f[a]] = c[a];
    return out;
  }
}

function pick(vector: Float64Array, map: Int32Array, otherwise: number): Float64Array {
  const out = new Float64Array(map.length);
  for (let a = 0; a < map.length; a++) out[a] = map[a] < 0 ? otherwise : vector[map[a]];
  return out;
}

function range(cells: Float64Array): Pick<Grid, 'least' | 'most' | 'top'> {
  let least = Infinity;
  let top = -Infinity;
  let most = 0;
  for (let k = 0; k < cells.length; k++) {
    const c = cells[k];
    if (c === Infinity) continue;
    const size = c < 0 ? -c : c;
    if (!(size <= LARGEST) || Math.floor(c) !== c)
      throw new Refused(`a cost of ${c} is not an integer of at most 2^52`);
    if (c < least) least = c;
    if (c > top) top = c;
    if (size > most) most = size;
  }
  return { least, most, top };
}
