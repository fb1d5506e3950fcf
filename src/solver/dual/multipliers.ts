/**
 * Finds Lagrange multipliers of a network's rows ("prices") by evaluating the dual at given prices:
 * bisection over supporting lines of the concave dual for one row, a projected subgradient for
 * several. It gives the prices with the best bound found.
 */
import type { Network } from '../network/network.ts';
import { PRICE_BITS } from '../network/rows.ts';
import { evaluatePositions } from './rounding.ts';
import type { Trws } from './trws.ts';

/** The dual evaluated at some prices. */
export interface DualEvaluation {
  readonly prices: readonly bigint[];
  readonly net: Network;
  readonly messages: Trws;
  readonly bound: number;
  /** The choice that the messages decode to, and what it takes of the rows. */
  readonly at: () => Int32Array;
  readonly amounts: () => readonly number[];
}

/** Ascent at the given prices with at most the given number of sweeps. */
type EvaluateDual = (prices: readonly bigint[], sweeps: number) => DualEvaluation;

export interface MultiplierHost {
  readonly stopped: () => boolean;
  /** A bound at least this large ends the search. */
  readonly target: () => number;
  /** Cost of the best choice so far. */
  readonly objective: () => number;
  /** Relative gap that is good enough. */
  readonly gap: number;
}

/**
 * The knowledge of the dual from one price: the supporting line that its relaxed choice gives,
 * which no bound exceeds at any price, and the bound reached at that price.
 */
export interface SupportingLine {
  /** Cost of the choice without prices. */
  readonly cost: number;
  /**
   * Slope: how much the choice takes beyond the bound of the row; negative where it keeps the row.
   */
  readonly over: number;
  readonly bound: number;
}

/** Prices of one row around the best one known. */
export interface Bracket {
  readonly low: bigint;
  readonly high: bigint;
  readonly breakpoint: Breakpoint;
}

/** A price, and what no bound exceeds, at any price. */
interface Breakpoint {
  readonly price: bigint;
  readonly top: number;
}

/** One unit of cost for one of a row. */
const ONE = 2 ** Number(PRICE_BITS);
/**
 * The first price tried, as part of the one at which what a row holds costs as much as all the
 * rest.
 */
const FIRST_PART = 1 / 16;
/**
 * Prices that grow by half before they grow faster: what is known at one price helps at the next if
 * it is near.
 */
const SLOW_STEPS = 6;
/** Largest price that the search tries. */
const CEILING = 2n ** 50n;
/**
 * Relative width at which a bracket is narrow enough, and part of the cost within which two priced
 * choices cost the same.
 */
const WIDTH = 1e-4;
const SAME_COST = 1e-9;
/** Sweeps of a network at a price whose messages come from one near. */
const SETTLING_SWEEPS = 3;
/** Part of the gap that a better price must promise for another trial. */
const PROMISING = 0.1;

/**
 * A function of the price that the dual does not exceed: `at` for the price 0, and what it gains
 * for one of it.
 */
interface Cap {
  readonly at: number;
  readonly slope: number;
}

/** A price in units of cost for one of the row, and the bound there. */
interface Sample {
  readonly price: bigint;
  readonly unit: number;
  readonly bound: number;
}

/** The line through two samples: beyond them a concave function is below it. */
function secant(a: Sample, b: Sample): Cap {
  const slope = (b.bound - a.bound) / (b.unit - a.unit);
  return { at: a.bound - slope * a.unit, slope };
}

function leastAt(caps: readonly Cap[], unit: number): number {
  return caps.reduce((least, { at, slope }) => Math.min(least, at + slope * unit), Infinity);
}

/** A price, and the most that the dual can be there. */
interface HighestPlace {
  readonly unit: number;
  readonly top: number;
}

/** The place between two prices, its ends included, where the least of some lines is greatest. */
function highestBetween(caps: readonly Cap[], from: number, to: number): HighestPlace {
  let unit = from;
  let top = leastAt(caps, from);
  const attempt = (u: number): void => {
    const value = leastAt(caps, u);
    if (value > top) [unit, top] = [u, value];
  };
  attempt(to);
  for (const a of caps)
    for (const b of caps) {
      if (!(a.slope > 0) || b.slope > 0) continue;
      const u = (b.at - a.at) / (a.slope - b.slope);
      if (u > from && u < to) attempt(u);
    }
  return { unit, top };
}

/**
 * The best price of one row, by the dual's own values and what bounds them: the supporting lines of
 * the choices met (G. Y. Handler and I. Zang, "A dual algorithm for the constrained shortest path
 * problem", Networks 1980), and, since the dual is concave, the secants of the prices next to each
 * other. Where choices are the best at their prices the lines lead from corner to corner; where
 * they are not, their slopes say little and the secants lead.
 *
 * @param bound of the row
 * @param gap that is good enough in the end, relative to the cost: a part of it is what another
 *   price must promise
 * @returns undefined when the choice without a price keeps the row, or no price makes the dual fall
 */
export function bracketOf(
  choiceAt: (price: bigint, sweeps: number) => SupportingLine,
  stopped: () => boolean,
  bound: number,
  gap = 0,
): Bracket | undefined {
  const lines: Cap[] = [];
  const samples: Sample[] = [];
  const ask = (price: bigint, sweeps: number): SupportingLine => {
    const line = choiceAt(price, sweeps);
    lines.push({ at: line.cost, slope: line.over });
    const at = samples.findIndex((s) => s.price > price);
    samples.splice(at < 0 ? samples.length : at, 0, {
      price,
      unit: Number(price) / ONE,
      bound: line.bound,
    });
    return line;
  };
  const free = ask(0n, 60);
  if (free.over <= 0) return undefined;
  const scale = Math.max(1, Math.abs(free.cost)) / Math.max(1, free.over + bound);
  let price = Number.isFinite(scale) ? BigInt(Math.ceil(scale * FIRST_PART * ONE)) : 1n << 10n;
  const tolerance = PROMISING * gap * Math.abs(free.cost);
  let before = free.bound;
  for (let k = 1; ; k++) {
    const next = ask(price, 20);
    if (next.over <= 0 || next.bound < before) break;
    before = next.bound;
    price = k < SLOW_STEPS ? (3n * price + 1n) / 2n : 8n * price;
    if (price > CEILING || stopped()) return undefined;
  }
  for (;;) {
    const best = samples.reduce((k, s, j) => (s.bound > samples[k].bound ? j : k), 0);
    const low = samples[Math.max(0, best - 1)].price;
    const high = samples[Math.min(samples.length - 1, best + 1)].price;
    const promising = promisingBeside(best, samples, lines);
    const { price: own, bound: reached } = samples[best];
    const top = Math.max(reached, promising?.top ?? reached);
    const breakpoint = { price: own, top };
    if (
      promising === undefined ||
      top - reached <= Math.max(tolerance, SAME_COST * Math.abs(top)) ||
      stopped()
    )
      return { low, high, breakpoint };
    const wanted = BigInt(Math.round(promising.unit * ONE));
    // At the ends nothing new is to be learnt.
    const middle = promising.unit * ONE < Number(own) ? (low + own) / 2n : (own + high) / 2n;
    ask(samples.some((s) => s.price === wanted) ? middle : wanted, 20);
  }
}

/** The place next to a sample that promises most; undefined where prices lie too close for one. */
function promisingBeside(
  best: number,
  samples: readonly Sample[],
  lines: readonly Cap[],
): HighestPlace | undefined {
  let promising: HighestPlace | undefined;
  for (const k of [best - 1, best]) {
    if (k < 0 || k + 1 >= samples.length) continue;
    const caps = lines.slice();
    if (k > 0) caps.push(secant(samples[k - 1], samples[k]));
    if (k + 2 < samples.length) caps.push(secant(samples[k + 1], samples[k + 2]));
    const [from, to] = [samples[k], samples[k + 1]];
    const found = highestBetween(caps, from.unit, to.unit);
    if (Number(to.price - from.price) <= Math.max(1, WIDTH * Number(to.price))) continue;
    if (promising === undefined || found.top > promising.top) promising = found;
  }
  return promising;
}

/** The best of a few trials inside a bracket, and of the one made already. */
function priceBetween(
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
    if (last.amounts()[0] <= bound) high = last.prices[0];
    else low = last.prices[0];
    if (high <= low) break;
    last = evaluateDual([(low + high) / 2n], SETTLING_SWEEPS);
    if (last.bound > best.bound) best = last;
  }
  return best;
}

/** One row: the price with the best bound. */
export function priceOne(
  net: Network,
  evaluateDual: EvaluateDual,
  host: MultiplierHost,
): DualEvaluation {
  let best = evaluateDual([0n], 60);
  const { bound } = net.rows[0];
  const choiceAt = (price: bigint, sweeps: number): SupportingLine => {
    const t = price === 0n ? best : evaluateDual([price], sweeps);
    if (t.bound > best.bound) best = t;
    return { cost: evaluatePositions(net, t.at()), over: t.amounts()[0] - bound, bound: t.bound };
  };
  const bracket = bracketOf(
    choiceAt,
    () => host.stopped() || best.bound >= host.target(),
    bound,
    host.gap,
  );
  return bracket === undefined ? best : priceBetween(net, evaluateDual, bracket, host, best);
}

/** Several rows: projected subgradient with smoothed directions. */
export function priceMany(
  net: Network,
  evaluateDual: EvaluateDual,
  host: MultiplierHost,
): DualEvaluation {
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
    const amounts = t.amounts();
    for (let r = 0; r < rows; r++) {
      const g = amounts[r] - net.rows[r].bound;
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
