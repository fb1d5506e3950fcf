/**
 * Finds the prices of a network's rows, with the best bound. One row of a network that repeats is
 * priced on the short network that represents it; else, and where there are several rows, the
 * network itself is swept at each price. It gives the network at its best prices and the messages
 * there.
 */
import type { AscentLimits } from '../dual/ascent.ts';
import {
  type DualEvaluation,
  type MultiplierHost,
  priceMany,
  priceOne,
} from '../dual/multipliers.ts';
import { Trws } from '../dual/trws.ts';
import type { Network } from '../network/network.ts';
import { addPrices, amountsAt, largestPrice } from '../network/rows.ts';
import { ASCENT } from './limits.ts';
import { foldedBracket, type FoldedHost } from './primal/folded-start.ts';
import type { ReducedNetwork } from './reduced-network.ts';

/** A network at the best prices of its rows, and whether its messages have converged. */
export interface Priced {
  readonly best: DualEvaluation;
  readonly converged: boolean;
}

interface PricingHost extends MultiplierHost {
  /** Sweeps; returns the bound. */
  readonly ascend: (net: Network, messages: Trws, limits: AscentLimits) => number;
  readonly folded: FoldedHost;
  /**
   * The bound without rows, by a search that begins with these messages of the network that it is
   * handed.
   */
  readonly withoutRows: (messages: (free: Network) => Trws) => number;
}

/** The best prices of the rows; a bound where that is all that is left to say. */
export function priceRows(reduced: ReducedNetwork, host: PricingHost): Priced | number {
  const { net } = reduced;
  let begin = (priced: Network): Trws => new Trws(priced);
  const caps = net.rows.map((_, r) => largestPrice(net, r));
  const evaluateDual = (wanted: readonly bigint[], sweeps: number): DualEvaluation => {
    const prices = wanted.map((price, r) => (price > caps[r] ? caps[r] : price));
    const priced = net.clone();
    addPrices(priced, prices);
    const messages = begin(priced);
    const bound = host.ascend(priced, messages, { ...ASCENT.priced, sweeps });
    // The next price begins with what is known at this one.
    begin = (other) => messages.on(other);
    // Decoded where somebody asks, which is before messages are swept on.
    let decoded: Int32Array | undefined;
    const at = (): Int32Array => (decoded ??= messages.decode());
    return { prices, net: priced, messages, bound, at, amounts: () => amountsAt(priced, at()) };
  };
  if (net.rows.length > 1) return { best: priceMany(net, evaluateDual, host), converged: false };
  const near = foldedBracket(reduced, caps[0], host.folded);
  if (near === undefined) return { best: priceOne(net, evaluateDual, host), converged: false };
  if (near.bracket === undefined) {
    const relaxed = host.withoutRows(near.messages);
    if (relaxed >= host.target() || host.stopped()) return relaxed;
  }
  begin = near.messages;
  if (near.bracket === undefined)
    return { best: priceOne(net, evaluateDual, host), converged: false };
  return {
    best: evaluateDual([near.bracket.breakpoint.price], ASCENT.priced.sweeps),
    converged: true,
  };
}
