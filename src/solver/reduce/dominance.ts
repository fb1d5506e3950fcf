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
   * `before(w, d)` says whether w may replace d at equal cost.
   */
  pairs(
    costs: Float64Array,
    sides: readonly DominanceSide[],
    amounts: readonly Float64Array[],
    orders: readonly Int32Array[],
  ): (readonly [number, number])[] {
    const k = costs.length;
    const rows = sides.map((s) => this.rowsOf(s));
    const widths = sides.map((s) => s.table.dims[1 - s.side]);
    const deltas = sides.map((s) => this.deltasOf(s));
    // Cheap values are the likely dominators: try them first, so that most values die at their
    // first candidate.
    const byCost = Int32Array.from({ length: k }, (_, a) => a).sort(
      (a, b) => costs[a] - costs[b] || a - b,
    );
    const count = Math.min(SAMPLES, k);
    const scores = new Float64Array(k * count);
    for (let q = 0; q < count; q++) {
      const sample = byCost[Math.floor((q * k) / count)];
      for (let a = 0; a < k; a++) scores[a * count + q] = costs[a];
      for (let s = 0; s < sides.length; s++) {
        const { map } = sides[s];
        const width = widths[s];
        const cells = rows[s];
        const base = map[sample] * width;
        // The neighbour's best answer to the sample value, the last one of equals: ties show
        // differences elsewhere.
        let answer = 0;
        for (let b = 1; b < width; b++) if (cells[base + b] <= cells[base + answer]) answer = b;
        for (let a = 0; a < k; a++) scores[a * count + q] += cells[map[a] * width + answer];
      }
    }
    const before = (w: number, d: number): boolean => {
      for (const order of orders) if (order[w] !== order[d]) return order[w] < order[d];
      return w < d;
    };
    const found: (readonly [number, number])[] = [];
    const dead = new Uint8Array(k);
    let alive: Int32Array = k <= SQUARE ? byCost.slice() : likelyDominators(byCost, scores, count);
    let work = 0;
    let next = 64;
    for (const d of byCost) {
      candidates: for (const w of alive) {
        if (dead[w] === 1 || w === d) continue;
        for (let p = w * count, q = d * count, end = p + count; p < end; p++, q++) {
          if (scores[p] > scores[q]) continue candidates;
        }
        for (const u of amounts) if (u[w] > u[d]) continue candidates;
        let sum = costs[w] - costs[d];
        for (let s = 0; s < sides.length; s++) {
          const { map } = sides[s];
          const x = map[w];
          const y = map[d];
          if (x === y) continue;
          const kept = deltas[s];
          const own = sides[s].table.dims[sides[s].side];
          let delta = kept === null ? NaN : kept[x * own + y];
          if (Number.isNaN(delta)) {
            delta = worst(rows[s], widths[s], x, y);
            if (kept !== null) kept[x * own + y] = delta;
            work += widths[s];
          }
          sum += delta;
          if (sum === Infinity) continue candidates;
        }
        if (sum > 0 || (sum === 0 && !before(w, d))) continue;
        dead[d] = 1;
        found.push([d, w]);
        break;
      }
      if (work > WORK) break;
      if (found.length >= next) {
        alive = alive.filter((a) => dead[a] === 0);
        next = found.length + 64;
      }
    }
    return found;
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
