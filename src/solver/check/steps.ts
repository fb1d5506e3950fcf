/**
 * Steps of a replay that move costs: messages, prices of rows, minima into the constant with what a
 * cut then forbids, and two variables into one. As in `model.ts`, none can lower what a choice
 * costs.
 */
import { PRICE_SCALE } from './certificate-format.ts';
import { pricesOf } from './messages.ts';
import type { Model } from './model.ts';
import { Refused } from './refused.ts';
import { type Grid, level, type Store } from './store.ts';
import { type ByClass, byClass, LevelledGrid, LoweredGrid } from './tables.ts';

/** Moves amounts per position of u and of v (vector ids) from edge f into their unaries. */
export function shift(
  model: Model,
  f: number,
  u: number,
  v: number,
  first: number,
  second: number,
): void {
  model.needs(u);
  model.needs(v);
  const { store, memos } = model;
  const edge = model.edge(f);
  if (edge.vars[0] !== u && edge.vars[1] !== u)
    throw new Refused(`the message from factor ${f} is not for ${u}`);
  const swap = edge.vars[0] !== u;
  if (edge.vars[swap ? 0 : 1] !== v)
    throw new Refused(`the message from factor ${f} is not for ${v}`);
  const sides = (swap ? [second, first] : [first, second]).map((vector, side) => {
    if (store.vectors[vector].length !== model.size[edge.vars[side]]) {
      throw new Refused(`a message from factor ${f} does not fit its variable`);
    }
    return memos.byClass.get(vector, edge.maps[side], () =>
      byClass(store, edge.maps[side], vector),
    );
  });
  const key = store.tuple(store.tuple(-1, sides[0].id), sides[1].id);
  const grid = memos.lowered.get(edge.grid.id, key, () =>
    lowered(store, edge.grid, sides[0], sides[1]),
  );
  const maps = sides.map((s) => s.map);
  model.parts[f] = { vars: edge.vars, maps, grid, tidy: false, alive: true };
  model.unary[u] = store.sum(model.unary[u], first);
  model.unary[v] = store.sum(model.unary[v], second);
  model.nonNegative = false;
}

function lowered(store: Store, grid: Grid, rows: ByClass, columns: ByClass): Grid {
  store.work.spend(2 * rows.amounts.length * columns.amounts.length);
  return store.admit((id) => new LoweredGrid(id, grid, rows, columns));
}

/**
 * Moves all minima into the constant and forbids what alone costs more than `cut` allows
 * (undefined: nothing).
 */
export function prune(model: Model, cut: bigint | undefined): void {
  const { store, memos } = model;
  store.work.spend(2 * (model.size.length + model.parts.length));
  model.changed = undefined;
  for (let i = 0; i < model.size.length; i++) {
    if (model.gone[i]) continue;
    const least = store.leasts[model.unary[i]];
    if (least === Infinity) {
      model.empty = true;
      return;
    }
    model.constant += BigInt(least);
  }
  for (let f = 0; f < model.parts.length; f++) {
    if (model.parts[f] === undefined) continue;
    const least = model.least(f);
    if (least === Infinity) {
      model.empty = true;
      return;
    }
    model.constant += BigInt(least);
  }
  if (cut !== undefined && (model.cut === undefined || cut < model.cut)) model.cut = cut;
  const slack = cut === undefined ? Infinity : Number(cut - model.constant);
  if (slack < 0) {
    model.empty = true;
    return;
  }
  const name = memos.nameOf(slack);
  for (let i = 0; i < model.size.length; i++) {
    if (model.gone[i]) continue;
    const u = model.unary[i];
    model.unary[i] = memos.cutVectors.get(u, name, () =>
      store.vector(level(store.vectors[u], store.leasts[u], slack)),
    );
  }
  for (let f = 0; f < model.parts.length; f++) {
    const part = model.parts[f];
    if (part === undefined) continue;
    const { grid } = part;
    const levelled = memos.cutGrids.get(grid.id, name, () =>
      grid.pick === undefined
        ? store.grid(grid.dims, level(grid.cells, grid.least, slack))
        : store.admit((id) => new LevelledGrid(id, grid, slack)),
    );
    if (levelled !== grid)
      model.parts[f] = { vars: part.vars, maps: part.maps, grid: levelled, tidy: false };
  }
  model.nonNegative = true;
  model.whole = false;
}

/** The finite pairs of edge f become the values of a new variable. */
export function fuse(model: Model, f: number, u: number, v: number): void {
  model.needs(u);
  model.needs(v);
  const { store } = model;
  const edge = model.edge(f);
  const side = edge.vars.indexOf(u);
  if (side < 0 || edge.vars[1 - side] !== v)
    throw new Refused(`factor ${f} does not join ${u} and ${v}`);
  const rows = store.maps[edge.maps[side]];
  const columns = store.maps[edge.maps[1 - side]];
  const left: number[] = [];
  const right: number[] = [];
  const costs: number[] = [];
  // What a pair takes of memory counts, too.
  store.work.spend(64 * rows.length * columns.length);
  const width = edge.grid.dims[1];
  for (let x = 0; x < rows.length; x++) {
    for (let y = 0; y < columns.length; y++) {
      if (rows[x] < 0 || columns[y] < 0) continue;
      const c =
        edge.grid.cells[side === 0 ? rows[x] * width + columns[y] : columns[y] * width + rows[x]];
      if (c === Infinity) continue;
      left.push(x);
      right.push(y);
      costs.push(c);
    }
  }
  model.remove(f);
  const w = model.addVariable(store.vector(Float64Array.from(costs)), costs.length);
  if (costs.length === 0) model.empty = true;
  for (const [half, positions] of [
    [u, left],
    [v, right],
  ] as const) {
    const map = store.map(Int32Array.from(positions));
    model.unary[w] = store.sum(model.unary[w], store.gather(model.unary[half], map));
    model.move(half, w, map);
  }
}

/** Prices the rows: what a choice that keeps them pays never exceeds its cost. */
export function price(model: Model, prices: readonly number[]): void {
  const { store } = model;
  const exact = pricesOf(model, prices);
  model.rows.forEach((row, r) => {
    const price = exact[r];
    if (price === 0n) return;
    store.work.spend(model.size.length);
    const known = new Map<number, number>();
    for (let i = 0; i < model.size.length; i++) {
      const id = row.amounts[i];
      if (id < 0) continue;
      let vector = known.get(id);
      if (vector === undefined) {
        vector = store.vector(
          store.vectors[id].map((u) => Number((price * BigInt(u)) >> PRICE_SCALE)),
        );
        known.set(id, vector);
      }
      model.unary[i] = store.sum(model.unary[i], vector);
      model.priced[i] = model.priced[i] < 0 ? vector : store.sum(model.priced[i], vector);
    }
    const paid = -((-price * row.bound) >> PRICE_SCALE);
    model.constant -= paid;
    model.pricedConstant -= paid;
  });
  model.nonNegative = false;
}
