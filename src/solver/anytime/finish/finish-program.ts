/**
 * The reduced model as a mixed-integer program in flow form: one binary per live value, one flow per live pair of values of
 * an edge, and only those memory rows that are asked for. Costs are the moved ones of `reduced-cost-fixing.ts`: they count from the bound, so
 * a solver's tolerances apply to the gap and not to the whole cost; a row with a price gets its slack as a column, at that
 * price, which makes the moved costs exact.
 */
import type { LinearProgram } from '../../milp/linear-program.ts';
import type { Fixed } from './reduced-cost-fixing.ts';

/** The parts of a linear program that differ from one to the next: its lower bounds are zero. */
type Columns = 'columns' | 'cost' | 'upper' | 'integer';
type Rows = 'starts' | 'indices' | 'values' | 'rowLower' | 'rowUpper';

/** A program in compressed rows, with the way back. Objective = (cost of the choice - bound) * scale. */
export interface FinishProgram extends Pick<LinearProgram, Columns | Rows> {
  readonly scale: number;
  /** Column of every value and pair of the model, or -1. */
  readonly valueColumn: Int32Array;
  readonly cellColumn: Int32Array;
  /** Rows of the model that are in the program, the column of the slack of each, and what its amounts are multiplied by. */
  readonly rows: readonly number[];
  readonly slacks: readonly number[];
  readonly units: readonly number[];
}

/** One memory row for the program: sum of values * columns <= upper, amounts multiplied by `unit`. */
interface MemoryRow {
  readonly indices: Int32Array;
  readonly values: Float64Array;
  readonly upper: number;
  readonly unit: number;
}

/** Largest cost of the program, about, and largest amount of a memory row. */
const COST_UNITS = 1e4;
const AMOUNT_UNITS = 1e3;

/**
 * Writes the program with the given memory rows; `gap` is the distance of the incumbent from the bound. With `surplusCost`
 * every memory row can be exceeded, at that cost per (scaled) unit.
 */
export function finishProgram(fixed: Fixed, rows: readonly number[], gap: number, surplusCost?: number): FinishProgram {
  const { model, liveValue, liveCell, cellAt, lambda } = fixed;
  const { count, start, sizes, first, second } = model;
  const scale = 2 ** Math.floor(Math.log2(COST_UNITS / Math.max(1, gap)));
  const cost: number[] = [];
  const valueColumn = new Int32Array(liveValue.length).fill(-1);
  const cellColumn = new Int32Array(liveCell.length).fill(-1);
  for (let v = 0; v < liveValue.length; v++)
    if (liveValue[v] === 1) valueColumn[v] = cost.push(scale * fixed.unary[v]) - 1;
  const binaries = cost.length;
  for (let c = 0; c < liveCell.length; c++)
    if (liveCell[c] === 1) cellColumn[c] = cost.push(scale * fixed.cells[c]) - 1;
  const flows = cost.length;
  const writer = new RowWriter();
  for (let i = 0; i < count; i++) {
    for (let v = start[i]; v < start[i + 1]; v++) writer.put(valueColumn[v], 1);
    writer.end(1, 1);
  }
  first.forEach((i, e) => {
    const width = sizes[second[e]];
    for (let a = 0; a < sizes[i]; a++) {
      if (liveValue[start[i] + a] === 0) continue;
      writer.put(valueColumn[start[i] + a], -1);
      for (let b = 0; b < width; b++) writer.put(cellColumn[cellAt[e] + a * width + b], 1);
      writer.end(0, 0);
    }
    for (let b = 0; b < width; b++) {
      if (liveValue[start[second[e]] + b] === 0) continue;
      writer.put(valueColumn[start[second[e]] + b], -1);
      for (let a = 0; a < sizes[i]; a++) writer.put(cellColumn[cellAt[e] + a * width + b], 1);
      writer.end(0, 0);
    }
  });
  const slacks: number[] = [];
  const units: number[] = [];
  const upper = new Array<number>(flows).fill(1);
  for (const t of rows) {
    const row = memoryRow(fixed, valueColumn, t);
    row.indices.forEach((column, k) => writer.put(column, row.values[k]));
    // Costs are moved by this price, so room that is left over is paid for.
    units.push(row.unit);
    slacks.push(cost.push((scale * lambda[t]) / row.unit) - 1);
    upper.push(Math.max(0, row.upper));
    writer.put(cost.length - 1, 1);
    if (surplusCost !== undefined) {
      upper.push(Infinity);
      writer.put(cost.push(surplusCost) - 1, -1);
    }
    writer.end(row.upper, row.upper);
  }
  return {
    columns: cost.length,
    scale,
    cost: Float64Array.from(cost),
    upper: Float64Array.from(upper),
    integer: Uint8Array.from(cost, (_, j) => (j < binaries ? 1 : 0)),
    ...writer.done(),
    valueColumn,
    cellColumn,
    rows,
    slacks,
    units,
  };
}

/** Row t over the columns of the live values, its amounts scaled by a power of two. */
export function memoryRow({ model }: Fixed, valueColumn: Int32Array, t: number): MemoryRow {
  const { count, start, sizes, segment, lo, hi, amount, amounts, capacity } = model;
  const indices: number[] = [];
  const values: number[] = [];
  let largest = 1;
  for (let i = 0; i < count; i++) {
    for (let s = segment[i]; s < segment[i + 1]; s++) {
      if (t < lo[s] || t >= hi[s]) continue;
      for (let a = 0; a < sizes[i]; a++) {
        const u = amounts[amount[s] + a];
        if (u === 0 || valueColumn[start[i] + a] < 0) continue;
        indices.push(valueColumn[start[i] + a]);
        values.push(u);
        largest = Math.max(largest, u);
      }
    }
  }
  const unit = 2 ** Math.floor(Math.log2(AMOUNT_UNITS / largest));
  return {
    indices: Int32Array.from(indices),
    values: Float64Array.from(values, (u) => u * unit),
    upper: capacity[t] * unit,
    unit,
  };
}

/** Column values of a choice: the start of the program. */
export function startOf(fixed: Fixed, program: FinishProgram, choice: ArrayLike<number>): Float64Array {
  const { model, cellAt } = fixed;
  const out = new Float64Array(program.columns);
  for (let i = 0; i < model.count; i++) out[program.valueColumn[model.start[i] + choice[i]]] = 1;
  model.first.forEach((i, e) => {
    const j = model.second[e];
    out[program.cellColumn[cellAt[e] + choice[i] * model.sizes[j] + choice[j]]] = 1;
  });
  program.rows.forEach((t, k) => {
    const row = memoryRow(fixed, program.valueColumn, t);
    let used = 0;
    row.indices.forEach((column, n) => (used += row.values[n] * out[column]));
    out[program.slacks[k]] = row.upper - used;
  });
  return out;
}

/** The choice that a solution of the program stands for; undefined where some variable has no value near 1. */
export function choiceOf(fixed: Fixed, program: FinishProgram, columns: ArrayLike<number>): Int32Array | undefined {
  const { count, start } = fixed.model;
  const choice = new Int32Array(count).fill(-1);
  for (let i = 0; i < count; i++)
    for (let v = start[i]; v < start[i + 1]; v++)
      if (program.valueColumn[v] >= 0 && columns[program.valueColumn[v]] > 0.5) choice[i] = v - start[i];
  return choice.includes(-1) ? undefined : choice;
}

/** Rows one after another in compressed form. */
class RowWriter {
  readonly #starts = [0];
  readonly #indices: number[] = [];
  readonly #values: number[] = [];
  readonly #lower: number[] = [];
  readonly #upper: number[] = [];

  /** Adds an entry; columns of what was deleted (-1) are left out. */
  put(column: number, value: number): void {
    if (column < 0) return;
    this.#indices.push(column);
    this.#values.push(value);
  }

  end(lower: number, upper: number): void {
    this.#starts.push(this.#indices.length);
    this.#lower.push(lower);
    this.#upper.push(upper);
  }

  done(): Pick<FinishProgram, 'starts' | 'indices' | 'values' | 'rowLower' | 'rowUpper'> {
    return {
      starts: Int32Array.from(this.#starts),
      indices: Int32Array.from(this.#indices),
      values: Float64Array.from(this.#values),
      rowLower: Float64Array.from(this.#lower),
      rowUpper: Float64Array.from(this.#upper),
    };
  }
}
