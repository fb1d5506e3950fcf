/**
 * Computes bounds by prices of rows and messages, for the checker. A bound is the sum of all
 * minima, which no choice of the model undercuts whatever the numbers are:
 *
 *   constant - sum_r price_r limit_r + sum_i min_a [cost_i(a) + prices(a) + messages to i (a)]
 *     + sum_edges min_(a,b) [table(a,b) - message(a) - message(b)]
 *
 * for the messages cancel, and a choice that keeps a row pays at most its price times its limit.
 * Equal edges with equal messages, and variables with equal sums, are looked at once. Written for
 * the checker alone.
 */
import { PRICE_SCALE } from './certificate-format.ts';
import type { Dual, Model } from './model.ts';
import { Refused } from './refused.ts';
import { type Grid, LARGEST, PairMemo, type Store } from './store.ts';

/** Largest size of a message, so that cells less two of them stay exact. */
const LARGEST_MESSAGE = 2 ** 50;
const MOST_BITS = 30;

/**
 * Prices as exact integers in units of 2^-40. @throws Refused for a price that is none, or one too
 * few
 */
export function pricesOf(model: Model, list: readonly number[]): bigint[] {
  if (list.length !== model.rows.length)
    throw new Refused(`${list.length} prices for ${model.rows.length} rows`);
  return list.map((price) => {
    if (!Number.isInteger(price) || price < 0) throw new Refused(`a row has the price ${price}`);
    return BigInt(price);
  });
}

/** @throws Refused unless sums in units of 2^-bits can be exact */
export function checkBits(bits: number): void {
  if (!(bits >= 0 && bits <= MOST_BITS)) throw new Refused(`messages have the scale ${bits}`);
}

/**
 * Messages by factor from triples (f, l, m); `vectorOf` gives the vector of a list.
 *
 * @throws Refused where they do not fit the factors
 */
export function messagesOf(
  model: Model,
  triples: readonly number[],
  vectorOf: (list: number) => number,
): Dual['messages'] {
  if (triples.length % 3 !== 0) throw new Refused('messages are not in triples');
  const { vectors } = model.store;
  const messages: (readonly number[] | undefined)[] = [];
  for (let at = 0; at < triples.length; at += 3) {
    const f = triples[at];
    const { vars } = model.edge(f);
    if (messages[f] !== undefined) throw new Refused(`factor ${f} has messages twice`);
    messages[f] = vars.map((v, side) => {
      const list = triples[at + 1 + side];
      if (list === -1) return -1;
      const vector = vectorOf(list);
      const { length } = vectors[vector];
      if (length !== model.size[v])
        throw new Refused(`list ${list} has ${length} entries for ${model.size[v]} values`);
      refuseLargeMessage(model.store, vector);
      return vector;
    });
  }
  return messages;
}

/** @throws Refused for a message of more than 2^50 */
export function refuseLargeMessage({ mosts }: Store, vector: number): void {
  if (mosts[vector] > LARGEST_MESSAGE)
    throw new Refused(`a message of ${mosts[vector]} is larger than 2^50`);
}

/**
 * Costs of all values of a variable with the prices of its amounts, in units of 2^-40; undefined
 * where they are infinite.
 */
export function pricedCosts(
  model: Model,
  prices: readonly bigint[],
  i: number,
): (bigint | undefined)[] {
  const { vectors, work } = model.store;
  work.spend(8 * vectors[model.unary[i]].length * (1 + model.rows.length));
  const amounts = model.rows.flatMap((row, r) =>
    row.amounts[i] < 0 || prices[r] === 0n
      ? []
      : [{ price: prices[r], list: vectors[row.amounts[i]] }],
  );
  return Array.from(vectors[model.unary[i]], (cost, a) => {
    if (cost === Infinity) return undefined;
    let sum = BigInt(cost) << PRICE_SCALE;
    for (const { price, list } of amounts) sum += price * BigInt(list[a]);
    return sum;
  });
}

/**
 * Sum of all minima, rounded up because costs are integers; undefined when a variable or an edge
 * has none.
 */
export function boundByMessages(model: Model, dual: Dual): bigint | undefined {
  const { bits, prices, messages } = dual;
  model.store.work.spend(2 * model.parts.length + model.size.length * (1 + model.rows.length));
  const finer = PRICE_SCALE - BigInt(bits);
  let bound = model.constant << PRICE_SCALE;
  model.rows.forEach((row, r) => (bound -= prices[r] * row.bound));
  const received = model.size.map((): number[] => []);
  const rests = new Rests(model.store, bits);
  for (let f = 0; f < model.parts.length; f++) {
    const part = model.parts[f];
    if (part === undefined) continue;
    const sent = messages[f];
    // A factor that sends nothing counts with its least cell.
    const least =
      sent === undefined
        ? scaledBy(model.least(f), BigInt(bits))
        : rests.of(part.grid, part.maps, sent);
    if (least === undefined) return undefined;
    bound += least << finer;
    sent?.forEach((vector, side) => {
      if (vector >= 0) received[part.vars[side]].push(vector);
    });
  }
  const known = new Map<number, bigint>();
  for (let i = 0; i < model.size.length; i++) {
    if (model.gone[i]) continue;
    const key = nameOf(model, prices, i, received[i]);
    let least = known.get(key);
    if (least === undefined) {
      least = leastOf(model, prices, i, received[i], bits);
      if (least === undefined) return undefined;
      known.set(key, least);
    }
    bound += least;
  }
  return -(-bound >> PRICE_SCALE);
}

/** An exact multiple by a power of two; undefined for an infinite cost. */
function scaledBy(cost: number, bits: bigint): bigint | undefined {
  return cost === Infinity ? undefined : BigInt(cost) << bits;
}

/** Number of what a variable costs, uses and receives. */
function nameOf(
  { store, unary, rows }: Model,
  prices: readonly bigint[],
  i: number,
  received: readonly number[],
): number {
  let key = store.tuple(-1, unary[i]);
  for (const vector of received) key = store.tuple(key, vector);
  key = store.tuple(key, -1);
  for (let r = 0; r < rows.length; r++)
    if (prices[r] > 0n && rows[r].amounts[i] >= 0)
      key = store.tuple(store.tuple(key, r), rows[r].amounts[i]);
  return key;
}

function leastOf(
  model: Model,
  prices: readonly bigint[],
  i: number,
  received: readonly number[],
  bits: number,
): bigint | undefined {
  const finer = PRICE_SCALE - BigInt(bits);
  const lists = received.map((vector) => model.store.vectors[vector]);
  const hasPrices = model.rows.some((row, r) => row.amounts[i] >= 0 && prices[r] !== 0n);
  const exact = hasPrices
    ? NaN
    : leastInDoubles(model.store.vectors[model.unary[i]], lists, 2 ** bits);
  if (!Number.isNaN(exact)) return exact === Infinity ? undefined : BigInt(exact) << finer;
  model.store.work.spend(8 * model.size[i] * (1 + lists.length));
  let least: bigint | undefined;
  pricedCosts(model, prices, i).forEach((cost, a) => {
    if (cost === undefined) return;
    let sum = cost;
    let part = 0;
    for (const list of lists) {
      part += list[a];
      if (Math.abs(part) <= LARGEST) continue;
      sum += BigInt(part) << finer;
      part = 0;
    }
    sum += BigInt(part) << finer;
    if (least === undefined || sum < least) least = sum;
  });
  return least;
}

/**
 * Least sum of a value's scaled cost and what it receives; NaN where a double does not hold every
 * sum exactly.
 */
function leastInDoubles(
  costs: Float64Array,
  lists: readonly Float64Array[],
  scale: number,
): number {
  let least = Infinity;
  for (let a = 0; a < costs.length; a++) {
    if (costs[a] === Infinity) continue;
    let sum = costs[a] * scale;
    for (let k = 0; k < lists.length; k++) {
      // A message is at most 2^50 (`messagesOf`), so the next sum is exact.
      if (Math.abs(sum) > LARGEST) return NaN;
      sum += lists[k][a];
    }
    if (Math.abs(sum) > LARGEST) return NaN;
    if (sum < least) least = sum;
  }
  return least;
}

/** Least cells of tables that messages have left, in units of 2^-bits, by content. */
class Rests {
  private readonly most = new PairMemo<Float64Array>();
  private readonly known = new PairMemo<bigint | undefined>();

  constructor(
    private readonly store: Store,
    private readonly bits: number,
  ) {}

  /** Undefined where every cell is forbidden. */
  of(grid: Grid, maps: readonly number[], sent: readonly number[]): bigint | undefined {
    const store = this.store;
    const ends = maps.map((map, side) => store.tuple(store.tuple(-1, map), sent[side]));
    return this.known.get(grid.id, store.tuple(store.tuple(-1, ends[0]), ends[1]), () => {
      const [x, y] = maps.map((map, side) =>
        this.most.get(map, sent[side], () => this.byClass(map, sent[side])),
      );
      return this.least(grid, x, y);
    });
  }

  /** The largest message of each class; -Infinity for classes without a value. */
  private byClass(map: number, sent: number): Float64Array {
    const { maps, classes, vectors } = this.store;
    const most = new Float64Array(classes[map]).fill(-Infinity);
    const classOf = maps[map];
    this.store.work.spend(classOf.length);
    for (let a = 0; a < classOf.length; a++) {
      const c = classOf[a];
      const x = sent < 0 ? 0 : vectors[sent][a];
      if (c >= 0 && x > most[c]) most[c] = x;
    }
    return most;
  }

  private least({ cells, dims, most }: Grid, x: Float64Array, y: Float64Array): bigint | undefined {
    this.store.work.spend(x.length * y.length);
    const scale = 2 ** this.bits;
    if (most * scale > LARGEST) return this.leastOfLarge(cells, dims, x, y);
    let least = Infinity;
    for (let r = 0; r < x.length; r++) {
      if (x[r] === -Infinity) continue;
      for (let c = 0, p = r * dims[1]; c < y.length; c++, p++) {
        if (cells[p] === Infinity || y[c] === -Infinity) continue;
        const rest = cells[p] * scale - x[r] - y[c];
        if (rest < least) least = rest;
      }
    }
    return scaledBy(least, 0n);
  }

  /** The same where a double does not hold every difference. */
  private leastOfLarge(
    cells: Float64Array,
    dims: readonly number[],
    x: Float64Array,
    y: Float64Array,
  ): bigint | undefined {
    this.store.work.spend(16 * x.length * y.length);
    const bits = BigInt(this.bits);
    let least: bigint | undefined;
    x.forEach((fromRow, r) => {
      y.forEach((fromColumn, c) => {
        const cell = scaledBy(cells[r * dims[1] + c], bits);
        if (cell === undefined || fromRow === -Infinity || fromColumn === -Infinity) return;
        const rest = cell - BigInt(fromRow) - BigInt(fromColumn);
        if (least === undefined || rest < least) least = rest;
      });
    });
    return least;
  }
}
