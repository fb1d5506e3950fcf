/**
 * Messages that a certificate leaves to the checker: it starts from those of the whole and sweeps itself. Any messages bound, so
 * nothing rests on how they came about; doubles are rounded to integers at the end, and what bounds is summed exactly elsewhere.
 * In: tables, priced costs, marks of values, messages to start from. Out: messages as a certificate states them.
 * Source: V. Kolmogorov, "Convergent tree-reweighted message passing", PAMI 2006. Written for the checker alone.
 */
import type { DualNumbers } from '../../types.ts';
import type { Live } from './live.ts';
import type { PairTable } from './tables.ts';

type Messages = DualNumbers['messages'];

/** A table between groups that both have several values, and its messages: what its ends have received from it. */
interface Link {
  readonly table: PairTable;
  readonly transposed: Float64Array;
  readonly toOne: Float64Array;
  readonly toOther: Float64Array;
}

export class Sweeps {
  /** Groups with tables, ascending, and the links of each to later and to earlier ones. */
  readonly #groups: readonly number[];
  readonly #later: ReadonlyMap<number, readonly Link[]>;
  readonly #earlier: ReadonlyMap<number, readonly Link[]>;
  readonly #links: readonly Link[];
  /** Tables of a group with one value: all that they cost belongs to their other end. */
  readonly #moved: readonly PairTable[];

  constructor(tables: Iterable<PairTable>, sizes: readonly number[]) {
    const sorted = [...tables].sort((s, t) => s.one - t.one || s.other - t.other);
    const isMoved = ({ one, other }: PairTable): boolean => sizes[one] === 1 || sizes[other] === 1;
    this.#moved = sorted.filter(isMoved);
    this.#links = sorted
      .filter((table) => !isMoved(table))
      .map((table) => ({
        table,
        transposed: transpose(table.cells, sizes[table.one], sizes[table.other]),
        toOne: new Float64Array(sizes[table.one]),
        toOther: new Float64Array(sizes[table.other]),
      }));
    this.#groups = [...new Set(this.#links.flatMap(({ table }) => [table.one, table.other]))].sort((i, j) => i - j);
    this.#later = new Map(this.#groups.map((i) => [i, this.#links.filter(({ table }) => table.one === i)]));
    this.#earlier = new Map(this.#groups.map((i) => [i, this.#links.filter(({ table }) => table.other === i)]));
  }

  /** Sweeps forward and backward `count` times over the marked values at the given costs. */
  run(costs: readonly Float64Array[], live: Live, from: DualNumbers, count: number, bits: number): Messages {
    const scale = 2 ** bits;
    const base = costs.map((list, i) => list.map((c, a) => (live[i][a] === 1 ? c : Infinity)));
    const moved = this.#moved.flatMap((table) => this.#move(table, base, scale));
    for (const link of this.#links) {
      link.toOne.fill(0);
      link.toOther.fill(0);
    }
    this.#begin(from);
    for (let k = 0; k < count; k++) {
      for (const i of this.#groups) this.#forward(i, base[i], live);
      for (const i of [...this.#groups].reverse()) this.#backward(i, base[i], live, k === count - 1);
    }
    const negative = (list: Float64Array): number[] =>
      Array.from(list, (x) => (Number.isFinite(x) ? 0 - Math.round(x * scale) : 0));
    return [
      ...this.#links.map(({ table, toOne, toOther }) => ({
        first: table.one,
        second: table.other,
        toFirst: negative(toOne),
        toSecond: negative(toOther),
      })),
      ...moved,
    ];
  }

  #begin({ messageBits, messages }: DualNumbers): void {
    const unit = 2 ** -messageBits;
    const places = new Map(this.#links.map((link) => [`${link.table.one}:${link.table.other}`, link]));
    for (const { first, second, toFirst, toSecond } of messages) {
      const link = places.get(`${first}:${second}`);
      if (link === undefined || toFirst.length !== link.toOne.length || toSecond.length !== link.toOther.length)
        continue;
      toFirst.forEach((x, a) => (link.toOne[a] = 0 - x * unit));
      toSecond.forEach((x, b) => (link.toOther[b] = 0 - x * unit));
    }
  }

  /** Adds a table of a group with one value to the costs of its other end; the message that says so. */
  #move({ one, other, cells }: PairTable, base: readonly Float64Array[], scale: number): Messages {
    if (base[one].length === 1 && base[other].length === 1) return [];
    const toOther = base[one].length === 1;
    const end = base[toOther ? other : one];
    cells.forEach((c, a) => (end[a] += c));
    const list = Array.from(cells, (c) => (Number.isFinite(c) ? 0 - c * scale : 0));
    return [{ first: one, second: other, toFirst: toOther ? [0] : list, toSecond: toOther ? list : [0] }];
  }

  #forward(i: number, base: Float64Array, live: Live): void {
    const later = this.#later.get(i) ?? [];
    const total = this.#total(i, base);
    const share = this.#share(i);
    for (const { table, toOne, toOther } of later)
      send(total, share, toOne, live[i], table.cells, toOther, live[table.other]);
  }

  #backward(i: number, base: Float64Array, live: Live, isLast: boolean): void {
    const total = this.#total(i, base);
    const share = this.#share(i);
    let least = Infinity;
    for (const t of total) if (t < least) least = t;
    for (let a = 0; a < total.length; a++) total[a] -= least;
    for (const { table, transposed, toOne, toOther } of this.#earlier.get(i) ?? []) {
      send(total, share, toOther, live[i], transposed, toOne, live[table.one]);
      // What the group has beyond its least value goes back to its tables, in whose least cells it counts.
      if (isLast) for (let a = 0; a < total.length; a++) if (live[i][a] === 1) toOther[a] -= share * total[a];
    }
  }

  /** Costs of a group and all that it has received; infinite where a value is not marked. */
  #total(i: number, base: Float64Array): Float64Array {
    const total = base.slice();
    for (const { toOne } of this.#later.get(i) ?? []) for (let a = 0; a < total.length; a++) total[a] += toOne[a];
    for (const { toOther } of this.#earlier.get(i) ?? []) for (let a = 0; a < total.length; a++) total[a] += toOther[a];
    return total;
  }

  #share(i: number): number {
    return 1 / Math.max(this.#later.get(i)?.length ?? 0, this.#earlier.get(i)?.length ?? 0, 1);
  }
}

/** The message of a table to its other end: least sums over the marked values of this one, their least taken off. */
function send(
  total: Float64Array,
  share: number,
  back: Float64Array,
  live: Uint8Array,
  cells: Float64Array,
  to: Float64Array,
  marks: Uint8Array,
): void {
  const width = to.length;
  to.fill(Infinity);
  for (let a = 0, at = 0; a < live.length; a++, at += width) {
    if (live[a] === 0) continue;
    const own = share * total[a] - back[a];
    for (let b = 0; b < width; b++) {
      const c = own + cells[at + b];
      if (c < to[b]) to[b] = c;
    }
  }
  let least = Infinity;
  for (let b = 0; b < width; b++) if (marks[b] === 1 && to[b] < least) least = to[b];
  for (let b = 0; b < width; b++) to[b] = marks[b] === 1 ? to[b] - least : 0;
}

function transpose(cells: Float64Array, rows: number, columns: number): Float64Array {
  const out = new Float64Array(cells.length);
  for (let a = 0, at = 0; a < rows; a++) for (let b = 0; b < columns; b++, at++) out[b * rows + a] = cells[at];
  return out;
}
