/**
 * Min-plus products of tables and vectors in WebAssembly. Large tables of a pool are copied once to
 * where the kernels reach them; the numbers are those of the loops in JavaScript bit by bit
 * (`dual/inner-loops.ts`), which smaller tables keep to. From the cells of a table and a vector of
 * costs they compute the least sum of every row or column.
 */
import { Arena } from './kernels.ts';

/** Tables of fewer cells are done before a kernel is called. */
const LEAST_CELLS = 512;
/** Entries of the longest vector. */
const LONGEST = 8192;
/** Numbers that are copied at most (128 MiB): tables that come later stay with the loops. */
const MOST_NUMBERS = 2 ** 24;
/** Numbers past the end of a table that a kernel may look at. */
const MARGIN = 4;
/** The places of costs and results; tables follow. */
const COSTS = 0;
const RESULTS = LONGEST + MARGIN;
const TABLES = 2 * RESULTS;

export class TableKernels {
  private arena: Arena | undefined;
  private used = TABLES;
  private readonly places = new Map<Float64Array, number>();

  /** The place where the kernels find a table from now on; -1 for one that is left to the loops. */
  place(cells: Float64Array, rows: number, columns: number): number {
    const { length } = cells;
    if (length < LEAST_CELLS || rows > LONGEST || columns > LONGEST) return -1;
    const known = this.places.get(cells);
    if (known !== undefined) return known;
    const place = this.used;
    if (place + length > MOST_NUMBERS) return -1;
    this.arena ??= new Arena();
    this.arena.need(place + length + MARGIN);
    this.arena.numbers.set(cells, place);
    this.used += length;
    this.places.set(cells, place);
    return place;
  }

  /** to[there + y] = min over x of costs[x] + cells[x, y]. */
  throughRows(
    place: number,
    costs: Float64Array,
    rows: number,
    columns: number,
    to: Float64Array,
    there: number,
  ): void {
    const { numbers, kernel } = this.present();
    for (let x = 0; x < rows; x++) numbers[COSTS + x] = costs[x];
    kernel.send(
      8 * COSTS,
      rows,
      8 * place,
      8 * columns,
      8 * (columns + (columns & 1)),
      8 * RESULTS,
    );
    for (let y = 0; y < columns; y++) to[there + y] = numbers[RESULTS + y];
  }

  /** to[there + x] = min over y of costs[y] + cells[x, y]. */
  throughColumns(
    place: number,
    costs: Float64Array,
    rows: number,
    columns: number,
    to: Float64Array,
    there: number,
  ): void {
    const { numbers, kernel } = this.present();
    const padded = (columns + 3) & ~3;
    for (let y = 0; y < columns; y++) numbers[COSTS + y] = costs[y];
    for (let y = columns; y < padded; y++) numbers[COSTS + y] = Infinity;
    kernel.least(8 * COSTS, 8 * padded, 8 * place, 8 * columns, rows, 8 * RESULTS);
    for (let x = 0; x < rows; x++) to[there + x] = numbers[RESULTS + x];
  }

  private present(): Arena {
    if (this.arena === undefined)
      throw new Error('internal: a table has a place, and there is none');
    return this.arena;
  }
}
