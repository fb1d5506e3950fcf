/**
 * What the search learns of a long network of equal blocks from a short one: first messages, a first choice, and about
 * where the price of a row lies. Sweeps of the short network cost little and save sweeps of the long one.
 */
import { climb } from './ascent.ts';
import { Messages } from './bound.ts';
import { foldOf, gatherMessages, spreadChoice, spreadMessages } from './fold.ts';
import { type NearHost, searchNearBound } from './near-bound.ts';
import type { Network } from './network.ts';
import { bracketOf, type Bracket } from './prices.ts';
import { costAt, descend } from './primal.ts';
import { relink } from './relink.ts';
import { addPrices, amountsAt } from './rows.ts';

/** Where the results go. */
export interface ShortHost {
  /** Takes a choice of the long network (positions). */
  readonly offer: (at: Int32Array) => void;
  readonly stopped: () => boolean;
  /** Message steps taken. */
  readonly spent: (steps: number) => void;
  readonly engines: Pick<NearHost, 'pruner' | 'reducer' | 'eliminator'>;
}

/** First messages of a long network from a short one, whose best choice is offered; undefined where nothing repeats. */
export function startFromShort(
  net: Network,
  messages: Messages,
  host: ShortHost,
  sweeps: number,
  patience: number,
): Messages | undefined {
  const fold = foldOf(net);
  if (fold === undefined) return undefined;
  const start = gatherMessages(fold, messages, fold.short);
  const best = climbShort(fold.short, start, host, sweeps, patience);
  if (best !== undefined) host.offer(spreadChoice(fold, best));
  return spreadMessages(fold, start, net);
}

/**
 * The bracket of the price of one row, found on the folded network: its relaxed choices, spread over the long network,
 * say on which side of the bound a price lies. With it come the messages of its upper end. Undefined where nothing repeats.
 */
export function nearPrice(
  net: Network,
  cap: bigint,
  state: Messages,
  host: ShortHost,
): { readonly bracket: Bracket; readonly messages: Messages } | undefined {
  const fold = foldOf(net);
  if (fold === undefined) return undefined;
  const { short } = fold;
  const start = gatherMessages(fold, state, short);
  let kept = start;
  let cheap: Int32Array | undefined;
  let small: Int32Array | undefined;
  const amountAt = (price: bigint, sweeps: number): number => {
    const priced = short.clone();
    addPrices(priced, [price > cap ? cap : price]);
    const messages = new Messages(priced);
    messages.to.set(start.to);
    const best = climbShort(priced, messages, host, sweeps);
    start.to.set(messages.to);
    const at = spreadChoice(fold, best ?? messages.decode());
    host.offer(at);
    const [amount] = amountsAt(net, at);
    if (amount <= net.rows[0].bound) {
      kept = messages;
      small = at;
    } else cheap = at;
    return amount;
  };
  const bracket = bracketOf(net, amountAt, host.stopped);
  // Between the two sides of the price, some layers take the cheap plan and some the small one.
  if (cheap !== undefined && small !== undefined) {
    for (const order of [fold.layers, fold.layers.slice().reverse()]) {
      const mixed = relink(net, cheap, small, order);
      if (mixed === undefined) continue;
      descend(net, mixed, 4);
      host.offer(mixed);
    }
  }
  return bracket === undefined ? undefined : { bracket, messages: spreadMessages(fold, kept, net) };
}

/** Sweeps of a short network; returns the best choice met. */
function climbShort(
  short: Network,
  messages: Messages,
  host: ShortHost,
  sweeps: number,
  patience?: number,
): Int32Array | undefined {
  let best: Int32Array | undefined;
  let least = Infinity;
  const offer = (at: Int32Array): void => {
    const cost = costAt(short, at);
    if (cost >= least) return;
    least = cost;
    best = at;
  };
  const near = { ...host.engines, target: () => least, offer, stopped: host.stopped };
  climb(messages, {
    sweeps,
    offer,
    target: () => least,
    stopped: host.stopped,
    ...(short.rows.length === 0 ? { stuck: (bound: number) => searchNearBound(short, messages, bound, near) } : {}),
    ...(patience === undefined ? {} : { patience }),
  });
  host.spent(messages.steps);
  return best;
}
