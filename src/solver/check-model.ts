/**
 * The checker's own model of a problem and the exact steps on it. Each step either proves its claim from the tables as
 * they stand or throws `Refused`; none can lower what a choice costs, so what is left always bounds the problem.
 *
 * Verdicts are remembered by content: the second of two equal layers costs a few look-ups.
 */
import { PRICE_SCALE } from './certificate.ts';
import { minimise, type Summand } from './check-minimise.ts';
import { exactSum, type Grid, level, PairMemo, type Part, Refused, type Store } from './check-store.ts';
import { reachedOnly, shrink, type Shrunk } from './check-shrink.ts';
import { type ByClass, byClass, functionOf, LevelledGrid, LoweredGrid, splitOf, View } from './check-tables.ts';

/** Amounts of a row per variable: vector id or -1. */
export interface ModelRow {
  readonly bound: bigint;
  readonly amounts: number[];
}

interface Elimination {
  readonly least: number;
  readonly neighbours: readonly number[];
  readonly shrunk: Shrunk | undefined;
}

/** What the verdicts of one replay are remembered by. */
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
  /** What the prices of the rows took from the constant. */
  pricedConstant = 0n;
  /** Every cost is at least zero. */
  nonNegative = false;
  /** Choices above this cost may have been deleted. */
  cut: bigint | undefined;
  /** Eliminations keep costs above the cut, as the engine did: later steps name positions that a cut would have taken. */
  whole = false;
  /** No choice is left. */
  empty = false;

  constructor(store: Store, memos: Memos) {
    this.store = store;
    this.memos = memos;
  }

  clone(): Model {
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
      for (let p = 0; p < a.length; p++) if (a[p] >= 0 && b[p] >= 0) out[p] = grid.cells[a[p] * grid.dims[1] + b[p]];
      return store.vector(out);
    });
    this.unary[i] = store.sum(this.unary[i], diagonal);
  }

  #variable(v: number): void {
    if (!(v >= 0 && v < this.size.length) || this.gone[v]) throw new Refused(`variable ${v} is not there`);
  }

  /** Part f in its smallest form. */
  #part(f: number): Part {
    const part = this.parts[f];
    if (part === undefined) throw new Refused(`factor ${f} is not there`);
    if (part.tidy) return part;
    const { grid, maps } = this.#shrink(part.grid, part.maps);
    const tidy = { vars: part.vars, grid, maps, tidy: true };
    this.parts[f] = tidy;
    return tidy;
  }

  #shrink(grid: Grid, maps: readonly number[]): Shrunk {
    let key = -1;
    for (const m of maps) key = this.store.tuple(key, m);
    return this.memos.shrunk.get(grid.id, key, () => {
      if (grid.pick === undefined) return shrink(this.store, grid.dims, grid.cells, maps, grid);
      // Of a table that was never written out only the part that is still alive is.
      const living = reachedOnly(this.store, grid.dims, maps);
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
  #edge(f: number): Part {
    const part = this.#part(f);
    if (part.vars.length !== 2) throw new Refused(`factor ${f} joins ${part.vars.length} variables, not two`);
    return part;
  }

  #remove(f: number): void {
    for (const v of this.parts[f]?.vars ?? []) {
      const list = this.incident[v];
      const at = list.indexOf(f);
      if (at >= 0) list.splice(at, 1);
    }
    this.parts[f] = undefined;
  }

  /** Keeps the positions in the map (new position -> old one). */
  restrict(i: number, keep: number): void {
    const { store } = this;
    this.size[i] = store.maps[keep].length;
    this.unary[i] = store.gather(this.unary[i], keep);
    if (this.priced[i] >= 0) this.priced[i] = store.gatherOrZero(this.priced[i], keep);
    for (const row of this.rows) if (row.amounts[i] >= 0) row.amounts[i] = store.gatherOrZero(row.amounts[i], keep);
    for (const f of this.incident[i]) {
      const part = this.parts[f];
      if (part === undefined) continue;
      const maps = part.maps.map((m, k) => (part.vars[k] === i ? store.compose(m, keep) : m));
      this.parts[f] = { vars: part.vars, maps, grid: part.grid, tidy: false };
    }
    if (this.size[i] === 0) this.empty = true;
  }

  /** Deletes positions for the stated reasons: pairs (d, w), w = -1 for "forbidden". */
  drop(i: number, list: Int32Array): void {
    this.#variable(i);
    const { store } = this;
    // Edges are read as they are, living classes only: making them small after every deletion would cost far more.
    const incident = this.incident[i].map((f) => (this.parts[f]?.vars.length === 2 ? this.parts[f] : this.#part(f)));
    let key = store.tuple(store.tuple(-1, this.unary[i]), this.priced[i]);
    for (const row of this.rows) key = store.tuple(key, row.amounts[i]);
    for (const p of incident) {
      key = store.tuple(store.tuple(key, p.grid.id), p.vars.indexOf(i));
      for (const m of p.maps) key = store.tuple(key, m);
    }
    const keep = this.memos.drops.get(key, store.map(list), () => this.#checkDrop(i, list, incident));
    this.restrict(i, keep);
  }

  #checkDrop(i: number, list: Int32Array, incident: readonly Part[]): number {
    const { store } = this;
    const costs = store.vectors[this.unary[i]];
    const priced = this.priced[i] < 0 ? undefined : store.vectors[this.priced[i]];
    const amounts = this.rows.filter((r) => r.amounts[i] >= 0).map((r) => store.vectors[r.amounts[i]]);
    const views = incident.map((p) => new View(store, p, p.vars.indexOf(i)));
    exactSum(4 * store.mosts[this.unary[i]], ...incident.map((p) => 2 * p.grid.most));
    const dead = new Uint8Array(this.size[i]);
    for (let k = 0; k < list.length; k += 2) {
      const d = list[k];
      const w = list[k + 1];
      if (!(d >= 0 && d < dead.length) || dead[d] === 1) throw new Refused(`variable ${i} has no value ${d} to delete`);
      if (w < 0) {
        if (costs[d] !== Infinity && views.every((view) => view.allows(d))) {
          throw new Refused(`value ${d} of variable ${i} was deleted though it has partners`);
        }
      } else {
        if (!(w < dead.length) || w === d || dead[w] === 1) throw new Refused(`value ${w} of ${i} cannot stand in`);
        let worse = costs[w] - costs[d] - (priced === undefined ? 0 : priced[w] - priced[d]);
        for (let p = 0; p < views.length && worse !== Infinity; p++) worse += views[p].worst(w, d);
        if (!(worse <= 0) && costs[d] !== Infinity) {
          throw new Refused(`value ${w} of variable ${i} is not always as good as ${d}`);
        }
        if (amounts.some((u) => u[w] > u[d])) {
          throw new Refused(`value ${w} of variable ${i} needs more of a row than ${d}`);
        }
      }
      dead[d] = 1;
    }
    const keep: number[] = [];
    for (let a = 0; a < dead.length; a++) if (dead[a] === 0) keep.push(a);
    return store.map(Int32Array.from(keep));
  }

  /** Replaces j by the function of i that edge f makes it. */
  merge(j: number, i: number, f: number): void {
    this.#variable(j);
    this.#variable(i);
    const { store } = this;
    const edge = this.#edge(f);
    const side = edge.vars.indexOf(i);
    if (side < 0 || edge.vars[1 - side] !== j) throw new Refused(`factor ${f} does not join ${i} and ${j}`);
    const key = store.tuple(store.tuple(-1, edge.maps[side]), edge.maps[1 - side]);
    const follow = this.memos.follows.get(2 * edge.grid.id + side, key, () => {
      const target = functionOf(edge.grid, side, store.maps[edge.maps[1 - side]]);
      return store.map(store.maps[edge.maps[side]].map((c) => (c < 0 ? -1 : target[c])));
    });
    this.#remove(f);
    this.unary[i] = store.sum(this.unary[i], store.gather(this.unary[j], follow));
    const along = store.compose(edge.maps[1 - side], follow);
    this.addDiagonal(i, edge.grid, side === 0 ? edge.maps[0] : along, side === 0 ? along : edge.maps[1]);
    this.#move(j, i, follow);
  }

  /** Gives everything at j to i, whose positions choose those of j by the map. The unaries are the caller's. */
  #move(j: number, i: number, map: number): void {
    const { store } = this;
    for (const g of this.incident[j].slice()) {
      const part = this.parts[g];
      if (part === undefined) continue;
      const maps = part.maps.map((m, k) => (part.vars[k] === j ? store.compose(m, map) : m));
      if (!part.vars.includes(i)) {
        this.parts[g] = { vars: part.vars.map((v) => (v === j ? i : v)), maps, grid: part.grid, tidy: false };
        place(this.incident[i], g);
        continue;
      }
      if (part.vars.length !== 2) throw new Refused('two variables of one wide factor cannot become one');
      this.#remove(g);
      this.addDiagonal(i, part.grid, maps[0], maps[1]);
    }
    this.incident[j] = [];
    for (const row of this.rows) {
      row.amounts[i] = this.#moved(row.amounts[i], row.amounts[j], map);
      row.amounts[j] = -1;
    }
    this.priced[i] = this.#moved(this.priced[i], this.priced[j], map);
    this.priced[j] = -1;
    this.gone[j] = true;
  }

  #moved(mine: number, theirs: number, map: number): number {
    if (theirs < 0) return mine;
    const moved = this.store.gatherOrZero(theirs, map);
    return mine < 0 ? moved : this.store.sum(mine, moved);
  }

  /** Moves an edge that is a sum of two unary costs into the unaries. */
  separate(f: number): void {
    const { store } = this;
    const edge = this.#edge(f);
    const split = this.memos.splits.get(edge.grid.id, 0, () => splitOf(store, edge.grid));
    this.#remove(f);
    split.forEach((vector, side) => {
      const v = edge.vars[side];
      this.unary[v] = store.sum(this.unary[v], store.gather(vector, edge.maps[side]));
    });
  }

  /** Adds edge g to edge f. */
  add(f: number, g: number): void {
    const { store } = this;
    const a = this.#edge(f);
    const b = this.#edge(g);
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
      exactSum(a.grid.most, b.grid.most);
      const rows = store.join(a.maps[0], rowMap);
      const columns = store.join(a.maps[1], columnMap);
      const ar = store.project(rows, a.maps[0]);
      const ac = store.project(columns, a.maps[1]);
      const br = store.project(rows, rowMap);
      const bc = store.project(columns, columnMap);
      const cells = new Float64Array(ar.length * ac.length);
      const aw = a.grid.dims[1];
      const bw = b.grid.dims[1];
      for (let x = 0, to = 0; x < ar.length; x++) {
        for (let y = 0; y < ac.length; y++, to++) {
          cells[to] = a.grid.cells[ar[x] * aw + ac[y]] + b.grid.cells[swap ? bc[y] * bw + br[x] : br[x] * bw + bc[y]];
        }
      }
      return shrink(store, [ar.length, ac.length], cells, [rows, columns]);
    });
    this.#remove(g);
    this.parts[f] = { vars: a.vars, maps: sum.maps, grid: sum.grid, tidy: true };
  }

  /** Largest cost that may still matter, over the constant. */
  #slack(): number {
    if (this.whole || !this.nonNegative || this.cut === undefined) return Infinity;
    return Number(this.cut - this.constant);
  }

  /** Minimises over v. */
  eliminate(v: number): void {
    this.#variable(v);
    if (this.rows.some((row) => row.amounts[v] >= 0))
      throw new Refused(`variable ${v} is in a row: it cannot go alone`);
    const { store } = this;
    const parts = this.incident[v].map((f) => this.#part(f));
    const slack = this.#slack();
    const local: number[] = [];
    let key = store.tuple(store.tuple(-1, this.unary[v]), this.memos.nameOf(slack));
    for (const p of parts) {
      key = store.tuple(key, p.grid.id);
      for (let k = 0; k < p.vars.length; k++) {
        let place = -1;
        if (p.vars[k] !== v) {
          place = local.indexOf(p.vars[k]);
          if (place < 0) place = local.push(p.vars[k]) - 1;
        }
        key = store.tuple(store.tuple(key, place + 1), p.maps[k]);
      }
    }
    const result = this.memos.eliminations.get(key, 0, () => this.#minimise(v, parts, local, slack));
    for (const f of this.incident[v].slice()) this.#remove(f);
    this.gone[v] = true;
    const vars = result.neighbours.map((k) => local[k]);
    if (result.least === Infinity) {
      this.empty = true;
      return;
    }
    this.constant += BigInt(result.least);
    if (result.shrunk === undefined) return;
    const { grid, maps } = result.shrunk;
    if (vars.length === 1) {
      this.unary[vars[0]] = store.sum(this.unary[vars[0]], store.gather(store.vector(grid.cells), maps[0]));
    } else {
      this.addPart({ vars, maps, grid, tidy: true });
    }
  }

  #minimise(v: number, parts: readonly Part[], local: readonly number[], slack: number): Elimination {
    const { store } = this;
    let own = store.identity(this.size[v]);
    if (parts.length > 0) own = parts.map((p) => p.maps[p.vars.indexOf(v)]).reduce((a, b) => store.join(a, b));
    const joints = local.map((u) => {
      const maps = parts.filter((p) => p.vars.includes(u)).map((p) => p.maps[p.vars.indexOf(u)]);
      return maps.reduce((a, b) => store.join(a, b));
    });
    // The longest axis goes last, where the loop is tight.
    const order = [...local.keys()].sort((a, b) => store.classes[joints[a]] - store.classes[joints[b]] || a - b);
    const summands = parts.map((p): Summand => ({
      grid: p.grid,
      maps: p.maps,
      places: p.vars.map((u) => (u === v ? -1 : order.indexOf(local.indexOf(u)))),
    }));
    const axes = order.map((k) => joints[k]);
    const cells = minimise(store, this.unary[v], own, axes, summands, slack);
    const least = leastOf(cells);
    if (least === Infinity || order.length === 0) return { least, neighbours: order, shrunk: undefined };
    for (let k = 0; k < cells.length; k++) cells[k] -= least;
    const dims = axes.map((m) => store.classes[m]);
    return { least, neighbours: order, shrunk: shrink(store, dims, cells, axes) };
  }

  /** Moves amounts per position of u and of v (vector ids) from edge f into their unaries. */
  shift(f: number, u: number, v: number, first: number, second: number): void {
    this.#variable(u);
    this.#variable(v);
    const { store, memos } = this;
    const edge = this.#edge(f);
    if (edge.vars[0] !== u && edge.vars[1] !== u) throw new Refused(`the message from factor ${f} is not for ${u}`);
    const swap = edge.vars[0] !== u;
    if (edge.vars[swap ? 0 : 1] !== v) throw new Refused(`the message from factor ${f} is not for ${v}`);
    const sides = (swap ? [second, first] : [first, second]).map((vector, side) => {
      if (store.vectors[vector].length !== this.size[edge.vars[side]]) {
        throw new Refused(`a message from factor ${f} does not fit its variable`);
      }
      return memos.byClass.get(vector, edge.maps[side], () => byClass(store, edge.maps[side], vector));
    });
    const key = store.tuple(store.tuple(-1, sides[0].id), sides[1].id);
    const grid = memos.lowered.get(edge.grid.id, key, () =>
      store.admit((id) => new LoweredGrid(id, edge.grid, sides[0], sides[1])),
    );
    this.parts[f] = { vars: edge.vars, maps: sides.map((s) => s.map), grid, tidy: true };
    this.unary[u] = store.sum(this.unary[u], first);
    this.unary[v] = store.sum(this.unary[v], second);
    this.nonNegative = false;
  }

  /** Moves all minima into the constant and forbids what alone costs more than `cut` allows (undefined: nothing). */
  prune(cut: bigint | undefined): void {
    const { store, memos } = this;
    for (let i = 0; i < this.size.length; i++) {
      if (this.gone[i]) continue;
      const least = store.leasts[this.unary[i]];
      if (least === Infinity) {
        this.empty = true;
        return;
      }
      this.constant += BigInt(least);
    }
    for (let f = 0; f < this.parts.length; f++) {
      if (this.parts[f] === undefined) continue;
      const { least } = this.#part(f).grid;
      if (least === Infinity) {
        this.empty = true;
        return;
      }
      this.constant += BigInt(least);
    }
    if (cut !== undefined && (this.cut === undefined || cut < this.cut)) this.cut = cut;
    const slack = cut === undefined ? Infinity : Number(cut - this.constant);
    if (slack < 0) {
      this.empty = true;
      return;
    }
    const name = memos.nameOf(slack);
    for (let i = 0; i < this.size.length; i++) {
      if (this.gone[i]) continue;
      const u = this.unary[i];
      this.unary[i] = memos.cutVectors.get(u, name, () =>
        store.vector(level(store.vectors[u], store.leasts[u], slack)),
      );
    }
    for (let f = 0; f < this.parts.length; f++) {
      const part = this.parts[f];
      if (part === undefined) continue;
      const { grid } = part;
      const levelled = memos.cutGrids.get(grid.id, name, () =>
        grid.pick === undefined
          ? store.grid(grid.dims, level(grid.cells, grid.least, slack))
          : store.admit((id) => new LevelledGrid(id, grid, slack)),
      );
      if (levelled !== grid) this.parts[f] = { vars: part.vars, maps: part.maps, grid: levelled, tidy: false };
    }
    this.nonNegative = true;
    this.whole = false;
  }

  /** The finite pairs of edge f become the values of a new variable. */
  fuse(f: number, u: number, v: number): void {
    this.#variable(u);
    this.#variable(v);
    const { store } = this;
    const edge = this.#edge(f);
    const side = edge.vars.indexOf(u);
    if (side < 0 || edge.vars[1 - side] !== v) throw new Refused(`factor ${f} does not join ${u} and ${v}`);
    const rows = store.maps[edge.maps[side]];
    const columns = store.maps[edge.maps[1 - side]];
    const left: number[] = [];
    const right: number[] = [];
    const costs: number[] = [];
    const width = edge.grid.dims[1];
    for (let x = 0; x < rows.length; x++) {
      for (let y = 0; y < columns.length; y++) {
        if (rows[x] < 0 || columns[y] < 0) continue;
        const c = edge.grid.cells[side === 0 ? rows[x] * width + columns[y] : columns[y] * width + rows[x]];
        if (c === Infinity) continue;
        left.push(x);
        right.push(y);
        costs.push(c);
      }
    }
    this.#remove(f);
    const w = this.addVariable(store.vector(Float64Array.from(costs)), costs.length);
    if (costs.length === 0) this.empty = true;
    for (const [half, positions] of [
      [u, left],
      [v, right],
    ] as const) {
      const map = store.map(Int32Array.from(positions));
      this.unary[w] = store.sum(this.unary[w], store.gather(this.unary[half], map));
      this.#move(half, w, map);
    }
  }

  /** Prices the rows: what a choice that keeps them pays never exceeds its cost. */
  price(prices: readonly number[]): void {
    const { store } = this;
    if (prices.length !== this.rows.length) throw new Refused(`${prices.length} prices for ${this.rows.length} rows`);
    this.rows.forEach((row, r) => {
      if (!Number.isInteger(prices[r]) || prices[r] < 0) throw new Refused(`a row has the price ${prices[r]}`);
      const price = BigInt(prices[r]);
      if (price === 0n) return;
      const known = new Map<number, number>();
      for (let i = 0; i < this.size.length; i++) {
        const id = row.amounts[i];
        if (id < 0) continue;
        let vector = known.get(id);
        if (vector === undefined) {
          vector = store.vector(store.vectors[id].map((u) => Number((price * BigInt(u)) >> PRICE_SCALE)));
          known.set(id, vector);
        }
        this.unary[i] = store.sum(this.unary[i], vector);
        this.priced[i] = this.priced[i] < 0 ? vector : store.sum(this.priced[i], vector);
      }
      const paid = -((-price * row.bound) >> PRICE_SCALE);
      this.constant -= paid;
      this.pricedConstant -= paid;
    });
    this.nonNegative = false;
  }

  /** Sum of all minima: no choice that is left costs less. Undefined when none is left. */
  bound(): bigint | undefined {
    if (this.empty) return undefined;
    let sum = this.constant;
    for (let i = 0; i < this.size.length; i++) {
      if (this.gone[i]) continue;
      const least = this.store.leasts[this.unary[i]];
      if (least === Infinity) return undefined;
      sum += BigInt(least);
    }
    for (let f = 0; f < this.parts.length; f++) {
      if (this.parts[f] === undefined) continue;
      const { least } = this.#part(f).grid;
      if (least === Infinity) return undefined;
      sum += BigInt(least);
    }
    return sum;
  }

  /** The parts that are left, in their smallest form. */
  tidyParts(): Part[] {
    const out: Part[] = [];
    for (let f = 0; f < this.parts.length; f++) if (this.parts[f] !== undefined) out.push(this.#part(f));
    return out;
  }
}

/** Keeps a list of parts ascending. */
function place(list: number[], part: number): void {
  let at = list.length;
  while (at > 0 && list[at - 1] > part) at--;
  list.splice(at, 0, part);
}

function leastOf(cells: Float64Array): number {
  let least = Infinity;
  for (let k = 0; k < cells.length; k++) if (cells[k] < least) least = cells[k];
  return least;
}
