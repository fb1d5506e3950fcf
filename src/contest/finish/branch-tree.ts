/**
 * A plan of branching from linear programs: which variables to split, and prices for every leaf,
 * such that the relaxation of each leaf costs no less than the incumbent. The plan proves nothing:
 * the exact engine carries it out in integers (`close.ts`), and what it says is checked.
 */
import load, { type Highs } from 'highs';

import { monotonicMilliseconds as milliseconds } from '../../platform/platform.ts';
import { priceValues } from '../bound/trws.ts';
import type { Model } from '../model/model.ts';
import { choiceOf, type FinishProgram, finishProgram, memoryRow } from './finish-program.ts';
import { brokenRows, openProgram } from './highs.ts';
import { type BoundSource, fix, type Fixed } from './reduced-cost-fixing.ts';

/**
 * A node splits the values of a variable of the model in those listed and all others; a leaf has
 * prices of rows.
 */
export type BranchTree =
  | {
      readonly variable: number;
      readonly values: readonly number[];
      readonly parts: readonly [BranchTree, BranchTree];
    }
  | { readonly prices: readonly { readonly row: number; readonly price: number }[] };

export interface TreeJob {
  readonly model: Model;
  readonly source: BoundSource;
  /** Cost of the incumbent: leaves are to cost no less. */
  readonly cost: number;
  /** Rows that take part. */
  readonly rows: readonly number[];
  readonly deadline: number;
}

/** Most linear programs of a plan. */
const MOST_NODES = 300;
/**
 * Cost of exceeding a memory row by one (scaled) unit: leaves that break memory become expensive
 * instead of infeasible.
 */
const SURPLUS_COST = 1000;
/**
 * A relaxation that costs this many times what it has to is not solved to its optimum: its prices
 * do.
 */
const ENOUGH = 1.1;
/** The tolerance of a whole number. */
const WHOLE = 1e-6;
/** Prices below this part of the largest worth of a row are left out. */
const LEAST_SHARE = 1e-6;

/**
 * Plans; undefined at a limit, or when some choice of the relaxation is cheaper and keeps all rows.
 */
export async function branchTree(job: TreeJob): Promise<BranchTree | undefined> {
  const highs = await load();
  const planner = new Planner(highs, job);
  try {
    return planner.plan();
  } finally {
    planner.close();
  }
}

class Planner {
  private readonly job: TreeJob;
  /**
   * Rows that take part, the column of the slack of each, and what its amounts are multiplied by.
   */
  private readonly rows: { readonly row: number; readonly slack: number; readonly unit: number }[];
  private columns: number;
  private lpRows: number;
  private readonly fixed: Fixed;
  private readonly program: FinishProgram;
  private readonly lp: ReturnType<typeof openProgram>;
  private readonly use: Float64Array;
  private readonly target: number;
  private nodes = 0;

  constructor(highs: Highs, job: TreeJob) {
    const { model, source, cost, rows } = job;
    this.job = job;
    // Nothing is deleted: a leaf relies on its own prices, and deletions would rely on those of the
    // bound.
    this.fixed = fix(model, source, Infinity);
    this.program = finishProgram(this.fixed, rows, cost - this.fixed.bound, SURPLUS_COST);
    // Half a unit below the incumbent still rounds up to it.
    this.target = (cost - 0.5 - this.fixed.bound) * this.program.scale;
    const { slacks, units, columns } = this.program;
    this.rows = rows.map((row, k) => ({ row, slack: slacks[k], unit: units[k] }));
    this.columns = columns;
    this.lpRows = this.program.rows;
    this.lp = openProgram(highs, this.program, false);
    this.lp.options.set({ output_flag: false, objective_bound: ENOUGH * this.target });
    // The worth of every value's usage at the prices of the bound: splits are made along it.
    this.use = new Float64Array(model.unary.length);
    priceValues(model, source.lambda, new Float64Array(model.rows + 1), this.use);
    for (let v = 0; v < this.use.length; v++)
      this.use[v] = model.unary[v] === Infinity ? 0 : this.use[v] - model.unary[v];
  }

  close(): void {
    this.lp.dispose();
  }

  /** Undefined at a limit, or when a cheaper choice keeps all rows. */
  plan(): BranchTree | undefined {
    const left = (this.job.deadline - milliseconds()) / 1000;
    if (++this.nodes > MOST_NODES || left <= 0) return undefined;
    const lp = this.lp;
    if (left < Infinity) lp.options.set('time_limit', left);
    lp.run();
    // From the second program on the basis of the last one is better than a presolve.
    lp.options.set('presolve', 'off');
    const status = lp.getModelStatus();
    // Infeasible: some variable has no value left that costs too little, whatever the prices are.
    if (status === INFEASIBLE) return this.leaf();
    if (status !== OPTIMAL && status !== OBJECTIVE_BOUND) return undefined;
    const { colValue, colDual } = lp.getSolution();
    if (
      status === OBJECTIVE_BOUND ||
      Number(lp.info.get('objective_function_value')) >= this.target
    )
      return this.leaf(colDual);
    const split = this.split(colValue);
    if (split === undefined) {
      // A whole solution is cheap only because of rows that do not take part yet.
      return this.join(colValue) ? this.plan() : undefined;
    }
    const { variable, low, high } = split;
    const parts: BranchTree[] = [];
    for (const off of [high, low]) {
      const kept = off.map((v) => this.program.upper[this.program.valueColumn[v]]);
      off.forEach((v) => this.limit(v, 0));
      const part = this.plan();
      off.forEach((v, k) => this.limit(v, kept[k]));
      if (part === undefined) return undefined;
      parts.push(part);
    }
    const at = this.job.model.start[variable];
    return { variable, values: low.map((v) => v - at), parts: [parts[0], parts[1]] };
  }

  private limit(value: number, upper: number): void {
    const column = this.program.valueColumn[value];
    this.program.upper[column] = upper;
    this.lp.changeColBounds(column, 0, upper);
  }

  /**
   * The reduced cost of a row's slack is the row's whole price. Without duals: the prices of the
   * bound.
   */
  private leaf(colDual?: Float64Array): BranchTree {
    const { scale } = this.program;
    const { lambda } = this.job.source;
    const { capacity } = this.job.model;
    const all = this.rows.map(({ row, slack, unit }) => ({
      row,
      price: colDual === undefined ? lambda[row] : Math.max(0, (colDual[slack] * unit) / scale),
    }));
    const worth = all.map(({ row, price }) => price * Math.max(1, capacity[row]));
    const most = worth.reduce((a, b) => Math.max(a, b), 0);
    return { prices: all.filter((_, k) => worth[k] > LEAST_SHARE * most) };
  }

  /** The split of a fractional variable, by worth of usage, that parts most usage from most. */
  private split(
    columns: Float64Array,
  ): { readonly variable: number; readonly low: number[]; readonly high: number[] } | undefined {
    const { start, count } = this.job.model;
    const { valueColumn } = this.program;
    let best:
      { readonly variable: number; readonly low: number[]; readonly high: number[] } | undefined;
    let most = -1;
    for (let i = 0; i < count; i++) {
      const values: number[] = [];
      for (let v = start[i]; v < start[i + 1]; v++) if (valueColumn[v] >= 0) values.push(v);
      const weight = (v: number): number => columns[valueColumn[v]];
      if (!values.some((v) => weight(v) > WHOLE && weight(v) < 1 - WHOLE)) continue;
      values.sort((a, b) => this.use[a] - this.use[b] || a - b);
      const total = values.reduce((sum, v) => sum + weight(v) * this.use[v], 0);
      for (let k = 1, below = 0, used = 0; k < values.length; k++) {
        below += weight(values[k - 1]);
        used += weight(values[k - 1]) * this.use[values[k - 1]];
        if (below <= WHOLE || below >= 1 - WHOLE) continue;
        const apart = (total - used) / (1 - below) - used / below;
        const score = apart * Math.min(below, 1 - below);
        if (score <= most) continue;
        most = score;
        best = { variable: i, low: values.slice(0, k), high: values.slice(k) };
      }
    }
    return best;
  }

  /** Adds the rows that a whole solution breaks; false when it breaks none. */
  private join(columns: Float64Array): boolean {
    const { model, source } = this.job;
    const { valueColumn, scale } = this.program;
    const choice = choiceOf(this.fixed, this.program, columns);
    if (choice === undefined) return false;
    const known = this.rows.map(({ row }) => row);
    const fresh = brokenRows(model, choice, known);
    for (const row of fresh) {
      const { indices, values, upper, unit } = memoryRow(this.fixed, valueColumn, row);
      const at = Int32Array.of(this.lpRows++);
      this.lp.addRow(upper, upper, { indices, values });
      const price = (scale * source.lambda[row]) / unit;
      this.lp.addCol(price, 0, Math.max(0, upper), { indices: at, values: Float64Array.of(1) });
      this.lp.addCol(SURPLUS_COST, 0, Infinity, { indices: at, values: Float64Array.of(-1) });
      this.rows.push({ row, slack: this.columns, unit });
      this.columns += 2;
    }
    return fresh.length > 0;
  }
}

/** HiGHS' model status numbers. */
const OPTIMAL = 7;
const INFEASIBLE = 8;
const OBJECTIVE_BOUND = 11;

/** All rows with a price in some leaf, ascending. */
export function pricedRows(tree: BranchTree): number[] {
  const rows = new Set<number>();
  const walk = (node: BranchTree): void => {
    if ('prices' in node) for (const { row } of node.prices) rows.add(row);
    else node.parts.forEach(walk);
  };
  walk(tree);
  return [...rows].sort((a, b) => a - b);
}
