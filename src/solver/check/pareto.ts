/**
 * The checker's own Pareto elimination: the least true cost of a model under its rows. A cell holds
 * all pairs of cost and amounts that no other beats. Written for the checker alone.
 */
import type { Model } from './model.ts';
import { Refused } from './refused.ts';
import { LARGEST, type Part, type Store } from './store.ts';

/**
 * One way to fill in the eliminated variables: priced cost, cost without prices, amount of every
 * row.
 */
interface Label {
  readonly cost: number;
  readonly real: number;
  readonly amounts: readonly number[];
}

interface Front {
  readonly vars: readonly number[];
  readonly maps: readonly number[];
  readonly dims: readonly number[];
  readonly cells: readonly (readonly Label[])[];
}

/** Largest front, in cells: what it takes of memory. */
const MOST_CELLS = 2_000_000;
/** Work of combining or comparing two labels. */
const LABEL = 16;

/**
 * Least true cost of any choice left that keeps the rows, as far as it matters; undefined when
 * there is none.
 */
export function leastUnderRows(model: Model): bigint | undefined {
  if (model.empty) return undefined;
  return new ParetoElimination(model).run();
}

class ParetoElimination {
  private readonly model: Model;
  private readonly store: Store;
  private readonly slack: number;
  private readonly budgets: number[];
  /** By variable: the fronts that hold it, in the order in which they were made. */
  private readonly at: Set<Front>[];
  /** Fronts that hold no variable any more. */
  private readonly loose: Front[] = [];

  constructor(model: Model) {
    this.model = model;
    this.store = model.store;
    // What costs more than the cut is no more than the cut says, whatever it is.
    this.slack =
      model.nonNegative && model.cut !== undefined ? Number(model.cut - model.constant) : Infinity;
    this.budgets = model.rows.map((row) => {
      let budget = row.bound;
      row.amounts.forEach((id, i) => {
        if (id >= 0 && !model.gone[i]) budget -= BigInt(this.store.leasts[id]);
      });
      return Number(budget);
    });
    this.at = Array.from(model.size, () => new Set<Front>());
    const parts = model.tidyParts();
    this.refuseLargeSums(parts);
    for (const part of parts) this.add(this.frontOf(part));
  }

  /** Refuses unless the cost of every label is exact, with prices and without. */
  private refuseLargeSums(parts: readonly Part[]): void {
    const { model, store } = this;
    let most = 0;
    for (let i = 0; i < model.size.length; i++) {
      if (model.gone[i]) continue;
      most += store.mosts[model.unary[i]];
      if (model.priced[i] >= 0) most += store.mosts[model.priced[i]];
    }
    for (const { grid } of parts) most += grid.most;
    if (!(most <= LARGEST)) throw new Refused('costs of labels add up to more than 2^52');
  }

  private add(front: Front): void {
    if (front.vars.length === 0) this.loose.push(front);
    for (const v of front.vars) this.at[v].add(front);
  }

  run(): bigint | undefined {
    const model = this.model;
    if (this.budgets.some((b) => b < 0)) return undefined;
    const left: number[] = [];
    for (let i = 0; i < model.size.length; i++) if (!model.gone[i]) left.push(i);
    // Only the neighbours of what goes have another number of cells afterwards.
    const cells = new Float64Array(model.size.length);
    for (const v of left) cells[v] = this.cellsAfter(v);
    while (left.length > 0) {
      this.store.work.spend(left.length);
      let place = 0;
      for (let k = 1; k < left.length; k++) if (cells[left[k]] < cells[left[place]]) place = k;
      const [chosen] = left.splice(place, 1);
      const near = new Set([...this.at[chosen]].flatMap((f) => f.vars));
      if (!this.eliminate(chosen)) return undefined;
      near.delete(chosen);
      for (const v of near) cells[v] = this.cellsAfter(v);
    }
    let rest: readonly Label[] = [{ cost: 0, real: 0, amounts: this.budgets.map(() => 0) }];
    for (const front of this.loose) rest = this.combine(rest, front.cells[0]);
    let least: bigint | undefined;
    for (const label of rest) {
      const total = BigInt(label.real) + model.constant - model.pricedConstant;
      if (least === undefined || total < least) least = total;
    }
    return least;
  }

  private frontOf(part: Part): Front {
    const zero = this.budgets.map(() => 0);
    const cells = Array.from(part.grid.cells, (c): readonly Label[] =>
      c === Infinity ? [] : [{ cost: c, real: c, amounts: zero }],
    );
    return { vars: part.vars, maps: part.maps, dims: part.grid.dims, cells };
  }

  private cellsAfter(v: number): number {
    const sizes = new Map<number, number>();
    for (const f of this.at[v]) {
      f.vars.forEach((u, k) => {
        if (u !== v) sizes.set(u, Math.min(this.model.size[u], (sizes.get(u) ?? 1) * f.dims[k]));
      });
    }
    let cells = 1;
    for (const s of sizes.values()) cells *= s;
    return cells;
  }

  /** Labels of the values of v, by class of the map. */
  private ownLabels(v: number, map: number): Label[][] {
    const model = this.model;
    const { vectors, leasts, maps, classes } = this.store;
    const costs = vectors[model.unary[v]];
    const priced = model.priced[v] < 0 ? undefined : vectors[model.priced[v]];
    const out = Array.from({ length: classes[map] }, (): Label[] => []);
    for (let a = 0; a < costs.length; a++) {
      if (maps[map][a] < 0 || costs[a] === Infinity || costs[a] > this.slack) continue;
      const amounts = model.rows.map((row) => {
        const id = row.amounts[v];
        return id < 0 ? 0 : vectors[id][a] - leasts[id];
      });
      if (amounts.some((u, r) => u > this.budgets[r])) continue;
      out[maps[map][a]].push({
        cost: costs[a],
        real: costs[a] - (priced === undefined ? 0 : priced[a]),
        amounts,
      });
    }
    return out.map((labels) => this.pareto(labels));
  }

  private eliminate(v: number): boolean {
    const store = this.store;
    const touching = [...this.at[v]];
    for (const f of touching) for (const u of f.vars) this.at[u].delete(f);
    const join = (u: number): number => {
      const maps = touching.filter((f) => f.vars.includes(u)).map((f) => f.maps[f.vars.indexOf(u)]);
      if (maps.length === 0) return store.map(new Int32Array(this.model.size[u]));
      return maps.reduce((a, b) => store.join(a, b));
    };
    const own = join(v);
    const labels = this.ownLabels(v, own);
    const vars = [...new Set(touching.flatMap((f) => f.vars))].filter((u) => u !== v);
    const maps = vars.map(join);
    const dims = maps.map((m) => store.classes[m]);
    let total = 1;
    for (const d of dims) total *= d;
    if (total > MOST_CELLS)
      throw new Refused(`a Pareto elimination of ${total} cells is too wide to replay`);
    store.work.spend(total * (1 + labels.length * (1 + touching.length)));
    // Per front and axis: where the axis reads its class from (-1: the eliminated variable).
    const readers = touching.map((f) =>
      f.vars.map((u, k) => ({
        place: vars.indexOf(u),
        classes: store.project(u === v ? own : maps[vars.indexOf(u)], f.maps[k]),
        size: f.dims[k],
      })),
    );
    const at = new Int32Array(vars.length);
    const cells: (readonly Label[])[] = [];
    let any = false;
    for (let cell = 0; cell < total; cell++) {
      const found: Label[] = [];
      for (let c = 0; c < labels.length; c++) {
        let list: readonly Label[] = labels[c];
        for (let t = 0; t < touching.length && list.length > 0; t++) {
          let index = 0;
          for (const r of readers[t])
            index = index * r.size + r.classes[r.place < 0 ? c : at[r.place]];
          list = this.combine(list, touching[t].cells[index]);
        }
        for (const label of list) found.push(label);
      }
      const front = this.pareto(found);
      if (front.length > 0) any = true;
      cells.push(front);
      let k = vars.length - 1;
      while (k >= 0 && ++at[k] === dims[k]) at[k--] = 0;
    }
    this.add({ vars, maps, dims, cells });
    return any;
  }

  private combine(left: readonly Label[], right: readonly Label[]): readonly Label[] {
    this.store.work.spend(LABEL * left.length * right.length);
    const out: Label[] = [];
    for (const a of left) {
      for (const b of right) {
        const cost = a.cost + b.cost;
        if (cost > this.slack) continue;
        const real = a.real + b.real;
        const amounts = a.amounts.map((u, r) => u + b.amounts[r]);
        if (amounts.some((u, r) => u > this.budgets[r])) continue;
        out.push({ cost, real, amounts });
      }
    }
    return left.length === 1 || right.length === 1 ? out : this.pareto(out);
  }

  /** Labels that no other one beats in true cost and in every amount. */
  private pareto(labels: Label[]): Label[] {
    if (labels.length < 2) return labels;
    labels.sort((a, b) => {
      if (a.real !== b.real) return a.real - b.real;
      for (let r = 0; r < a.amounts.length; r++)
        if (a.amounts[r] !== b.amounts[r]) return a.amounts[r] - b.amounts[r];
      return a.cost - b.cost;
    });
    const kept: Label[] = [];
    for (const label of labels) {
      // With one row the last one kept has the smallest amount so far.
      const rivals = label.amounts.length === 1 ? kept.slice(-1) : kept;
      this.store.work.spend(LABEL * rivals.length);
      if (rivals.some((k) => k.amounts.every((u, r) => u <= label.amounts[r]))) continue;
      kept.push(label);
    }
    return kept;
  }
}
