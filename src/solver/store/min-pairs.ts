/**
 * Min-decomposition of tables. A value that represents a pair (a, b) lets its neighbour take the
 * better of two alternatives, so its slice of any table is the lesser, place by place, of a slice
 * of a and one of b. Messages through such a table need only the few slices of the alternatives,
 * and not those of all pairs: min-plus products distribute over the lesser.
 *
 * Names of alternatives are a hint. The slice of an alternative is the greatest of the slices of
 * the pairs that hold it, and a table is taken apart only where the lesser of the two is each
 * pair's own slice, to the last bit.
 */
import { KeyTable } from './keys.ts';
import type { Table } from './table.ts';

/** A table taken apart along one axis. */
export interface MinPairs {
  /** The slices of the alternatives, row-major: one row of the other axis for each. */
  readonly cells: Float64Array;
  readonly count: number;
  /** The two alternatives of each class of the axis. */
  readonly first: Int32Array;
  readonly second: Int32Array;
}

/**
 * A table must have so many cells, and so many times more classes than alternatives, to be worth
 * taking apart.
 */
const LEAST_CELLS = 256;
const LEAST_GAIN = 2;

/** Decompositions of the tables of one pool, each made once. */
export class MinPairsMemo {
  private readonly keys = new KeyTable();
  private readonly known: (MinPairs | null)[] = [];

  private readonly mapOf: (id: number) => Int32Array;

  constructor(mapOf: (id: number) => Int32Array) {
    this.mapOf = mapOf;
  }

  /**
   * The pairs of a table along an axis, whose classes the positions of a variable reach by `map`,
   * with the names of the two alternatives of each position (map ids); null where there is none
   * worth having.
   */
  find(table: Table, axis: 0 | 1, map: number, first: number, second: number): MinPairs | null {
    const id = this.keys.begin().add(table.id).add(axis).add(map).add(first).add(second).end();
    // The absence of pairs is an answer too: `??=` would ask again.
    if (id === this.known.length)
      this.known.push(
        minPairsOf(table, axis, this.mapOf(map), this.mapOf(first), this.mapOf(second)),
      );
    return this.known[id];
  }
}

function minPairsOf(
  table: Table,
  axis: 0 | 1,
  map: Int32Array,
  first: Int32Array,
  second: Int32Array,
): MinPairs | null {
  const classes = table.dims[axis];
  if (table.cells.length < LEAST_CELLS) return null;
  // Values of one class have one slice, so the alternatives of any of them will do.
  const pairs = [new Int32Array(classes), new Int32Array(classes)];
  const seen = new Uint8Array(classes);
  const names = [new Map<number, number>(), new Map<number, number>()];
  let count = 0;
  for (let a = 0; a < map.length; a++) {
    const c = map[a];
    if (c < 0 || seen[c] === 1) continue;
    seen[c] = 1;
    for (let k = 0; k < 2; k++) {
      const name = k === 0 ? first[a] : second[a];
      let number = names[k].get(name);
      if (number === undefined) names[k].set(name, (number = count++));
      pairs[k][c] = number;
    }
  }
  if (LEAST_GAIN * count > classes || seen.includes(0)) return null;
  const width = table.dims[1 - axis];
  const cells = new Float64Array(count * width).fill(-Infinity);
  const [one, other] = pairs;
  const [step, stride] = axis === 0 ? [width, 1] : [1, classes];
  for (let c = 0; c < classes; c++) {
    raise(cells, one[c] * width, table.cells, c * step, stride, width);
    raise(cells, other[c] * width, table.cells, c * step, stride, width);
  }
  for (let c = 0; c < classes; c++)
    if (!isLesser(cells, one[c] * width, other[c] * width, table.cells, c * step, stride, width))
      return null;
  return { cells, count, first: one, second: other };
}

function raise(
  cells: Float64Array,
  at: number,
  from: Float64Array,
  start: number,
  stride: number,
  width: number,
): void {
  for (let y = 0, p = start; y < width; y++, p += stride)
    if (from[p] > cells[at + y]) cells[at + y] = from[p];
}

function isLesser(
  cells: Float64Array,
  one: number,
  other: number,
  from: Float64Array,
  start: number,
  stride: number,
  width: number,
): boolean {
  for (let y = 0, p = start; y < width; y++, p += stride) {
    const a = cells[one + y];
    const b = cells[other + y];
    if ((a < b ? a : b) !== from[p]) return false;
  }
  return true;
}
