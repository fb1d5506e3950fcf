/**
 * Choices: true cost and amounts of positions, and 1-opt descent under hard rows.
 */
import type { Network } from './network.ts';

/** Cost of positions in a network (its own constant included), Infinity when forbidden. */
export function costAt(net: Network, at: Int32Array): number {
  const { pool } = net;
  let sum = net.constant;
  for (let i = 0; i < net.count; i++) if (net.gone[i] === 0) sum += pool.vectorOf(net.unary[i])[at[i]];
  for (const f of net.factors) {
    if (f === undefined) continue;
    let p = 0;
    for (let k = 0; k < f.vars.length; k++) {
      const c = pool.mapOf(f.maps[k])[at[f.vars[k]]];
      if (c < 0) return Infinity;
      p = p * f.table.dims[k] + c;
    }
    sum += f.table.cells[p];
  }
  return sum;
}

/**
 * Moves single variables of a pairwise network to their best value until none improves (at most `rounds` passes). With
 * rows, a move must not make a row exceed its bound, or must lower it where it does.
 */
export function descend(net: Network, at: Int32Array, rounds: number): void {
  const { pool } = net;
  const used = net.rows.map((row) => {
    let sum = 0;
    for (let i = 0; i < net.count; i++) {
      if (net.gone[i] === 0 && row.amounts[i] >= 0) sum += pool.vectorOf(row.amounts[i])[at[i]];
    }
    return sum;
  });
  for (let round = 0; round < rounds; round++) {
    let moved = false;
    for (let i = 0; i < net.count; i++) {
      if (net.gone[i] === 1 || net.size[i] < 2) continue;
      const total = pool.vectorOf(net.unary[i]).slice();
      for (const id of net.incident[i]) {
        const f = net.factors[id];
        if (f === undefined) continue;
        const side = f.vars[0] === i ? 0 : 1;
        const own = pool.mapOf(f.maps[side]);
        const c = pool.mapOf(f.maps[1 - side])[at[f.vars[1 - side]]];
        const width = f.table.dims[1];
        const { cells } = f.table;
        for (let a = 0; a < total.length; a++) {
          if (own[a] < 0 || c < 0) total[a] = Infinity;
          else total[a] += side === 0 ? cells[own[a] * width + c] : cells[c * width + own[a]];
        }
      }
      let best = at[i];
      for (let a = 0; a < total.length; a++) {
        if (total[a] >= total[best]) continue;
        const allowed = net.rows.every((row, r) => {
          if (row.amounts[i] < 0) return true;
          const amounts = pool.vectorOf(row.amounts[i]);
          return amounts[a] <= amounts[at[i]] || used[r] - amounts[at[i]] + amounts[a] <= row.bound;
        });
        if (allowed) best = a;
      }
      if (best === at[i]) continue;
      net.rows.forEach((row, r) => {
        if (row.amounts[i] < 0) return;
        const amounts = pool.vectorOf(row.amounts[i]);
        used[r] += amounts[best] - amounts[at[i]];
      });
      at[i] = best;
      moved = true;
    }
    if (!moved) return;
  }
}
