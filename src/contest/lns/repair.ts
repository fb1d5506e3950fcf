/**
 * From a choice that exceeds rows to one that keeps them: the most exceeded row first, moves of one
 * variable ranked by what they cost per unit of relief.
 */
import { usageOf } from '../bound/trws.ts';
import type { Model } from '../model/model.ts';

/**
 * The choice that uses least of all rows, variable by variable (the smallest sum of amounts over
 * its segments).
 */
export function leastUsage(model: Model): Int32Array {
  const { count, sizes, start, segment, amount, amounts, lo, hi, unary } = model;
  return Int32Array.from({ length: count }, (_, i) => {
    let best = 0;
    let least = Infinity;
    for (let a = 0; a < sizes[i]; a++) {
      let sum = 0;
      for (let s = segment[i]; s < segment[i + 1]; s++)
        sum += amounts[amount[s] + a] * (hi[s] - lo[s]);
      if (sum < least || (sum === least && unary[start[i] + a] < unary[start[i] + best])) {
        least = sum;
        best = a;
      }
    }
    return best;
  });
}

/**
 * Repairs `choice` in place by at most `rounds` batches of moves; returns whether every row is
 * kept.
 */
export function repair(
  model: Model,
  choice: Int32Array,
  rounds: number,
  stopped: () => boolean = () => false,
): boolean {
  const { capacity, rows, count, sizes, segment, lo, hi, amount, amounts } = model;
  const usage = usageOf(model, choice).slice();
  const row = new Float64Array(sizes.reduce((a, b) => Math.max(a, b), 1));
  for (let round = 0; round < rounds && !stopped(); round++) {
    let worst = -1;
    let excess = 0;
    for (let t = 0; t < rows; t++) {
      const over = usage[t] > capacity[t] ? (usage[t] - capacity[t]) / Math.max(1, capacity[t]) : 0;
      if (over > excess) {
        excess = over;
        worst = t;
      }
    }
    if (worst < 0) return true;
    let need = usage[worst] - capacity[worst];
    const moves: { i: number; a: number; ratio: number; relief: number }[] = [];
    for (let i = 0; i < count; i++) {
      const s = segmentAt(model, i, worst);
      if (s < 0) continue;
      const own = amounts[amount[s] + choice[i]];
      if (own === 0) continue;
      conditional(model, choice, i, row);
      let best = -1;
      let ratio = Infinity;
      for (let a = 0; a < sizes[i]; a++) {
        const relief = own - amounts[amount[s] + a];
        if (relief <= 0) continue;
        const r = (row[a] - row[choice[i]]) / Math.min(relief, need);
        if (r < ratio) {
          ratio = r;
          best = a;
        }
      }
      if (best >= 0) moves.push({ i, a: best, ratio, relief: own - amounts[amount[s] + best] });
    }
    if (moves.length === 0) return false;
    moves.sort((p, q) => p.ratio - q.ratio || p.i - q.i);
    const most = 25 + 0.05 * moves.length;
    const stop = moves[0].ratio > 0 ? 3 * moves[0].ratio : 0;
    for (let k = 0; k < moves.length && k < most && need > 0 && moves[k].ratio <= stop; k++) {
      const { i, a, relief } = moves[k];
      for (let s = segment[i]; s < segment[i + 1]; s++) {
        const d = amounts[amount[s] + a] - amounts[amount[s] + choice[i]];
        if (d !== 0) for (let t = lo[s]; t < hi[s]; t++) usage[t] += d;
      }
      choice[i] = a;
      need -= relief;
    }
  }
  return false;
}

/** The segment of variable i that covers a row, or -1. */
export function segmentAt(model: Model, i: number, row: number): number {
  const { segment, lo, hi } = model;
  let low = segment[i];
  let high = segment[i + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (hi[middle] <= row) low = middle + 1;
    else high = middle;
  }
  return low < segment[i + 1] && lo[low] <= row ? low : -1;
}

/** Costs of all values of variable i given its neighbours. */
function conditional(model: Model, choice: Int32Array, i: number, out: Float64Array): void {
  const { sizes, start, unary, incident, edge, other, first, table, transposed, cells } = model;
  const size = sizes[i];
  for (let a = 0; a < size; a++) out[a] = unary[start[i] + a];
  for (let k = incident[i]; k < incident[i + 1]; k++) {
    const e = edge[k];
    const from = (first[e] === i ? transposed[e] : table[e]) + choice[other[k]] * size;
    for (let a = 0; a < size; a++) out[a] += cells[from + a];
  }
}
