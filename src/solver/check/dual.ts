/**
 * The independent checker of dual bounds. A dual certificate gives prices of rows and messages on edges, all integers; any
 * such numbers bound every choice from below, so nothing in it has to be trusted:
 *
 *   LB = constant - sum_t price_t limit_t + sum_groups min_a [costs(a) + prices(a) - messages(a)]
 *        + sum_edges min_(a,b) [table(a,b) + message(a) + message(b)]
 *
 * for every choice pays at least each minimum, the messages cancel, and a kept row pays at most its price times its limit.
 * Variables that an edge ties to one another are first joined into groups; the certificate says along which edges, and each
 * joint is verified here. Shares no code with any solver; sums are BigInt wherever they could exceed 2^53.
 */
import { Refused } from './store.ts';
import type { CertificateRow, DualCertificate, Problem } from '../types.ts';

const PRICE_BITS = 40n;
const SAFE = 2 ** 52;

/** Computes the bound that a dual certificate proves. @throws Refused for a bad one */
export function dualBound(problem: Problem, certificate: DualCertificate): bigint {
  if ((certificate.kind as string) !== 'dual') throw new Refused('unknown kind');
  const groups = new Grouping(problem);
  groups.follow(certificate.joins);
  return boundOf(problem, certificate, groups);
}

/** Groups of variables whose values are functions of their leader's. */
class Grouping {
  readonly problem: Problem;
  readonly leader: Int32Array;
  /** Own value of every variable per remaining value of its leader. */
  readonly value: Int32Array[];
  readonly #followers: number[][];
  readonly #strict: number[];

  constructor(problem: Problem) {
    this.problem = problem;
    const { domains, tables, edges } = problem;
    this.leader = Int32Array.from(domains, (_, i) => i);
    this.#followers = Array.from(domains, (_, i) => [i]);
    this.value = Array.from(domains, (size, i) => {
      const costs = problem.vectors[problem.unary[i]];
      return Int32Array.from(Array.from({ length: size }, (_, a) => a).filter((a) => costs[a] < Infinity));
    });
    const holes = tables.map((t) => t.costs.some((c) => c === Infinity));
    this.#strict = Array.from(edges.first.keys()).filter((e) => holes[edges.table[e]]);
    this.#prune();
  }

  follow(joins: DualCertificate['joins']): void {
    const { first, second } = this.problem.edges;
    for (const [e, side] of joins) {
      if (!(e >= 0 && e < first.length) || (side !== 0 && side !== 1))
        throw new Refused(`there is no edge ${e} to join along`);
      const [from, to] = side === 0 ? [first[e], second[e]] : [second[e], first[e]];
      let image = this.#image(e, from, to, side === 0);
      if (image === undefined) {
        this.#prune();
        image = this.#image(e, from, to, side === 0);
      }
      if (image === undefined) throw new Refused(`edge ${e} does not tie variable ${to} to ${from}`);
      const [lead, old] = [this.leader[from], this.leader[to]];
      for (const m of this.#followers[old]) {
        const own = this.value[m];
        this.value[m] = image.map((b) => own[b]);
        this.leader[m] = lead;
        this.#followers[lead].push(m);
      }
      this.#followers[old] = [];
    }
    this.#prune();
  }

  /** For each value of the leader of `from`, the only value of the leader of `to` that edge e allows. */
  #image(e: number, from: number, to: number, forward: boolean): Int32Array | undefined {
    if (this.leader[from] === this.leader[to]) return undefined;
    const [rows, columns] = [this.value[from], this.value[to]];
    const out = new Int32Array(rows.length);
    for (let a = 0; a < rows.length; a++) {
      let only = -1;
      for (let b = 0; b < columns.length; b++) {
        const c = forward ? cell(this.problem, e, rows[a], columns[b]) : cell(this.problem, e, columns[b], rows[a]);
        if (c === Infinity) continue;
        if (only >= 0) return undefined;
        only = b;
      }
      if (only < 0) return undefined;
      out[a] = only;
    }
    return out;
  }

  /** Deletes values of groups that some edge leaves without a partner, until none is left. */
  #prune(): void {
    const { first, second } = this.problem.edges;
    for (let again = true; again;) {
      again = false;
      for (const e of this.#strict) {
        const [u, v] = [first[e], second[e]];
        const [rows, columns] = [this.value[u], this.value[v]];
        if (this.leader[u] === this.leader[v]) {
          if (this.#keep(u, (a) => cell(this.problem, e, rows[a], columns[a]) < Infinity)) again = true;
          continue;
        }
        const used = new Uint8Array(columns.length);
        const live = new Uint8Array(rows.length);
        for (let a = 0; a < rows.length; a++) {
          for (let b = 0; b < columns.length; b++) {
            if (cell(this.problem, e, rows[a], columns[b]) === Infinity) continue;
            live[a] = 1;
            used[b] = 1;
          }
        }
        if (this.#keep(u, (a) => live[a] === 1)) again = true;
        if (this.#keep(v, (b) => used[b] === 1)) again = true;
      }
    }
  }

  #keep(member: number, test: (value: number) => boolean): boolean {
    const lead = this.leader[member];
    const kept = Array.from(this.value[lead].keys()).filter(test);
    if (kept.length === this.value[lead].length) return false;
    for (const m of this.#followers[lead]) {
      const own = this.value[m];
      this.value[m] = Int32Array.from(kept, (a) => own[a]);
    }
    return true;
  }
}

function cell(problem: Problem, e: number, x: number, y: number): number {
  const { table, firstMap, secondMap } = problem.edges;
  const { columns, costs } = problem.tables[table[e]];
  const row = firstMap[e] >= 0 ? problem.maps[firstMap[e]][x] : x;
  const column = secondMap[e] >= 0 ? problem.maps[secondMap[e]][y] : y;
  return costs[row * columns + column];
}

function exact(x: number): number {
  if (!(Math.abs(x) <= SAFE)) throw new Refused(`a number of ${x} is beyond exact arithmetic`);
  return x;
}

function boundOf(problem: Problem, certificate: DualCertificate, groups: Grouping): bigint {
  const { messageBits, prices, messages } = certificate;
  if (!Number.isInteger(messageBits) || messageBits < 0 || messageBits > 30) throw new Refused('bad scale of messages');
  const n = problem.domains.length;
  const scale = 2 ** messageBits;
  const finer = PRICE_BITS - BigInt(messageBits);
  // Units of 2^-40.
  let bound = BigInt(problem.constant ?? 0) << PRICE_BITS;
  const node: bigint[][] = Array.from({ length: n }, (_, i) =>
    groups.leader[i] === i ? Array.from(groups.value[i], () => 0n) : [],
  );
  const add = (variable: number, amount: (own: number) => bigint): void => {
    const list = node[groups.leader[variable]];
    const own = groups.value[variable];
    for (let a = 0; a < list.length; a++) list[a] += amount(own[a]);
  };
  for (let i = 0; i < n; i++) {
    const costs = problem.vectors[problem.unary[i]];
    add(i, (own) => BigInt(costs[own]) << PRICE_BITS);
  }
  for (const { row, price } of prices) {
    if (!/^\d{1,60}$/.test(price)) throw new Refused('a price is no number at or above zero');
    const amount = BigInt(price);
    bound -= amount * chargeRow(problem, row, (v, list) => add(v, (own) => amount * BigInt(list[own])));
  }
  const tables = pairTables(problem, groups, (i, costs) => {
    for (let a = 0; a < costs.length; a++) node[i][a] += BigInt(exact(costs[a])) << PRICE_BITS;
  });
  for (const { first, second, toFirst, toSecond } of messages) {
    const table = tables.get(first * n + second);
    if (table === undefined) throw new Refused(`no edge joins the groups of ${first} and ${second}`);
    if (table.done) throw new Refused(`two messages between ${first} and ${second}`);
    const [k, l] = [node[first].length, node[second].length];
    if (toFirst.length !== k || toSecond.length !== l)
      throw new Refused(`a message between ${first} and ${second} has a wrong length`);
    for (const x of [...toFirst, ...toSecond])
      if (!Number.isInteger(exact(x))) throw new Refused('a message is no integer');
    table.done = true;
    let least = Infinity;
    for (let a = 0; a < k; a++) {
      for (let b = 0; b < l; b++) {
        const c = table.cells[a * l + b];
        if (c === Infinity) continue;
        const left = exact(exact(c * scale) + toFirst[a]) + toSecond[b];
        if (exact(left) < least) least = left;
      }
    }
    // Without a finite cell there is no choice at all; then any bound holds and this one stays finite.
    if (least !== Infinity) bound += BigInt(least) << finer;
    for (let a = 0; a < k; a++) node[first][a] -= BigInt(toFirst[a]) << finer;
    for (let b = 0; b < l; b++) node[second][b] -= BigInt(toSecond[b]) << finer;
  }
  for (const table of tables.values()) {
    if (table.done) continue;
    let least = Infinity;
    for (const c of table.cells) if (c < least) least = c;
    if (least !== Infinity) bound += BigInt(exact(least)) << PRICE_BITS;
  }
  for (const list of node) {
    if (list.length === 0) continue;
    let least = list[0];
    for (const c of list) if (c < least) least = c;
    bound += least;
  }
  // Costs are integers: round up.
  return -(-bound >> PRICE_BITS);
}

/** Hands every variable's amounts in a row to `charge`; returns the row's bound. */
function chargeRow(
  problem: Problem,
  row: CertificateRow,
  charge: (variable: number, amounts: Float64Array) => void,
): bigint {
  if ('row' in row) {
    const linear = problem.rows?.[row.row];
    if (linear === undefined || !Number.isFinite(linear.bound)) throw new Refused(`there is no row ${row.row}`);
    linear.variables.forEach((v, k) => charge(v, linear.amounts[k]));
    return BigInt(Math.floor(linear.bound));
  }
  const { usage } = problem;
  if (usage === undefined || !Number.isFinite(usage.limit)) throw new Refused('there is no usage limit');
  for (const p of usage.pieces) if (p.lo <= row.time && row.time < p.hi) charge(p.variable, p.amounts);
  return BigInt(Math.floor(usage.limit));
}

/** Summed tables between groups, by first leader * n + second leader (ascending); edges inside a group go to `own`. */
function pairTables(
  problem: Problem,
  groups: Grouping,
  own: (leader: number, costs: Float64Array) => void,
): Map<number, { readonly cells: Float64Array; done: boolean }> {
  const n = problem.domains.length;
  const { first, second } = problem.edges;
  const tables = new Map<number, { readonly cells: Float64Array; done: boolean }>();
  for (let e = 0; e < first.length; e++) {
    const [u, v] = [first[e], second[e]];
    const [lu, lv] = [groups.leader[u], groups.leader[v]];
    const [rows, columns] = [groups.value[u], groups.value[v]];
    if (lu === lv) {
      own(
        lu,
        Float64Array.from(rows, (x, a) => cell(problem, e, x, columns[a])),
      );
      continue;
    }
    const swap = lu > lv;
    const key = swap ? lv * n + lu : lu * n + lv;
    let table = tables.get(key);
    if (table === undefined) {
      table = { cells: new Float64Array(rows.length * columns.length), done: false };
      tables.set(key, table);
    }
    const { cells } = table;
    for (let a = 0; a < rows.length; a++) {
      for (let b = 0; b < columns.length; b++) {
        const at = swap ? b * rows.length + a : a * columns.length + b;
        const c = cell(problem, e, rows[a], columns[b]);
        cells[at] = c === Infinity || cells[at] === Infinity ? Infinity : exact(cells[at] + c);
      }
    }
  }
  return tables;
}
