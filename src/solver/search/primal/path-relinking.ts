/**
 * Path relinking under rows: between a choice that is cheap and breaks a row and one that keeps it
 * lie choices that take some layers from the one and some from the other. Walking from the first to
 * the second, one variable at a time in a given order, passes all of them; the cheapest that keeps
 * every row is the answer.
 */
import type { Network } from '../../network/network.ts';
import { amountsAt } from '../../network/rows.ts';

/**
 * Cheapest choice on the path from `start` to `end` that keeps all rows, or undefined when none on
 * the way does.
 */
export function relink(
  net: Network,
  start: Int32Array,
  end: Int32Array,
  order: Int32Array,
): Int32Array | undefined {
  const at = start.slice();
  const used = amountsAt(net, at);
  let cost = 0;
  let forbidden = 0;
  // Costs of variable i and its edges, relative only: what does not change along the path is left
  // out.
  const weigh = (i: number, sign: 1 | -1): void => {
    const add = (c: number): void => {
      if (c === Infinity) forbidden += sign;
      else cost += sign * c;
    };
    add(net.pool.vectorOf(net.unary[i])[at[i]]);
    for (const id of net.incident[i]) {
      const f = net.factors[id];
      if (f === undefined) continue;
      let p = 0;
      for (let k = 0; k < f.vars.length && p >= 0; k++) {
        const c = net.pool.mapOf(f.maps[k])[at[f.vars[k]]];
        p = c < 0 ? -1 : p * f.table.dims[k] + c;
      }
      add(p < 0 ? Infinity : f.table.cells[p]);
    }
  };
  let least = Infinity;
  let steps = -1;
  const moved: number[] = [];
  for (const i of order) {
    if (net.gone[i] === 1 || at[i] === end[i]) continue;
    weigh(i, -1);
    net.rows.forEach((row, r) => {
      if (row.amounts[i] < 0) return;
      const amounts = net.pool.vectorOf(row.amounts[i]);
      used[r] += amounts[end[i]] - amounts[at[i]];
    });
    at[i] = end[i];
    weigh(i, 1);
    moved.push(i);
    if (forbidden > 0 || cost >= least || !net.rows.every((row, r) => used[r] <= row.bound))
      continue;
    least = cost;
    steps = moved.length;
  }
  if (steps < 0) return undefined;
  const best = start.slice();
  for (let k = 0; k < steps; k++) best[moved[k]] = end[moved[k]];
  return best;
}
