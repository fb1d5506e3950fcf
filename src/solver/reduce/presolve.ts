/**
 * Exact reduction: every step keeps at least one optimal choice (the lexicographically smallest
 * one) and never makes a row or the memory of any time worse. Steps run in rounds until nothing
 * changes: values without support, variables that are functions of another one, parallel edges,
 * separable edges, dominated values.
 *
 * All tests are memoised by content, so a model of a hundred equal layers pays for one.
 */
import type { Network } from '../network/network.ts';
import { STEP } from '../network/proof-log.ts';
import { KeyTable } from '../store/keys.ts';
import { PairMap } from '../store/pair-map.ts';
import type { Table } from '../store/pool.ts';
import { Dominance, type DominanceSide } from './dominance.ts';

/** Largest summed table of two parallel edges, in cells. */
const SUM_CELLS = 65_536;

/** The memory of the memos between rounds and between networks of one pool. */
export class Reducer {
  private readonly separations = new Map<
    number,
    { rows: Float64Array; columns: Float64Array } | null
  >();
  private readonly functionKeys = new PairMap();
  private readonly functions: (Int32Array | null)[] = [];
  private readonly dominance = new Dominance();
  private readonly verdictKeys = new KeyTable();
  private readonly verdicts: (readonly (readonly [number, number])[])[] = [];
  private readonly lists = new Map<readonly (readonly [number, number])[], number>();
  private readonly addedKeys = new KeyTable();
  private readonly added: { table: Table; maps: readonly number[] }[] = [];

  /**
   * Reduces to a fixpoint; returns false when some domain became empty (`net.empty` names it).
   * Dominance is quadratic in the domains and pays only where pruning has made them small. A clock
   * that says stop ends it between two steps.
   */
  reduce(net: Network, dominance = false, stopped = (): boolean => false): boolean {
    let touched = new Uint8Array(net.count).fill(1);
    for (;;) {
      if (!support(net, touched)) return false;
      const next = new Uint8Array(net.count);
      const merged = this.mergeAll(net, touched, next);
      if (!support(net, next)) return false;
      this.addParallel(net, merged ? union(touched, next) : touched, next);
      this.separateAll(net, union(touched, next), next);
      if (dominance) this.dominate(net, union(touched, next), next, stopped);
      if (!support(net, next)) return false;
      if (!next.includes(1) || stopped()) return true;
      touched = next;
    }
  }

  /** Sums the parallel edges of a network, and nothing else. */
  sumParallel(net: Network): void {
    this.addParallel(net, new Uint8Array(net.count).fill(1), new Uint8Array(net.count));
  }

  /** Merges every variable that is a function of a neighbour. */
  private mergeAll(net: Network, touched: Uint8Array, next: Uint8Array): boolean {
    let any = false;
    const queue: number[] = [];
    for (let id = 0; id < net.factors.length; id++) {
      const f = net.factors[id];
      if (f !== undefined && (touched[f.vars[0]] === 1 || touched[f.vars[1]] === 1)) queue.push(id);
    }
    for (let at = 0; at < queue.length; at++) {
      const id = queue[at];
      const f = net.factors[id];
      if (f === undefined || f.vars.length !== 2) continue;
      const [i, j] = f.vars;
      const forward = this.functionOf(net, f.table, f.maps, 0);
      const backward = this.functionOf(net, f.table, f.maps, 1);
      if (forward === null && backward === null) continue;
      const intoFirst = forward !== null && (backward === null || i < j);
      const root = intoFirst ? i : j;
      const follower = intoFirst ? j : i;
      const classes = net.pool.mapOf(f.maps[intoFirst ? 0 : 1]);
      const target = intoFirst ? forward : backward;
      if (target === null) continue;
      const follow = net.pool.map(classes.map((c) => (c < 0 ? -1 : target[c])));
      // Only the edges that move can have become functions: what the root had before reads as it
      // did.
      for (const g of net.incident[follower]) if (g !== id) queue.push(g);
      net.merge(follower, root, follow, id);
      next[root] = 1;
      any = true;
    }
    return any;
  }

  /**
   * For each class of the given side: the one position of the other variable that it allows; null
   * if not a function.
   */
  private functionOf(
    net: Network,
    table: Table,
    maps: readonly number[],
    side: 0 | 1,
  ): Int32Array | null {
    const other = maps[1 - side];
    const known = this.functionKeys.get(2 * table.id + side, other);
    if (known >= 0) return this.functions[known];
    const result = functionOf(table, side, net.pool.mapOf(other));
    this.functionKeys.set(2 * table.id + side, other, this.functions.push(result) - 1);
    return result;
  }

  /**
   * Sums edges that join the same two variables, where the sum is not much larger than its parts.
   */
  private addParallel(net: Network, look: Uint8Array, next: Uint8Array): void {
    for (let i = 0; i < net.count; i++) {
      if (look[i] === 0 || net.gone[i] === 1) continue;
      const byOther = new Map<number, number>();
      for (const id of net.incident[i].slice()) {
        const f = net.factors[id];
        if (f === undefined || f.vars.length !== 2) continue;
        const other = f.vars[0] === i ? f.vars[1] : f.vars[0];
        const earlier = byOther.get(other);
        if (earlier === undefined) {
          byOther.set(other, id);
          continue;
        }
        if (this.addPair(net, earlier, id)) {
          next[i] = 1;
          next[other] = 1;
        }
      }
    }
  }

  private addPair(net: Network, into: number, from: number): boolean {
    const { pool } = net;
    const f = net.factors[into];
    const g = net.factors[from];
    if (f === undefined || g === undefined) return false;
    const swap = f.vars[0] !== g.vars[0];
    const ga = g.maps[swap ? 1 : 0];
    const gb = g.maps[swap ? 0 : 1];
    const keys = this.addedKeys
      .begin()
      .add(f.table.id)
      .add(f.maps[0])
      .add(f.maps[1])
      .add(g.table.id);
    const key = keys
      .add(ga)
      .add(gb)
      .add(swap ? 1 : 0)
      .end();
    let sum: { table: Table; maps: readonly number[] } | undefined = this.added[key];
    if (sum === undefined) {
      const a = pool.join(f.maps[0], ga);
      const b = pool.join(f.maps[1], gb);
      const rows = pool.classesOf(a);
      const columns = pool.classesOf(b);
      const parts = f.table.cells.length + g.table.cells.length;
      if (rows * columns > Math.max(SUM_CELLS, 2 * parts)) return false;
      const fa = pool.project(a, f.maps[0]);
      const fb = pool.project(b, f.maps[1]);
      const pa = pool.project(a, ga);
      const pb = pool.project(b, gb);
      const cells = new Float64Array(rows * columns);
      const fw = f.table.dims[1];
      const gw = g.table.dims[1];
      for (let x = 0; x < rows; x++) {
        for (let y = 0; y < columns; y++) {
          const other = swap
            ? g.table.cells[pb[y] * gw + pa[x]]
            : g.table.cells[pa[x] * gw + pb[y]];
          cells[x * columns + y] = f.table.cells[fa[x] * fw + fb[y]] + other;
        }
      }
      sum = net.compressed(pool.table([rows, columns], cells), [a, b]);
      this.added[key] = sum;
    }
    net.log.push(STEP.add, into, from);
    net.removeFactor(from);
    net.factors[into] = { vars: f.vars, maps: sum.maps, table: sum.table };
    return true;
  }

  /** Moves edges that are sums of two unary costs into the unaries. */
  private separateAll(net: Network, look: Uint8Array, next: Uint8Array): void {
    const { pool } = net;
    for (let i = 0; i < net.count; i++) {
      if (look[i] === 0 || net.gone[i] === 1) continue;
      for (const id of net.incident[i].slice()) {
        const f = net.factors[id];
        if (f === undefined || f.vars.length !== 2) continue;
        let split = this.separations.get(f.table.id);
        if (split === undefined) {
          split = separation(f.table);
          this.separations.set(f.table.id, split);
        }
        if (split === null) continue;
        net.log.push(STEP.separate, id);
        net.removeFactor(id);
        const [a, b] = f.vars;
        net.unary[a] = pool.absorb(
          net.unary[a],
          pool.table([split.rows.length], split.rows),
          f.maps[0],
        );
        net.unary[b] = pool.absorb(
          net.unary[b],
          pool.table([split.columns.length], split.columns),
          f.maps[1],
        );
        next[a] = 1;
        next[b] = 1;
      }
    }
  }

  /** Deletes values that another value of the same variable replaces at no cost and no memory. */
  private dominate(net: Network, look: Uint8Array, next: Uint8Array, stopped: () => boolean): void {
    for (let i = 0; i < net.count && !stopped(); i++) {
      if (look[i] === 0 || net.gone[i] === 1 || net.size[i] < 2) continue;
      const pairs = this.dominatedValues(net, i);
      if (pairs.length === 0) continue;
      const dead = new Uint8Array(net.size[i]);
      for (const [d] of pairs) dead[d] = 1;
      net.log.push(STEP.drop, i, this.listOf(net, pairs));
      keepOnly(net, i, dead, next);
    }
  }

  /** Id of the pairs as one list for the log. */
  private listOf(net: Network, pairs: readonly (readonly [number, number])[]): number {
    let list = this.lists.get(pairs);
    if (list === undefined) {
      list = net.pool.map(Int32Array.from(pairs.flat()));
      this.lists.set(pairs, list);
    }
    return list;
  }

  private dominatedValues(net: Network, i: number): readonly (readonly [number, number])[] {
    const { pool } = net;
    // The signature holds all that the verdict depends on: costs, tables as seen from here, memory,
    // and the tie order.
    const seen: number[][] = [];
    for (const id of net.incident[i]) {
      const f = net.factors[id];
      if (f === undefined) continue;
      if (f.vars.length !== 2) return [];
      const side = f.vars[0] === i ? 0 : 1;
      // A value that just lost its support (-1) waits for the next round.
      if (pool.hasHoles(f.maps[side])) return [];
      seen.push([f.table.id, side, f.maps[side]]);
    }
    seen.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
    const members = net.members[i]
      .filter((m) => m.variable < net.real && (m.variable <= i || i >= net.real))
      .sort((a, b) => a.variable - b.variable)
      .map((m) => pool.compose(m.map, net.values[i]));
    const key = this.verdictKeys.begin().add(net.unary[i]).add(net.priced[i]);
    for (const row of net.rows) key.add(row.amounts[i]);
    key.add(-2);
    for (const m of members) key.add(m);
    key.add(-2);
    for (const s of seen) key.add(s[0]).add(s[1]).add(s[2]);
    const id = key.end();
    const known: readonly (readonly [number, number])[] | undefined = this.verdicts[id];
    if (known !== undefined) return known;
    const sides = seen.map(([table, side, map]): DominanceSide => ({
      table: pool.tables[table],
      side: side === 0 ? 0 : 1,
      map: pool.mapOf(map),
    }));
    const orders = members.map((m) => pool.mapOf(m));
    const amounts = net.rows
      .filter((r) => r.amounts[i] >= 0)
      .map((r) => pool.vectorOf(r.amounts[i]));
    // Prices are not a cost: a value that is cheaper only because it uses less of a row does not
    // dominate.
    const priced = net.priced[i] < 0 ? undefined : pool.vectorOf(net.priced[i]);
    const unary = pool.vectorOf(net.unary[i]);
    const costs = priced === undefined ? unary : unary.map((c, a) => c - priced[a]);
    const verdict = this.dominance.pairs(costs, sides, amounts, orders);
    this.verdicts[id] = verdict;
    return verdict;
  }
}

function union(a: Uint8Array, b: Uint8Array): Uint8Array {
  return a.map((x, i) => x | b[i]);
}

/**
 * Deletes values that are forbidden or have no finite partner in some factor, until none is left.
 */
function support(net: Network, touched: Uint8Array): boolean {
  const queue: number[] = [];
  const queued = new Uint8Array(net.count);
  for (let i = 0; i < net.count; i++) {
    if (touched[i] === 1 && net.gone[i] === 0) {
      queue.push(i);
      queued[i] = 1;
    }
  }
  for (let at = 0; at < queue.length; at++) {
    const i = queue[at];
    queued[i] = 0;
    let any = net.pool.isBarred(net.unary[i]);
    for (const id of net.incident[i]) {
      const f = net.factors[id];
      if (f !== undefined && net.pool.hasHoles(f.maps[f.vars.indexOf(i)])) any = true;
    }
    if (!any) continue;
    const costs = net.pool.vectorOf(net.unary[i]);
    const dead = new Uint8Array(net.size[i]);
    for (let a = 0; a < dead.length; a++) if (costs[a] === Infinity) dead[a] = 1;
    for (const id of net.incident[i]) {
      const f = net.factors[id];
      if (f === undefined || !net.pool.hasHoles(f.maps[f.vars.indexOf(i)])) continue;
      const map = net.pool.mapOf(f.maps[f.vars.indexOf(i)]);
      for (let a = 0; a < dead.length; a++) if (map[a] < 0) dead[a] = 1;
    }
    touched[i] = 1;
    const list: number[] = [];
    for (let a = 0; a < dead.length; a++) if (dead[a] === 1) list.push(a, -1);
    net.log.push(STEP.drop, i, net.pool.map(Int32Array.from(list)));
    keepOnly(net, i, dead, touched);
    if (net.empty >= 0) return false;
    for (const id of net.incident[i]) {
      const f = net.factors[id];
      if (f === undefined) continue;
      for (const v of f.vars) {
        if (v !== i && queued[v] === 0) {
          queued[v] = 1;
          queue.push(v);
        }
      }
    }
  }
  return true;
}

/**
 * Restricts a variable to the positions that are not dead and marks it and its neighbours as
 * touched.
 */
function keepOnly(net: Network, i: number, dead: Uint8Array, touched: Uint8Array): void {
  const keep: number[] = [];
  for (let a = 0; a < dead.length; a++) if (dead[a] === 0) keep.push(a);
  net.restrict(i, net.pool.map(Int32Array.from(keep)));
  touched[i] = 1;
  for (const id of net.incident[i]) for (const v of net.factors[id]?.vars ?? []) touched[v] = 1;
}

function functionOf(table: Table, side: 0 | 1, other: Int32Array): Int32Array | null {
  const own = table.dims[side];
  const theirs = table.dims[1 - side];
  const step = side === 0 ? 1 : own;
  const stride = side === 0 ? theirs : 1;
  const result = new Int32Array(own);
  for (let a = 0; a < own; a++) {
    let only = -1;
    for (let b = 0; b < theirs; b++) {
      if (table.cells[a * stride + b * step] === Infinity) continue;
      if (only >= 0) return null;
      only = b;
    }
    if (only < 0) return null;
    result[a] = only;
  }
  const position = new Int32Array(theirs).fill(-1);
  for (let p = 0; p < other.length; p++) {
    if (other[p] < 0) continue;
    if (position[other[p]] >= 0) return null;
    position[other[p]] = p;
  }
  return result.map((b) => position[b]);
}

function separation(table: Table): { rows: Float64Array; columns: Float64Array } | null {
  const [rows, columns] = table.dims;
  const { cells } = table;
  const r = new Float64Array(rows);
  const c = new Float64Array(columns);
  // Split so that both parts of a non-negative table are non-negative: the columns start at zero.
  let least = Infinity;
  for (let b = 0; b < columns; b++) if (cells[b] < least) least = cells[b];
  if (least === Infinity) return null;
  for (let b = 0; b < columns; b++) c[b] = cells[b] - least;
  for (let a = 0; a < rows; a++) r[a] = cells[a * columns] - c[0];
  for (let a = 0; a < rows; a++) {
    for (let b = 0; b < columns; b++) {
      const cell = cells[a * columns + b];
      if (cell === Infinity || cell !== r[a] + c[b]) return null;
    }
  }
  return { rows: r, columns: c };
}
