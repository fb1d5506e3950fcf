/**
 * The search for prices of rows: where the relaxed choice changes sides (one row), or a projected subgradient (several).
 */
import type { Messages } from './bound.ts';
import type { Network } from './network.ts';

/** One evaluation of prices. */
export interface Trial {
  readonly prices: readonly bigint[];
  readonly net: Network;
  readonly messages: Messages;
  readonly bound: number;
  readonly at: Int32Array;
  readonly amounts: readonly number[];
}

/** Ascent at the given prices with at most the given number of sweeps. */
export type Evaluate = (prices: readonly bigint[], sweeps: number) => Trial;

export interface PriceHost {
  readonly stopped: () => boolean;
  /** A bound at least this large ends the search. */
  readonly target: () => number;
  /** Cost of the best choice so far. */
  readonly objective: () => number;
}

/** Prices of one row between which its relaxed choice changes sides; `low` is 0 when the row does not bind. */
export interface Bracket {
  readonly low: bigint;
  readonly high: bigint;
}

/** Largest price that the search tries. */
const CEILING = 2n ** 50n;

/** Doubling and bisection to a relative width of `width` with a function that gives the relaxed amount at a price. */
export function bracketOf(
  net: Network,
  amountAt: (price: bigint, sweeps: number) => number,
  stopped: () => boolean,
  first = 1n << 10n,
  width = 1e-4,
): Bracket | undefined {
  const { bound } = net.rows[0];
  if (amountAt(0n, 60) <= bound) return { low: 0n, high: 0n };
  let low = 0n;
  let high = first;
  while (!stopped()) {
    if (amountAt(high, 20) <= bound) break;
    low = high;
    high *= 8n;
    if (high > CEILING) return undefined;
  }
  while (high - low > 1n && Number(high - low) > width * Number(high) && !stopped()) {
    // Orders of magnitude first.
    const middle =
      low > 0n && high > 4n * low ? BigInt(Math.round(Math.sqrt(Number(low) * Number(high)))) : (low + high) / 2n;
    if (amountAt(middle, 20) <= bound) high = middle;
    else low = middle;
  }
  return { low, high };
}

/** The best of a few trials inside a bracket that came from elsewhere. */
export function priceBetween(net: Network, trial: Evaluate, bracket: Bracket, host: PriceHost): Trial {
  const { bound } = net.rows[0];
  let { low, high } = bracket;
  let best = trial([high], 20);
  const steps = 4;
  for (let k = 0; k < steps && high - low > 1n && !host.stopped() && best.bound < host.target(); k++) {
    const price = k === 0 ? low : (low + high) / 2n;
    const t = trial([price], 20);
    if (t.bound > best.bound) best = t;
    if (t.amounts[0] <= bound) high = price;
    else low = price;
    if (high <= low) break;
  }
  return best;
}

/** One row: the price with the best bound, by doubling and bisection. */
export function priceOne(net: Network, trial: Evaluate, host: PriceHost): Trial {
  let best = trial([0n], 60);
  if (best.amounts[0] <= net.rows[0].bound) return best;
  const scale = Math.max(1, Math.abs(best.bound)) / Math.max(1, best.amounts[0]);
  const amountAt = (price: bigint, sweeps: number): number => {
    if (price === 0n) return Infinity;
    const t = trial([price], sweeps);
    if (t.bound > best.bound) best = t;
    return t.amounts[0];
  };
  const done = (): boolean => host.stopped() || best.bound >= host.target();
  bracketOf(net, amountAt, done, BigInt(Math.max(1, Math.ceil(scale * 2 ** 14))));
  return best;
}

/** Several rows: projected subgradient with smoothed directions. */
export function priceMany(net: Network, trial: Evaluate, host: PriceHost): Trial {
  const rows = net.rows.length;
  let best = trial(
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
    t = trial(
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
