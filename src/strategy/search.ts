/** Searches the cheapest strategies of one call best first, without pricing every candidate. */

import { FIRST_OTHER_CODE, type ShardingSpace } from '../mesh/sharding/space.ts';
import type { Row } from '../ops/expansion/row.ts';
import { type ProductOptions, RowProduct } from '../ops/expansion/row-product.ts';
import type { TensorMeta, TypedContext } from '../ops/record/record.ts';
import type { FilledRules } from './fill.ts';
import type { MovePrices } from './prices.ts';

/**
 * Best-first search for the strategy whose inputs are cheapest to bring about, without pricing
 * every candidate. An entry of the heap has rows for the first mesh dims; its bound is, for each
 * input, the least price of any sharding that begins with these placements. The bound never exceeds
 * the price of a completion and equals it when all mesh dims have rows, so the first complete entry
 * is an optimum of the enumeration, priced by the same planner; entries of equal bound leave the
 * heap in list order, so it is the same optimum.
 */
interface Found {
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
  /** Row taken on each mesh dim. */
  readonly picked: readonly number[];
  /** Entries taken from the heap; 0 when the inputs stay as they are. */
  readonly pops: number;
  readonly cost: number;
}

/** Placements of one input beyond which prices are not tabulated: the enumeration takes over. */
const MOST_SHARDINGS = 1 << 16;
/** Costs within this relative distance are equal. */
const SAME_COST = 1e-12;

/** A call with the shardings of its inputs, and what it may become. */
export interface SearchedCall {
  readonly space: ShardingSpace;
  readonly call: Pick<TypedContext, 'inputs' | 'outputs'>;
  readonly given: readonly number[];
  readonly filled: FilledRules;
  readonly moves: readonly MovePrices[];
  readonly expansion: ProductOptions;
  /** Sharding that an in-place operator must keep. */
  readonly keeps?: number | undefined;
}

/**
 * @returns the cheapest strategy, or undefined where the enumeration must decide: special cuts, too
 *   many placements, none
 */
export function cheapest(searched: SearchedCall): Found | undefined {
  return cheapestFew(1, searched)?.[0];
}

/** The `count` cheapest strategies, cheapest first, ties in list order; see `cheapest`. */
export function cheapestFew(
  count: number,
  {
    space,
    call: { inputs, outputs },
    given,
    filled: { rows },
    moves,
    expansion,
    keeps,
  }: SearchedCall,
): readonly Found[] | undefined {
  if (inputs.length === 0 || !isPlain(rows) || !areOrdered(space, given)) return undefined;
  const product = new RowProduct(space, rows, [...inputs, ...outputs], expansion);
  const reading = new StrategyReader(product, inputs.length, outputs.length, keeps);
  const direct = unmoved(space, product, rows, given);
  if (direct !== undefined && reading.allowed() && count === 1) return [reading.read(direct, 0, 0)];
  const tables = inputs.map((meta, i) => PriceTable.of(space, product, rows, i, meta, moves[i]));
  if (tables.some((table) => table === undefined)) return undefined;
  const search = new BestFirst(product, tables as PriceTable[], space.meshRank, rows.length);
  return search.find(count, reading);
}

/** Only plain shards, without special cuts. */
function isPlain(rows: readonly Row[]): boolean {
  return rows.every((row) => !row.strided && row.codes.every((code) => code < FIRST_OTHER_CODE));
}

function areOrdered(space: ShardingSpace, given: readonly number[]): boolean {
  return given.every(
    (id) =>
      space.get(id).inMeshOrder &&
      space.get(id).placements.every((p) => space.codeOf(p) < FIRST_OTHER_CODE),
  );
}

/** Reads the strategy that a product has taken. */
class StrategyReader {
  /** @param keeps sharding that the first input and the first result must have */
  constructor(
    private readonly product: RowProduct,
    private readonly inputs: number,
    private readonly outputs: number,
    private readonly keeps: number | undefined,
  ) {}

  allowed(): boolean {
    const { product, keeps } = this;
    return keeps === undefined || (product.id(0) === keeps && product.id(this.inputs) === keeps);
  }

  read(picked: readonly number[], pops: number, cost: number): Found {
    const { inputs, outputs } = this;
    return {
      inputs: this.ids(0, inputs),
      outputs: this.ids(inputs, inputs + outputs),
      picked,
      pops,
      cost,
    };
  }

  private ids(from: number, to: number): number[] {
    return Array.from({ length: to - from }, (_, k) => this.product.id(from + k));
  }
}

/** A heap of entries, by the least price that a completion can have. */
class BestFirst {
  private readonly heap = new Heap();

  /** @param rowCount rows of the product: the order of entries counts in it */
  constructor(
    private readonly product: RowProduct,
    private readonly bounds: readonly PriceTable[],
    private readonly depth: number,
    private readonly rowCount: number,
  ) {
    this.heap.push({ bound: 0, order: 0, picked: [] });
  }

  find(count: number, reading: StrategyReader): readonly Found[] {
    const { product } = this;
    const found: Found[] = [];
    const seen = new Set<string>();
    let pops = 0;
    for (;;) {
      const entry = this.heap.pop();
      if (entry === undefined) return found;
      const done = found.length >= count;
      if (done && entry.bound > found[found.length - 1].cost * (1 + SAME_COST))
        return found.slice(0, count);
      pops++;
      if (!this.take(entry)) continue;
      if (entry.picked.length < this.depth) {
        this.pushNext(entry);
        continue;
      }
      if (done || !product.complete() || !reading.allowed()) continue;
      const match = reading.read(entry.picked, pops, entry.bound);
      const text = [...match.inputs, ...match.outputs].join();
      if (seen.has(text)) continue;
      seen.add(text);
      found.push(match);
    }
  }

  private take({ picked }: Entry): boolean {
    for (let m = 0; m < picked.length; m++) if (!this.product.take(m, picked[m])) return false;
    return true;
  }

  /** Pushes an entry with each row for its next mesh dim. */
  private pushNext({ order, picked }: Entry): void {
    const { product, bounds } = this;
    const m = picked.length;
    const step = this.rowCount ** (this.depth - 1 - m);
    for (let r = 0; r < product.choices(m); r++) {
      if (!product.take(m, r)) continue;
      let bound = 0;
      for (let i = 0; i < bounds.length; i++) bound += bounds[i].least(m + 1, i, product);
      if (bound < Infinity)
        this.heap.push({ bound, order: order + r * step, picked: [...picked, r] });
    }
  }
}

/**
 * First rows, in list order, that take the inputs as they are; they are then taken in the product.
 */
function unmoved(
  space: ShardingSpace,
  product: RowProduct,
  rows: readonly Row[],
  given: readonly number[],
): number[] | undefined {
  const fits: number[][] = [];
  for (let m = 0; m < space.meshRank; m++) {
    const here: number[] = [];
    for (let r = 0; r < product.choices(m); r++)
      if (given.every((id, i) => space.kindAt(id, m) === rows[r].codes[i])) here.push(r);
    if (here.length === 0) return undefined;
    fits.push(here);
  }
  const next = new Int32Array(fits.length);
  for (let m = 0; m >= 0;) {
    let stepped = false;
    while (next[m] < fits[m].length && !stepped) stepped = product.take(m, fits[m][next[m]++]);
    if (!stepped) next[m--] = 0;
    else if (m + 1 < fits.length) m++;
    else if (product.complete()) return Array.from(product.picked);
  }
  return undefined;
}

/**
 * Prices of every sharding that the rows can give one input, and the least of them for each
 * beginning.
 */
class PriceTable {
  private constructor(
    /** Number of a kind code among those that occur. */
    private readonly number: Int16Array,
    private readonly codes: number,
    /** By number of mesh dims: least price by packed codes. */
    private readonly least_: readonly Float64Array[],
    private readonly rows: readonly Row[],
  ) {}

  static of(
    space: ShardingSpace,
    product: RowProduct,
    rows: readonly Row[],
    input: number,
    meta: TensorMeta,
    move: MovePrices,
  ): PriceTable | undefined {
    const number = new Int16Array(256).fill(-1);
    const codes: number[] = [];
    for (const { codes: row } of rows)
      if (number[row[input]] < 0) {
        number[row[input]] = codes.length;
        codes.push(row[input]);
      }
    const depth = space.meshRank;
    const size = codes.length ** depth;
    if (size > MOST_SHARDINGS) return undefined;
    const full = new Float64Array(size).fill(Infinity);
    const { targets, places } = targetsOf(space, product, codes, meta);
    move.prepare(targets);
    for (let k = 0; k < targets.length; k++) full[places[k]] = move.seconds(targets[k]);
    const least = [full];
    for (let m = depth - 1; m >= 0; m--) {
      const finer = least[0];
      const coarse = new Float64Array(finer.length / codes.length).fill(Infinity);
      for (let at = 0; at < finer.length; at++) {
        const into = Math.floor(at / codes.length);
        if (finer[at] < coarse[into]) coarse[into] = finer[at];
      }
      least.unshift(coarse);
    }
    return new PriceTable(number, codes.length, least, rows);
  }

  /** Least price of an input over all ways to go on from the first `m` rows of the product. */
  least(m: number, input: number, product: RowProduct): number {
    let at = 0;
    for (let d = 0; d < m; d++)
      at = at * this.codes + this.number[this.rows[product.picked[d]].codes[input]];
    return this.least_[m][at];
  }
}

interface Targets {
  /** Sharding ids, and their packed codes. */
  readonly targets: readonly number[];
  readonly places: readonly number[];
}

/**
 * Shardings that a tensor can have under some kinds: a pure function of space, kinds and shape,
 * kept for speed.
 */
const targetsBySpace = new WeakMap<ShardingSpace, Map<string, Targets>>();

function targetsOf(
  space: ShardingSpace,
  product: RowProduct,
  codes: readonly number[],
  meta: TensorMeta,
): Targets {
  let known = targetsBySpace.get(space);
  if (known === undefined) targetsBySpace.set(space, (known = new Map<string, Targets>()));
  const key = `${codes.join()}|${meta.shape.join()}|${product.uneven}`;
  const found = known.get(key);
  if (found !== undefined) return found;
  const depth = space.meshRank;
  const size = codes.length ** depth;
  const targets: number[] = [];
  const places: number[] = [];
  const digits = new Array<number>(depth);
  for (let at = 0; at < size; at++) {
    for (let m = depth - 1, rest = at; m >= 0; m--) {
      digits[m] = codes[rest % codes.length];
      rest = Math.floor(rest / codes.length);
    }
    if (!product.stands(digits, meta)) continue;
    targets.push(product.idOfCodes(digits));
    places.push(at);
  }
  const made = { targets, places };
  known.set(key, made);
  return made;
}

interface Entry {
  readonly bound: number;
  /** Place in the list of all candidates of the first completion. */
  readonly order: number;
  readonly picked: readonly number[];
}

/** A binary heap by bound, then by order. */
class Heap {
  private readonly entries: Entry[] = [];

  push(entry: Entry): void {
    const { entries } = this;
    let at = entries.length;
    entries.push(entry);
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (!before(entry, entries[up])) break;
      entries[at] = entries[up];
      at = up;
    }
    entries[at] = entry;
  }

  pop(): Entry | undefined {
    const { entries } = this;
    const top = entries[0];
    const last = entries.pop();
    if (top === undefined || last === undefined || entries.length === 0) return top;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= entries.length) break;
      if (down + 1 < entries.length && before(entries[down + 1], entries[down])) down++;
      if (!before(entries[down], last)) break;
      entries[at] = entries[down];
      at = down;
    }
    entries[at] = last;
    return top;
  }
}

function before(a: Entry, b: Entry): boolean {
  return a.bound < b.bound || (a.bound === b.bound && a.order < b.order);
}
