/**
 * Bounds by parts: all choices are split in two by the values of one variable, and each part is
 * bounded by a dual ascent of its own, which begins at the prices and messages of the part that it
 * came from. The least bound over the parts holds for all choices; the part that has it is split
 * next (best-first branch and bound with a Lagrangian bound). Parts whose bound reaches the best
 * choice are closed. Bounds are floating point: a certificate is written and checked elsewhere.
 * Source: A. Geoffrion, "Lagrangean relaxation for integer programming", Math. Programming Study 2,
 * 1974.
 */
import { monotonicMilliseconds as milliseconds } from '../../platform/platform.ts';
import { type AscentStart, PriceAscent } from '../bound/row-prices.ts';
import { Dual, priceValues } from '../bound/trws.ts';
import type { Model } from '../model/model.ts';
import { PartValues, type Split } from '../model/part-values.ts';
import { conflictSplits } from './part-conflicts.ts';
import { splitsOf } from './part-split.ts';
import { rowRange } from './row-range.ts';

/**
 * A part of all choices: its bound with the prices and messages behind it, how it may be split, and
 * how it was.
 */
export interface Part {
  readonly bound: number;
  /** Undefined once the part has been split: the numbers of its sides hold then. */
  readonly start: AscentStart | undefined;
  readonly splits: readonly Split[];
  readonly split: Split | undefined;
  readonly parts: readonly [Part, Part] | undefined;
}

export interface PartsJob {
  readonly model: Model;
  readonly start: AscentStart;
  /** Parts found by an earlier run on the same model, to go on with. */
  readonly tree?: Part;
  /** Cost of the best choice: parts are to cost no less. */
  readonly cost: number;
  /** Milliseconds since the epoch; Infinity for none. */
  readonly deadline: number;
  /** Time to be left before the deadline for every part, to write it down and to check it. */
  readonly partMilliseconds: number;
}

/** Prices of a part move as if so many steps had been made: they begin near their end. */
const STEPS_DONE = 60;
/**
 * Most steps of a part; it ends sooner when `PATIENCE` steps gain less than `GAIN` of the distance
 * to the best choice.
 */
const MOST_STEPS = 60;
const PATIENCE = 20;
const GAIN = 0.002;
/** The share of a weight that remains after a step. */
const KEPT = 0.97;
/** Numbers (messages and prices) that the parts may keep, and most parts. */
const MOST_NUMBERS = 2 ** 23;
const MOST_PARTS = 1000;
/**
 * Models of at most this many cells of tables are small: several splits of a part are tried, all
 * exceeded rows join at once, and certificates leave the messages to the checker. On larger ones (M
 * of the contest) the same time is better spent on more parts.
 */
const SMALL_CELLS = 2 ** 20;
/** Most splits of a part that are tried, and steps of each of their sides. */
const MOST_TRIALS = 8;
const TRIAL_STEPS = 6;
/**
 * The weight of the better side of a split against the worse one: a side that ends at once is worth
 * little if the other gains nothing.
 */
const BETTER_SIDE = 0.01;
/** A part is closed this far below the best choice: costs are integers. */
const CLOSED = 0.5;

/** An open or closed leaf of the tree, as it grows. */
interface Leaf {
  bound: number;
  start: AscentStart | undefined;
  readonly splits: readonly Split[];
  split: Split | undefined;
  parts: [Leaf, Leaf] | undefined;
  readonly live: Uint8Array;
}

/** Splits until all parts are closed or a limit comes. */
export function boundByParts(job: PartsJob): Part {
  const { model, cost, deadline } = job;
  const values = new PartValues(model);
  const ascents = new PartAscents(job, values);
  const all = values.all();
  const leaves: Leaf[] = [];
  const root =
    job.tree === undefined ? ascents.leaf(all, job.start) : leafOf(values, job.tree, all, leaves);
  if (job.tree === undefined) leaves.push(root);
  const perPart = job.start.lambda.length + job.start.toFirst.length + job.start.toSecond.length;
  const most = Math.min(MOST_PARTS, Math.max(2, Math.floor(MOST_NUMBERS / perPart)));
  while (
    leaves.length < most &&
    milliseconds() + (leaves.length + 1) * job.partMilliseconds < deadline
  ) {
    const at = leastOpen(leaves, cost);
    if (at < 0) break;
    const leaf = leaves[at];
    const { start } = leaf;
    const split = start === undefined ? undefined : ascents.bestSplit(leaf, start);
    if (split === undefined || start === undefined) break;
    const sides = values.sides(leaf.live, split).map((live) => ascents.leaf(live, start));
    leaf.split = split;
    leaf.parts = [sides[0], sides[1]];
    leaf.start = undefined;
    leaves.splice(at, 1, ...sides);
  }
  return root;
}

/** The open leaf of least bound; -1 if all are closed. */
function leastOpen(leaves: readonly Leaf[], cost: number): number {
  let best = -1;
  leaves.forEach(({ bound }, k) => {
    if (bound < cost - CLOSED && (best < 0 || bound < leaves[best].bound)) best = k;
  });
  return best;
}

/** An earlier tree with marks; its leaves are pushed to `leaves`. */
function leafOf(values: PartValues, part: Part, live: Uint8Array, leaves: Leaf[]): Leaf {
  const { bound, start, splits, split, parts } = part;
  const leaf: Leaf = { bound, start, splits, split, parts: undefined, live };
  if (parts === undefined || split === undefined) leaves.push(leaf);
  else {
    const [one, two] = values.sides(live, split);
    leaf.parts = [leafOf(values, parts[0], one, leaves), leafOf(values, parts[1], two, leaves)];
  }
  return leaf;
}

/** Dual ascents on parts of one model. */
class PartAscents {
  private readonly model: Model;
  private readonly cost: number;
  private readonly deadline: number;
  private readonly dual: Dual;
  private readonly values: PartValues;
  private readonly small: boolean;
  private readonly prefix: Float64Array;
  private readonly worth: Float64Array;

  constructor({ model, cost, deadline }: PartsJob, values: PartValues) {
    this.model = model;
    this.cost = cost;
    this.deadline = deadline;
    this.dual = new Dual(model);
    this.values = values;
    this.small = isSmall(model);
    this.prefix = new Float64Array(model.rows + 1);
    this.worth = new Float64Array(model.unary.length);
  }

  /**
   * A leaf of the marked values. Its first sweep already bounds it by no less than the part that it
   * came from.
   */
  leaf(live: Uint8Array, from: AscentStart): Leaf {
    if (this.values.isEmpty(live))
      return {
        bound: Infinity,
        start: undefined,
        splits: [],
        split: undefined,
        parts: undefined,
        live,
      };
    this.dual.restrict(live);
    const { overfull, slack } = rowRange(this.model, live);
    if (overfull !== undefined) return this.overfull(live, overfull);
    const weights = new Float64Array(live.length);
    const ascent = this.ascend(from, slack, MOST_STEPS, weights);
    const { best, kept, bestFirst, bestSecond } = ascent;
    const start = { lambda: kept, toFirst: bestFirst, toSecond: bestSecond, steps: STEPS_DONE };
    return {
      bound: best,
      start,
      splits: this.splits(live, weights, kept),
      split: undefined,
      parts: undefined,
      live,
    };
  }

  /**
   * The split whose sides gain most in a few steps; undefined where every variable has one value.
   */
  bestSplit({ live, bound, splits }: Leaf, start: AscentStart): Split | undefined {
    if (splits.length < 2) return splits.at(0);
    let best: Split | undefined;
    let most = -Infinity;
    for (const split of splits) {
      const gains = this.values.sides(live, split).map((side) => this.trial(side, start) - bound);
      const score = Math.min(...gains) + BETTER_SIDE * Math.max(...gains);
      if (score <= most) continue;
      most = score;
      best = split;
    }
    return best;
  }

  /** The bound of a side after a few steps, no higher than the best choice. */
  private trial(live: Uint8Array, from: AscentStart): number {
    if (this.values.isEmpty(live)) return this.cost;
    this.dual.restrict(live);
    const { overfull, slack } = rowRange(this.model, live);
    return overfull === undefined
      ? Math.min(this.cost, this.ascend(from, slack, TRIAL_STEPS).best)
      : this.cost;
  }

  /** Steps on the values to which the dual is restricted; rows with slack lose their prices. */
  private ascend(
    { lambda, toFirst, toSecond }: AscentStart,
    slack: readonly number[],
    most: number,
    weights?: Float64Array,
  ): PriceAscent {
    const dual = this.dual;
    const ascent = new PriceAscent(
      dual,
      { lambda, toFirst, toSecond, steps: STEPS_DONE },
      this.small,
    );
    const history: number[] = [];
    for (let k = 0; k < most && ascent.best < this.cost - CLOSED; k++) {
      ascent.step();
      if (k === 0) for (const t of slack) dual.lambda[t] = 0;
      history.push(ascent.best);
      if (weights !== undefined) this.weigh(weights);
      const gain = ascent.best - (history.at(-1 - PATIENCE) ?? -Infinity);
      if (gain < GAIN * (this.cost - ascent.best) || milliseconds() > this.deadline) break;
    }
    return ascent;
  }

  /**
   * A part without a choice: the price of one row alone bounds it above the best choice, with a
   * margin for rounding.
   */
  private overfull(
    live: Uint8Array,
    { row, excess }: { readonly row: number; readonly excess: number },
  ): Leaf {
    const dual = this.dual;
    dual.lambda.fill(0);
    dual.toFirst.fill(0);
    dual.toSecond.fill(0);
    dual.reprice();
    const free = dual.sweep();
    dual.lambda[row] =
      (2 * Math.max(1, Math.abs(this.cost), Math.abs(free), this.cost - free)) / excess;
    dual.toFirst.fill(0);
    dual.toSecond.fill(0);
    dual.reprice();
    const bound = dual.sweep();
    const [first, second] = [dual.toFirst.slice(), dual.toSecond.slice()];
    const start = {
      lambda: dual.lambda.slice(),
      toFirst: first,
      toSecond: second,
      steps: STEPS_DONE,
    };
    return { bound, start, splits: [], split: undefined, parts: undefined, live };
  }

  private weigh(weights: Float64Array): void {
    const { start } = this.model;
    for (let v = 0; v < weights.length; v++) weights[v] *= KEPT;
    this.dual.argmin().forEach((a, i) => (weights[start[i] + a] += 1 - KEPT));
  }

  /** Splits that may be worth a trial, without equal ones. */
  private splits(live: Uint8Array, weights: Float64Array, lambda: Float64Array): Split[] {
    const model = this.model;
    const worth = this.worth;
    priceValues(model, lambda, this.prefix, worth);
    for (let v = 0; v < worth.length; v++)
      worth[v] = model.unary[v] === Infinity ? 0 : worth[v] - model.unary[v];
    const view = { live, weights, worth, marginal: this.dual.marginal };
    if (!this.small) return splitsOf(model, view).slice(0, 1);
    const all = [...splitsOf(model, view), ...conflictSplits(this.dual, live)];
    const fresh = new Map(all.map((split) => [`${split.variable}:${split.low.join(',')}`, split]));
    return [...fresh.values()].slice(0, MOST_TRIALS);
  }
}

/**
 * Tells whether a sweep of a model is so short that splits may be tried and messages be found
 * again.
 */
export function isSmall({ first, second, sizes }: Model): boolean {
  let cells = 0;
  for (let e = 0; e < first.length; e++) cells += sizes[first[e]] * sizes[second[e]];
  return cells <= SMALL_CELLS;
}

/** The least bound over the leaves of a tree. */
export function leastBound({ bound, parts }: Part): number {
  return parts === undefined ? bound : Math.min(leastBound(parts[0]), leastBound(parts[1]));
}
