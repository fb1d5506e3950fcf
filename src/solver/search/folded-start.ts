/**
 * What the search learns of a long network of equal blocks from a short one: first messages, a first choice, and about
 * where the price of a row lies. Sweeps of the short network cost little and save sweeps of the long one.
 */
import { climb } from '../dual/ascent.ts';
import { Messages } from '../dual/trws.ts';
import { foldOf, gatherMessages, spreadChoice, spreadMessages } from '../fold/fold.ts';
import { type NearHost, searchNearBound } from './gap-restricted.ts';
import type { Network } from '../network/network.ts';
import { bracketOf, type Bracket, isTight, type Line } from '../dual/multipliers.ts';
import { costAt, descend } from '../dual/rounding.ts';
import { relink } from './path-relinking.ts';
import { addPrices, amountsAt } from '../network/rows.ts';

/** Part of the gap that five sweeps at a price must close for five more to follow. */
const HASTE = 0.25;
/** The same while the best choice is above the bound by more than so much of it, and the sweeps then. */
const PATIENCE = 0.02;
const FAR = 0.01;
const MORE_SWEEPS = 30;

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
  const { best } = climbShort(fold.short, start, host, sweeps, patience);
  if (best !== undefined) host.offer(spreadChoice(fold, best));
  return spreadMessages(fold, start, net);
}

/**
 * The bracket of the price of one row, found on the folded network: its relaxed choices, spread over the long network,
 * say on which side of the bound a price lies. With it come the messages of its corner, or of the
 * last price below it.
 *
 * @returns undefined where nothing repeats; no bracket where the row does not bind
 */
export function nearPrice(
  net: Network,
  cap: bigint,
  state: Messages,
  host: ShortHost,
): { readonly bracket: Bracket | undefined; readonly messages: (net: Network) => Messages } | undefined {
  const fold = foldOf(net);
  if (fold === undefined) return undefined;
  const { bound } = net.rows[0];
  let last = gatherMessages(fold, state, fold.short);
  let latest = { price: 0n, messages: last };
  let cheap: Int32Array | undefined;
  let small: Int32Array | undefined;
  const choiceAt = (price: bigint, sweeps: number): Line => {
    const priced = fold.short.clone();
    addPrices(priced, [price > cap ? cap : price]);
    const messages = new Messages(priced);
    messages.to.set(last.to);
    let { best, bound: reached } = climbShort(priced, messages, host, sweeps, HASTE);
    // A choice far above the bound says little of what the best one takes, and begins the next price badly.
    if (best === undefined || costAt(priced, best) - reached > FAR * Math.abs(reached))
      ({ best, bound: reached } = climbShort(priced, messages, host, MORE_SWEEPS, PATIENCE));
    const short = best ?? messages.decode();
    const at = spreadChoice(fold, short);
    host.offer(at);
    const over = amountsAt(net, at)[0] - bound;
    // Messages of a price below are the better start: from one above, where few choices are in play, the way back is long.
    if (over > 0 || price === 0n) last = messages;
    latest = { price, messages };
    if (over > 0) cheap = at;
    else small = at;
    return { cost: costAt(net, at), over, isTight: isTight(costAt(priced, short), reached) };
  };
  const bracket = bracketOf(choiceAt, host.stopped, bound);
  // Between the two sides of the price, some layers take the cheap plan and some the small one.
  if (cheap !== undefined && small !== undefined) {
    for (const order of [fold.layers, fold.layers.slice().reverse()]) {
      const mixed = relink(net, cheap, small, order);
      if (mixed === undefined) continue;
      descend(net, mixed, 4);
      host.offer(mixed);
    }
  }
  // At the corner itself its own messages are the best, whichever side of the row its choice fell on.
  const start = latest.price === bracket?.corner.price ? latest.messages : last;
  return { bracket, messages: (target) => spreadMessages(fold, start, target) };
}

/** Sweeps of a short network; the best choice met, if any, and the bound. */
function climbShort(
  short: Network,
  messages: Messages,
  host: ShortHost,
  sweeps: number,
  patience: number,
): { readonly best: Int32Array | undefined; readonly bound: number } {
  let best: Int32Array | undefined;
  let least = Infinity;
  const offer = (at: Int32Array): void => {
    const cost = costAt(short, at);
    if (cost >= least) return;
    least = cost;
    best = at;
  };
  const near = { ...host.engines, target: () => least, offer, stopped: host.stopped };
  const bound = climb(messages, {
    sweeps,
    offer,
    target: () => least,
    stopped: host.stopped,
    patience,
    ...(short.rows.length === 0 ? { stuck: (reached: number) => searchNearBound(short, messages, reached, near) } : {}),
  });
  host.spent(messages.steps);
  return { best, bound };
}
