/**
 * Lagrange multipliers of rows ("prices"): bisection over supporting lines of the concave dual for one row, a projected
 * subgradient for several.
 * In: a network with rows, a function that evaluates the dual at given prices. Out: the prices with the best bound found.
 */
import type { Trws } from './trws.ts';
import type { Network } from '../network/network.ts';
import { evaluatePositions } from './rounding.ts';
import { PRICE_BITS } from '../network/rows.ts';

/** The dual evaluated at some prices. */
export interface DualEvaluation {
  readonly prices: readonly bigint[];
  readonly net: Network;
  readonly messages: Trws;
  readonly bound: number;
  readonly at: Int32Array;
  readonly amounts: readonly number[];
}

/** Ascent at the given prices with at most the given number of sweeps. */
type EvaluateDual = (prices: readonly bigint[], sweeps: number) => DualEvaluation;

export interface MultiplierHost {
  readonly stopped: () => boolean;
  /** A bound at least this large ends the search. */
  readonly target: () => number;
  /** Cost of the best choice so far. */
  readonly objective: () => number;
}

/**
 * The supporting line of the dual that a choice gives: its cost without prices, and its slope, how much it takes beyond the
 * bound (negative: it keeps the row).
 */
export interface SupportingLine {
  readonly cost: number;
  readonly over: number;
  /** Whether next to nothing can be cheaper at its price. */
  readonly isTight: boolean;
}

/** Prices of one row between which its relaxed choice changes sides, and about where the best price lies. */
export interface Bracket {
  readonly low: bigint;
  readonly high: bigint;
  readonly breakpoint: Breakpoint;
}

/** The price at which the least of some supporting lines is greatest, and that value: no bound exceeds it, at any price. */
interface Breakpoint {
  readonly price: bigint;
  readonly top: number;
}

/** One unit of cost for one of a row. */
const ONE = 2 ** Number(PRICE_BITS);
/** The first price tried, as part of the one at which what a row holds costs as much as all the rest. */
const FIRST_PART = 1 / 16;
/** Prices that grow by half before they grow faster: what is known at one price helps at the next if it is near. */
const SLOW_STEPS = 6;
/** Largest price that the search tries. */
const CEILING = 2n ** 50n;
/** Relative width at which a bracket is narrow enough, and part of the cost within which two priced choices cost the same. */
const WIDTH = 1e-4;
const SAME_COST = 1e-9;
const TIGHT = 1e-6;
/** Sweeps of a network at a price whose messages come from one near. */
const SETTLING_SWEEPS = 3;
/** Part of the gap that a better price must promise for another trial. */
const PROMISING = 0.1;

/** Whether a choice costs about as much as nothing undercuts. */
export function isTight(cost: number, bound: number): boolean {
  return cost - bound <= TIGHT * Math.abs(bound);
}

/** Priced cost of a choice. */
function costAtPrice({ cost, over }: SupportingLine, price: bigint): number {
  return cost + (Number(price) / ONE) * over;
}

/** Least priced cost of some choices. */
function leastAt(lines: readonly SupportingLine[], price: bigint): number {
  return lines.reduce((least, line) => Math.min(least, costAtPrice(line, price)), Infinity);
}

/** The breakpoint of the supporting lines of choices of which some break the row and some keep it. */
export function breakpointOf(lines: readonly SupportingLine[]): Breakpoint {
  let best: Breakpoint = { price: 0n, top: -Infinity };
  for (const breaking of lines.filter(({ over }) => over > 0)) {
    for (const keeping of lines.filter(({ over }) => over <= 0)) {
      const unit = (keeping.cost - breaking.cost) / (breaking.over - keeping.over);
      if (!(unit >= 0 && unit < Infinity)) continue;
      const price = BigInt(Math.round(unit * ONE));
      const top = leastAt(lines, price);
      if (top > best.top) best = { price, top };
    }
  }
  return best;
}

/**
 * From breakpoint to breakpoint of the function that gives the relaxed choice at a price (G. Y. Handler and I. Zang, "A dual
 * algorithm for the constrained shortest path problem", Networks 1980), with bisection where a breakpoint lies outside of the
 * bracket or the choice there is not known to be the best at its price.
 *
 * @param bound of the row
 * @returns undefined when the choice without a price keeps the row, or no price makes one keep it
 */
export function bracketOf(
  choiceAt: (price: bigint, sweeps: number) => SupportingLine,
  stopped: () => boolean,
  bound: number,
): Bracket | undefined {
  const free = choiceAt(0n, 60);
  if (free.over <= 0) return undefined;
  const lines = [free];
  const scale = Math.max(1, Math.abs(free.cost)) / Math.max(1, free.over + bound);
  let low = 0n;
  let high = Number.isFinite(scale) ? BigInt(Math.ceil(scale * FIRST_PART * ONE)) : 1n << 10n;
  for (let k = 1; ; k++) {
    const next = choiceAt(high, 20);
    lines.push(next);
    if (next.over <= 0) break;
    low = high;
    high = k < SLOW_STEPS ? (3n * high + 1n) / 2n : 8n * high;
    if (high > CEILING || stopped()) return undefined;
  }
  while (high - low > 1n && Number(high - low) > WIDTH * Number(high) && !stopped()) {
    const { price: breakpoint, top } = breakpointOf(lines);
    const isInside = breakpoint > low && breakpoint < high;
    const price = isInside ? breakpoint : (low + high) / 2n;
    const next = choiceAt(price, 20);
    lines.push(next);
    if (next.over <= 0) high = price;
    else low = price;
    if (isInside && next.isTight && costAtPrice(next, price) >= top - SAME_COST * Math.abs(top)) break;
  }
  return { low, high, breakpoint: breakpointOf(lines) };
}

/** The best of a few trials inside a bracket, and of the one made already. */
export function priceBetween(
  net: Network,
  evaluateDual: EvaluateDual,
  bracket: Bracket,
  host: MultiplierHost,
  made?: DualEvaluation,
): DualEvaluation {
  const { bound } = net.rows[0];
  let { low, high } = bracket;
  const { price, top } = bracket.breakpoint;
  let last = made ?? evaluateDual([price >= low && price <= high ? price : high], SETTLING_SWEEPS);
  let best = last;
  const steps = 4;
  for (let k = 0; k < steps && high - low > 1n && !host.stopped(); k++) {
    const gap = host.target() - best.bound;
    if (gap <= 0 || top - best.bound < PROMISING * gap) break;
    if (last.amounts[0] <= bound) high = last.prices[0];
    else low = last.prices[0];
    if (high <= low) break;
    last = evaluateDual([(low + high) / 2n], SETTLING_SWEEPS);
    if (last.bound > best.bound) best = last;
  }
  return best;
}

/** One row: the price with the best bound. */
export function priceOne(net: Network, evaluateDual: EvaluateDual, host: MultiplierHost): DualEvaluation {
  let best = evaluateDual([0n], 60);
  const { bound } = net.rows[0];
  const choiceAt = (price: bigint, sweeps: number): SupportingLine => {
    const t = price === 0n ? best : evaluateDual([price], sweeps);
    if (t.bound > best.bound) best = t;
    return {
      cost: evaluatePositions(net, t.at),
      over: t.amounts[0] - bound,
      isTight: isTight(evaluatePositions(t.net, t.at), t.bound),
    };
  };
  const bracket = bracketOf(choiceAt, () => host.stopped() || best.bound >= host.target(), bound);
  return bracket === undefined ? best : priceBetween(net, evaluateDual, bracket, host, best);
}

/** Several rows: projected subgradient with smoothed directions. */
export function priceMany(net: Network, evaluateDual: EvaluateDual, host: MultiplierHost): DualEvaluation {
  const rows = net.rows.length;
  let best = evaluateDual(
    net.rows.map(() => 0n),
    60,
  );
  const lambda = new Float64Array(rows);
  const kept = new Float64Array(rows);
  const direction = new Float64Array(rows);
  let eta = 1;
  let since = 0;
  let t = best;
  for (let k = 0; k < 120 && !host.stopped(); k++) {
    if (best.bound >= host.target()) break;
    let norm = 0;
    for (let r = 0; r < rows; r++) {
      const g = t.amounts[r] - net.rows[r].bound;
      direction[r] = 0.6 * direction[r] + 0.4 * g;
      if (lambda[r] > 0 || direction[r] > 0) norm += direction[r] ** 2;
    }
    if (norm === 0) break;
    const goal = Math.min(host.objective(), best.bound + 0.3 * Math.abs(best.bound) + 1);
    const step = (eta * Math.max(1, goal - t.bound)) / norm;
    for (let r = 0; r < rows; r++) lambda[r] = Math.max(0, lambda[r] + step * direction[r]);
    t = evaluateDual(
      [...lambda].map((l) => BigInt(Math.round(l * 2 ** 20))),
      6,
    );
    if (t.bound > best.bound + 1e-5 * Math.abs(best.bound)) since = 0;
    else since++;
    if (t.bound > best.bound) {
      best = t;
      kept.set(lambda);
    }
    if (since >= 8) {
      eta *= 0.5;
      since = 0;
      lambda.set(kept);
      direction.fill(0);
      if (eta < 0.01) break;
    }
  }
  return best;
}
