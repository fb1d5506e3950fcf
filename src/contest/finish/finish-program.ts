/**
 * The reduced model as a mixed-integer program in flow form: one binary per live value, one flow
 * per live pair of values of an edge, and only those memory rows that are asked for. Costs are the
 * moved ones of `reduced-cost-fixing.ts`: they count from the bound, so a solver's tolerances apply
 * to the gap and not to the whole cost; a row with a price gets its slack as a column, at that
 * price, which makes the moved costs exact.
 */
import { type ProgramArrays, ProgramWriter } from '../../solver/milp/program-writer.ts';
import type { Fixed } from './reduced-cost-fixing.ts';

/** A program with the way back. Objective = (cost of the choice - bound) * scale. */
export interface FinishProgram extends ProgramArrays {
  readonly scale: number;
  /** Column of every value and pair of the model, or -1. */
  readonly valueColumn: Int32Array;
  readonly cellColumn: Int32Array;
  /**
   * Rows of the model that are in the program, the column of the slack of each, and what its
   * amounts are multiplied by.
   */
  readonly modelRows: readonly number[];
  readonly slacks: readonly number[];
  readonly units: readonly number[];
}

/**
 * One memory row for the program: sum of values * columns <= upper, amounts multiplied by `unit`.
 */
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
 * Writes the program with the given memory rows; `gap` is the distance of the incumbent from the
 * bound. With `surplusCost` every memory row can be exceeded, at that cost per (scaled) unit.
 */
export function finishProgram(
  fixed: Fixed,
  rows: readonly number[],
  gap: number,
  surplusCost?: number,
): FinishProgram {
  const { model, liveValue, liveCell, cellAt, lambda } = fixed;
  const { count, start, sizes, first, second } = model;
  const scale = 2 ** Math.floor(Math.log2(COST_UNITS / Math.max(1, gap)));
  const writer = new ProgramWriter();
  const valueColumn = Int32Array.from(liveValue, (live, v) =>
    live === 1 ? writer.binary(scale * fixed.unary[v]) : -1,
  );
  const cellColumn = Int32Array.from(liveCell, (live, c) =>
    live === 1 ? writer.column(scale * fixed.cells[c], 1) : -1,
  );
  for (let i = 0; i < count; i++) writer.oneOf(valueColumn.subarray(start[i], start[i + 1]));
  first.forEach((i, e) => {
    const [from, to] = [start[i], start[second[e]]];
    const width = sizes[second[e]];
    const cells = cellColumn.subarray(cellAt[e], cellAt[e + 1]);
    for (let a = 0; a < sizes[i]; a++)
      if (liveValue[from + a] === 1)
        writer.flow([valueColumn[from + a]], cells.subarray(a * width, (a + 1) * width));
    for (let b = 0; b < width; b++) {
      const column = Array.from({ length: sizes[i] }, (_, a) => cells[a * width + b]);
      if (liveValue[to + b] === 1) writer.flow([valueColumn[to + b]], column);
    }
  });
  const slacks: number[] = [];
  const units: number[] = [];
  for (const t of rows) {
    const row = memoryRow(fixed, valueColumn, t);
    row.indices.forEach((column, k) => writer.entry(column, row.values[k]));
    // Costs are moved by this price, so unused capacity is paid for.
    units.push(row.unit);
    slacks.push(writer.column((scale * lambda[t]) / row.unit, Math.max(0, row.upper)));
    writer.entry(slacks[slacks.length - 1], 1);
    if (surplusCost !== undefined) writer.entry(writer.column(surplusCost, Infinity), -1);
    writer.endRow(row.upper, row.upper);
  }
  return { ...writer.arrays(), scale, valueColumn, cellColumn, modelRows: rows, slacks, units };
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
export function startOf(
  fixed: Fixed,
  program: FinishProgram,
  choice: ArrayLike<number>,
): Float64Array {
  const { model, cellAt } = fixed;
  const out = new Float64Array(program.columns);
  for (let i = 0; i < model.count; i++) out[program.valueColumn[model.start[i] + choice[i]]] = 1;
  model.first.forEach((i, e) => {
    const j = model.second[e];
    out[program.cellColumn[cellAt[e] + choice[i] * model.sizes[j] + choice[j]]] = 1;
  });
  program.modelRows.forEach((t, k) => {
    const row = memoryRow(fixed, program.valueColumn, t);
    let used = 0;
    row.indices.forEach((column, n) => (used += row.values[n] * out[column]));
    out[program.slacks[k]] = row.upper - used;
  });
  return out;
}

/**
 * The choice that a solution of the program represents; undefined where some variable has no value
 * near 1.
 */
export function choiceOf(
  fixed: Fixed,
  program: FinishProgram,
  columns: ArrayLike<number>,
): Int32Array | undefined {
  const { count, start } = fixed.model;
  const choice = new Int32Array(count).fill(-1);
  for (let i = 0; i < count; i++)
    for (let v = start[i]; v < start[i + 1]; v++)
      if (program.valueColumn[v] >= 0 && columns[program.valueColumn[v]] > 0.5)
        choice[i] = v - start[i];
  return choice.includes(-1) ? undefined : choice;
}
