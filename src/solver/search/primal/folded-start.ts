/**
 * Warm-starts a long network of equal blocks from its folded network: sweeps of the short network
 * cost little and save sweeps of the long one. It gives the first messages, a first choice, and a
 * bracket of the price of one row.
 */
import { ascend, type AscentLimits } from '../../dual/ascent.ts';
import { type Bracket, bracketOf, type SupportingLine } from '../../dual/multipliers.ts';
import { evaluatePositions, oneOpt } from '../../dual/rounding.ts';
import { Trws } from '../../dual/trws.ts';
import {
  type Fold,
  foldOf,
  gatherMessages,
  spreadChoice,
  spreadMessages,
} from '../../fold/fold.ts';
import type { Tied } from '../../fold/tied.ts';
import type { Network } from '../../network/network.ts';
import { addPrices, amountsAt, constantAt } from '../../network/rows.ts';
import { ASCENT } from '../limits.ts';
import type { PricedState } from '../price-memo.ts';
import { type ReducedNetwork, withBounds } from '../reduced-network.ts';
import type { Workspace } from '../workspace.ts';
import { searchWithinGap } from './gap-restricted.ts';
import { mixLayers } from './layer-mix.ts';
import { relink } from './path-relinking.ts';

/** A choice is far above the bound by more than so much of what it costs with its prices. */
const FAR = 0.01;

/** The receiver of the results. */
export interface FoldedHost {
  /** Takes a choice of the long network (positions). */
  readonly propose: (at: Int32Array) => void;
  readonly stopped: () => boolean;
  /** Relative gap that is good enough. */
  readonly gap: number;
  /** Message steps taken. */
  readonly spent: (steps: number) => void;
  readonly workspace: Pick<Workspace, 'fixing' | 'reducer' | 'eliminator' | 'prices'>;
}

/**
 * First messages of a long network from a short one, whose best choice is proposed; undefined where
 * nothing repeats.
 */
export function startFromFolded(
  net: Network,
  messages: Trws,
  host: FoldedHost,
  limits: AscentLimits,
): Trws | undefined {
  const fold = foldOf(net);
  if (fold === undefined) return undefined;
  const start = gatherMessages(fold, messages, fold.short);
  const { best } = ascendFolded(fold.short, start, host, limits);
  if (best !== undefined) host.propose(spreadChoice(fold, best));
  return spreadMessages(fold, start, net);
}

/**
 * The bracket of the price of one row, found on the tied network: at every price its choices and
 * bounds are about those of the long one, because equal blocks want the same where nothing but a
 * price limits them. With it come messages at the best price.
 *
 * @returns undefined where nothing repeats; no bracket where the row does not bind
 */
export function foldedBracket(
  reduced: ReducedNetwork,
  cap: bigint,
  host: FoldedHost,
):
  { readonly bracket: Bracket | undefined; readonly messages: (net: Network) => Trws } | undefined {
  const { net, fold, tied } = reduced;
  if (fold === undefined || tied === undefined) return undefined;
  const search = new FoldedPrices({ net, fold, tied }, cap, host);
  const bracket = bracketOf(
    (price, sweeps) => search.choiceAt(price, sweeps),
    host.stopped,
    net.rows[0].bound,
    host.gap,
  );
  const price = bracket?.breakpoint.price ?? 0n;
  search.mixSides(price);
  const messages = search.untiedMessages(price);
  return { bracket, messages: (target) => spreadMessages(fold, messages, target, reduced.sides) };
}

/** A long network, its short one, and the short one whose blocks are tied. */
interface FoldedNetwork {
  readonly net: Network;
  readonly fold: Fold;
  readonly tied: Tied;
}

/** Messages and best choice of the tied network at a price that was tried. */
interface TriedPrice {
  readonly price: bigint;
  readonly messages: Trws;
  best?: Int32Array;
}

/** Tries prices of the row on the tied network. */
class FoldedPrices {
  private readonly net: Network;
  private readonly fold: Fold;
  private readonly tied: Tied;
  private readonly tried: TriedPrice[];
  /** The last choices that break the row, and that keep it. */
  private cheap: Int32Array | undefined;
  private small: Int32Array | undefined;

  constructor(
    { net, fold, tied }: FoldedNetwork,
    private readonly cap: bigint,
    private readonly host: FoldedHost,
  ) {
    [this.net, this.fold, this.tied] = [net, fold, tied];
    this.tried = [{ price: -1n, messages: new Trws(tied.net) }];
  }

  /** The choice of the long network at a price, which is proposed, and its supporting line. */
  choiceAt(price: bigint, sweeps: number): SupportingLine {
    const { net } = this;
    const { best, gained } = this.stateAt(price, sweeps);
    const at = spreadChoice(this.fold, best);
    this.host.propose(at);
    const over = amountsAt(net, at)[0] - net.rows[0].bound;
    if (over > 0) this.cheap = at;
    else this.small = at;
    return {
      cost: evaluatePositions(net, at),
      over,
      bound: gained + constantAt(net, this.charged(price)),
    };
  }

  /**
   * Proposes choices between the two sides of the price: some layers take the cheap plan and some
   * the small one.
   */
  mixSides(price: bigint): void {
    const { net, fold, cheap, small, host } = this;
    if (cheap === undefined || small === undefined) return;
    let isBetween = false;
    for (const order of [fold.layers, fold.layers.slice().reverse()]) {
      const mixed = relink(net, cheap, small, order);
      if (mixed === undefined) continue;
      isBetween ||= mixed.some((p, i) => p !== small[i]);
      oneOpt(net, mixed, 4);
      host.propose(mixed);
    }
    if (!isBetween) mixLayers(net, { cheap, small }, fold.layer, this.charged(price), host);
  }

  /** Messages of the short network, without ties, at a price. */
  untiedMessages(price: bigint): Trws {
    const { fold, host } = this;
    const short = withBounds(fold.short, this.net.rows);
    addPrices(short, [this.charged(price)]);
    const untied = host.workspace.prices.of(fold.short);
    const messages = looseMessages(fold, this.tied, this.below(price), short);
    const before = untied.get(price);
    if (before !== undefined) messages.to.set(before.to);
    else {
      const { best, bound: reached } = ascendFolded(short, messages, host, ASCENT.untied);
      untied.set(price, {
        best: best ?? messages.decode(),
        gained: reached - short.constant,
        to: messages.to,
      });
    }
    return messages;
  }

  private charged(price: bigint): bigint {
    return price > this.cap ? this.cap : price;
  }

  /**
   * Messages of a price below: they are the better start, because from one above, where few choices
   * are in play, the way back is long.
   */
  private below(price: bigint): Trws {
    return this.tried.reduce((a, b) => (b.price <= price && b.price > a.price ? b : a)).messages;
  }

  private stateAt(price: bigint, sweeps: number): PricedState {
    const known = this.host.workspace.prices.of(this.tied.net);
    const priced = withBounds(this.tied.net, this.net.rows);
    addPrices(priced, [this.charged(price)]);
    const messages = this.below(price - 1n).on(priced);
    // A choice that was the best elsewhere may be the best here, where messages alone lead to a far
    // worse choice.
    const others = this.tried.flatMap((t) => t.best ?? []);
    const asked: TriedPrice = { price, messages };
    this.tried.push(asked);
    const before = known.get(price);
    if (before !== undefined) {
      messages.to.set(before.to);
      asked.best = before.best;
      return before;
    }
    const { best, bound } = this.sweepsAt(priced, messages, sweeps, others);
    const state = {
      best: best ?? messages.decode(),
      gained: bound - priced.constant,
      to: messages.to,
    };
    known.set(price, state);
    asked.best = state.best;
    return state;
  }

  private sweepsAt(
    priced: Network,
    messages: Trws,
    sweeps: number,
    others: readonly Int32Array[],
  ): Ascended {
    const { minProgress, extrapolates } = ASCENT.priced;
    const limits = { sweeps, minProgress, extrapolates };
    const near = ascendFolded(priced, messages, this.host, limits, others);
    // A choice far above the bound says little of what the best one takes, and begins the next
    // price badly. What the row may hold at its price is not part of what choices cost.
    if (
      near.best !== undefined &&
      evaluatePositions(priced, near.best) - near.bound <= FAR * (near.bound - priced.constant)
    )
      return near;
    return ascendFolded(priced, messages, this.host, ASCENT.far, others);
  }
}

/**
 * Messages of the short network from those of the tied one: each of its equal edges takes a like
 * part.
 */
function looseMessages(fold: Fold, { edge, copies }: Tied, from: Trws, short: Network): Trws {
  const out = new Trws(short);
  fold.edge.forEach((e, long) => {
    const there = edge[long];
    if (e < 0 || there < 0) return;
    const start = from.start[2 * there];
    for (let k = out.start[2 * e], p = start; k < out.start[2 * e + 2]; k++, p++)
      out.to[k] = Math.floor(from.to[p] / copies[there]);
  });
  return out;
}

/** The best choice that sweeps met, if any, and their bound. */
interface Ascended {
  readonly best: Int32Array | undefined;
  readonly bound: number;
}

/**
 * Sweeps of a short network; the best choice met, if any, those known from elsewhere included, and
 * the bound.
 */
function ascendFolded(
  short: Network,
  messages: Trws,
  host: FoldedHost,
  limits: AscentLimits,
  known: readonly Int32Array[] = [],
): Ascended {
  let best: Int32Array | undefined;
  let least = Infinity;
  const propose = (at: Int32Array): void => {
    const cost = evaluatePositions(short, at);
    if (cost >= least) return;
    least = cost;
    best = at;
  };
  for (const at of known) propose(at);
  const near = { ...host.workspace, target: () => least, propose, stopped: host.stopped };
  const bound = ascend(messages, {
    ...limits,
    propose,
    target: () => least,
    stopped: host.stopped,
    ...(short.rows.length === 0
      ? { onStall: (reached: number) => searchWithinGap(short, messages, reached, near) }
      : {}),
  });
  host.spent(messages.steps);
  return { best, bound };
}
