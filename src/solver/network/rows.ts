/**
 * Linear rows: usage over time becomes one row per binding time, and rows become prices.
 *
 * A price is a rational numerator / 2^PRICE_BITS per unit of a row. The priced cost of a value is
 * rounded down and the priced bound is rounded up, so every choice that keeps the row pays at most
 * its true cost: the bound stays valid.
 */
import { PRICE_SCALE } from '../check/certificate-format.ts';
import type { CertificateRow, LinearRow, Problem } from '../types.ts';
import type { Network, NetworkRow } from './network.ts';
import { STEP } from './proof-log.ts';

/** Denominator of prices: 2^20. Those of certificates are finer. */
export const PRICE_BITS = 20n;

/** floor(price * amount / 2^20), exact. */
function priceOf(price: bigint, amount: number): number {
  return Number((price * BigInt(amount)) >> PRICE_BITS);
}

/** ceil(price * bound / 2^20), exact. */
function priceOfBound(price: bigint, bound: number): number {
  return Number(-((-price * BigInt(Math.floor(bound))) >> PRICE_BITS));
}

/** Adds the prices of the rows to a network in place; the rows themselves stay. */
export function addPrices(net: Network, prices: readonly bigint[]): void {
  const { pool } = net;
  net.log.push(
    STEP.price,
    pool.vector(Float64Array.from(prices, (p) => Number(p << (PRICE_SCALE - PRICE_BITS)))),
  );
  net.rows.forEach((row, r) => {
    const price = prices[r];
    if (price === 0n) return;
    const priced = new Map<number, number>();
    for (let i = 0; i < net.count; i++) {
      const id = row.amounts[i];
      if (id < 0 || net.gone[i] === 1) continue;
      let vector = priced.get(id);
      if (vector === undefined) {
        vector = pool.vector(pool.vectorOf(id).map((u) => priceOf(price, u)));
        priced.set(id, vector);
      }
      net.unary[i] = pool.sum(net.unary[i], vector);
      net.priced[i] = net.priced[i] < 0 ? vector : pool.sum(net.priced[i], vector);
    }
    net.constant -= priceOfBound(price, row.bound);
  });
}

/**
 * Leaves the rows out. What they were charged stays as cost: no row is left that a dearer value
 * could help to keep.
 */
export function dropRows(net: Network): void {
  net.rows.length = 0;
  net.priced.fill(-1);
}

/** Constant of a network with one row once `addPrices` has priced that. */
export function constantAt(net: Network, price: bigint): number {
  return price === 0n ? net.constant : net.constant - priceOfBound(price, net.rows[0].bound);
}

/** Amount of each row under positions of the present variables. */
export function amountsAt(net: Network, at: Int32Array): number[] {
  return net.rows.map((row) => {
    let sum = 0;
    for (let i = 0; i < net.count; i++) {
      if (row.amounts[i] >= 0 && net.gone[i] === 0) sum += net.pool.vectorOf(row.amounts[i])[at[i]];
    }
    return sum;
  });
}

/** A row of the problem in neutral form. */
export interface PlainRow extends LinearRow {
  /** Its source: a linear row of the problem, or the usage at one time. */
  readonly source: CertificateRow;
}

/**
 * All rows of a problem: its linear rows and one per time at which the usage limit can bind. Times
 * whose pieces are a subset of a neighbouring time's are dropped, and so are rows that even the
 * largest amounts keep.
 */
export function plainRows(problem: Problem): PlainRow[] {
  const rows: PlainRow[] = (problem.rows ?? []).map((row, k) => ({ ...row, source: { row: k } }));
  const { usage } = problem;
  if (usage !== undefined)
    rows.push(
      ...timeRows(
        usage.pieces.filter((p) => p.lo < p.hi),
        usage.limit,
      ),
    );
  return rows.filter((row) => {
    let most = 0;
    const top = new Map<number, number>();
    row.variables.forEach((v, k) =>
      top.set(v, (top.get(v) ?? 0) + row.amounts[k].reduce((a, b) => Math.max(a, b), 0)),
    );
    for (const amount of top.values()) most += amount;
    return most > row.bound;
  });
}

function timeRows(pieces: NonNullable<Problem['usage']>['pieces'], limit: number): PlainRow[] {
  const times = [...new Set(pieces.flatMap((p) => [p.lo, p.hi]))].sort((a, b) => a - b);
  const starts = new Map<number, number[]>();
  const ends = new Map<number, number[]>();
  pieces.forEach((p, id) => {
    starts.set(p.lo, [...(starts.get(p.lo) ?? []), id]);
    ends.set(p.hi, [...(ends.get(p.hi) ?? []), id]);
  });
  const rows: PlainRow[] = [];
  const live = new Set<number>();
  // Only a time after which something ends can be maximal: before that the live set only grows.
  times.forEach((t, k) => {
    for (const id of ends.get(t) ?? []) live.delete(id);
    for (const id of starts.get(t) ?? []) live.add(id);
    const next = times[k + 1];
    if (next === undefined || (ends.get(next) ?? []).length === 0 || live.size === 0) return;
    const ids = [...live].sort((a, b) => a - b);
    rows.push({
      name: `memory at [${t},${next})`,
      source: { time: t },
      bound: limit,
      variables: Int32Array.from(ids, (id) => pieces[id].variable),
      amounts: ids.map((id) => pieces[id].amounts),
    });
  });
  return rows;
}

/** Installs rows in a network (amounts of a variable that occurs twice add up). */
export function installRows(net: Network, rows: readonly PlainRow[]): void {
  for (const row of rows) {
    const amounts = new Int32Array(net.count).fill(-1);
    row.variables.forEach((v, k) => {
      const id = net.pool.vector(row.amounts[k].slice());
      amounts[v] = amounts[v] < 0 ? id : net.pool.sum(amounts[v], id);
    });
    net.rows.push({ bound: row.bound, amounts } satisfies NetworkRow);
  }
}

/** 1 for the variables that own an amount in some row. */
export function rowVariables(net: Network): Uint8Array {
  const keep = new Uint8Array(net.count);
  for (const row of net.rows)
    for (let i = 0; i < net.count; i++) if (row.amounts[i] >= 0) keep[i] = 1;
  return keep;
}

/**
 * The price beyond which the priced costs of a row could no longer be summed exactly (2^50 units,
 * shared by all rows).
 */
export function largestPrice(net: Network, r: number): bigint {
  const { amounts, bound } = net.rows[r];
  let most = Math.max(1, bound);
  for (let i = 0; i < net.count; i++) {
    if (amounts[i] >= 0) most += net.pool.vectorOf(amounts[i]).reduce((a, b) => Math.max(a, b), 0);
  }
  return BigInt(Math.floor(2 ** 70 / (most * net.rows.length)));
}
