/**
 * Rounds a bound to a choice that keeps the row whose price weighs most, by dynamic programming
 * over a spanning forest of the variables. The messages of the bound replace the edges off the
 * forest, the prices all other rows. Every value of a variable has a front of labels (cost, usage
 * of the row) of its subtree, at most one in a class of usage; the fronts of children merge as in a
 * knapsack. Usage is summed as it is, never rounded down, so that the choice always fits. Work is
 * counted; no clock decides. Source: H. Kellerer, U. Pferschy, D. Pisinger, "Knapsack Problems",
 * 2004, chapters 2 and 6 (labels trimmed to classes).
 */
import type { Model } from '../model/model.ts';
import { type Front, FrontMerger, type MergedFront } from './label-fronts.ts';
import { type ForestNode, spanningForest } from './spanning-forest.ts';
import { type Dual, priceValues } from './trws.ts';

/**
 * Classes of usage, fewer where merging would take more steps than `WORK` or keep more than
 * `NUMBERS`, none below `LEAST_CLASSES`.
 */
const MOST_CLASSES = 128;
const LEAST_CLASSES = 16;
const WORK = 2 ** 28;
const NUMBERS = 2 ** 24;
/** Numbers of a label: cost, usage, and where it came from. */
const LABEL_NUMBERS = 4;

/**
 * A child of a variable in the forest, and what merging it made: one front for every value of the
 * variable.
 */
interface Child {
  readonly variable: number;
  readonly edge: number;
  readonly merged: readonly MergedFront[];
}

/**
 * A choice that keeps the row of largest price times capacity, and that the edges allow; undefined
 * where no row has a price, where the model is too large, and where none was found. Other rows may
 * be exceeded.
 */
export function forestKnapsack(dual: Dual): Int32Array | undefined {
  const { model, lambda } = dual;
  const weight = (t: number): number => lambda[t] * model.capacity[t];
  let row = -1;
  for (let t = 0; t < model.rows; t++) if (weight(t) > (row < 0 ? 0 : weight(row))) row = t;
  if (row < 0) return undefined;
  const knapsack = new ForestKnapsack(dual, row);
  const classes = knapsack.classes();
  if (classes < LEAST_CLASSES || !knapsack.merge(new FrontMerger(classes, model.capacity[row])))
    return undefined;
  return knapsack.choice();
}

class ForestKnapsack {
  private readonly model: Model;
  private readonly order: readonly ForestNode[];
  private readonly onForest: Uint8Array;
  /** The amounts that the messages take from the cells of an edge, by value of its ends. */
  private readonly toFirst: Float64Array;
  private readonly toSecond: Float64Array;
  private readonly firstAt: Int32Array;
  private readonly secondAt: Int32Array;
  /** The cost of every value outside the forest, and its usage of the row. */
  private readonly cost: Float64Array;
  private readonly usage: Float64Array;
  private readonly capacity: number;
  /**
   * Fronts of every value of every variable, its merged children included; the last variable has
   * all roots for children.
   */
  private readonly fronts: (readonly Front[])[];
  private readonly children: Child[][];

  constructor(dual: Dual, row: number) {
    const { model } = dual;
    const { count, first } = model;
    this.model = model;
    this.capacity = model.capacity[row];
    this.toFirst = dual.toFirst;
    this.toSecond = dual.settled();
    this.firstAt = dual.firstAt;
    this.secondAt = dual.secondAt;
    const { order, onForest } = spanningForest(model, (e) => this.spread(e));
    this.order = order;
    this.onForest = onForest;
    this.usage = usageOfValues(model, row);
    const others = dual.lambda.slice();
    others[row] = 0;
    this.cost = new Float64Array(model.unary.length);
    priceValues(model, others, new Float64Array(model.rows + 1), this.cost);
    for (let e = 0; e < first.length; e++) if (onForest[e] === 0) this.addMessages(e);
    this.fronts = Array.from({ length: count + 1 }, () => []);
    this.children = Array.from({ length: count + 1 }, () => []);
  }

  /** Classes of usage that the limits admit. */
  classes(): number {
    const { sizes, count } = this.model;
    let [cells, merges] = [1, count];
    for (const { variable, parent } of this.order) {
      if (parent < 0) continue;
      cells += sizes[variable] * sizes[parent];
      merges += sizes[parent];
    }
    // Merging two full fronts takes a step for every pair of labels.
    const byWork = (Math.sqrt(cells * cells + 4 * merges * WORK) - cells) / (2 * merges);
    return Math.floor(Math.min(MOST_CLASSES, byWork, NUMBERS / (LABEL_NUMBERS * merges)));
  }

  /** Merges all fronts upwards; false where no label fits. */
  merge(merger: FrontMerger): boolean {
    const { count, sizes, start } = this.model;
    const own = (cost: number, usage: number): Front => ({
      cost: Float64Array.of(cost),
      usage: Float64Array.of(usage),
    });
    for (let i = 0; i < count; i++)
      this.fronts[i] = Array.from({ length: sizes[i] }, (_, a) =>
        own(this.cost[start[i] + a], this.usage[start[i] + a]),
      );
    this.fronts[count] = [own(0, 0)];
    for (let k = this.order.length - 1; k >= 0; k--) {
      const { variable, edge } = this.order[k];
      const parent = this.order[k].parent < 0 ? count : this.order[k].parent;
      const fronts = this.fronts[variable];
      const merged = this.fronts[parent].map((front, a) =>
        merger.sum(
          front,
          merger.least(fronts, (b) => this.cell(edge, variable, b, a)),
        ),
      );
      this.children[parent].push({ variable, edge, merged });
      this.fronts[parent] = merged;
    }
    return this.fronts[count][0].cost.length > 0;
  }

  /**
   * The choice of the last label at the root: what is left of the row goes to the variables that
   * are decided first, and edges off the forest count in full where both ends are decided.
   * Undefined where they forbid every value that fits.
   */
  choice(): Int32Array | undefined {
    const { count } = this.model;
    const choice = new Int32Array(count).fill(-1);
    const [root] = this.fronts[count];
    let spare = this.capacity - root.usage[root.usage.length - 1];
    const open = [{ variable: count, value: 0, label: root.usage.length - 1 }];
    for (let at = 0; at < open.length; at++) {
      const { variable: i, value } = open[at];
      let { label } = open[at];
      for (let k = this.children[i].length - 1; k >= 0; k--) {
        const { variable, edge, merged } = this.children[i][k];
        const { left, part } = merged[value];
        const limit = part[label] + spare;
        label = left[label];
        const found = this.best(
          variable,
          (b) => this.cell(edge, variable, b, value),
          limit,
          choice,
        );
        if (found === undefined) return undefined;
        choice[variable] = found.value;
        spare = limit - this.fronts[variable][found.value].usage[found.label];
        open.push({ variable, ...found });
      }
    }
    return choice;
  }

  /** The value and label of a variable that cost least within a limit, given what is decided. */
  private best(
    i: number,
    cell: (value: number) => number,
    limit: number,
    choice: Int32Array,
  ): { readonly value: number; readonly label: number } | undefined {
    let best: { value: number; label: number } | undefined;
    let least = Infinity;
    this.fronts[i].forEach(({ cost, usage }, value) => {
      let label = usage.length - 1;
      while (label >= 0 && usage[label] > limit) label--;
      if (label < 0) return;
      const sum = cost[label] + cell(value) + this.offForest(i, value, choice);
      if (sum >= least) return;
      least = sum;
      best = { value, label };
    });
    return best;
  }

  /**
   * The cost of the edges off the forest to decided variables beyond the messages that replace
   * them.
   */
  private offForest(i: number, value: number, choice: Int32Array): number {
    const { incident, edge, other, first } = this.model;
    let sum = 0;
    for (let k = incident[i]; k < incident[i + 1]; k++) {
      const e = edge[k];
      const decided = choice[other[k]];
      if (this.onForest[e] === 1 || decided < 0) continue;
      const message =
        first[e] === i
          ? this.toFirst[this.firstAt[e] + value]
          : this.toSecond[this.secondAt[e] + value];
      sum += this.cell(e, i, value, decided) - message;
    }
    return sum;
  }

  /** The cell of an edge for a value of one end and a value of the other; 0 without an edge. */
  private cell(e: number, i: number, value: number, other: number): number {
    if (e < 0) return 0;
    const { first, second, sizes, table, cells } = this.model;
    const [a, b] = first[e] === i ? [value, other] : [other, value];
    return cells[table[e] + a * sizes[second[e]] + b];
  }

  /** How much messages leave undecided on an edge: Infinity where it forbids something. */
  private spread(e: number): number {
    const { first, second, sizes, table, cells } = this.model;
    const [rows, columns] = [sizes[first[e]], sizes[second[e]]];
    let [low, high] = [Infinity, -Infinity];
    for (let a = 0, at = table[e]; a < rows; a++) {
      const message = this.toFirst[this.firstAt[e] + a];
      for (let b = 0; b < columns; b++, at++) {
        if (cells[at] === Infinity) return Infinity;
        const rest = cells[at] - message - this.toSecond[this.secondAt[e] + b];
        if (rest < low) low = rest;
        if (rest > high) high = rest;
      }
    }
    return high - low;
  }

  private addMessages(e: number): void {
    const { first, second, start, sizes } = this.model;
    for (let a = 0; a < sizes[first[e]]; a++)
      this.cost[start[first[e]] + a] += this.toFirst[this.firstAt[e] + a];
    for (let b = 0; b < sizes[second[e]]; b++)
      this.cost[start[second[e]] + b] += this.toSecond[this.secondAt[e] + b];
  }
}

/** Usage of one row by every value. */
function usageOfValues(
  { count, start, sizes, segment, lo, hi, amount, amounts, unary }: Model,
  row: number,
): Float64Array {
  const usage = new Float64Array(unary.length);
  for (let i = 0; i < count; i++)
    for (let s = segment[i]; s < segment[i + 1]; s++)
      if (lo[s] <= row && row < hi[s])
        for (let a = 0; a < sizes[i]; a++) usage[start[i] + a] = amounts[amount[s] + a];
  return usage;
}
