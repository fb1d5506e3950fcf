/**
 * Primal rounding: the cost of positions, and 1-opt local search (iterated conditional modes) under hard rows.
 * In: a pairwise network and one position per variable. Out: the cost, or improved positions.
 */
import { addSlice, firstLeast } from './inner-loops.ts';
import type { Network } from '../network/network.ts';

/** Cost of positions in a network (its own constant included), Infinity when forbidden. */
export function evaluatePositions(net: Network, at: Int32Array): number {
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
export function oneOpt(net: Network, at: Int32Array, rounds: number): void {
  const { pool } = net;
  const used = net.rows.map((row) => {
    let sum = 0;
    for (let i = 0; i < net.count; i++) {
      if (net.gone[i] === 0 && row.amounts[i] >= 0) sum += pool.vectorOf(row.amounts[i])[at[i]];
    }
    return sum;
  });
  const total = new Float64Array(net.size.reduce((a, b) => Math.max(a, b), 1));
  // A variable whose neighbours stand as they stood has nothing new to find, unless a row alone held it back.
  const isOpen = new Uint8Array(net.count).fill(1);
  for (let round = 0; round < rounds; round++) {
    let moved = false;
    for (let i = 0; i < net.count; i++) {
      const size = net.size[i];
      if (isOpen[i] === 0 || net.gone[i] === 1 || size < 2) continue;
      isOpen[i] = 0;
      total.set(pool.vectorOf(net.unary[i]));
      for (const id of net.incident[i]) {
        const f = net.factors[id];
        if (f === undefined) continue;
        const side = f.vars[0] === i ? 0 : 1;
        const own = pool.mapOf(f.maps[side]);
        const c = pool.mapOf(f.maps[1 - side])[at[f.vars[1 - side]]];
        const width = f.table.dims[1];
        if (c < 0) total.fill(Infinity, 0, size);
        else if (side === 0) addSlice(total, size, own, f.table.cells, c, width);
        else addSlice(total, size, own, f.table.cells, c * width, 1);
      }
      let best = at[i];
      if (net.rows.length === 0) {
        const least = firstLeast(total, size);
        if (total[least] < total[best]) best = least;
      }
      for (let a = 0; a < size && net.rows.length > 0; a++) {
        if (total[a] >= total[best]) continue;
        const allowed = net.rows.every((row, r) => {
          if (row.amounts[i] < 0) return true;
          const amounts = pool.vectorOf(row.amounts[i]);
          return amounts[a] <= amounts[at[i]] || used[r] - amounts[at[i]] + amounts[a] <= row.bound;
        });
        if (allowed) best = a;
        else isOpen[i] = 1;
      }
      if (best === at[i]) continue;
      net.rows.forEach((row, r) => {
        if (row.amounts[i] < 0) return;
        const amounts = pool.vectorOf(row.amounts[i]);
        used[r] += amounts[best] - amounts[at[i]];
      });
      at[i] = best;
      moved = true;
      for (const id of net.incident[i]) for (const v of net.factors[id]?.vars ?? []) if (v !== i) isOpen[v] = 1;
    }
    if (!moved) return;
  }
}
