/**
 * Fixes by reduced cost against an incumbent: after the messages of the dual ascent are applied,
 * all costs are non-negative and their sum starts at the bound; a cell that alone costs more than
 * the distance to the incumbent is in no better choice.
 *
 * Everything is done once per content: edges of equal layers carry equal tables and equal messages.
 */
import type { Trws } from '../dual/trws.ts';
import { compress, type Mapped } from '../network/compress.ts';
import type { Network } from '../network/network.ts';
import { STEP } from '../network/proof-log.ts';
import { KeyTable } from '../store/keys.ts';
import type { Pool, Table } from '../store/pool.ts';

/** The shifts of one edge as vector ids, -1 for none. */
interface Shifts {
  readonly first: Int32Array;
  readonly second: Int32Array;
}

export class ReducedCostFixing {
  /**
   * Moves the shifts of the messages from the edges into the variables (exact: every choice keeps
   * its cost).
   */
  shift(net: Network, messages: Trws): void {
    const shifts = intern(net, messages);
    lift(net, shifts);
    const keys = new KeyTable();
    const tables: Table[] = [];
    for (let e = 0; e < net.factors.length; e++) {
      const f = net.factors[e];
      if (f === undefined) continue;
      const id = keys.begin().add(f.table.id).add(shifts.first[e]).add(shifts.second[e]).end();
      tables[id] ??= net.pool.table(
        f.table.dims,
        lowered(net, f.table, shifts.first[e], shifts.second[e]),
      );
      net.factors[e] = { ...f, table: tables[id] };
    }
  }

  /**
   * Applies the messages (if any), moves all minima into the constant and deletes all that alone
   * costs more than `objective - constant`; choices that cost at most `objective` survive. Returns
   * false when the constant exceeds it.
   */
  fix(net: Network, objective: number, messages?: Trws): boolean {
    const { pool } = net;
    const shifts = messages === undefined ? none(net) : intern(net, messages);
    if (messages !== undefined) lift(net, shifts);
    for (let i = 0; i < net.count; i++)
      if (net.gone[i] === 0) net.constant += pool.leastOf(net.unary[i]);
    const least = new Float64Array(net.factors.length);
    for (let e = 0; e < net.factors.length; e++) {
      const f = net.factors[e];
      if (f === undefined) continue;
      least[e] = messages === undefined ? minimum(f.table.cells) : messages.least[e];
      net.constant += least[e];
    }
    net.log.push(STEP.prune, pool.vector(Float64Array.of(objective)));
    const slack = objective - net.constant;
    if (!(slack >= 0)) return false;
    const kept = this.cutValues(net, slack);
    // Most values are gone now: only the classes that the rest still reaches are computed.
    const keys = new KeyTable();
    const results: Mapped[] = [];
    for (let e = 0; e < net.factors.length; e++) {
      const f = net.factors[e];
      if (f === undefined) continue;
      const maps = f.maps.map((m, k) =>
        kept[f.vars[k]] < 0 ? m : pool.compose(m, kept[f.vars[k]]),
      );
      keys.begin().add(f.table.id).add(shifts.first[e]).add(shifts.second[e]);
      for (const m of maps) keys.add(m);
      const id = keys.end();
      const result = (results[id] ??= cutTable(
        pool,
        f.table,
        maps,
        shifts.first[e],
        shifts.second[e],
        least[e],
        slack,
      ));
      net.factors[e] = { vars: f.vars, maps: result.maps, table: result.table };
    }
    return true;
  }

  /**
   * Deletes the values above the slack; returns the map id (new -> old position) of each variable
   * that lost some, or -1.
   */
  private cutValues(net: Network, slack: number): Int32Array {
    const { pool } = net;
    const kept = new Int32Array(net.count).fill(-1);
    const known = new Map<
      number,
      { readonly unary: number; readonly keep: number; readonly list: number }
    >();
    for (let i = 0; i < net.count; i++) {
      if (net.gone[i] === 1) continue;
      let result = known.get(net.unary[i]);
      if (result === undefined) {
        const costs = pool.vectorOf(net.unary[i]);
        const base = pool.leastOf(net.unary[i]);
        const keep: number[] = [];
        const list: number[] = [];
        for (let a = 0; a < costs.length; a++) {
          if (costs[a] - base > slack || costs[a] === Infinity) list.push(a, -1);
          else keep.push(a);
        }
        result = {
          unary: pool.vector(Float64Array.from(keep, (a) => costs[a] - base)),
          keep: list.length === 0 ? -1 : pool.map(Int32Array.from(keep)),
          list: list.length === 0 ? -1 : pool.map(Int32Array.from(list)),
        };
        known.set(net.unary[i], result);
      }
      net.unary[i] = result.unary;
      if (result.keep < 0) continue;
      kept[i] = result.keep;
      net.log.push(STEP.drop, i, result.list);
      net.values[i] = pool.compose(net.values[i], result.keep);
      net.size[i] = pool.mapOf(result.keep).length;
      net.restrictMinPairs(i, result.keep);
      if (net.priced[i] >= 0) net.priced[i] = pool.gather(net.priced[i], result.keep);
      for (const row of net.rows)
        if (row.amounts[i] >= 0) row.amounts[i] = pool.gather(row.amounts[i], result.keep);
    }
    return kept;
  }
}

function none(net: Network): Shifts {
  return {
    first: new Int32Array(net.factors.length).fill(-1),
    second: new Int32Array(net.factors.length).fill(-1),
  };
}

/** Interns the shifts of all edges. */
function intern(net: Network, messages: Trws): Shifts {
  const { start, shifts } = messages;
  const out = none(net);
  for (let e = 0; e < net.factors.length; e++) {
    if (net.factors[e] === undefined) continue;
    out.first[e] = net.pool.vector(shifts.slice(start[2 * e], start[2 * e + 1]));
    out.second[e] = net.pool.vector(shifts.slice(start[2 * e + 1], start[2 * e + 2]));
  }
  return out;
}

/** Adds the shifts to the costs of the variables. */
function lift(net: Network, shifts: Shifts): void {
  const { pool } = net;
  const keys = new KeyTable();
  const results: number[] = [];
  for (let e = 0; e < net.factors.length; e++) {
    const f = net.factors[e];
    if (f === undefined) continue;
    const [a, b] = [
      pool.gather(shifts.first[e], f.maps[0]),
      pool.gather(shifts.second[e], f.maps[1]),
    ];
    net.log.push(STEP.shift, e, f.vars[0], f.vars[1], a, b);
  }
  for (let i = 0; i < net.count; i++) {
    if (net.gone[i] === 1) continue;
    keys.begin().add(net.unary[i]);
    for (const e of net.incident[i]) {
      const f = net.factors[e];
      if (f === undefined) continue;
      const side = f.vars[0] === i ? 0 : 1;
      keys.add(side === 0 ? shifts.first[e] : shifts.second[e]).add(f.maps[side]);
    }
    const id = keys.end();
    if (id === results.length) {
      const total = pool.vectorOf(net.unary[i]).slice();
      for (const e of net.incident[i]) {
        const f = net.factors[e];
        if (f === undefined) continue;
        const side = f.vars[0] === i ? 0 : 1;
        const shift = pool.vectorOf(side === 0 ? shifts.first[e] : shifts.second[e]);
        const map = pool.mapOf(f.maps[side]);
        for (let a = 0; a < total.length; a++) {
          if (map[a] < 0) total[a] = Infinity;
          else total[a] += shift[map[a]];
        }
      }
      results.push(pool.vector(total));
    }
    net.unary[i] = results[id];
  }
}

/** Cells less the shifts of their row and column. */
function lowered(net: Network, table: Table, first: number, second: number): Float64Array {
  const cells = table.cells.slice();
  if (first < 0) return cells;
  const x = net.pool.vectorOf(first);
  const y = net.pool.vectorOf(second);
  for (let r = 0, p = 0; r < x.length; r++) {
    const own = x[r];
    for (let c = 0; c < y.length; c++, p++) cells[p] -= own + y[c];
  }
  return cells;
}

function minimum(cells: Float64Array): number {
  let least = Infinity;
  for (let p = 0; p < cells.length; p++) if (cells[p] < least) least = cells[p];
  return least;
}

/**
 * The table over the classes that the maps reach, less shifts and minimum, with all above the slack
 * forbidden.
 */
function cutTable(
  pool: Pool,
  table: Table,
  maps: readonly number[],
  first: number,
  second: number,
  least: number,
  slack: number,
): Mapped {
  const [rows, rowMap] = reached(pool, maps[0], table.dims[0]);
  const [columns, columnMap] = reached(pool, maps[1], table.dims[1]);
  const x = first < 0 ? undefined : pool.vectorOf(first);
  const y = second < 0 ? undefined : pool.vectorOf(second);
  const cells = new Float64Array(rows.length * columns.length);
  let p = 0;
  for (const r of rows) {
    const own = (x === undefined ? 0 : x[r]) + least;
    for (const c of columns) {
      const d = table.cells[r * table.dims[1] + c] - own - (y === undefined ? 0 : y[c]);
      cells[p++] = d > slack ? Infinity : d;
    }
  }
  return compress(pool, [rows.length, columns.length], cells, [rowMap, columnMap]);
}

/** Classes that a map reaches, ascending, and the map into their list. */
function reached(pool: Pool, map: number, classes: number): readonly [Int32Array, number] {
  const values = pool.mapOf(map);
  const name = new Int32Array(classes).fill(-1);
  for (const c of values) if (c >= 0) name[c] = 0;
  const list: number[] = [];
  for (let c = 0; c < classes; c++) if (name[c] === 0) name[c] = list.push(c) - 1;
  if (list.length === classes) return [Int32Array.from(list), map];
  return [Int32Array.from(list), pool.map(values.map((c) => (c < 0 ? -1 : name[c])))];
}
