/**
 * What the checker sums dual bounds over: costs of the values of every group, and tables between groups. In: prices, messages and
 * marks of the values that may be in a choice. Out: the bound on all choices of marked values.
 */
import { Refused } from '../store.ts';
import type { CertificateRow, DualNumbers, DualSwept, Problem } from '../../types.ts';
import type { Grouping } from './grouping.ts';
import { prune, type Live } from './live.ts';
import { Sweeps } from './sweeps.ts';
import { exact, pairTables, type PairTable } from './tables.ts';

/** Prices and messages are integers in units of 2^-40 and 2^-messageBits; all sums are in units of 2^-40. */
const PRICE_BITS = 40n;
/** Most sweeps of one part: a certificate is to be checked in a time that its size tells. */
const MOST_SWEEPS = 1000;

export class Ground {
  readonly groups: Grouping;
  readonly #problem: Problem;
  readonly #tables: ReadonlyMap<number, PairTable>;
  /** Costs of every value of every leader without its tables. */
  readonly #costs: readonly (readonly bigint[])[];
  #sweeps: Sweeps | undefined;

  constructor(problem: Problem, groups: Grouping) {
    this.#problem = problem;
    this.groups = groups;
    const costs = Array.from(problem.domains, (_, i) =>
      groups.leader[i] === i ? Array.from(groups.value[i], () => 0n) : [],
    );
    problem.unary.forEach((vector, i) =>
      this.#addTo(costs, i, (own) => BigInt(problem.vectors[vector][own]) << PRICE_BITS),
    );
    this.#tables = pairTables(problem, groups, (i, list) => {
      for (let a = 0; a < list.length; a++) costs[i][a] += BigInt(exact(list[a])) << PRICE_BITS;
    });
    this.#costs = costs;
  }

  /** Marks of all values that have partners. */
  live(): Live {
    const live = this.#costs.map((list) => new Uint8Array(list.length).fill(1));
    prune(this.#tables.values(), live);
    return live;
  }

  /**
   * The marks with those values of a variable alone that `keeps` accepts, less what then has no partner; undefined where some
   * group has no value left, so that there is no such choice.
   */
  part(live: Live, variable: number, keeps: (own: number) => boolean): Live | undefined {
    const copy = live.map((marks) => marks.slice());
    const marks = copy[this.groups.leader[variable]];
    this.groups.value[variable].forEach((own, a) => {
      if (!keeps(own)) marks[a] = 0;
    });
    prune(this.#tables.values(), copy);
    return copy.some((of) => of.length > 0 && !of.includes(1)) ? undefined : copy;
  }

  /** Rounded up, because costs are integers. @throws Refused where the numbers are none */
  bound({ messageBits, prices, messages }: DualNumbers, live: Live): bigint {
    checkScale(messageBits);
    const n = this.#problem.domains.length;
    const { node, credit } = this.#priced(prices);
    let bound = (BigInt(this.#problem.constant ?? 0) << PRICE_BITS) - credit;
    const scale = 2 ** messageBits;
    const finer = PRICE_BITS - BigInt(messageBits);
    const done = new Set<PairTable>();
    for (const { first, second, toFirst, toSecond } of messages) {
      const table = this.#tables.get(first * n + second);
      if (table === undefined) throw new Refused(`no edge joins the groups of ${first} and ${second}`);
      if (done.has(table)) throw new Refused(`two messages between ${first} and ${second}`);
      if (toFirst.length !== node[first].length || toSecond.length !== node[second].length)
        throw new Refused(`a message between ${first} and ${second} has a wrong length`);
      for (const x of [...toFirst, ...toSecond])
        if (!Number.isInteger(exact(x))) throw new Refused('a message is no integer');
      done.add(table);
      bound += BigInt(leastCell(table, live, (c, a, b) => exact(exact(c * scale) + toFirst[a]) + toSecond[b])) << finer;
      toFirst.forEach((x, a) => (node[first][a] -= BigInt(x) << finer));
      toSecond.forEach((x, b) => (node[second][b] -= BigInt(x) << finer));
    }
    for (const table of this.#tables.values())
      if (!done.has(table)) bound += BigInt(leastCell(table, live, (c) => c)) << PRICE_BITS;
    node.forEach((list, i) => (bound += leastOf(list, live[i])));
    return -(-bound >> PRICE_BITS);
  }

  /** The same where the checker finds the messages: by sweeps from those of the whole. @throws Refused where the numbers are none */
  sweptBound({ messageBits, prices, sweeps }: DualSwept, whole: DualNumbers, live: Live): bigint {
    checkScale(messageBits);
    checkScale(whole.messageBits);
    if (!Number.isInteger(sweeps) || sweeps < 0 || sweeps > MOST_SWEEPS) throw new Refused('a bad number of sweeps');
    this.#sweeps ??= new Sweeps(
      this.#tables.values(),
      this.#costs.map((list) => list.length),
    );
    const unit = 2 ** -Number(PRICE_BITS);
    const costs = this.#priced(prices).node.map((list) => Float64Array.from(list, (c) => Number(c) * unit));
    const messages = this.#sweeps.run(costs, live, whole, sweeps, messageBits);
    return this.bound({ messageBits, prices, messages }, live);
  }

  /** Costs of every value with the prices of its usage, and what the rows allow for at those prices. */
  #priced(prices: DualNumbers['prices']): { readonly node: bigint[][]; readonly credit: bigint } {
    let credit = 0n;
    const node = this.#costs.map((list) => list.slice());
    for (const { row, price } of prices) {
      if (!/^\d{1,60}$/.test(price)) throw new Refused('a price is no number at or above zero');
      const amount = BigInt(price);
      credit += amount * this.#chargeRow(row, (v, list) => this.#addTo(node, v, (own) => amount * BigInt(list[own])));
    }
    return { node, credit };
  }

  #addTo(lists: readonly bigint[][], variable: number, amount: (own: number) => bigint): void {
    const list = lists[this.groups.leader[variable]];
    const own = this.groups.value[variable];
    for (let a = 0; a < list.length; a++) list[a] += amount(own[a]);
  }

  /** Hands every variable's amounts in a row to `charge`; returns the row's bound. */
  #chargeRow(row: CertificateRow, charge: (variable: number, amounts: Float64Array) => void): bigint {
    const { rows, usage } = this.#problem;
    if ('row' in row) {
      const linear = rows?.[row.row];
      if (linear === undefined || !Number.isFinite(linear.bound)) throw new Refused(`there is no row ${row.row}`);
      linear.variables.forEach((v, k) => charge(v, linear.amounts[k]));
      return BigInt(Math.floor(linear.bound));
    }
    if (usage === undefined || !Number.isFinite(usage.limit)) throw new Refused('there is no usage limit');
    for (const p of usage.pieces) if (p.lo <= row.time && row.time < p.hi) charge(p.variable, p.amounts);
    return BigInt(Math.floor(usage.limit));
  }
}

function checkScale(messageBits: number): void {
  if (!Number.isInteger(messageBits) || messageBits < 0 || messageBits > 30) throw new Refused('bad scale of messages');
}

/** Least of the finite cells of marked values; 0 without any, for then there is no choice and every bound holds. */
function leastCell(
  { one, other, cells }: PairTable,
  live: Live,
  moved: (cell: number, a: number, b: number) => number,
): number {
  const [rows, columns] = [live[one], live[other]];
  let least = Infinity;
  for (let a = 0, at = 0; a < rows.length; a++) {
    for (let b = 0; b < columns.length; b++, at++) {
      if (rows[a] === 0 || columns[b] === 0 || cells[at] === Infinity) continue;
      const cost = exact(moved(cells[at], a, b));
      if (cost < least) least = cost;
    }
  }
  return least === Infinity ? 0 : least;
}

/** Least of the marked values; 0 without any. */
function leastOf(list: readonly bigint[], marks: Uint8Array): bigint {
  let least: bigint | undefined;
  for (let a = 0; a < list.length; a++) if (marks[a] === 1 && (least === undefined || list[a] < least)) least = list[a];
  return least ?? 0n;
}
