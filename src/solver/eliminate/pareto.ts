/**
 * Bucket elimination under linear rows: a cell holds the Pareto front of (cost, amounts) instead of
 * one number, as in label setting for the resource-constrained shortest path problem. It finds the
 * cheapest choice of a priced pairwise network that keeps the rows, or that there is none.
 *
 * It closes the duality gap that prices leave: the network is already priced and pruned against the
 * incumbent, so few values are left where it matters, and equal layers produce equal sums, which
 * keeps the fronts short. Exact within its limits; beyond them it answers `too-large` and the
 * caller branches.
 */
import type { Network } from '../network/network.ts';
import { EliminationHeap } from './heap.ts';
import { LabelFront, TooLarge } from './labels.ts';

/**
 * Labels over some variables: a table of the network, whose cells hold a cost or nothing, or what
 * an elimination made.
 */
interface LabelFactor {
  readonly vars: readonly number[];
  /** Class maps of the pool. */
  readonly maps: readonly number[];
  readonly dims: readonly number[];
  /** The cells of a table, Infinity where there is no label; else empty. */
  readonly costs: Float64Array;
  /** Labels of a made factor: those of cell k are start[k] .. start[k + 1] - 1 of `data`. */
  readonly start: Int32Array;
  readonly data: Float64Array;
  /** Position of the record that made it in the list of records, or -1 for a given table. */
  readonly maker: number;
}

interface Elimination {
  readonly variable: number;
  readonly factors: readonly LabelFactor[];
}

/**
 * A factor of a bucket, as the cells of the result meet it: a cell of its own is a sum of offsets,
 * none if that is negative.
 */
interface Operand {
  readonly factor: LabelFactor;
  /** Sum of the offsets at the present cell of the result. */
  base: number;
  /** By value of the variable that goes. */
  readonly byValue: Int32Array;
  /** Axes of the result that it has, and offsets by their classes. */
  readonly axes: readonly number[];
  readonly byClass: readonly Int32Array[];
}

interface LabelLimits {
  /** Largest number of labels of one table. */
  readonly labels: number;
  /** Most label combinations in all; looking up the cell of a factor counts as one. */
  readonly work: number;
  /** Largest reduced cost that may still matter. */
  readonly slack: number;
  /**
   * Labels of a cell that are kept, spread over the front; absent: all. With fewer, what is found
   * is a choice, no optimum.
   */
  readonly front?: number;
  readonly stop?: () => boolean;
}

interface LabelResult {
  readonly status: 'found' | 'none' | 'too-large';
  /** Positions of the present variables for `found`. */
  readonly at: Int32Array;
  /** Work done, in the unit of the limit. */
  readonly work: number;
}

/** The offset of what cannot be chosen: no sum with it reaches zero. */
const BARRED = -(2 ** 30);
const NO_COSTS = new Float64Array(0);
const NO_LABELS = { start: new Int32Array(1), data: new Float64Array(0) };

/**
 * Minimises the true cost under the rows of a priced pairwise network whose costs are non-negative.
 */
export function paretoEliminate(net: Network, limits: LabelLimits): LabelResult {
  const search = new ParetoElimination(net, limits);
  try {
    const { status, at } = search.run();
    return { status, at, work: search.work };
  } catch (error) {
    if (error instanceof TooLarge)
      return { status: 'too-large', at: new Int32Array(0), work: search.work };
    throw error;
  }
}

class ParetoElimination {
  private readonly net: Network;
  private readonly limits: LabelLimits;
  private readonly width: number;
  private readonly budget: Float64Array;
  /** Own label of every value of every present variable. */
  private readonly own: Float64Array[];
  private readonly factors = new Set<LabelFactor>();
  /** By variable: the factors that hold it. */
  private readonly at: Set<LabelFactor>[];
  /** Factors that hold no label any more. */
  private readonly loose = new Set<LabelFactor>();
  private readonly records: Elimination[] = [];
  /** Labels of one value of a cell, and of the whole cell. */
  private readonly ofValue: LabelFront;
  private readonly ofCell: LabelFront;

  constructor(net: Network, limits: LabelLimits) {
    this.net = net;
    this.limits = limits;
    const rows = net.rows.length;
    this.width = 2 + rows;
    this.budget = Float64Array.from(net.rows, (row) => row.bound);
    this.at = Array.from({ length: net.count }, () => new Set<LabelFactor>());
    this.own = new Array<Float64Array>(net.count).fill(new Float64Array(0));
    for (let i = 0; i < net.count; i++) if (net.gone[i] === 0) this.own[i] = this.ownLabels(i);
    for (const f of net.factors) {
      if (f === undefined) continue;
      this.add({
        vars: f.vars,
        maps: f.maps,
        dims: f.table.dims,
        costs: f.table.cells,
        ...NO_LABELS,
        maker: -1,
      });
    }
    const front = {
      slack: limits.slack,
      budget: this.budget,
      work: limits.work,
      most: limits.front ?? Infinity,
    };
    this.ofValue = new LabelFront(front);
    this.ofCell = new LabelFront(front);
  }

  /** One label a value; the least amount of every row is taken from its budget. */
  private ownLabels(v: number): Float64Array {
    const { pool, rows, unary, priced } = this.net;
    const width = this.width;
    const costs = pool.vectorOf(unary[v]);
    const labels = new Float64Array(costs.length * width);
    for (let r = 0; r < rows.length; r++) {
      const id = rows[r].amounts[v];
      if (id < 0) continue;
      const amounts = pool.vectorOf(id);
      const least = pool.leastOf(id);
      this.budget[r] -= least;
      for (let a = 0; a < costs.length; a++) labels[a * width + 2 + r] = amounts[a] - least;
    }
    const pricedCosts = priced[v] < 0 ? undefined : pool.vectorOf(priced[v]);
    for (let a = 0; a < costs.length; a++) {
      labels[a * width] = costs[a];
      if (pricedCosts !== undefined) labels[a * width + 1] = pricedCosts[a];
    }
    return labels;
  }

  private add(f: LabelFactor): void {
    this.factors.add(f);
    if (f.vars.length === 0) this.loose.add(f);
    for (const v of f.vars) this.at[v].add(f);
  }

  private remove(f: LabelFactor): void {
    this.factors.delete(f);
    this.loose.delete(f);
    for (const v of f.vars) this.at[v].delete(f);
  }

  get work(): number {
    return this.ofValue.work + this.ofCell.work;
  }

  /** Counts work of both fronts against the limit. */
  private spend(work: number): void {
    this.ofValue.spend(work + this.ofCell.work);
    this.ofCell.work = 0;
  }

  run(): Pick<LabelResult, 'status' | 'at'> {
    const at = new Int32Array(this.net.count).fill(-1);
    if (this.budget.some((b) => b < 0)) return { status: 'none', at };
    const heap = new EliminationHeap(this.net.count);
    for (let i = 0; i < this.net.count; i++)
      if (this.net.gone[i] === 0) heap.push(i, this.score(i), 0);
    for (let best = heap.pop(); best >= 0; best = heap.pop()) {
      if (this.limits.stop?.() === true) throw new TooLarge();
      const near = new Set([...this.at[best]].flatMap((f) => f.vars));
      if (!this.eliminate(best)) return { status: 'none', at };
      // Only the neighbours of what goes have another score afterwards.
      for (const v of near) if (v !== best) heap.push(v, this.score(v), 0);
    }
    const [last] = this.factors;
    if (last === undefined) return { status: 'found', at };
    let chosen = -1;
    let least = Infinity;
    for (let l = 0; l < last.start[1]; l++) {
      const c = last.data[l * this.width] - last.data[l * this.width + 1];
      if (c < least) {
        least = c;
        chosen = l;
      }
    }
    if (chosen < 0) return { status: 'none', at };
    this.trace(last, chosen, at);
    return { status: 'found', at };
  }

  private score(v: number): number {
    const sizes = new Map<number, number>();
    for (const f of this.at[v]) {
      f.vars.forEach((u, k) => {
        if (u !== v) sizes.set(u, Math.min(this.net.size[u], (sizes.get(u) ?? 1) * f.dims[k]));
      });
    }
    let cells = 1;
    for (const s of sizes.values()) cells *= s;
    return cells;
  }

  /** Replaces all factors at v by their Pareto minimum over v; false when no label is left. */
  private eliminate(v: number): boolean {
    const { pool } = this.net;
    const touching = [...this.at[v], ...this.loose];
    for (const f of touching) this.remove(f);
    const vars = [...new Set(touching.flatMap((f) => f.vars))]
      .filter((u) => u !== v)
      .sort((a, b) => a - b);
    const maps = vars.map((u) => {
      let joint = -1;
      for (const f of touching) {
        const k = f.vars.indexOf(u);
        if (k >= 0) joint = joint < 0 ? f.maps[k] : pool.join(joint, f.maps[k]);
      }
      return joint;
    });
    const dims = maps.map((m) => pool.classesOf(m));
    let cells = 1;
    for (const d of dims) cells *= d;
    if (cells > this.limits.labels) throw new TooLarge();
    const tables = touching.filter((f) => f.maker < 0).map((f) => this.operand(f, v, vars, maps));
    const lists = touching.filter((f) => f.maker >= 0).map((f) => this.operand(f, v, vars, maps));
    const start = new Int32Array(cells + 1);
    const made = new LabelList(this.width);
    const at = new Int32Array(vars.length);
    for (let cell = 0; cell < cells; cell++) {
      this.cell(v, tables, lists, at);
      made.append(this.ofCell.data, this.ofCell.count);
      start[cell + 1] = made.count;
      if (made.count > this.limits.labels) throw new TooLarge();
      let k = vars.length - 1;
      while (k >= 0 && ++at[k] === dims[k]) at[k--] = 0;
    }
    this.records.push({ variable: v, factors: touching });
    this.add({
      vars,
      maps,
      dims,
      costs: NO_COSTS,
      start,
      data: made.compact(),
      maker: this.records.length - 1,
    });
    return made.count > 0;
  }

  private operand(
    factor: LabelFactor,
    v: number,
    vars: readonly number[],
    maps: readonly number[],
  ): Operand {
    const { pool } = this.net;
    let byValue = new Int32Array(this.net.size[v]);
    const axes: number[] = [];
    const byClass: Int32Array[] = [];
    let stride = 1;
    for (let k = factor.vars.length - 1; k >= 0; k--) {
      const scale = stride;
      const offset = (c: number): number => (c < 0 ? BARRED : c * scale);
      const u = factor.vars[k];
      if (u === v) byValue = pool.mapOf(factor.maps[k]).map(offset);
      else {
        const axis = vars.indexOf(u);
        axes.push(axis);
        byClass.push(pool.project(maps[axis], factor.maps[k]).map(offset));
      }
      stride *= factor.dims[k];
    }
    return { factor, base: 0, byValue, axes, byClass };
  }

  /** Leaves the front of one cell of the result in `#ofCell`. */
  private cell(
    v: number,
    tables: readonly Operand[],
    lists: readonly Operand[],
    at: Int32Array,
  ): void {
    const size = this.net.size[v];
    const front = this.ofValue;
    const own = this.own[v];
    const { slack } = this.limits;
    this.ofCell.clear();
    // Most of the cells of large tables hold nothing: finding that out is work, too.
    this.spend(size * (tables.length + lists.length));
    for (const operand of tables) operand.base = baseOf(operand, at);
    for (const operand of lists) operand.base = baseOf(operand, at);
    for (let a = 0; a < size; a++) {
      if (!front.isWithin(own, a * this.width)) continue;
      // Costs of tables are added before there is a list.
      let cost = own[a * this.width];
      let added = 0;
      for (let t = 0; t < tables.length && cost <= slack && cost !== Infinity; t++) {
        const { factor, base, byValue } = tables[t];
        const c = base + byValue[a];
        const more = c < 0 ? Infinity : factor.costs[c];
        if (more !== Infinity) added++;
        cost += more;
      }
      front.spend(added);
      if (!(cost <= slack) || cost === Infinity) continue;
      front.clear();
      front.appendAtCost(own, a, cost);
      for (let t = 0; t < lists.length && front.count > 0; t++) {
        const { factor, base, byValue } = lists[t];
        const c = base + byValue[a];
        if (c < 0) front.clear();
        else front.addLabels(factor.data, factor.start[c], factor.start[c + 1]);
      }
      this.ofCell.append(front.data, 0, front.count);
    }
    this.ofCell.reduce();
  }

  /** Follows a label of a made factor back to the values that produced it. */
  private trace(made: LabelFactor, label: number, at: Int32Array): void {
    const stack: { factor: LabelFactor; label: number }[] = [{ factor: made, label }];
    for (;;) {
      const top = stack.pop();
      if (top === undefined) return;
      const record = this.records[top.factor.maker];
      const goal = top.factor.data.subarray(top.label * this.width, (top.label + 1) * this.width);
      const picks = this.explain(record, goal, at);
      record.factors.forEach((f, k) => {
        if (f.maker >= 0) stack.push({ factor: f, label: picks[k] });
      });
    }
  }

  /**
   * Finds the value of the record's variable and one label per factor whose sum is the goal; sets
   * `at`.
   */
  private explain(record: Elimination, goal: Float64Array, at: Int32Array): number[] {
    const { variable, factors } = record;
    const { pool } = this.net;
    const picks: number[] = new Array<number>(factors.length).fill(-1);
    const search = (k: number, sum: Float64Array, value: number): boolean => {
      if (k === factors.length) return sum.every((x, i) => x === goal[i]);
      const f = factors[k];
      const cell = cellOf(
        f,
        (axis) => pool.mapOf(f.maps[axis])[f.vars[axis] === variable ? value : at[f.vars[axis]]],
      );
      if (cell < 0) return false;
      if (f.maker < 0) {
        const next = sum.slice();
        next[0] += f.costs[cell];
        return next[0] <= goal[0] && search(k + 1, next, value);
      }
      for (let l = f.start[cell]; l < f.start[cell + 1]; l++) {
        const next = sum.map((x, i) => x + f.data[l * this.width + i]);
        if (next[0] > goal[0]) continue;
        let over = false;
        for (let i = 2; i < this.width; i++) if (next[i] > goal[i]) over = true;
        if (over) continue;
        picks[k] = l;
        if (search(k + 1, next, value)) return true;
      }
      return false;
    };
    for (let a = 0; a < this.net.size[variable]; a++) {
      if (search(0, this.own[variable].slice(a * this.width, (a + 1) * this.width), a)) {
        at[variable] = a;
        return picks;
      }
    }
    throw new Error('internal: a Pareto label without an origin');
  }
}

/** Labels of a table while it is made. */
class LabelList {
  count = 0;
  private readonly width: number;
  private data = new Float64Array(256);

  constructor(width: number) {
    this.width = width;
  }

  /** Appends the first labels of `data`. */
  append(data: Float64Array, count: number): void {
    const from = this.count * this.width;
    const length = count * this.width;
    if (from + length > this.data.length) {
      const larger = new Float64Array(2 * (from + length));
      larger.set(this.data.subarray(0, from));
      this.data = larger;
    }
    for (let i = 0; i < length; i++) this.data[from + i] = data[i];
    this.count += count;
  }

  /** The labels in an array of their own length. */
  compact(): Float64Array {
    return this.data.slice(0, this.count * this.width);
  }
}

function baseOf({ axes, byClass }: Operand, at: Int32Array): number {
  let base = 0;
  for (let k = 0; k < axes.length; k++) base += byClass[k][at[axes[k]]];
  return base;
}

function cellOf(f: LabelFactor, classOf: (axis: number) => number): number {
  let cell = 0;
  for (let k = 0; k < f.vars.length; k++) {
    const c = classOf(k);
    if (c < 0) return -1;
    cell = cell * f.dims[k] + c;
  }
  return cell;
}
