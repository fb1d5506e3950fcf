/**
 * Pruning against an incumbent: after the messages of the dual ascent are applied, all costs are non-negative and their
 * sum starts at the bound; a cell that alone costs more than the distance to the incumbent is in no better choice.
 */
import type { Pool, Table } from './pool.ts';
import type { Messages } from './bound.ts';
import type { Network } from './network.ts';
import { STEP } from './proof.ts';

/** Memo of shifted and pruned tables of one pool. */
export class Pruner {
  readonly #shifted = new Map<string, Table>();
  readonly #lifted = new Map<string, number>();

  /** Moves the shifts of the messages from the edges into the variables (exact: every choice keeps its cost). */
  shift(net: Network, messages: Messages): void {
    const { pool } = net;
    const { start, shifts } = messages;
    for (let e = 0; e < net.factors.length; e++) {
      const f = net.factors[e];
      if (f === undefined || f.vars.length !== 2) continue;
      const a = pool.vector(shifts.slice(start[2 * e], start[2 * e + 1]));
      const b = pool.vector(shifts.slice(start[2 * e + 1], start[2 * e + 2]));
      net.log.push(STEP.shift, e, f.vars[0], pool.gather(a, f.maps[0]));
      net.log.push(STEP.shift, e, f.vars[1], pool.gather(b, f.maps[1]));
      net.factors[e] = { ...f, table: this.#lower(pool, f.table, a, b) };
      net.unary[f.vars[0]] = this.#lift(pool, net.unary[f.vars[0]], a, f.maps[0]);
      net.unary[f.vars[1]] = this.#lift(pool, net.unary[f.vars[1]], b, f.maps[1]);
    }
  }

  /** Moves all minima into the constant; afterwards every cost is non-negative with a zero in every factor. */
  normalise(net: Network): void {
    const { pool } = net;
    for (let i = 0; i < net.count; i++) {
      if (net.gone[i] === 1) continue;
      const least = pool.leastOf(net.unary[i]);
      if (least === 0 || least === Infinity) continue;
      net.constant += least;
      net.unary[i] = this.#cut(pool, net.unary[i], least, Infinity);
    }
    for (let e = 0; e < net.factors.length; e++) {
      const f = net.factors[e];
      if (f === undefined) continue;
      let least = Infinity;
      for (const c of f.table.cells) if (c < least) least = c;
      if (least === 0 || least === Infinity) continue;
      net.constant += least;
      net.factors[e] = { ...f, table: this.#cutTable(pool, f.table, least, Infinity) };
    }
  }

  /** Normalises and forbids every cell above `objective - constant`; choices that cost at most `objective` survive. */
  prune(net: Network, objective: number): void {
    const { pool } = net;
    this.normalise(net);
    net.log.push(STEP.prune, pool.vector(Float64Array.of(objective)));
    const slack = objective - net.constant;
    for (let i = 0; i < net.count; i++) {
      if (net.gone[i] === 0) net.unary[i] = this.#cut(pool, net.unary[i], 0, slack);
    }
    for (let e = 0; e < net.factors.length; e++) {
      const f = net.factors[e];
      if (f === undefined) continue;
      const table = this.#cutTable(pool, f.table, 0, slack);
      if (table === f.table) continue;
      const small = net.compressed(table, f.maps);
      net.factors[e] = { vars: f.vars, maps: small.maps, table: small.table };
    }
  }

  #lower(pool: Pool, table: Table, a: number, b: number): Table {
    const key = `${table.id},${a},${b}`;
    let known = this.#shifted.get(key);
    if (known === undefined) {
      const x = pool.vectorOf(a);
      const y = pool.vectorOf(b);
      const cells = table.cells.slice();
      for (let r = 0, p = 0; r < x.length; r++) for (let c = 0; c < y.length; c++, p++) cells[p] -= x[r] + y[c];
      known = pool.table(table.dims, cells);
      this.#shifted.set(key, known);
    }
    return known;
  }

  #lift(pool: Pool, unary: number, shift: number, map: number): number {
    const key = `${unary},${shift},${map}`;
    let known = this.#lifted.get(key);
    if (known === undefined) {
      const s = pool.vectorOf(shift);
      const m = pool.mapOf(map);
      known = pool.vector(pool.vectorOf(unary).map((c, a) => (m[a] < 0 ? Infinity : c + s[m[a]])));
      this.#lifted.set(key, known);
    }
    return known;
  }

  #cut(pool: Pool, unary: number, least: number, slack: number): number {
    const key = `u${unary},${least},${slack}`;
    let known = this.#lifted.get(key);
    if (known === undefined) {
      known = pool.vector(pool.vectorOf(unary).map((c) => (c - least > slack ? Infinity : c - least)));
      this.#lifted.set(key, known);
    }
    return known;
  }

  #cutTable(pool: Pool, table: Table, least: number, slack: number): Table {
    const key = `t${table.id},${least},${slack}`;
    let known = this.#shifted.get(key);
    if (known === undefined) {
      let same = true;
      const cells = table.cells.map((c) => {
        const d = c - least > slack ? Infinity : c - least;
        if (d !== c) same = false;
        return d;
      });
      known = same ? table : pool.table(table.dims, cells);
      this.#shifted.set(key, known);
    }
    return known;
  }
}
