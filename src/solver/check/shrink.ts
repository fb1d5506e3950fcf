/**
 * Smaller forms of a table that say the same: classes without a living value go, classes with equal
 * slices become one, classes whose slice is wholly forbidden become -1. Written for the checker
 * alone.
 */
import type { Grid, Store } from './store.ts';

export interface Shrunk {
  readonly grid: Grid;
  readonly maps: readonly number[];
}

/**
 * The result depends on the arguments only. `stored` is the table itself where it is in the store.
 *
 * First all axes lose the classes without a value, so that the slices which are compared then hold
 * nothing but living cells.
 */
export function shrink(
  store: Store,
  from: readonly number[],
  given: Float64Array,
  maps: readonly number[],
  stored?: Grid,
): Shrunk {
  store.work.spend(4 * given.length);
  let cells = given;
  const dims = [...from];
  const newMaps = [...maps];
  for (const merging of [false, true]) {
    for (let axis = 0; axis < dims.length; axis++) {
      const size = dims[axis];
      let inner = 1;
      for (let k = axis + 1; k < dims.length; k++) inner *= dims[k];
      const outer = size === 0 ? 0 : cells.length / (size * inner);
      const map = store.maps[newMaps[axis]];
      const kept: number[] = [];
      const target = new Int32Array(size).fill(-2);
      const buckets = new Map<number, number[]>();
      const words = new Int32Array(cells.buffer, cells.byteOffset, 2 * cells.length);
      const fresh = new Int32Array(map.length);
      for (let a = 0; a < map.length; a++) {
        const c = map[a];
        if (c >= 0 && target[c] === -2) {
          target[c] = merging
            ? place(cells, words, size, inner, outer, c, kept, buckets)
            : kept.push(c) - 1;
        }
        fresh[a] = c < 0 ? -1 : target[c];
      }
      // Classes in another order are as good: renaming waits for the pass that compares.
      if (kept.length === size && (!merging || kept.every((c, k) => c === k))) continue;
      newMaps[axis] = store.map(fresh);
      cells = pick(cells, size, inner, outer, kept);
      dims[axis] = kept.length;
    }
  }
  return {
    grid: cells === given && stored !== undefined ? stored : store.grid(dims, cells),
    maps: newMaps,
  };
}

/** The classes of each axis that some value has, and the maps into their lists. */
export function reachedOnly(
  store: Store,
  dims: readonly number[],
  maps: readonly number[],
): { readonly kept: readonly Int32Array[]; readonly maps: readonly number[] } {
  const kept: Int32Array[] = [];
  const renamed = maps.map((m, axis) => {
    const map = store.maps[m];
    const name = new Int32Array(dims[axis]).fill(-1);
    const list: number[] = [];
    for (const c of map) if (c >= 0 && name[c] < 0) name[c] = list.push(c) - 1;
    kept.push(Int32Array.from(list));
    return store.map(map.map((c) => (c < 0 ? -1 : name[c])));
  });
  return { kept, maps: renamed };
}

function pick(
  cells: Float64Array,
  size: number,
  inner: number,
  outer: number,
  kept: readonly number[],
): Float64Array {
  const out = new Float64Array(outer * kept.length * inner);
  let to = 0;
  for (let o = 0; o < outer; o++) {
    for (const c of kept) {
      const from = (o * size + c) * inner;
      for (let k = 0; k < inner; k++) out[to++] = cells[from + k];
    }
  }
  return out;
}

/** High word of Infinity; every other high word is that of a finite cost. */
const INFINITE = 0x7ff00000;
const SIGN = -(2 ** 31);
/**
 * Which of the two words of a double is the high one: the second where the low byte comes first.
 */
const HIGH = new Int32Array(Float64Array.of(Infinity).buffer)[1] === INFINITE ? 1 : 0;

/**
 * Class of slice c among the kept ones (a new one if need be), or -1 when it is wholly forbidden.
 * `words` are the cells as words of 32 bits: integers are fast before code is compiled.
 */
function place(
  cells: Float64Array,
  words: Int32Array,
  size: number,
  inner: number,
  outer: number,
  c: number,
  kept: number[],
  buckets: Map<number, number[]>,
): number {
  let hash = 17;
  let finite = false;
  for (let o = 0; o < outer; o++) {
    const from = 2 * (o * size + c) * inner;
    for (let k = from; k < from + 2 * inner; k += 2) {
      const high = words[k + HIGH];
      if (high !== INFINITE) finite = true;
      // Without the sign of a zero, which is equal to the other one.
      hash = Math.imul(hash ^ words[k + 1 - HIGH], 31) + (high === SIGN ? 0 : high);
      hash = Math.imul(hash ^ (hash >>> 15), 31);
    }
  }
  if (!finite) return -1;
  const bucket = buckets.get(hash);
  if (bucket === undefined) {
    buckets.set(hash, [kept.length]);
  } else {
    for (const k of bucket) if (sameSlice(cells, size, inner, outer, kept[k], c)) return k;
    bucket.push(kept.length);
  }
  kept.push(c);
  return kept.length - 1;
}

function sameSlice(
  cells: Float64Array,
  size: number,
  inner: number,
  outer: number,
  a: number,
  b: number,
): boolean {
  for (let o = 0; o < outer; o++) {
    const x = (o * size + a) * inner;
    const y = (o * size + b) * inner;
    for (let k = 0; k < inner; k++) if (cells[x + k] !== cells[y + k]) return false;
  }
  return true;
}
