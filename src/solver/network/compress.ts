/**
 * Tables in their smallest form, so that those which differ only in the names of their classes
 * become equal.
 */
import type { Pool } from '../store/pool.ts';
import type { Table } from '../store/table.ts';
import { GOLDEN, wordsOf } from '../store/word-store.ts';

/** A table over classes together with the class map of each argument. */
export interface Mapped {
  readonly table: Table;
  readonly maps: readonly number[];
}

/**
 * Smallest form of a table: classes that no value uses are dropped, classes with equal slices are
 * merged, classes whose slice is wholly forbidden become -1, and the rest are numbered by their
 * first value, so that tables which differ only in the names of their classes become equal. Exact.
 */
export function compress(
  pool: Pool,
  givenDims: readonly number[],
  givenCells: Float64Array,
  maps: readonly number[],
): Mapped {
  const { dims, cells, arrays, shrunk } = reachedOnly(pool, givenDims, givenCells, maps);
  const words = wordsOf(cells);
  const remaps: Int32Array[] = [];
  const newDims: number[] = [];
  const newMaps: number[] = [];
  let stride = cells.length;
  let changed = shrunk;
  for (let axis = 0; axis < dims.length; axis++) {
    const d = dims[axis];
    const block = stride;
    stride = d === 0 ? 0 : stride / d;
    const map = arrays[axis];
    const { representatives, fresh } = mergeClasses(
      { words, length: cells.length, block, stride },
      d,
      map,
    );
    if (fresh === undefined) {
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

/** The slices of one axis in the words of a table's cells. */
interface Slices {
  readonly words: Int32Array;
  /** Cells in all, between two slices of one class, and of a piece of a slice. */
  readonly length: number;
  readonly block: number;
  readonly stride: number;
}

/**
 * Merges the classes of an axis whose slices are equal. `fresh` is the new map; undefined where
 * every class stays as it is.
 */
function mergeClasses(
  slices: Slices,
  d: number,
  map: Int32Array,
): { readonly representatives: readonly number[]; readonly fresh: Int32Array | undefined } {
  const hash = new Int32Array(d);
  const finite = new Uint8Array(d);
  hashSlices(slices, hash, finite);
  const merged = new Int32Array(d).fill(-2);
  const representatives: number[] = [];
  const byHash = new Map<number, number[]>();
  const fresh = new Int32Array(map.length);
  let same = true;
  for (let value = 0; value < map.length; value++) {
    const c = map[value];
    if (c < 0) {
      fresh[value] = -1;
      continue;
    }
    if (merged[c] === -2)
      merged[c] =
        finite[c] === 0 ? -1 : representativeOf(slices, c, hash[c], representatives, byHash);
    fresh[value] = merged[c];
    if (merged[c] !== c) same = false;
  }
  if (representatives.length !== d) same = false;
  return { representatives, fresh: same ? undefined : fresh };
}

/** The number of the first class with an equal slice; a class without one becomes the next. */
function representativeOf(
  slices: Slices,
  c: number,
  hash: number,
  representatives: number[],
  byHash: Map<number, number[]>,
): number {
  const bucket = byHash.get(hash);
  if (bucket !== undefined)
    for (const r of bucket) if (equalSlices(slices, representatives[r], c)) return r;
  const made = representatives.push(c) - 1;
  if (bucket === undefined) byHash.set(hash, [made]);
  else bucket.push(made);
  return made;
}

/** High word of Infinity; every other high word is that of a finite cost. */
const INFINITE = 0x7ff00000;

/**
 * Hash of each slice of one axis, and whether it holds anything finite. Integers only: doubles are
 * slow until compiled.
 */
function hashSlices(
  { words, length, block, stride }: Slices,
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
): {
  dims: readonly number[];
  cells: Float64Array;
  arrays: readonly Int32Array[];
  shrunk: boolean;
} {
  const arrays = maps.map((m) => pool.mapOf(m));
  if (maps.every((m, axis) => pool.reachedOf(m) === dims[axis]))
    return { dims, cells, arrays, shrunk: false };
  const keep: Int32Array[] = [];
  const renamed = arrays.map((map, axis) => {
    const rename = new Int32Array(dims[axis]).fill(-1);
    for (const c of map) if (c >= 0) rename[c] = 0;
    const list: number[] = [];
    for (let c = 0; c < rename.length; c++) if (rename[c] === 0) rename[c] = list.push(c) - 1;
    keep.push(Int32Array.from(list));
    return list.length === dims[axis] ? map : map.map((c) => (c < 0 ? -1 : rename[c]));
  });
  return {
    dims: keep.map((k) => k.length),
    cells: pick(dims, cells, keep),
    arrays: renamed,
    shrunk: true,
  };
}

function equalSlices({ words, length, block, stride }: Slices, a: number, b: number): boolean {
  for (let base = 0; base < length; base += block) {
    let p = 2 * (base + a * stride);
    let q = 2 * (base + b * stride);
    for (let i = 0; i < 2 * stride; i++) if (words[p++] !== words[q++]) return false;
  }
  return true;
}

/** Sub-table of the listed classes on every axis. */
function pick(
  dims: readonly number[],
  cells: Float64Array,
  keep: readonly Int32Array[],
): Float64Array {
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
