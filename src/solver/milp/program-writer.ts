/**
 * Writes mixed-integer programs in flow form, column by column: rows of "one of these" and "these
 * pairs are what their end is", and other rows of the caller. All lower bounds are zero.
 */
import type { LinearProgram } from './linear-program.ts';

/** A program without names and constant. */
export type ProgramArrays = Omit<LinearProgram, 'name' | 'constant' | 'columnName' | 'rowName'>;

/** Collects a program column by column and row by row. */
export class ProgramWriter {
  private readonly cost: number[] = [];
  private readonly upper: number[] = [];
  private binaries = 0;
  private readonly starts = [0];
  /** Entries in arrays that grow: whole programs have more of them than a list can hold. */
  private indices: Int32Array;
  private values: Float64Array;
  private entries = 0;
  private readonly rowLower: number[] = [];
  private readonly rowUpper: number[] = [];

  /** @param entries that are expected */
  constructor(entries = 1024) {
    this.indices = new Int32Array(entries);
    this.values = new Float64Array(entries);
  }

  /** A choice to take or not; all of them come before other columns. Returns its column. */
  binary(cost: number): number {
    this.binaries++;
    return this.column(cost, 1);
  }

  /** A column of any number from 0 to `upper`. Returns its number. */
  column(cost: number, upper: number): number {
    this.upper.push(upper);
    return this.cost.push(cost) - 1;
  }

  /** Adds an entry to the row that is being written; columns of what was left out (-1) are none. */
  entry(column: number, value: number): void {
    if (column < 0) return;
    if (this.entries === this.indices.length) this.grow();
    this.indices[this.entries] = column;
    this.values[this.entries++] = value;
  }

  /** Ends the row: its entries lie between the two bounds. */
  endRow(lower: number, upper: number): void {
    this.starts.push(this.entries);
    this.rowLower.push(lower);
    this.rowUpper.push(upper);
  }

  /** One of the columns is taken. */
  oneOf(columns: Iterable<number>): void {
    for (const column of columns) this.entry(column, 1);
    this.endRow(1, 1);
  }

  /** Takes as many pairs as choices at their end. */
  flow(ends: Iterable<number>, pairs: Iterable<number>): void {
    for (const column of ends) this.entry(column, -1);
    for (const column of pairs) this.entry(column, 1);
    this.endRow(0, 0);
  }

  arrays(): ProgramArrays {
    const columns = this.cost.length;
    return {
      columns,
      rows: this.rowLower.length,
      cost: new Float64Array(this.cost),
      lower: new Float64Array(columns),
      upper: new Float64Array(this.upper),
      integer: new Uint8Array(columns).fill(1, 0, this.binaries),
      starts: new Int32Array(this.starts),
      indices: this.indices.slice(0, this.entries),
      values: this.values.slice(0, this.entries),
      rowLower: new Float64Array(this.rowLower),
      rowUpper: new Float64Array(this.rowUpper),
    };
  }

  private grow(): void {
    const [indices, values] = [this.indices, this.values];
    this.indices = new Int32Array(2 * this.entries + 1024);
    this.values = new Float64Array(2 * this.entries + 1024);
    this.indices.set(indices);
    this.values.set(values);
  }
}
