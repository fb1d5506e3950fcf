/**
 * The checker's own model of a problem and the exact steps on it. Each step either proves its claim
 * from the present tables or throws `Refused`; none can lower the cost of a choice, so the
 * remaining model always bounds the problem.
 *
 * Verdicts are remembered by content: the second of two equal layers costs a few look-ups.
 */
import { Refused } from './refused.ts';
import { reachedOnly, shrink, type Shrunk } from './shrink.ts';
import { exactSum, type Grid, LARGEST, PairMemo, type Part, type Store } from './store.ts';
import { type ByClass, functionOf, splitOf, View } from './tables.ts';

/** Amounts of a row per variable: vector id or -1. */
interface ModelRow {
  readonly bound: bigint;
  readonly amounts: number[];
}

/**
 * The result of minimising over a variable: a constant and, over some of its neighbours, a table.
 */
export interface Elimination {
  readonly least: number;
  readonly neighbours: readonly number[];
  readonly shrunk: Shrunk | undefined;
}

/**
 * Prices of all rows, and by factor what leaves it for the values of its first and second variable
 * (vector ids or -1).
 */
export interface Dual {
  /** Messages are in units of 2^-bits. */
  readonly bits: number;
  readonly prices: readonly bigint[];
  readonly messages: (readonly number[] | undefined)[];
}

/** The memory of the verdicts of one replay. */
export class Memos {
  readonly shrunk = new PairMemo<Shrunk>();
  readonly drops = new PairMemo<number>();
  readonly follows = new PairMemo<number>();
  readonly diagonals = new PairMemo<number>();
  readonly splits = new PairMemo<readonly [number, number]>();
  readonly added = new PairMemo<Shrunk>();
  readonly eliminations = new PairMemo<Elimination>();
  readonly byClass = new PairMemo<ByClass>();
  readonly lowered = new PairMemo<Grid>();
  readonly cutVectors = new PairMemo<number>();
  readonly cutGrids = new PairMemo<Grid>();
  readonly numbers = new Map<number, number>();

  /** Small name of a number. */
  nameOf(x: number): number {
    let id = this.numbers.get(x);
    if (id === undefined) {
      id = this.numbers.size;
      this.numbers.set(x, id);
    }
    return id;
  }
}

export class Model {
  readonly store: Store;
  readonly memos: Memos;
  size: number[] = [];
  unary: number[] = [];
  /** Priced part of the unary, or -1. */
  priced: number[] = [];
  gone: boolean[] = [];
  incident: number[][] = [];
  parts: (Part | undefined)[] = [];
  rows: ModelRow[] = [];
  constant = 0n;
  /** The amount that the prices of the rows took from the constant. */
  pricedConstant = 0n;
  /** Every cost is at least zero. */
  nonNegative = false;
  /** Choices above this cost may have been deleted. */
  cut: bigint | undefined;
  /**
   * Eliminations keep costs above the cut, as the engine did: later steps name positions that a cut
   * would have taken.
   */
  whole = false;
  /** No choice is left. */
  empty = false;
  /** Prices and messages that bound what is left; undefined: none but zeros. */
  dual: Dual | undefined;
  /**
   * Variables that have changed since values without support were deleted; undefined: all of them.
   */
  changed: Set<number> | undefined;

  constructor(store: Store, memos: Memos) {
    this.store = store;
    this.memos = memos;
  }

  clone(): Model {
    this.store.work.spend(8 * (this.size.length * (1 + this.rows.length) + this.parts.length));
    const copy = new Model(this.store, this.memos);
    copy.size = this.size.slice();
    copy.unary = this.unary.slice();
    copy.priced = this.priced.slice();
    copy.gone = this.gone.slice();
    copy.incident = this.incident.map((list) => list.slice());
    copy.parts = this.parts.slice();
    copy.rows = this.rows.map((row) => ({ bound: row.bound, amounts: row.amounts.slice() }));
    copy.constant = this.constant;
    copy.pricedConstant = this.pricedConstant;
    copy.nonNegative = this.nonNegative;
    copy.cut = this.cut;
    copy.whole = this.whole;
    copy.empty = this.empty;
    copy.dual = this.dual && { ...this.dual, messages: this.dual.messages.slice() };
    copy.changed = this.changed && new Set(this.changed);
    return copy;
  }

  addVariable(unary: number, size: number): number {
    this.size.push(size);
    this.unary.push(unary);
    this.priced.push(-1);
    this.gone.push(false);
    this.incident.push([]);
    for (const row of this.rows) row.amounts.push(-1);
    return this.size.length - 1;
  }

  addPart(part: Part | undefined): void {
    if (part !== undefined) for (const v of part.vars) this.incident[v].push(this.parts.length);
    this.parts.push(part);
  }

  /** Adds costs that a table gives when both its axes are read along one variable. */
  addDiagonal(i: number, grid: Grid, mapA: number, mapB: number): void {
    const { store } = this;
    const key = store.tuple(store.tuple(-1, mapA), mapB);
    const diagonal = this.memos.diagonals.get(grid.id, key, () => {
      const a = store.maps[mapA];
      const b = store.maps[mapB];
      const out = new Float64Array(a.length).fill(Infinity);
      for (let p = 0; p < a.length; p++)
        if (a[p] >= 0 && b[p] >= 0) out[p] = grid.cells[a[p] * grid.dims[1] + b[p]];
      return store.vector(out);
    });
    this.unary[i] = store.sum(this.unary[i], diagonal);
    this.changed?.add(i);
  }

  /** @throws Refused when the variable is not there */
  needs(v: number): void {
    if (!(v >= 0 && v < this.size.length) || this.gone[v])
      throw new Refused(`variable ${v} is not there`);
  }

  /** Part f in its smallest form. */
  part(f: number): Part {
    const part = this.parts[f];
    if (part === undefined) throw new Refused(`factor ${f} is not there`);
    if (part.tidy) return part;
    const { grid, maps } = this.shrink(part.grid, part.maps);
    const tidy = { vars: part.vars, grid, maps, tidy: true };
    this.parts[f] = tidy;
    return tidy;
  }

  private shrink(grid: Grid, maps: readonly number[]): Shrunk {
    let key = -1;
    for (const m of maps) key = this.store.tuple(key, m);
    return this.memos.shrunk.get(grid.id, key, () => {
      if (grid.pick === undefined) return shrink(this.store, grid.dims, grid.cells, maps, grid);
      // Of a table that was never written out, only the living part is needed.
      const living = reachedOnly(this.store, grid.dims, maps);
      this.store.work.spend(living.kept.reduce((cells, k) => cells * k.length, 1));
      const cells = grid.pick(living.kept[0], living.kept[1]);
      return shrink(
        this.store,
        living.kept.map((k) => k.length),
        cells,
        living.maps,
      );
    });
  }

  /** Part f, which must join two variables. */
  edge(f: number): Part {
    const part = this.part(f);
    if (part.vars.length !== 2)
      throw new Refused(`factor ${f} joins ${part.vars.length} variables, not two`);
    return part;
  }

  /** The least cell of part f; Infinity where all are forbidden. */
  least(f: number): number {
    const part = this.parts[f];
    return part?.alive === true ? part.grid.least : this.part(f).grid.least;
  }

  /** Takes factor f away. */
  remove(f: number): void {
    for (const v of this.parts[f]?.vars ?? []) {
      const list = this.incident[v];
      this.store.work.spend(list.length / 8);
      const at = list.indexOf(f);
      if (at >= 0) list.splice(at, 1);
    }
    this.parts[f] = undefined;
  }

  /** Keeps the positions in the map (new position -> old one). */
  restrict(i: number, keep: number): void {
    const { store } = this;
    store.work.spend(1 + 4 * this.incident[i].length + this.rows.length);
    this.size[i] = store.maps[keep].length;
    this.unary[i] = store.gather(this.unary[i], keep);
    if (this.priced[i] >= 0) this.priced[i] = store.gatherOrZero(this.priced[i], keep);
    for (const row of this.rows)
      if (row.amounts[i] >= 0) row.amounts[i] = store.gatherOrZero(row.amounts[i], keep);
    for (const f of this.incident[i]) {
      const part = this.parts[f];
      if (part === undefined) continue;
      const maps = part.maps.map((m, k) => (part.vars[k] === i ? store.compose(m, keep) : m));
      this.parts[f] = { vars: part.vars, maps, grid: part.grid, tidy: false };
      const messages = this.dual?.messages[f];
      if (this.dual === undefined || messages === undefined) continue;
      this.dual.messages[f] = messages.map((m, k) =>
        m < 0 || part.vars[k] !== i ? m : store.gatherOrZero(m, keep),
      );
    }
    this.changed?.add(i);
    if (this.size[i] === 0) this.empty = true;
  }

  /** Deletes positions for the stated reasons: pairs (d, w), w = -1 for "forbidden". */
  drop(i: number, list: Int32Array): void {
    this.needs(i);
    const { store } = this;
    // Edges are read as they are, living classes only: making them small after every deletion would
    // cost far more.
    const incident = this.incident[i].map((f) =>
      this.parts[f]?.vars.length === 2 ? this.parts[f] : this.part(f),
    );
    let key = store.tuple(store.tuple(-1, this.unary[i]), this.priced[i]);
    for (const row of this.rows) key = store.tuple(key, row.amounts[i]);
    for (const p of incident) {
      key = store.tuple(store.tuple(key, p.grid.id), p.vars.indexOf(i));
      for (const m of p.maps) key = store.tuple(key, m);
    }
    const keep = this.memos.drops.get(key, store.map(list), () =>
      this.checkDrop(i, list, incident),
    );
    this.restrict(i, keep);
  }

  private checkDrop(i: number, list: Int32Array, incident: readonly Part[]): number {
    const { store } = this;
    const costs = store.vectors[this.unary[i]];
    const priced = this.priced[i] < 0 ? undefined : store.vectors[this.priced[i]];
    const amounts = this.rows
      .filter((r) => r.amounts[i] >= 0)
      .map((r) => store.vectors[r.amounts[i]]);
    const views = incident.map((p) => new View(store, p, p.vars.indexOf(i)));
    this.refuseLargeSums(i, incident);
    const dead = new Uint8Array(this.size[i]);
    for (let k = 0; k < list.length; k += 2) {
      const d = list[k];
      const w = list[k + 1];
      if (!(d >= 0 && d < dead.length) || dead[d] === 1)
        throw new Refused(`variable ${i} has no value ${d} to delete`);
      const isForbidden = costs[d] === Infinity || !views.every((view) => view.allows(d));
      if (w !== -1 && (!(w >= 0 && w < dead.length) || w === d || dead[w] === 1))
        throw new Refused(`value ${w} of ${i} cannot stand in`);
      if (w === -1 && !isForbidden)
        throw new Refused(`value ${d} of variable ${i} was deleted though it has partners`);
      if (!isForbidden) {
        let worse = costs[w] - costs[d] - (priced === undefined ? 0 : priced[w] - priced[d]);
        for (let p = 0; p < views.length && worse !== Infinity; p++) worse += views[p].worst(w, d);
        if (!(worse <= 0))
          throw new Refused(`value ${w} of variable ${i} is not always as good as ${d}`);
        if (amounts.some((u) => u[w] > u[d]))
          throw new Refused(`value ${w} of variable ${i} needs more of a row than ${d}`);
      }
      dead[d] = 1;
    }
    const keep: number[] = [];
    for (let a = 0; a < dead.length; a++) if (dead[a] === 0) keep.push(a);
    return store.map(Int32Array.from(keep));
  }

  /** Refuses unless differences of all costs of variable i are exact. */
  private refuseLargeSums(i: number, incident: readonly Part[]): void {
    const { mosts } = this.store;
    const own = 2 * (mosts[this.unary[i]] + (this.priced[i] < 0 ? 0 : mosts[this.priced[i]]));
    const most = (parts: readonly Part[]): number =>
      parts.reduce((sum, p) => sum + 2 * p.grid.most, own);
    // Cells that no value reads any more do not count.
    if (most(incident) > 2 * LARGEST) exactSum(most(this.incident[i].map((f) => this.part(f))));
  }

  /** Replaces j by the function of i that edge f makes it. */
  merge(j: number, i: number, f: number): void {
    this.needs(j);
    this.needs(i);
    const { store } = this;
    const edge = this.edge(f);
    const side = edge.vars.indexOf(i);
    if (side < 0 || edge.vars[1 - side] !== j)
      throw new Refused(`factor ${f} does not join ${i} and ${j}`);
    const key = store.tuple(store.tuple(-1, edge.maps[side]), edge.maps[1 - side]);
    const follow = this.memos.follows.get(2 * edge.grid.id + side, key, () => {
      store.work.spend(edge.grid.cells.length);
      const target = functionOf(edge.grid, side, store.maps[edge.maps[1 - side]]);
      return store.map(store.maps[edge.maps[side]].map((c) => (c < 0 ? -1 : target[c])));
    });
    this.remove(f);
    this.unary[i] = store.sum(this.unary[i], store.gather(this.unary[j], follow));
    const along = store.compose(edge.maps[1 - side], follow);
    this.addDiagonal(
      i,
      edge.grid,
      side === 0 ? edge.maps[0] : along,
      side === 0 ? along : edge.maps[1],
    );
    this.move(j, i, follow);
  }

  /**
   * Gives everything at j to i, whose positions choose those of j by the map. The unaries are the
   * caller's.
   */
  move(j: number, i: number, map: number): void {
    const { store } = this;
    this.changed?.add(i);
    store.work.spend(this.incident[j].length);
    for (const g of this.incident[j].slice()) {
      const part = this.parts[g];
      if (part === undefined) continue;
      const maps = part.maps.map((m, k) => (part.vars[k] === j ? store.compose(m, map) : m));
      if (!part.vars.includes(i)) {
        this.parts[g] = {
          vars: part.vars.map((v) => (v === j ? i : v)),
          maps,
          grid: part.grid,
          tidy: false,
        };
        place(this.incident[i], g);
        continue;
      }
      if (part.vars.length !== 2)
        throw new Refused('two variables of one wide factor cannot become one');
      this.remove(g);
      this.addDiagonal(i, part.grid, maps[0], maps[1]);
    }
    this.incident[j] = [];
    for (const row of this.rows) {
      row.amounts[i] = this.moved(row.amounts[i], row.amounts[j], map);
      row.amounts[j] = -1;
    }
    this.priced[i] = this.moved(this.priced[i], this.priced[j], map);
    this.priced[j] = -1;
    this.gone[j] = true;
  }

  private moved(mine: number, theirs: number, map: number): number {
    if (theirs < 0) return mine;
    const moved = this.store.gatherOrZero(theirs, map);
    return mine < 0 ? moved : this.store.sum(mine, moved);
  }

  /** Moves an edge that is a sum of two unary costs into the unaries. */
  separate(f: number): void {
    const { store } = this;
    const edge = this.edge(f);
    const split = this.memos.splits.get(edge.grid.id, 0, () => splitOf(store, edge.grid));
    this.remove(f);
    this.changed = undefined;
    split.forEach((vector, side) => {
      const v = edge.vars[side];
      this.unary[v] = store.sum(this.unary[v], store.gather(vector, edge.maps[side]));
    });
  }

  /** Adds edge g to edge f. */
  add(f: number, g: number): void {
    const { store } = this;
    const a = this.edge(f);
    const b = this.edge(g);
    if (f === g || !b.vars.includes(a.vars[0]) || !b.vars.includes(a.vars[1])) {
      throw new Refused(`factors ${f} and ${g} do not join the same variables`);
    }
    const swap = a.vars[0] !== b.vars[0];
    const rowMap = b.maps[swap ? 1 : 0];
    const columnMap = b.maps[swap ? 0 : 1];
    const left = store.tuple(store.tuple(store.tuple(-1, a.grid.id), a.maps[0]), a.maps[1]);
    const other = store.tuple(store.tuple(store.tuple(-1, b.grid.id), rowMap), columnMap);
    const right = 2 * other + (swap ? 1 : 0);
    const sum = this.memos.added.get(left, right, () => {
      const rows = store.join(a.maps[0], rowMap);
      const columns = store.join(a.maps[1], columnMap);
      const ar = store.project(rows, a.maps[0]);
      const ac = store.project(columns, a.maps[1]);
      const br = store.project(rows, rowMap);
      const bc = store.project(columns, columnMap);
      store.work.spend(2 * ar.length * ac.length);
      const cells = new Float64Array(ar.length * ac.length);
      const aw = a.grid.dims[1];
      const bw = b.grid.dims[1];
      for (let x = 0, to = 0; x < ar.length; x++) {
        for (let y = 0; y < ac.length; y++, to++) {
          cells[to] =
            a.grid.cells[ar[x] * aw + ac[y]] +
            b.grid.cells[swap ? bc[y] * bw + br[x] : br[x] * bw + bc[y]];
        }
      }
      return shrink(store, [ar.length, ac.length], cells, [rows, columns]);
    });
    this.remove(g);
    this.changed?.add(a.vars[0]);
    this.parts[f] = { vars: a.vars, maps: sum.maps, grid: sum.grid, tidy: true };
  }

  /** Sum of all minima: no choice that is left costs less. Undefined when none is left. */
  bound(): bigint | undefined {
    if (this.empty) return undefined;
    this.store.work.spend(this.size.length + this.parts.length);
    let sum = this.constant;
    for (let i = 0; i < this.size.length; i++) {
      if (this.gone[i]) continue;
      const least = this.store.leasts[this.unary[i]];
      if (least === Infinity) return undefined;
      sum += BigInt(least);
    }
    for (let f = 0; f < this.parts.length; f++) {
      if (this.parts[f] === undefined) continue;
      const least = this.least(f);
      if (least === Infinity) return undefined;
      sum += BigInt(least);
    }
    return sum;
  }

  /** The parts that are left, in their smallest form. */
  tidyParts(): Part[] {
    const out: Part[] = [];
    for (let f = 0; f < this.parts.length; f++)
      if (this.parts[f] !== undefined) out.push(this.part(f));
    return out;
  }
}

/** Keeps a list of parts ascending. */
function place(list: number[], part: number): void {
  let at = list.length;
  while (at > 0 && list[at - 1] > part) at--;
  list.splice(at, 0, part);
}
