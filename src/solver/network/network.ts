/**
 * The working form of a problem: a network of cost factors over variables, all content interned in
 * one `Pool`. Every change is an exact transformation and is written to the proof log; `expand`
 * undoes the merges.
 */
import { KeyTable } from '../store/keys.ts';
import type { Pool, Table } from '../store/pool.ts';
import { compress, type Mapped } from './compress.ts';
import { Log, STEP } from './proof-log.ts';
import {
  bestValue,
  type Bucket,
  type Factor,
  type NetworkRow,
  type SeriesElimination,
} from './records.ts';

/** Compressed tables by table and maps. */
interface CompressedMemo {
  readonly keys: KeyTable;
  readonly results: Mapped[];
}

function newMemo(): CompressedMemo {
  return { keys: new KeyTable(), results: [] };
}

const NO_FACTOR: Factor | undefined = undefined;

export type { Bucket, Factor, NetworkRow, SeriesElimination } from './records.ts';

export class Network {
  readonly pool: Pool;
  /** Number of variables of the problem; later numbers are fused variables. */
  readonly real: number;
  /** Present number of values of each variable. */
  size: Int32Array;
  /** Cost vector of each variable. */
  unary: Int32Array;
  /** 1: merged into another variable, fused or eliminated. */
  gone: Uint8Array;
  /** Map id: position -> value of the problem. */
  values: Int32Array;
  /** Place of each variable in the program: a fused variable has the place of its first part. */
  rank: Int32Array;
  /** Place in sweeps of messages; see `sweep-order.ts`. */
  place: Int32Array;
  readonly factors: (Factor | undefined)[] = [];
  /** Factor ids of each variable, ascending. */
  readonly incident: number[][];
  /**
   * Variables that live in this one, with the map from this variable's problem values to theirs.
   */
  readonly members: { readonly variable: number; readonly map: number }[][];
  readonly rows: NetworkRow[] = [];
  /**
   * Names of the two alternatives that each position is a pair of (map ids, 2 per variable; -1:
   * none), see `store/min-pairs.ts`.
   */
  minPairs: Int32Array;
  /** Part of each unary that is a price of rows and not a cost (vector id, or -1). */
  priced: Int32Array;
  /** Eliminated variables in order. */
  readonly trail: Bucket[] = [];
  constant = 0;
  /**
   * Every cost of the problem is a multiple of this power of two, hence so is the cost of every
   * choice.
   */
  quantum = 1;
  /** See `Problem.tolerance`. */
  tolerance = 0;
  /** The variable whose domain became empty, or -1. */
  empty = -1;
  log: Log = new Log();
  /** Series eliminations in order, where somebody asked for them. */
  series: SeriesElimination[] | undefined;
  private readonly compressedForm: CompressedMemo;

  constructor(pool: Pool, domains: Int32Array, real = domains.length, compressed = newMemo()) {
    const n = domains.length;
    this.pool = pool;
    this.real = real;
    this.compressedForm = compressed;
    this.rank = Int32Array.from(domains.keys());
    this.place = this.rank.slice();
    this.size = domains.slice();
    this.unary = new Int32Array(n).fill(-1);
    this.priced = new Int32Array(n).fill(-1);
    this.gone = new Uint8Array(n);
    this.minPairs = new Int32Array(2 * n).fill(-1);
    this.values = Int32Array.from(domains, (k) => pool.identity(k));
    this.incident = Array.from({ length: n }, () => []);
    this.members = Array.from({ length: n }, (_, i) => [
      { variable: i, map: pool.identity(domains[i]) },
    ]);
  }

  get count(): number {
    return this.size.length;
  }

  /**
   * Units that a bound may stay below the cost of a choice that it proves best: what lies between
   * two costs, or is tolerated.
   */
  get slack(): number {
    return Math.max(this.quantum - 1, this.tolerance);
  }

  /** Cells of all tables. */
  get cells(): number {
    let cells = 0;
    for (const f of this.factors) cells += f?.table.cells.length ?? 0;
    return cells;
  }

  /**
   * Appends a factor and returns its number; an undefined factor keeps the numbering in step with
   * the log.
   */
  addFactor(factor: Factor | undefined): number {
    const id = this.factors.length;
    this.factors.push(factor);
    if (factor !== undefined) for (const v of factor.vars) this.incident[v].push(id);
    return id;
  }

  removeFactor(id: number): void {
    const factor = this.factors[id];
    if (factor === undefined) return;
    for (const v of factor.vars) {
      const list = this.incident[v];
      const at = list.indexOf(id);
      if (at >= 0) list.splice(at, 1);
    }
    this.factors[id] = NO_FACTOR;
  }

  /** The factors of a variable with their numbers. */
  factorsOf(variable: number): (readonly [number, Factor])[] {
    const out: (readonly [number, Factor])[] = [];
    for (const id of this.incident[variable]) {
      const f = this.factors[id];
      if (f !== undefined) out.push([id, f]);
    }
    return out;
  }

  /** Compressed form of a table under its maps, memoised by content. */
  compressed(table: Table, maps: readonly number[]): Mapped {
    const { keys, results } = this.compressedForm;
    keys.begin().add(table.id);
    for (const m of maps) keys.add(m);
    const id = keys.end();
    return (results[id] ??= compress(this.pool, table.dims, table.cells, maps));
  }

  /** Keeps only the given positions of a variable (map id: new position -> old position). */
  restrict(variable: number, keep: number): void {
    const { pool } = this;
    this.unary[variable] = pool.gather(this.unary[variable], keep);
    this.values[variable] = pool.compose(this.values[variable], keep);
    this.size[variable] = pool.mapOf(keep).length;
    this.restrictMinPairs(variable, keep);
    for (const id of this.incident[variable]) {
      const f = this.factors[id];
      if (f === undefined) continue;
      const maps = f.maps.map((m, k) => (f.vars[k] === variable ? pool.compose(m, keep) : m));
      // While every class is still reached, no slice can have become equal to another or empty.
      const axis = f.vars.indexOf(variable);
      if (pool.reachedOf(maps[axis]) === f.table.dims[axis]) {
        this.factors[id] = { vars: f.vars, maps, table: f.table };
        continue;
      }
      const { table, maps: small } = this.compressed(f.table, maps);
      this.factors[id] = { vars: f.vars, maps: small, table };
    }
    for (const row of this.rows) {
      if (row.amounts[variable] >= 0)
        row.amounts[variable] = pool.gather(row.amounts[variable], keep);
    }
    if (this.priced[variable] >= 0)
      this.priced[variable] = pool.gather(this.priced[variable], keep);
    if (this.size[variable] === 0) this.empty = variable;
  }

  /** Keeps the names of alternatives that only these positions leave. */
  restrictMinPairs(variable: number, keep: number): void {
    for (const at of [2 * variable, 2 * variable + 1])
      if (this.minPairs[at] >= 0) this.minPairs[at] = this.pool.compose(this.minPairs[at], keep);
  }

  /**
   * Replaces variable j by a function of variable i (map id: position of i -> position of j);
   * factor `via` said so.
   */
  merge(j: number, i: number, follow: number, via: number): void {
    const { pool } = this;
    this.log.push(STEP.merge, j, i, via);
    const shared = this.factors[via];
    if (shared === undefined) throw new Error('internal: merge through a missing factor');
    this.removeFactor(via);
    this.unary[i] = pool.sum(this.unary[i], pool.gather(this.unary[j], follow));
    this.unary[i] = pool.sum(this.unary[i], this.along(shared, i, j, follow));
    for (const id of this.incident[j].slice()) {
      const f = this.factors[id];
      if (f === undefined) continue;
      const vars = f.vars.map((v) => (v === j ? i : v));
      const maps = f.maps.map((m, k) => (f.vars[k] === j ? pool.compose(m, follow) : m));
      if (vars[0] === vars[1]) {
        this.removeFactor(id);
        this.unary[i] = pool.sum(this.unary[i], this.diagonal(f.table, maps));
        continue;
      }
      const { table, maps: small } = this.compressed(f.table, maps);
      this.factors[id] = { vars, maps: small, table };
      insert(this.incident[i], id);
    }
    this.incident[j] = [];
    this.moveAmounts(j, i, follow);
    this.gone[j] = 1;
    this.adopt(j, i, follow);
  }

  /** Cost of an edge read along a functional dependency. */
  private along(f: Factor, i: number, j: number, follow: number): number {
    const mapI = f.maps[f.vars.indexOf(i)];
    const mapJ = this.pool.compose(f.maps[f.vars.indexOf(j)], follow);
    return this.diagonal(f.table, f.vars[0] === i ? [mapI, mapJ] : [mapJ, mapI]);
  }

  /** Vector a -> cells[maps0[a], maps1[a]]. */
  private diagonal(table: Table, maps: readonly number[]): number {
    const a = this.pool.mapOf(maps[0]);
    const b = this.pool.mapOf(maps[1]);
    const width = table.dims[1];
    const costs = new Float64Array(a.length).fill(Infinity);
    for (let p = 0; p < a.length; p++)
      if (a[p] >= 0 && b[p] >= 0) costs[p] = table.cells[a[p] * width + b[p]];
    return this.pool.vector(costs);
  }

  /**
   * Joins the two variables of an edge into one new variable whose values are the finite pairs;
   * returns its number. The edge becomes part of the new unary, every other edge sees its own half:
   * relaxations get tighter, costs stay.
   */
  fuse(via: number): number {
    const { pool } = this;
    const f = this.factors[via];
    if (f === undefined) throw new Error('internal: fuse through a missing factor');
    const [u, v] = f.vars;
    const { left, right, costs } = finitePairs(f, pool);
    const toLeft = pool.map(left);
    const toRight = pool.map(right);
    const w = this.grow(left.length);
    this.rank[w] = Math.min(this.rank[u], this.rank[v]);
    this.place[w] = Math.min(this.place[u], this.place[v]);
    const originalLeft = pool.compose(this.values[u], toLeft);
    const originalRight = pool.compose(this.values[v], toRight);
    this.log.push(STEP.fuse, via, u, v);
    this.removeFactor(via);
    const own = pool.vector(costs);
    this.unary[w] = pool.sum(
      own,
      pool.sum(pool.gather(this.unary[u], toLeft), pool.gather(this.unary[v], toRight)),
    );
    for (const [part, map, original] of [
      [u, toLeft, originalLeft],
      [v, toRight, originalRight],
    ]) {
      this.handOn(part, w, map);
      for (const m of this.members[part])
        this.members[w].push({ variable: m.variable, map: pool.compose(m.map, original) });
      this.members[part] = [];
      this.moveAmounts(part, w, map);
      this.gone[part] = 1;
    }
    this.incident[w].sort((x, y) => x - y);
    return w;
  }

  /** Lets the edges of a variable see another one through a map. */
  private handOn(part: number, w: number, map: number): void {
    const { pool } = this;
    for (const id of this.incident[part].slice()) {
      const g = this.factors[id];
      if (g === undefined) continue;
      const vars = g.vars.map((x) => (x === part ? w : x));
      const maps = g.maps.map((m, k) => (g.vars[k] === part ? pool.compose(m, map) : m));
      if (vars[0] === vars[1]) {
        this.removeFactor(id);
        this.incident[w] = this.incident[w].filter((x) => x !== id);
        this.unary[w] = pool.sum(this.unary[w], this.diagonal(g.table, maps));
        continue;
      }
      const small = this.compressed(g.table, maps);
      this.factors[id] = { vars, maps: small.maps, table: small.table };
      this.incident[w].push(id);
    }
    this.incident[part] = [];
  }

  /** Moves what a variable takes of rows, and its price, to another one through a map. */
  private moveAmounts(from: number, to: number, map: number): void {
    const { pool } = this;
    for (const row of this.rows) {
      if (row.amounts[from] < 0) continue;
      const moved = pool.gather(row.amounts[from], map);
      row.amounts[to] = row.amounts[to] < 0 ? moved : pool.sum(row.amounts[to], moved);
      row.amounts[from] = -1;
    }
    if (this.priced[from] < 0) return;
    const moved = pool.gather(this.priced[from], map);
    this.priced[to] = this.priced[to] < 0 ? moved : pool.sum(this.priced[to], moved);
    this.priced[from] = -1;
  }

  /** A new variable with `k` values. */
  private grow(k: number): number {
    const w = this.size.length;
    const append = (array: Int32Array, x: number): Int32Array => {
      const out = new Int32Array(w + 1);
      out.set(array);
      out[w] = x;
      return out;
    };
    this.size = append(this.size, k);
    this.unary = append(this.unary, -1);
    this.values = append(this.values, this.pool.identity(k));
    this.rank = append(this.rank, w);
    this.place = append(this.place, w);
    const minPairs = new Int32Array(2 * w + 2).fill(-1);
    minPairs.set(this.minPairs);
    this.minPairs = minPairs;
    this.priced = append(this.priced, -1);
    const gone = new Uint8Array(w + 1);
    gone.set(this.gone);
    this.gone = gone;
    for (const row of this.rows) row.amounts = append(row.amounts, -1);
    this.incident.push([]);
    this.members.push([{ variable: w, map: this.pool.identity(k) }]);
    return w;
  }

  private adopt(j: number, i: number, follow: number): void {
    const { pool } = this;
    const originalJ = pool.mapOf(this.values[j]);
    const originalI = pool.mapOf(this.values[i]);
    const positions = pool.mapOf(follow);
    // From problem values of i to problem values of j; dead values of i lead nowhere.
    const own = this.members[i][0];
    const full = new Int32Array(pool.mapOf(own.map).length).fill(-1);
    for (let p = 0; p < positions.length; p++) {
      if (positions[p] >= 0) full[originalI[p]] = originalJ[positions[p]];
    }
    const across = pool.map(full);
    for (const m of this.members[j]) {
      this.members[i].push({ variable: m.variable, map: pool.compose(m.map, across) });
    }
    this.members[j] = [];
  }

  /**
   * Choice of the problem from positions of the variables that are still present (ignored for the
   * others): merged variables follow their root, eliminated ones take the first best value, in
   * reverse order of elimination.
   */
  complete(at: Int32Array): Int32Array {
    const { pool } = this;
    const choice = new Int32Array(this.count).fill(-1);
    for (let i = 0; i < this.count; i++) {
      if (this.gone[i] === 0) this.assign(choice, i, pool.mapOf(this.values[i])[at[i]]);
    }
    for (let b = this.trail.length - 1; b >= 0; b--)
      this.assign(choice, this.trail[b].variable, bestValue(pool, this.trail[b], choice));
    return choice.slice(0, this.real);
  }

  private assign(choice: Int32Array, i: number, value: number): void {
    for (const m of this.members[i]) choice[m.variable] = this.pool.mapOf(m.map)[value];
  }

  /**
   * A copy that is a problem of its own: its choices (`complete`) are positions of this network, -1
   * of what is gone.
   */
  afresh(): Network {
    const copy = this.clone(this.count);
    for (let i = 0; i < this.count; i++) {
      copy.values[i] = this.pool.identity(this.size[i]);
      copy.members[i] = this.gone[i] === 1 ? [] : [{ variable: i, map: copy.values[i] }];
    }
    copy.trail.length = 0;
    return copy;
  }

  /**
   * Independent copy that shares the pool and the memo of compressed tables. @param real variables
   * that choices have
   */
  clone(real = this.real): Network {
    const copy = new Network(this.pool, new Int32Array(0), real, this.compressedForm);
    copy.size = this.size.slice();
    copy.unary = this.unary.slice();
    copy.gone = this.gone.slice();
    copy.priced = this.priced.slice();
    copy.values = this.values.slice();
    copy.rank = this.rank.slice();
    copy.place = this.place.slice();
    copy.minPairs = this.minPairs.slice();
    for (const f of this.factors) copy.factors.push(f);
    for (let i = 0; i < this.count; i++) {
      copy.incident.push(this.incident[i].slice());
      copy.members.push(this.members[i].slice());
    }
    for (const row of this.rows) copy.rows.push({ bound: row.bound, amounts: row.amounts.slice() });
    for (const bucket of this.trail) copy.trail.push(bucket);
    copy.constant = this.constant;
    copy.quantum = this.quantum;
    copy.tolerance = this.tolerance;
    copy.empty = this.empty;
    copy.log = this.log.clone();
    return copy;
  }
}

/** The pairs of values that an edge allows, and their costs. */
function finitePairs(
  { maps, table: { cells, dims } }: Factor,
  pool: Pool,
): { readonly left: Int32Array; readonly right: Int32Array; readonly costs: Float64Array } {
  const [a, b] = maps.map((m) => pool.mapOf(m));
  const left: number[] = [];
  const right: number[] = [];
  const costs: number[] = [];
  for (let x = 0; x < a.length; x++) {
    for (let y = 0; y < b.length; y++) {
      const c = a[x] < 0 || b[y] < 0 ? Infinity : cells[a[x] * dims[1] + b[y]];
      if (c === Infinity) continue;
      left.push(x);
      right.push(y);
      costs.push(c);
    }
  }
  return {
    left: Int32Array.from(left),
    right: Int32Array.from(right),
    costs: Float64Array.from(costs),
  };
}

/** Adds a number to an ascending list. */
function insert(list: number[], x: number): void {
  let at = list.length;
  while (at > 0 && list[at - 1] > x) at--;
  list.splice(at, 0, x);
}
