/**
 * Dominance: value w of a variable dominates value d when, whatever the neighbours do, moving from
 * d to w costs nothing and uses no more of any row. The exact test is a sum of worst differences
 * over the incident tables; it is quadratic in the domain, so a few sample choices of the
 * neighbours first reject the pairs that cannot pass.
 */
import type { Table } from '../store/pool.ts';

/** One incident table as its variable sees it. */
export interface DominanceSide {
  readonly table: Table;
  /** 0 when the variable is the table's row side. */
  readonly side: 0 | 1;
  /** Position -> class; every class is used and none is -1. */
  readonly map: Int32Array;
}

/** Joint choices of the neighbours that every pair has to pass before the exact test. */
const SAMPLES = 12;
/**
 * In larger domains only the values that are best by cost or under some sample may dominate: the
 * full square does not pay.
 */
const SQUARE = 64;
/** Largest square of worst differences that is kept, in entries. */
const KEPT = 1 << 14;
/** Most table cells read by exact tests for one variable. */
const WORK = 20_000_000;

/** Remembers transposed tables and worst differences by table. */
export class Dominance {
  private readonly rows = new Map<number, Float64Array>();
  private readonly deltas = new Map<number, Float64Array | null>();

  /**
   * Pairs [deleted, dominating] of positions; the dominating one is alive when its pair is reached.
   * Of two values of equal cost the one that is first in `orders` stays.
   */
  pairs(
    costs: Float64Array,
    sides: readonly DominanceSide[],
    amounts: readonly Float64Array[],
    orders: readonly Int32Array[],
  ): (readonly [number, number])[] {
    const known = sides.map((side): KnownSide => ({
      map: side.map,
      cells: this.rowsOf(side),
      own: side.table.dims[side.side],
      width: side.table.dims[1 - side.side],
      deltas: this.deltasOf(side),
    }));
    return new PairSearch(costs, known, amounts, orders).run();
  }

  /** Cells with the variable's own class as the row. */
  private rowsOf({ table, side }: DominanceSide): Float64Array {
    if (side === 0) return table.cells;
    let out = this.rows.get(table.id);
    if (out === undefined) {
      const [rows, columns] = table.dims;
      out = new Float64Array(rows * columns);
      for (let r = 0, p = 0; r < rows; r++)
        for (let c = 0; c < columns; c++, p++) out[c * rows + r] = table.cells[p];
      this.rows.set(table.id, out);
    }
    return out;
  }

  private deltasOf({ table, side }: DominanceSide): Float64Array | null {
    const key = 2 * table.id + side;
    let out = this.deltas.get(key);
    if (out === undefined) {
      const own = table.dims[side];
      out = own * own > KEPT ? null : new Float64Array(own * own).fill(NaN);
      this.deltas.set(key, out);
    }
    return out;
  }
}

/** An incident table with the variable's classes as its rows. */
interface KnownSide {
  /** Position -> class. */
  readonly map: Int32Array;
  readonly cells: Float64Array;
  /** Classes of the variable, and of the neighbour. */
  readonly own: number;
  readonly width: number;
  /** Worst differences between classes, NaN where not known yet; null where they are not kept. */
  readonly deltas: Float64Array | null;
}

/** Seeks pairs among the values of one variable. */
class PairSearch {
  private readonly count: number;
  /** Positions, cheapest first. */
  private readonly byCost: Int32Array;
  /** Cost of each position under each sample choice of the neighbours. */
  private readonly scores: Float64Array;
  /** Cells that exact tests read. */
  private work = 0;

  constructor(
    private readonly costs: Float64Array,
    private readonly sides: readonly KnownSide[],
    private readonly amounts: readonly Float64Array[],
    private readonly orders: readonly Int32Array[],
  ) {
    this.count = Math.min(SAMPLES, costs.length);
    this.byCost = Int32Array.from({ length: costs.length }, (_, a) => a).sort(
      (a, b) => costs[a] - costs[b] || a - b,
    );
    this.scores = this.sampled();
  }

  run(): (readonly [number, number])[] {
    const { byCost, scores, count } = this;
    const k = byCost.length;
    const found: (readonly [number, number])[] = [];
    const dead = new Uint8Array(k);
    // Cheap values are the likely dominators: try them first, so that most values die at their
    // first candidate.
    let alive: Int32Array = k <= SQUARE ? byCost.slice() : likelyDominators(byCost, scores, count);
    let next = 64;
    for (const d of byCost) {
      for (const w of alive) {
        if (dead[w] === 1 || w === d || !this.dominates(w, d)) continue;
        dead[d] = 1;
        found.push([d, w]);
        break;
      }
      if (this.work > WORK) break;
      if (found.length >= next) {
        alive = alive.filter((a) => dead[a] === 0);
        next = found.length + 64;
      }
    }
    return found;
  }

  private sampled(): Float64Array {
    const { byCost, costs, sides, count } = this;
    const k = costs.length;
    const scores = new Float64Array(k * count);
    for (let q = 0; q < count; q++) {
      const sample = byCost[Math.floor((q * k) / count)];
      for (let a = 0; a < k; a++) scores[a * count + q] = costs[a];
      for (const { map, cells, width } of sides) {
        const base = map[sample] * width;
        // The neighbour's best answer to the sample value, the last one of equals: ties show
        // differences elsewhere.
        let answer = 0;
        for (let b = 1; b < width; b++) if (cells[base + b] <= cells[base + answer]) answer = b;
        for (let a = 0; a < k; a++) scores[a * count + q] += cells[map[a] * width + answer];
      }
    }
    return scores;
  }

  /** The samples first, which reject most pairs, then rows, then the exact test. */
  private dominates(w: number, d: number): boolean {
    const { scores, count, amounts } = this;
    for (let p = w * count, q = d * count, end = p + count; p < end; p++, q++) {
      if (scores[p] > scores[q]) return false;
    }
    for (const u of amounts) if (u[w] > u[d]) return false;
    const sum = this.worstChange(w, d);
    return !(sum > 0 || (sum === 0 && !this.isBefore(w, d)));
  }

  /** The most that a move from d to w may cost; Infinity as soon as a table forbids it. */
  private worstChange(w: number, d: number): number {
    let sum = this.costs[w] - this.costs[d];
    for (const { map, cells, own, width, deltas } of this.sides) {
      const x = map[w];
      const y = map[d];
      if (x === y) continue;
      let delta = deltas === null ? NaN : deltas[x * own + y];
      if (Number.isNaN(delta)) {
        delta = worst(cells, width, x, y);
        if (deltas !== null) deltas[x * own + y] = delta;
        this.work += width;
      }
      sum += delta;
      if (sum === Infinity) return sum;
    }
    return sum;
  }

  /** Tells whether w may replace d at equal cost. */
  private isBefore(w: number, d: number): boolean {
    for (const order of this.orders) if (order[w] !== order[d]) return order[w] < order[d];
    return w < d;
  }
}

/** The first values by cost and the best ones of every sample, in order of cost. */
function likelyDominators(byCost: Int32Array, scores: Float64Array, count: number): Int32Array {
  const chosen = new Uint8Array(byCost.length);
  for (let q = 0; q < count; q++) {
    chosen[byCost[q]] = 1;
    let best = byCost[0];
    for (const a of byCost) if (scores[a * count + q] < scores[best * count + q]) best = a;
    chosen[best] = 1;
  }
  return byCost.filter((a) => chosen[a] === 1);
}

/**
 * Largest cells[w] - cells[d] over the neighbour's classes; Infinity where w is forbidden and d is
 * not.
 */
function worst(cells: Float64Array, width: number, w: number, d: number): number {
  let most = -Infinity;
  for (let b = 0, p = w * width, q = d * width; b < width; b++, p++, q++) {
    const there = cells[q];
    if (there === Infinity) continue;
    const difference = cells[p] - there;
    if (difference > most) most = difference;
    if (most === Infinity) return most;
  }
  return most;
}
