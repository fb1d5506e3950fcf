/**
 * Decides where to split a part of all choices: on which variable, with which values on one side.
 * It uses how often each value was among the least ones while prices rose (weights, an average of
 * the sub-problems' solutions that tends to a fractional solution of the relaxation), and the worth
 * of each value's usage. Source: F. Barahona and R. Anbil, "The volume algorithm", Math.
 * Programming 2000.
 */
import type { Model } from '../model/model.ts';
import type { Split } from '../model/part-values.ts';

/** A side needs this share of a variable's weight to count as wanted by the relaxation. */
const SHARE = 0.02;

/** Facts about the values of a part, all as in `model.start`. */
interface PartView {
  /** 1 for values of the part. */
  readonly live: Uint8Array;
  readonly weights: Float64Array;
  /** Worth of the usage of every value at the prices of the part. */
  readonly worth: Float64Array;
  /** The cost of every value beyond the least one of its variable. */
  readonly marginal: Float64Array;
}

/**
 * The split that parts most usage from most by the weights, that of the variable whose weights are
 * most undecided, and that of the one whose second best value costs least, as far as there are any.
 * Empty when every variable has one value.
 */
export function splitsOf(model: Model, view: PartView): Split[] {
  return [byWorth(model, view), undecided(model, view), nearest(model, view)].filter(
    (split) => split !== undefined,
  );
}

/** The split that parts most usage from most by the weights. */
function byWorth(model: Model, view: PartView): Split | undefined {
  const { start, count } = model;
  let best: Split | undefined;
  let most = 0;
  for (let i = 0; i < count; i++) {
    const values: number[] = [];
    for (let v = start[i]; v < start[i + 1]; v++)
      if (view.live[v] === 1 && view.weights[v] > 0) values.push(v);
    if (values.length < 2) continue;
    const found = byUsage(values, view);
    if (found.score <= most) continue;
    most = found.score;
    const limit = found.below;
    const low = Array.from({ length: start[i + 1] - start[i] }, (_, k) => start[i] + k).filter(
      (v) => view.live[v] === 1 && view.worth[v] <= limit,
    );
    best = { variable: i, low };
  }
  return best;
}

/**
 * The best place to part values of positive weight in the order of their worth: all up to `below`
 * against the rest.
 */
function byUsage(
  values: number[],
  { weights, worth }: PartView,
): { readonly score: number; readonly below: number } {
  values.sort((a, b) => worth[a] - worth[b] || a - b);
  const total = values.reduce((sum, v) => sum + weights[v], 0);
  const mean = values.reduce((sum, v) => sum + weights[v] * worth[v], 0) / total;
  let best = { score: 0, below: 0 };
  for (let k = 1, share = 0, used = 0; k < values.length; k++) {
    const last = values[k - 1];
    share += weights[last] / total;
    used += (weights[last] * worth[last]) / total;
    if (share < SHARE || share > 1 - SHARE || worth[values[k]] === worth[last]) continue;
    const apart = (mean - used) / (1 - share) - used / share;
    const score = apart * Math.min(share, 1 - share);
    if (score > best.score) best = { score, below: worth[last] };
  }
  return best;
}

/**
 * The value of most weight against all others, of the variable with most weight (by its edges) on
 * the others.
 */
function undecided(
  { start, count, incident }: Model,
  { live, weights }: PartView,
): Split | undefined {
  let best: Split | undefined;
  let most = 0;
  for (let i = 0; i < count; i++) {
    let [total, heaviest] = [0, -1];
    for (let v = start[i]; v < start[i + 1]; v++) {
      if (live[v] === 0) continue;
      total += weights[v];
      if (heaviest < 0 || weights[v] > weights[heaviest]) heaviest = v;
    }
    if (heaviest < 0 || total - weights[heaviest] < SHARE * total) continue;
    const score = (1 - weights[heaviest] / total) * (incident[i + 1] - incident[i]);
    if (score > most) {
      most = score;
      best = { variable: i, low: [heaviest] };
    }
  }
  return best;
}

/** The best value against all others, of the variable whose second best value costs least. */
function nearest({ start, count }: Model, { live, marginal }: PartView): Split | undefined {
  let best: Split | undefined;
  let least = Infinity;
  for (let i = 0; i < count; i++) {
    let [first, second] = [-1, Infinity];
    for (let v = start[i]; v < start[i + 1]; v++) {
      if (live[v] === 0) continue;
      if (first < 0) first = v;
      else if (marginal[v] < marginal[first]) [first, second] = [v, marginal[first]];
      else if (marginal[v] < second) second = marginal[v];
    }
    if (second < least) {
      least = second;
      best = { variable: i, low: [first] };
    }
  }
  return best;
}
