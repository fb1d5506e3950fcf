/**
 * Bucket elimination under linear rows: a cell holds the Pareto front of (cost, amounts) instead of one number, as in label
 * setting for the resource-constrained shortest path problem.
 * In: a priced pairwise network, limits. Out: its cheapest choice that keeps the rows, or that there is none.
 *
 * It closes the duality gap that prices leave: the network is already priced and pruned against the incumbent, so few
 * values are left where it matters, and equal layers produce equal sums, which keeps the fronts short. Exact within its
 * limits; beyond them it answers `too-large` and the caller branches.
 */
import type { Network } from '../network/network.ts';

/** A label is `2 + rows` numbers: reduced cost, priced part of it, amount of every row. */
interface LabelFactor {
  readonly vars: readonly number[];
  readonly maps: readonly Int32Array[];
  readonly dims: readonly number[];
  /** Labels of cell k are start[k] .. start[k + 1] - 1. */
  readonly start: Int32Array;
  readonly data: Float64Array;
  /** Position of the record that made it in the list of records, or -1 for a given table. */
  readonly maker: number;
}

interface Elimination {
  readonly variable: number;
  readonly factors: readonly LabelFactor[];
}

interface LabelLimits {
  /** Largest number of labels of one table. */
  readonly labels: number;
  /** Most label combinations in all; looking up the cell of a factor counts as one. */
  readonly work: number;
  /** Largest reduced cost that may still matter. */
  readonly slack: number;
  /** Labels of a cell that are kept, spread over the front; absent: all. With fewer, what is found is a choice, no optimum. */
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

class TooLarge extends Error {}

/** Minimises the true cost under the rows of a priced pairwise network whose costs are non-negative. */
export function paretoEliminate(net: Network, limits: LabelLimits): LabelResult {
  const search = new ParetoElimination(net, limits);
  try {
    const { status, at } = search.run();
    return { status, at, work: search.work };
  } catch (error) {
    if (error instanceof TooLarge) return { status: 'too-large', at: new Int32Array(0), work: search.work };
    throw error;
  }
}

class ParetoElimination {
  readonly #net: Network;
  readonly #limits: LabelLimits;
  readonly #width: number;
  readonly #budget: Float64Array;
  /** Own label of every value of every present variable. */
  readonly #own: Float64Array[];
  readonly #factors = new Set<LabelFactor>();
  /** By variable: the factors that hold it. */
  readonly #at: Set<LabelFactor>[];
  /** Those that hold none any more. */
  readonly #loose = new Set<LabelFactor>();
  readonly #records: Elimination[] = [];
  #work = 0;

  constructor(net: Network, limits: LabelLimits) {
    this.#net = net;
    this.#limits = limits;
    const rows = net.rows.length;
    this.#width = 2 + rows;
    this.#budget = Float64Array.from(net.rows, (row) => row.bound);
    this.#at = Array.from({ length: net.count }, () => new Set<LabelFactor>());
    this.#own = Array.from({ length: net.count }, () => new Float64Array(0));
    for (let i = 0; i < net.count; i++) {
      if (net.gone[i] === 1) continue;
      const costs = net.pool.vectorOf(net.unary[i]);
      const labels = new Float64Array(costs.length * this.#width);
      for (let r = 0; r < rows; r++) {
        const id = net.rows[r].amounts[i];
        if (id < 0) continue;
        const amounts = net.pool.vectorOf(id);
        const least = net.pool.leastOf(id);
        this.#budget[r] -= least;
        for (let a = 0; a < costs.length; a++) {
          labels[a * this.#width + 2 + r] = amounts[a] - least;
        }
      }
      const priced = net.priced[i] < 0 ? undefined : net.pool.vectorOf(net.priced[i]);
      for (let a = 0; a < costs.length; a++) {
        labels[a * this.#width] = costs[a];
        labels[a * this.#width + 1] = priced === undefined ? 0 : priced[a];
      }
      this.#own[i] = labels;
    }
    for (const f of net.factors) {
      if (f === undefined) continue;
      const { cells, dims } = f.table;
      const data = new Float64Array(cells.length * this.#width);
      const start = new Int32Array(cells.length + 1);
      let count = 0;
      for (let c = 0; c < cells.length; c++) {
        if (cells[c] !== Infinity) data[count++ * this.#width] = cells[c];
        start[c + 1] = count;
      }
      this.#add({ vars: f.vars, maps: f.maps.map((m) => net.pool.mapOf(m)), dims, start, data, maker: -1 });
    }
  }

  #add(f: LabelFactor): void {
    this.#factors.add(f);
    if (f.vars.length === 0) this.#loose.add(f);
    for (const v of f.vars) this.#at[v].add(f);
  }

  #remove(f: LabelFactor): void {
    this.#factors.delete(f);
    this.#loose.delete(f);
    for (const v of f.vars) this.#at[v].delete(f);
  }

  get work(): number {
    return this.#work;
  }

  run(): Pick<LabelResult, 'status' | 'at'> {
    const at = new Int32Array(this.#net.count).fill(-1);
    if (this.#budget.some((b) => b < 0)) return { status: 'none', at };
    const present: number[] = [];
    for (let i = 0; i < this.#net.count; i++) if (this.#net.gone[i] === 0) present.push(i);
    const left = new Set(present);
    // Only the neighbours of what goes have another score afterwards.
    const scores = new Float64Array(this.#net.count);
    for (const v of present) scores[v] = this.#score(v);
    while (left.size > 0) {
      if (this.#limits.stop?.() === true) throw new TooLarge();
      let best = -1;
      let bestScore = Infinity;
      for (const v of left) {
        if (scores[v] < bestScore) {
          bestScore = scores[v];
          best = v;
        }
      }
      left.delete(best);
      const near = new Set([...this.#at[best]].flatMap((f) => f.vars));
      if (!this.#eliminate(best)) return { status: 'none', at };
      for (const v of near) if (v !== best) scores[v] = this.#score(v);
    }
    const [last] = this.#factors;
    if (last === undefined) return { status: 'found', at };
    let chosen = -1;
    let least = Infinity;
    for (let l = 0; l < last.start[1]; l++) {
      const c = last.data[l * this.#width] - last.data[l * this.#width + 1];
      if (c < least) {
        least = c;
        chosen = l;
      }
    }
    if (chosen < 0) return { status: 'none', at };
    this.#trace(last, chosen, at);
    return { status: 'found', at };
  }

  #score(v: number): number {
    const sizes = new Map<number, number>();
    for (const f of this.#at[v]) {
      f.vars.forEach((u, k) => {
        if (u !== v) sizes.set(u, Math.min(this.#net.size[u], (sizes.get(u) ?? 1) * f.dims[k]));
      });
    }
    let cells = 1;
    for (const s of sizes.values()) cells *= s;
    return cells;
  }

  /** Replaces all factors at v by their Pareto minimum over v; false when no label is left. */
  #eliminate(v: number): boolean {
    const { pool } = this.#net;
    const touching = [...this.#at[v], ...this.#loose];
    for (const f of touching) this.#remove(f);
    const vars = [...new Set(touching.flatMap((f) => f.vars))].filter((u) => u !== v).sort((a, b) => a - b);
    const maps = vars.map((u) => {
      let joint = -1;
      for (const f of touching) {
        const k = f.vars.indexOf(u);
        if (k < 0) continue;
        const id = pool.map(f.maps[k]);
        joint = joint < 0 ? id : pool.join(joint, id);
      }
      return joint;
    });
    const dims = maps.map((m) => pool.classesOf(m));
    const projections = touching.map((f) =>
      f.vars.map((u, k) => (u === v ? new Int32Array(0) : pool.project(maps[vars.indexOf(u)], pool.map(f.maps[k])))),
    );
    let cells = 1;
    for (const d of dims) cells *= d;
    if (cells > this.#limits.labels) throw new TooLarge();
    const start = new Int32Array(cells + 1);
    const data: number[] = [];
    const at = new Int32Array(vars.length);
    const size = this.#net.size[v];
    for (let cell = 0; cell < cells; cell++) {
      const found: Float64Array[] = [];
      // Most of the cells of large tables hold nothing: finding that out is work, too.
      this.#work += size * touching.length;
      if (this.#work > this.#limits.work) throw new TooLarge();
      for (let a = 0; a < size; a++) {
        const own = this.#own[v].subarray(a * this.#width, (a + 1) * this.#width);
        let list = this.#within(own) ? [own] : [];
        for (let t = 0; t < touching.length && list.length > 0; t++) {
          const c = cellOf(touching[t], (k) => {
            const u = touching[t].vars[k];
            return u === v ? touching[t].maps[k][a] : projections[t][k][at[vars.indexOf(u)]];
          });
          list = c < 0 ? [] : this.#combine(list, touching[t], c);
        }
        for (const l of list) found.push(l);
      }
      const front = this.#pareto(found);
      for (const l of front) for (const x of l) data.push(x);
      start[cell + 1] = data.length / this.#width;
      if (start[cell + 1] > this.#limits.labels) throw new TooLarge();
      let k = vars.length - 1;
      while (k >= 0 && ++at[k] === dims[k]) at[k--] = 0;
    }
    this.#records.push({ variable: v, factors: touching });
    this.#add({
      vars,
      maps: maps.map((m) => pool.mapOf(m)),
      dims,
      start,
      data: Float64Array.from(data),
      maker: this.#records.length - 1,
    });
    return data.length > 0;
  }

  #within(label: Float64Array): boolean {
    if (!(label[0] <= this.#limits.slack)) return false;
    for (let r = 0; r < this.#budget.length; r++) if (label[2 + r] > this.#budget[r]) return false;
    return true;
  }

  #combine(list: readonly Float64Array[], f: LabelFactor, cell: number): Float64Array[] {
    const out: Float64Array[] = [];
    this.#work += list.length * (f.start[cell + 1] - f.start[cell]);
    if (this.#work > this.#limits.work) throw new TooLarge();
    for (const a of list) {
      for (let l = f.start[cell]; l < f.start[cell + 1]; l++) {
        const sum = a.slice();
        for (let k = 0; k < this.#width; k++) sum[k] += f.data[l * this.#width + k];
        if (this.#within(sum)) out.push(sum);
      }
    }
    return this.#pareto(out);
  }

  /** Labels that no other beats in true cost and every amount; equal ones are kept once. */
  #pareto(labels: Float64Array[]): Float64Array[] {
    if (labels.length < 2) return labels;
    const rows = this.#budget.length;
    labels.sort((a, b) => {
      const d = a[0] - a[1] - (b[0] - b[1]);
      if (d !== 0) return d;
      for (let r = 0; r < rows; r++) if (a[2 + r] !== b[2 + r]) return a[2 + r] - b[2 + r];
      return a[0] - b[0];
    });
    const kept: Float64Array[] = [];
    let least = Infinity;
    for (const l of labels) {
      if (rows === 1) {
        if (l[2] >= least) continue;
        least = l[2];
      } else {
        this.#work += kept.length;
        if (kept.some((k) => dominates(k, l, rows))) continue;
      }
      kept.push(l);
    }
    if (this.#work > this.#limits.work) throw new TooLarge();
    return spread(kept, this.#limits.front ?? Infinity);
  }

  /** Follows a label of a made factor back to the values that produced it. */
  #trace(made: LabelFactor, label: number, at: Int32Array): void {
    const stack: { factor: LabelFactor; label: number }[] = [{ factor: made, label }];
    for (;;) {
      const top = stack.pop();
      if (top === undefined) return;
      const record = this.#records[top.factor.maker];
      const goal = top.factor.data.subarray(top.label * this.#width, (top.label + 1) * this.#width);
      const picks = this.#explain(record, goal, at);
      record.factors.forEach((f, k) => {
        if (f.maker >= 0) stack.push({ factor: f, label: picks[k] });
      });
    }
  }

  /** Finds the value of the record's variable and one label per factor whose sum is the goal; sets `at`. */
  #explain(record: Elimination, goal: Float64Array, at: Int32Array): number[] {
    const { variable, factors } = record;
    const picks: number[] = new Array<number>(factors.length).fill(-1);
    const search = (k: number, sum: Float64Array, value: number): boolean => {
      if (k === factors.length) return sum.every((x, i) => x === goal[i]);
      const f = factors[k];
      const cell = cellOf(f, (axis) => f.maps[axis][f.vars[axis] === variable ? value : at[f.vars[axis]]]);
      if (cell < 0) return false;
      for (let l = f.start[cell]; l < f.start[cell + 1]; l++) {
        const next = sum.map((x, i) => x + f.data[l * this.#width + i]);
        if (next[0] > goal[0]) continue;
        let over = false;
        for (let i = 2; i < this.#width; i++) if (next[i] > goal[i]) over = true;
        if (over) continue;
        picks[k] = l;
        if (search(k + 1, next, value)) return true;
      }
      return false;
    };
    for (let a = 0; a < this.#net.size[variable]; a++) {
      if (search(0, this.#own[variable].slice(a * this.#width, (a + 1) * this.#width), a)) {
        at[variable] = a;
        return picks;
      }
    }
    throw new Error('internal: a Pareto label without an origin');
  }
}

/** At most `most` of a list, its ends among them. */
function spread<T>(list: T[], most: number): T[] {
  if (list.length <= most) return list;
  return Array.from({ length: most }, (_, k) => list[Math.round((k * (list.length - 1)) / (most - 1))]);
}

function dominates(a: Float64Array, b: Float64Array, rows: number): boolean {
  for (let r = 0; r < rows; r++) if (a[2 + r] > b[2 + r]) return false;
  return true;
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
