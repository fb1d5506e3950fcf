/**
 * Computes the messages that a certificate leaves to the checker, which starts from those set
 * before and sweeps itself. Any messages bound, so nothing rests on how they came about; doubles
 * are rounded to integers at the end, and the bound is summed exactly elsewhere. Source: V.
 * Kolmogorov, "Convergent tree-reweighted message passing", PAMI 2006. It is written for the
 * checker alone.
 */
import { PRICE_SCALE } from './certificate-format.ts';
import { pricedCosts, refuseLargeMessage } from './messages.ts';
import type { Dual, Model } from './model.ts';
import { Refused } from './refused.ts';
import { PairMemo, type Part } from './store.ts';

/** Most sweeps of one part: a certificate is to be checked in a time that its size tells. */
const MOST_SWEEPS = 1000;

/**
 * An edge, and its messages: what its ends, of which `one` is the lower variable, have received
 * from it.
 */
interface Link {
  readonly factor: number;
  readonly one: number;
  readonly other: number;
  readonly cells: Float64Array;
  readonly transposed: Float64Array;
  readonly toOne: Float64Array;
  readonly toOther: Float64Array;
}

/** @throws Refused for a bad number of sweeps */
export function sweep(model: Model, bits: number, prices: readonly bigint[], count: number): Dual {
  if (!(count >= 0 && count <= MOST_SWEEPS)) throw new Refused(`a part is swept ${count} times`);
  const links = linksOf(model);
  const cells = links.reduce((sum, link) => sum + link.cells.length, 0);
  model.store.work.spend(2 * count * (cells + model.size.length));
  const sweeps = new Sweeps(model, prices, links);
  for (let k = 0; k < count; k++) sweeps.run(k === count - 1);
  const scale = 2 ** bits;
  const vector = (list: Float64Array): number => {
    const id = model.store.vector(
      list.map((x) => (Number.isFinite(x) ? 0 + Math.round(x * scale) : 0)),
    );
    refuseLargeMessage(model.store, id);
    return id;
  };
  const messages: Dual['messages'] = [];
  for (const { factor, one, toOne, toOther } of links) {
    const swap = model.parts[factor]?.vars[0] !== one;
    messages[factor] = swap ? [vector(toOther), vector(toOne)] : [vector(toOne), vector(toOther)];
  }
  return { bits, prices, messages };
}

/** Edges by their lower, then their other variable, with the messages set before. */
function linksOf(model: Model): Link[] {
  const links: Link[] = [];
  const { dual, store } = model;
  const known = new PairMemo<Float64Array>();
  const cells = (part: Part, side: number): Float64Array => {
    const maps = store.tuple(store.tuple(-1, part.maps[side]), part.maps[1 - side]);
    return known.get(2 * part.grid.id + side, maps, () => cellsOf(model, part, side));
  };
  const unit = dual === undefined ? 0 : 2 ** -dual.bits;
  for (let factor = 0; factor < model.parts.length; factor++) {
    if (model.parts[factor] === undefined) continue;
    const part = model.edge(factor);
    const side = part.vars[0] < part.vars[1] ? 0 : 1;
    const begun = (k: number): Float64Array => {
      const vector = dual?.messages[factor]?.[k] ?? -1;
      return vector < 0
        ? new Float64Array(model.size[part.vars[k]])
        : store.vectors[vector].map((x) => x * unit);
    };
    links.push({
      factor,
      one: part.vars[side],
      other: part.vars[1 - side],
      cells: cells(part, side),
      transposed: cells(part, 1 - side),
      toOne: begun(side),
      toOther: begun(1 - side),
    });
  }
  return links.sort((s, t) => s.one - t.one || s.other - t.other);
}

/** Costs of an edge by value, row-major in the values of the given end. */
function cellsOf({ store, size }: Model, { vars, maps, grid }: Part, side: number): Float64Array {
  const [rows, columns] = [store.maps[maps[side]], store.maps[maps[1 - side]]];
  const [stepRow, stepColumn] = side === 0 ? [grid.dims[1], 1] : [1, grid.dims[1]];
  const out = new Float64Array(size[vars[0]] * size[vars[1]]);
  store.work.spend(8 * out.length);
  let at = 0;
  for (const r of rows)
    for (const c of columns)
      out[at++] = r < 0 || c < 0 ? Infinity : grid.cells[r * stepRow + c * stepColumn];
  return out;
}

function groupBy(links: readonly Link[], end: (link: Link) => number): Map<number, Link[]> {
  const groups = new Map<number, Link[]>();
  for (const link of links) {
    const group = groups.get(end(link));
    if (group === undefined) groups.set(end(link), [link]);
    else group.push(link);
  }
  return groups;
}

class Sweeps {
  /**
   * Variables with edges, ascending, their costs, and the links of each to later and to earlier
   * ones.
   */
  private readonly variables: readonly number[];
  private readonly costs: ReadonlyMap<number, Float64Array>;
  private readonly later: ReadonlyMap<number, readonly Link[]>;
  private readonly earlier: ReadonlyMap<number, readonly Link[]>;

  constructor(model: Model, prices: readonly bigint[], links: readonly Link[]) {
    const unit = 2 ** -Number(PRICE_SCALE);
    const later = groupBy(links, ({ one }) => one);
    const earlier = groupBy(links, ({ other }) => other);
    this.later = later;
    this.earlier = earlier;
    this.variables = [...new Set([...later.keys(), ...earlier.keys()])].sort((i, j) => i - j);
    this.costs = new Map(
      this.variables.map((i) => [
        i,
        Float64Array.from(pricedCosts(model, prices, i), (c) =>
          c === undefined ? Infinity : Number(c) * unit,
        ),
      ]),
    );
  }

  /** Once forward and backward. */
  run(isLast: boolean): void {
    for (const i of this.variables) this.forward(i);
    for (const i of this.variables.toReversed()) this.backward(i, isLast);
  }

  private forward(i: number): void {
    const total = this.total(i);
    const share = this.share(i);
    for (const { cells, toOne, toOther } of this.later.get(i) ?? [])
      send(total, share, toOne, cells, toOther);
  }

  private backward(i: number, isLast: boolean): void {
    const total = this.total(i);
    const share = this.share(i);
    let least = Infinity;
    for (const t of total) if (t < least) least = t;
    for (let a = 0; a < total.length; a++) total[a] -= least;
    for (const { transposed, toOne, toOther } of this.earlier.get(i) ?? []) {
      send(total, share, toOther, transposed, toOne);
      // The surplus of the variable over its least value goes back to its edges, in whose least
      // cells it counts.
      if (isLast) for (let a = 0; a < total.length; a++) toOther[a] -= share * total[a];
    }
  }

  /** Costs of a variable and all that it has received. */
  private total(i: number): Float64Array {
    const total = (this.costs.get(i) ?? new Float64Array()).slice();
    for (const { toOne } of this.later.get(i) ?? [])
      for (let a = 0; a < total.length; a++) total[a] += toOne[a];
    for (const { toOther } of this.earlier.get(i) ?? [])
      for (let a = 0; a < total.length; a++) total[a] += toOther[a];
    return total;
  }

  private share(i: number): number {
    return 1 / Math.max(this.later.get(i)?.length ?? 0, this.earlier.get(i)?.length ?? 0, 1);
  }
}

/**
 * The message of an edge to its other end: least sums over the values of this one, their least
 * taken off.
 */
function send(
  total: Float64Array,
  share: number,
  back: Float64Array,
  cells: Float64Array,
  to: Float64Array,
): void {
  const width = to.length;
  to.fill(Infinity);
  for (let a = 0, at = 0; a < total.length; a++, at += width) {
    const own = share * total[a] - back[a];
    for (let b = 0; b < width; b++) {
      const c = own + cells[at + b];
      if (c < to[b]) to[b] = c;
    }
  }
  let least = Infinity;
  for (let b = 0; b < width; b++) if (to[b] < least) least = to[b];
  for (let b = 0; b < width; b++) to[b] -= least;
}
