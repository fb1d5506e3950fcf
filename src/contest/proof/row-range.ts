/**
 * Computes the least and the most usage of every row by the choices of a part. A row that even the
 * least usage exceeds shows that the part holds no choice: a high price of that row alone bounds it
 * above any cost, where an ascent would need many steps. A row that not even the most usage exceeds
 * needs no price.
 */
import type { Model } from '../model/model.ts';

interface RowRange {
  /**
   * The row that the least usage exceeds most (relative to the capacity), and by how much;
   * undefined without any.
   */
  readonly overfull: { readonly row: number; readonly excess: number } | undefined;
  /** Rows that no choice of the part can exceed. */
  readonly slack: readonly number[];
}

/** Rows of a model under the marked values alone. */
export function rowRange(model: Model, live: Uint8Array): RowRange {
  const { count, start, segment, lo, hi, amount, amounts, rows, capacity } = model;
  const least = new Float64Array(rows + 1);
  const most = new Float64Array(rows + 1);
  for (let i = 0; i < count; i++) {
    for (let s = segment[i]; s < segment[i + 1]; s++) {
      let [low, high] = [Infinity, 0];
      for (let v = start[i], u = amount[s]; v < start[i + 1]; v++, u++) {
        if (live[v] === 0) continue;
        low = Math.min(low, amounts[u]);
        high = Math.max(high, amounts[u]);
      }
      if (low === Infinity) continue;
      least[lo[s]] += low;
      least[hi[s]] -= low;
      most[lo[s]] += high;
      most[hi[s]] -= high;
    }
  }
  let overfull: RowRange['overfull'];
  const slack: number[] = [];
  let worst = 0;
  for (let t = 0, low = 0, high = 0; t < rows; t++) {
    low += least[t];
    high += most[t];
    const excess = low - capacity[t];
    const share = excess / Math.max(1, capacity[t]);
    if (excess > 0 && share > worst) {
      worst = share;
      overfull = { row: t, excess };
    }
    if (high <= capacity[t]) slack.push(t);
  }
  return { overfull, slack };
}
