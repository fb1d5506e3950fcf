/**
 * Solves one problem again and again with restricted domains, on one prepared network. Most
 * variables (about nine in ten) have one allowed value: the solver conditions on those, so that
 * only the rest becomes a network. Repeated blocks are tied. It gives a choice and its cost,
 * uncertified and without regard to rows.
 */
import type { Fold } from '../fold/fold.ts';
import { type Factor, Network } from '../network/network.ts';
import type { AllowedValues } from '../problem/restrict.ts';
import { PairMap } from '../store/pair-map.ts';
import type { Pool, Table } from '../store/pool.ts';
import type { PreparedProblem } from './prepared.ts';
import { solveUncertified } from './tight-relaxation.ts';
import { makeWorkspace, type Workspace } from './workspace.ts';

/** Solves restrictions of one prepared problem; slices and memos are shared by all of them. */
export class RestrictedSolver {
  private readonly workspace: Workspace;
  private readonly slices: Slices;

  constructor(readonly prepared: PreparedProblem) {
    this.workspace = makeWorkspace(prepared);
    this.slices = new Slices(prepared.pool);
  }

  /**
   * The cheapest choice; where blocks repeat, the cheapest of those whose middle blocks take equal
   * values.
   *
   * @param left values left of each variable, undefined where all are
   * @returns undefined where no cheapest choice is found: there is none, repeated blocks have
   * unequal allowed values, tables are too large, or the clock stopped it
   */
  solve(
    allowed: readonly (AllowedValues | undefined)[],
    stopped: () => boolean,
  ): { readonly choice: Int32Array; readonly objective: number } | undefined {
    const { tied, fold, cost } = this.prepared;
    if (fold !== undefined && !keepsFold(fold, allowed)) return undefined;
    const origin = fold?.origin;
    const allowedOf = (k: number): AllowedValues | undefined =>
      allowed[origin === undefined ? k : origin[k]];
    const rest = this.rest(tied, allowedOf);
    if (rest === undefined) return undefined;
    const found =
      rest.net.count === 0 ? undefined : solveUncertified(rest.net, this.workspace, stopped);
    if (rest.net.count > 0 && found?.tight !== true) return undefined;
    const short = Int32Array.from(rest.name, (name, k) => {
      const position = name < 0 || found === undefined ? 0 : found.choice[name];
      return allowedOf(k)?.values[position] ?? position;
    });
    const choice = fold === undefined ? short : fold.variable.map((v) => short[v]);
    const objective = cost(choice);
    return objective === Infinity ? undefined : { choice, objective };
  }

  /**
   * Network of the variables with several allowed values, and their numbers in it (-1: one value);
   * undefined: no choice.
   */
  private rest(
    base: Network,
    allowedOf: (variable: number) => AllowedValues | undefined,
  ): { readonly net: Network; readonly name: Int32Array } | undefined {
    const { pool } = base;
    const keep = new Keeps(pool);
    const name = new Int32Array(base.count).fill(-1);
    const free: number[] = [];
    const fixed = new Int32Array(base.count);
    for (let i = 0; i < base.count; i++) {
      const allowed = allowedOf(i);
      const size = allowed?.values.length ?? base.size[i];
      if (size === 0) return undefined;
      if (size > 1) name[i] = free.push(i) - 1;
      else fixed[i] = allowed?.values[0] ?? 0;
    }
    const net = new Network(
      pool,
      Int32Array.from(free, (i) => allowedOf(i)?.values.length ?? base.size[i]),
    );
    net.quantum = base.quantum;
    net.tolerance = base.tolerance;
    net.constant = base.constant;
    for (let i = 0; i < base.count; i++) {
      if (name[i] < 0) net.constant += pool.vectorOf(base.unary[i])[fixed[i]];
    }
    free.forEach((i, k) => {
      const allowed = allowedOf(i);
      net.unary[k] = keep.vector(base.unary[i], allowed);
      net.rank[k] = base.rank[i];
      net.place[k] = base.place[i];
      for (const side of [0, 1]) {
        const minPairs = base.minPairs[2 * i + side];
        net.minPairs[2 * k + side] = minPairs < 0 ? -1 : keep.map(minPairs, allowed);
      }
    });
    for (const f of base.factors)
      if (f !== undefined && !this.addFactor(net, f, { base, keep, name, fixed, allowedOf }))
        return undefined;
    return Number.isFinite(net.constant) ? { net, name } : undefined;
  }

  /** Adds an edge to the rest: whole, as a cost of its free end, or to the constant. */
  private addFactor(
    net: Network,
    f: Factor,
    { base, keep, name, fixed, allowedOf }: Restriction,
  ): boolean {
    const { pool } = net;
    const [i, j] = f.vars;
    const a = name[i];
    const b = name[j];
    if (a < 0 && b < 0) {
      const row = pool.mapOf(f.maps[0])[fixed[i]];
      const column = pool.mapOf(f.maps[1])[fixed[j]];
      net.constant +=
        row < 0 || column < 0 ? Infinity : f.table.cells[row * f.table.dims[1] + column];
    } else if (a >= 0 && b >= 0) {
      const maps = [keep.map(f.maps[0], allowedOf(i)), keep.map(f.maps[1], allowedOf(j))];
      const small = base.compressed(f.table, maps);
      net.addFactor({ vars: [a, b], maps: small.maps, table: small.table });
    } else {
      const side = a < 0 ? 0 : 1;
      const at = pool.mapOf(f.maps[side])[fixed[f.vars[side]]];
      if (at < 0) return false;
      const other = f.vars[1 - side];
      const slice = this.slices.of(f.table, side, at);
      const map = keep.map(f.maps[1 - side], allowedOf(other));
      net.unary[name[other]] = pool.absorb(net.unary[name[other]], slice, map);
    }
    return true;
  }
}

/** The values that are left of a network's variables. */
interface Restriction {
  readonly base: Network;
  readonly keep: Keeps;
  /** Number of each variable among those with several values; -1 for the others. */
  readonly name: Int32Array;
  /** The value of each that has one only. */
  readonly fixed: Int32Array;
  readonly allowedOf: (variable: number) => AllowedValues | undefined;
}

/**
 * Tells whether every variable of the long network has the same values left as the one that
 * represents it.
 */
function keepsFold(
  { variable, origin }: Fold,
  allowed: readonly (AllowedValues | undefined)[],
): boolean {
  for (let v = 0; v < variable.length; v++) {
    const twin = variable[v] < 0 ? v : origin[variable[v]];
    if (twin !== v && allowed[v]?.id !== allowed[twin]?.id) return false;
  }
  return true;
}

/** Vectors and maps of which some positions stay. */
class Keeps {
  private readonly ids: number[] = [];

  constructor(readonly pool: Pool) {}

  private keep(allowed: AllowedValues): number {
    return (this.ids[allowed.id] ??= this.pool.map(allowed.values));
  }

  vector(id: number, allowed: AllowedValues | undefined): number {
    return allowed === undefined ? id : this.pool.gather(id, this.keep(allowed));
  }

  map(id: number, allowed: AllowedValues | undefined): number {
    return allowed === undefined ? id : this.pool.compose(id, this.keep(allowed));
  }
}

/** Rows and columns of tables as tables of one axis. */
class Slices {
  private readonly known = new PairMap();
  private readonly tables: Table[] = [];

  constructor(readonly pool: Pool) {}

  /** The cells of a table where the axis `side` is at class `at`. */
  of(table: Table, side: number, at: number): Table {
    const known = this.known.get(2 * table.id + side, at);
    if (known >= 0) return this.tables[known];
    const [rows, columns] = table.dims;
    const cells =
      side === 0
        ? table.cells.slice(at * columns, (at + 1) * columns)
        : Float64Array.from({ length: rows }, (_, r) => table.cells[r * columns + at]);
    const slice = this.pool.table([cells.length], cells);
    this.known.set(2 * table.id + side, at, this.tables.push(slice) - 1);
    return slice;
  }
}
