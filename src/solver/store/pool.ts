/**
 * Hash-consing: every vector, class map and table of the solver is stored once by content and named
 * by a small integer. Equal layers of a model then carry equal integers, and every memo below is a
 * lookup of integers: that is the whole mechanism by which 126 layers cost barely more than two
 * (spec: "share work, not decisions").
 *
 * A *class map* sends the values of a variable to the rows of a table (-1: the value cannot be used
 * at all). Values with equal rows share a class, so a strategy variable with hundreds of values
 * meets its neighbour through the few dozen placements of the one tensor that both see.
 */
import { MinPairsMemo } from './min-pairs.ts';
import { PairMap } from './pair-map.ts';
import type { Table } from './table.ts';
import { TableKernels } from './table-kernels.ts';
import { Store, wordsOf } from './word-store.ts';

export type { Table } from './table.ts';

/** All interned content of one solve. */
export class Pool {
  private readonly vectorStore = new Store();
  private readonly mapStore = new Store();
  private readonly cellStores = new Map<string, Store>();
  private readonly cellTables = new Map<string, Table[]>();
  private readonly vectors: Float64Array[] = [];
  private readonly maps: Int32Array[] = [];
  private readonly counts: number[] = [];
  private readonly minima: number[] = [];
  private readonly barred: boolean[] = [];
  private readonly holes: boolean[] = [];
  private readonly used: number[] = [];
  readonly tables: Table[] = [];
  /**
   * Numbers that are kept: cells of tables, entries of vectors and maps. Nothing is given back
   * before the pool is.
   */
  cells = 0;
  readonly kernels = new TableKernels();
  readonly minPairsMemo = new MinPairsMemo((id) => this.mapOf(id));
  private readonly joins = new PairMap();
  private readonly projections = new PairMap();
  private readonly projected: Int32Array[] = [];
  private readonly composed = new PairMap();
  private readonly gathered = new PairMap();
  private readonly sums = new PairMap();
  private readonly absorbed: (PairMap | undefined)[] = [];
  private readonly inverses = new Map<number, number>();
  private readonly identities: number[] = [];

  /** Interns a cost vector. The array must not be changed afterwards. */
  vector(v: Float64Array): number {
    const id = this.vectorStore.add(wordsOf(v));
    if (id === this.vectors.length) {
      this.vectors.push(v);
      this.cells += v.length;
      let least = Infinity;
      let barred = false;
      for (let i = 0; i < v.length; i++) {
        if (v[i] < least) least = v[i];
        if (v[i] === Infinity) barred = true;
      }
      this.minima.push(least);
      this.barred.push(barred);
    }
    return id;
  }

  vectorOf(id: number): Float64Array {
    return this.vectors[id];
  }

  leastOf(id: number): number {
    return this.minima[id];
  }

  /** Tells whether some entry of a vector is Infinity. */
  isBarred(id: number): boolean {
    return this.barred[id];
  }

  /** Interns a class map: entry = class of the value, or -1. */
  map(m: Int32Array): number {
    const id = this.mapStore.add(m);
    if (id === this.maps.length) {
      this.maps.push(m);
      this.cells += m.length;
      let top = -1;
      let holes = false;
      for (let i = 0; i < m.length; i++) {
        if (m[i] > top) top = m[i];
        if (m[i] < 0) holes = true;
      }
      this.counts.push(top + 1);
      this.holes.push(holes);
      const seen = new Uint8Array(top + 1);
      let used = 0;
      for (let i = 0; i < m.length; i++) {
        if (m[i] < 0 || seen[m[i]] === 1) continue;
        seen[m[i]] = 1;
        used++;
      }
      this.used.push(used);
    }
    return id;
  }

  mapOf(id: number): Int32Array {
    return this.maps[id];
  }

  /** Tells whether some entry of a map is -1. */
  hasHoles(id: number): boolean {
    return this.holes[id];
  }

  /** Number of different classes that a map reaches. */
  reachedOf(id: number): number {
    return this.used[id];
  }

  /** Number of classes of a map (its largest entry plus one). */
  classesOf(id: number): number {
    return this.counts[id];
  }

  /** The identity map on n values. */
  identity(n: number): number {
    return (this.identities[n] ??= this.map(Int32Array.from({ length: n }, (_, i) => i)));
  }

  /** Interns a table. The array must not be changed afterwards. */
  table(dims: readonly number[], cells: Float64Array): Table {
    const shape = dims.join('x');
    let store = this.cellStores.get(shape);
    let list = this.cellTables.get(shape);
    if (store === undefined || list === undefined) {
      store = new Store();
      list = [];
      this.cellStores.set(shape, store);
      this.cellTables.set(shape, list);
    }
    const local = store.add(wordsOf(cells));
    if (local < list.length) return list[local];
    const table: Table = { id: this.tables.length, dims, cells };
    list.push(table);
    this.cells += cells.length;
    this.tables.push(table);
    return table;
  }

  /** The map a -> outer[inner[a]] (-1 stays -1). */
  compose(outer: number, inner: number): number {
    const known = this.composed.get(outer, inner);
    if (known >= 0) return known;
    const o = this.maps[outer];
    const i = this.maps[inner];
    const id = this.map(i.map((x) => (x < 0 ? -1 : o[x])));
    this.composed.set(outer, inner, id);
    return id;
  }

  /** For an injective map: entry of each image, -1 elsewhere (up to its largest image). */
  inverse(id: number): number {
    const known = this.inverses.get(id);
    if (known !== undefined) return known;
    const out = new Int32Array(this.counts[id]).fill(-1);
    this.maps[id].forEach((image, a) => {
      if (image >= 0) out[image] = a;
    });
    const inverse = this.map(out);
    this.inverses.set(id, inverse);
    return inverse;
  }

  /** The vector a -> v[m[a]] (Infinity where the map is -1). */
  gather(vector: number, map: number): number {
    const known = this.gathered.get(vector, map);
    if (known >= 0) return known;
    const v = this.vectors[vector];
    const m = this.maps[map];
    const out = new Float64Array(m.length);
    for (let a = 0; a < m.length; a++) out[a] = m[a] < 0 ? Infinity : v[m[a]];
    const id = this.vector(out);
    this.gathered.set(vector, map, id);
    return id;
  }

  /** Sum of two vectors of equal length. */
  sum(a: number, b: number): number {
    const low = Math.min(a, b);
    const high = Math.max(a, b);
    const known = this.sums.get(low, high);
    if (known >= 0) return known;
    const x = this.vectors[a];
    const y = this.vectors[b];
    const id = this.vector(x.map((c, i) => c + y[i]));
    this.sums.set(low, high, id);
    return id;
  }

  /** The vector a -> v[a] + cells[m[a]] for a one-dimensional table. */
  absorb(vector: number, table: Table, map: number): number {
    const memo = (this.absorbed[table.id] ??= new PairMap());
    const known = memo.get(vector, map);
    if (known >= 0) return known;
    const v = this.vectors[vector];
    const m = this.maps[map];
    const out = new Float64Array(m.length);
    for (let a = 0; a < m.length; a++) out[a] = m[a] < 0 ? Infinity : v[a] + table.cells[m[a]];
    const id = this.vector(out);
    memo.set(vector, map, id);
    return id;
  }

  /**
   * Common refinement of two maps over the same values; classes are numbered by first occurrence.
   */
  join(a: number, b: number): number {
    if (a === b) return a;
    const low = Math.min(a, b);
    const high = Math.max(a, b);
    const known = this.joins.get(low, high);
    if (known >= 0) return known;
    const x = this.maps[low];
    const y = this.maps[high];
    const width = this.counts[high] + 1;
    const seen = new Map<number, number>();
    const out = new Int32Array(x.length);
    for (let i = 0; i < x.length; i++) {
      if (x[i] < 0 || y[i] < 0) {
        out[i] = -1;
        continue;
      }
      const pair = x[i] * width + y[i];
      let c = seen.get(pair);
      if (c === undefined) {
        c = seen.size;
        seen.set(pair, c);
      }
      out[i] = c;
    }
    const map = this.map(out);
    this.joins.set(low, high, map);
    return map;
  }

  /** For a map that refines `coarse`: which coarse class each of its classes lies in. */
  project(fine: number, coarse: number): Int32Array {
    const known = this.projections.get(fine, coarse);
    if (known >= 0) return this.projected[known];
    const f = this.maps[fine];
    const c = this.maps[coarse];
    const out = new Int32Array(this.counts[fine]);
    for (let i = 0; i < f.length; i++) if (f[i] >= 0) out[f[i]] = c[i];
    this.projections.set(fine, coarse, this.projected.push(out) - 1);
    return out;
  }
}
