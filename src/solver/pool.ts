/**
 * Hash-consing: every vector, class map and table of the solver is stored once by content and named by a small integer.
 * Equal layers of a model then carry equal integers, and every memo below is a lookup of integers: that is the whole
 * mechanism by which 126 layers cost barely more than two (spec: "share work, not decisions").
 *
 * A *class map* sends the values of a variable to the rows of a table (-1: the value cannot be used at all). Values with
 * equal rows share a class, so a strategy variable with hundreds of values meets its neighbour through the few dozen
 * placements of the one tensor that both see.
 */
import { Splits } from './offers.ts';
import { PairMap } from './pair-map.ts';
import type { Table } from './table.ts';

export type { Table } from './table.ts';

const GOLDEN = 0x9e3779b1 | 0;

/** Hash of the bits of an array, order-sensitive; callers compare content on equal hashes. */
function hashWords(words: Int32Array, seed: number): number {
  let h = seed ^ words.length;
  for (let i = 0; i < words.length; i++) {
    h = Math.imul(h ^ words[i], GOLDEN);
    h ^= h >>> 15;
  }
  return h;
}

function sameWords(a: Int32Array, b: Int32Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

function wordsOf(v: Float64Array): Int32Array {
  return new Int32Array(v.buffer, v.byteOffset, v.length * 2);
}

/** One content-addressed store of integer arrays. */
class Store {
  readonly #byHash = new Map<number, number[]>();
  readonly #words: Int32Array[] = [];

  /** Id of the content, and whether it was new. */
  add(words: Int32Array, seed = 0): number {
    const h = hashWords(words, seed);
    const bucket = this.#byHash.get(h);
    if (bucket !== undefined) {
      for (const id of bucket) if (sameWords(this.#words[id], words)) return id;
      bucket.push(this.#words.length);
    } else {
      this.#byHash.set(h, [this.#words.length]);
    }
    this.#words.push(words);
    return this.#words.length - 1;
  }

  get count(): number {
    return this.#words.length;
  }
}

/** All interned content of one solve. */
export class Pool {
  readonly #vectorStore = new Store();
  readonly #mapStore = new Store();
  readonly #cellStores = new Map<string, Store>();
  readonly #cellTables = new Map<string, Table[]>();
  readonly #vectors: Float64Array[] = [];
  readonly #maps: Int32Array[] = [];
  readonly #counts: number[] = [];
  readonly #minima: number[] = [];
  readonly #barred: boolean[] = [];
  readonly #holes: boolean[] = [];
  readonly #used: number[] = [];
  readonly tables: Table[] = [];
  readonly splits = new Splits((id) => this.mapOf(id));
  readonly #joins = new PairMap();
  readonly #projections = new PairMap();
  readonly #projected: Int32Array[] = [];
  readonly #composed = new PairMap();
  readonly #gathered = new PairMap();
  readonly #sums = new PairMap();
  readonly #absorbed: (PairMap | undefined)[] = [];
  readonly #inverses = new Map<number, number>();
  readonly #identities: number[] = [];

  /** Interns a cost vector. The array must not be changed afterwards. */
  vector(v: Float64Array): number {
    const id = this.#vectorStore.add(wordsOf(v));
    if (id === this.#vectors.length) {
      this.#vectors.push(v);
      let least = Infinity;
      let barred = false;
      for (let i = 0; i < v.length; i++) {
        if (v[i] < least) least = v[i];
        if (v[i] === Infinity) barred = true;
      }
      this.#minima.push(least);
      this.#barred.push(barred);
    }
    return id;
  }

  vectorOf(id: number): Float64Array {
    return this.#vectors[id];
  }

  leastOf(id: number): number {
    return this.#minima[id];
  }

  /** Whether some entry of a vector is Infinity. */
  isBarred(id: number): boolean {
    return this.#barred[id];
  }

  /** Interns a class map: entry = class of the value, or -1. */
  map(m: Int32Array): number {
    const id = this.#mapStore.add(m);
    if (id === this.#maps.length) {
      this.#maps.push(m);
      let top = -1;
      let holes = false;
      for (let i = 0; i < m.length; i++) {
        if (m[i] > top) top = m[i];
        if (m[i] < 0) holes = true;
      }
      this.#counts.push(top + 1);
      this.#holes.push(holes);
      const seen = new Uint8Array(top + 1);
      let used = 0;
      for (let i = 0; i < m.length; i++) {
        if (m[i] < 0 || seen[m[i]] === 1) continue;
        seen[m[i]] = 1;
        used++;
      }
      this.#used.push(used);
    }
    return id;
  }

  mapOf(id: number): Int32Array {
    return this.#maps[id];
  }

  /** Whether some entry of a map is -1. */
  hasHoles(id: number): boolean {
    return this.#holes[id];
  }

  /** Number of different classes that a map reaches. */
  reachedOf(id: number): number {
    return this.#used[id];
  }

  /** Number of classes of a map (its largest entry plus one). */
  classesOf(id: number): number {
    return this.#counts[id];
  }

  /** The identity map on n values. */
  identity(n: number): number {
    return (this.#identities[n] ??= this.map(Int32Array.from({ length: n }, (_, i) => i)));
  }

  /** Interns a table. The array must not be changed afterwards. */
  table(dims: readonly number[], cells: Float64Array): Table {
    const shape = dims.join('x');
    let store = this.#cellStores.get(shape);
    let list = this.#cellTables.get(shape);
    if (store === undefined || list === undefined) {
      store = new Store();
      list = [];
      this.#cellStores.set(shape, store);
      this.#cellTables.set(shape, list);
    }
    const local = store.add(wordsOf(cells));
    if (local < list.length) return list[local];
    const table: Table = { id: this.tables.length, dims, cells };
    list.push(table);
    this.tables.push(table);
    return table;
  }

  /** The map a -> outer[inner[a]] (-1 stays -1). */
  compose(outer: number, inner: number): number {
    const known = this.#composed.get(outer, inner);
    if (known >= 0) return known;
    const o = this.#maps[outer];
    const i = this.#maps[inner];
    const id = this.map(i.map((x) => (x < 0 ? -1 : o[x])));
    this.#composed.set(outer, inner, id);
    return id;
  }

  /** For an injective map: entry of each image, -1 elsewhere (up to its largest image). */
  inverse(id: number): number {
    const known = this.#inverses.get(id);
    if (known !== undefined) return known;
    const out = new Int32Array(this.#counts[id]).fill(-1);
    this.#maps[id].forEach((image, a) => {
      if (image >= 0) out[image] = a;
    });
    const inverse = this.map(out);
    this.#inverses.set(id, inverse);
    return inverse;
  }

  /** The vector a -> v[m[a]] (Infinity where the map is -1). */
  gather(vector: number, map: number): number {
    const known = this.#gathered.get(vector, map);
    if (known >= 0) return known;
    const v = this.#vectors[vector];
    const m = this.#maps[map];
    const out = new Float64Array(m.length);
    for (let a = 0; a < m.length; a++) out[a] = m[a] < 0 ? Infinity : v[m[a]];
    const id = this.vector(out);
    this.#gathered.set(vector, map, id);
    return id;
  }

  /** Sum of two vectors of equal length. */
  sum(a: number, b: number): number {
    const low = Math.min(a, b);
    const high = Math.max(a, b);
    const known = this.#sums.get(low, high);
    if (known >= 0) return known;
    const x = this.#vectors[a];
    const y = this.#vectors[b];
    const id = this.vector(x.map((c, i) => c + y[i]));
    this.#sums.set(low, high, id);
    return id;
  }

  /** The vector a -> v[a] + cells[m[a]] for a one-dimensional table. */
  absorb(vector: number, table: Table, map: number): number {
    const memo = (this.#absorbed[table.id] ??= new PairMap());
    const known = memo.get(vector, map);
    if (known >= 0) return known;
    const v = this.#vectors[vector];
    const m = this.#maps[map];
    const out = new Float64Array(m.length);
    for (let a = 0; a < m.length; a++) out[a] = m[a] < 0 ? Infinity : v[a] + table.cells[m[a]];
    const id = this.vector(out);
    memo.set(vector, map, id);
    return id;
  }

  /** Common refinement of two maps over the same values; classes are numbered by first occurrence. */
  join(a: number, b: number): number {
    if (a === b) return a;
    const low = Math.min(a, b);
    const high = Math.max(a, b);
    const known = this.#joins.get(low, high);
    if (known >= 0) return known;
    const x = this.#maps[low];
    const y = this.#maps[high];
    const width = this.#counts[high] + 1;
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
    this.#joins.set(low, high, map);
    return map;
  }

  /** For a map that refines `coarse`: which coarse class each of its classes lies in. */
  project(fine: number, coarse: number): Int32Array {
    const known = this.#projections.get(fine, coarse);
    if (known >= 0) return this.#projected[known];
    const f = this.#maps[fine];
    const c = this.#maps[coarse];
    const out = new Int32Array(this.#counts[fine]);
    for (let i = 0; i < f.length; i++) if (f[i] >= 0) out[f[i]] = c[i];
    this.#projections.set(fine, coarse, this.#projected.push(out) - 1);
    return out;
  }
}

/** A table over classes together with the class map of each argument. */
export interface Mapped {
  readonly table: Table;
  readonly maps: readonly number[];
}

/**
 * Smallest form of a table: classes that no value uses are dropped, classes with equal slices are merged, classes whose
 * slice is wholly forbidden become -1, and the rest are numbered by their first value, so that tables which differ only
 * in the names of their classes become equal. Exact.
 */
export function compress(
  pool: Pool,
  givenDims: readonly number[],
  givenCells: Float64Array,
  maps: readonly number[],
): Mapped {
  const { dims, cells, arrays, shrunk } = reachedOnly(pool, givenDims, givenCells, maps);
  const words = wordsOf(cells);
  const rank = dims.length;
  const remaps: Int32Array[] = [];
  const newDims: number[] = [];
  const newMaps: number[] = [];
  let stride = cells.length;
  let changed = shrunk;
  for (let axis = 0; axis < rank; axis++) {
    const d = dims[axis];
    const block = stride;
    stride = d === 0 ? 0 : stride / d;
    const hash = new Int32Array(d);
    const finite = new Uint8Array(d);
    hashSlices(words, cells.length, block, stride, hash, finite);
    const merged = new Int32Array(d).fill(-2);
    const representatives: number[] = [];
    const byHash = new Map<number, number[]>();
    const map = arrays[axis];
    const fresh = new Int32Array(map.length);
    let same = true;
    for (let value = 0; value < map.length; value++) {
      const c = map[value];
      if (c < 0) {
        fresh[value] = -1;
        continue;
      }
      if (merged[c] === -2) {
        if (finite[c] === 0) {
          merged[c] = -1;
        } else {
          const bucket = byHash.get(hash[c]);
          let found = -1;
          if (bucket !== undefined) {
            for (const r of bucket) {
              if (equalSlices(words, cells.length, block, stride, representatives[r], c)) {
                found = r;
                break;
              }
            }
          }
          if (found < 0) {
            found = representatives.length;
            representatives.push(c);
            if (bucket === undefined) byHash.set(hash[c], [found]);
            else bucket.push(found);
          }
          merged[c] = found;
        }
      }
      fresh[value] = merged[c];
      if (merged[c] !== c) same = false;
    }
    if (representatives.length !== d) same = false;
    if (same) {
      newMaps.push(map === pool.mapOf(maps[axis]) ? maps[axis] : pool.map(map));
    } else {
      newMaps.push(pool.map(fresh));
      changed = true;
    }
    newDims.push(representatives.length);
    remaps.push(Int32Array.from(representatives));
  }
  if (!changed) return { table: pool.table(dims, cells), maps };
  return { table: pool.table(newDims, pick(dims, cells, remaps)), maps: newMaps };
}

/** High word of Infinity; every other high word is that of a finite cost. */
const INFINITE = 0x7ff00000;

/** Hash of each slice of one axis, and whether it holds anything finite. Integers only: doubles are slow until compiled. */
function hashSlices(
  words: Int32Array,
  length: number,
  block: number,
  stride: number,
  hash: Int32Array,
  finite: Uint8Array,
): void {
  for (let base = 0; base < length; base += block) {
    for (let c = 0; c < hash.length; c++) {
      let h = hash[c];
      let f = finite[c];
      const end = 2 * (base + (c + 1) * stride);
      for (let p = end - 2 * stride; p < end; p += 2) {
        const high = words[p + 1];
        if (high !== INFINITE) f = 1;
        h = Math.imul(h ^ words[p], GOLDEN);
        h = Math.imul(h ^ high ^ (h >>> 15), GOLDEN);
      }
      hash[c] = h;
      finite[c] = f;
    }
  }
}

/** Drops the classes that no value reaches, so that the rest of the work is on what is left. */
function reachedOnly(
  pool: Pool,
  dims: readonly number[],
  cells: Float64Array,
  maps: readonly number[],
): { dims: readonly number[]; cells: Float64Array; arrays: readonly Int32Array[]; shrunk: boolean } {
  const arrays = maps.map((m) => pool.mapOf(m));
  if (maps.every((m, axis) => pool.reachedOf(m) === dims[axis])) return { dims, cells, arrays, shrunk: false };
  const keep: Int32Array[] = [];
  const renamed = arrays.map((map, axis) => {
    const rename = new Int32Array(dims[axis]).fill(-1);
    for (const c of map) if (c >= 0) rename[c] = 0;
    const list: number[] = [];
    for (let c = 0; c < rename.length; c++) if (rename[c] === 0) rename[c] = list.push(c) - 1;
    keep.push(Int32Array.from(list));
    return list.length === dims[axis] ? map : map.map((c) => (c < 0 ? -1 : rename[c]));
  });
  return { dims: keep.map((k) => k.length), cells: pick(dims, cells, keep), arrays: renamed, shrunk: true };
}

function equalSlices(words: Int32Array, length: number, block: number, stride: number, a: number, b: number): boolean {
  for (let base = 0; base < length; base += block) {
    let p = 2 * (base + a * stride);
    let q = 2 * (base + b * stride);
    for (let i = 0; i < 2 * stride; i++) if (words[p++] !== words[q++]) return false;
  }
  return true;
}

/** Sub-table of the listed classes on every axis. */
function pick(dims: readonly number[], cells: Float64Array, keep: readonly Int32Array[]): Float64Array {
  const rank = dims.length;
  let total = 1;
  for (const k of keep) total *= k.length;
  const out = new Float64Array(total);
  if (total === 0) return out;
  const strides: number[] = new Array<number>(rank).fill(1);
  for (let i = rank - 2; i >= 0; i--) strides[i] = strides[i + 1] * dims[i + 1];
  const at = new Int32Array(rank);
  const last = keep[rank - 1];
  let p = 0;
  for (;;) {
    let base = 0;
    for (let i = 0; i < rank - 1; i++) base += keep[i][at[i]] * strides[i];
    for (let i = 0; i < last.length; i++) out[p++] = cells[base + last[i]];
    let axis = rank - 2;
    while (axis >= 0 && ++at[axis] === keep[axis].length) at[axis--] = 0;
    if (axis < 0) return out;
  }
}
