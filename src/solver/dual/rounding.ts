/**
 * Rounds to choices of a pairwise network: the cost of positions, and 1-opt local search (iterated
 * conditional modes) under hard rows, which improves positions.
 */
import type { Network } from '../network/network.ts';
import { amountsAt } from '../network/rows.ts';
import { KeyTable } from '../store/keys.ts';
import { addSlice, firstLeast } from './inner-loops.ts';

/** Cost of positions in a network (its own constant included), Infinity when forbidden. */
export function evaluatePositions(net: Network, at: Int32Array): number {
  const { pool } = net;
  let sum = net.constant;
  for (let i = 0; i < net.count; i++)
    if (net.gone[i] === 0) sum += pool.vectorOf(net.unary[i])[at[i]];
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
 * Moves single variables of a pairwise network to their best value until none improves (at most
 * `rounds` passes). With rows, a move must not make a row exceed its bound, or must lower it where
 * it does.
 */
export function oneOpt(net: Network, at: Int32Array, rounds: number): void {
  const used = amountsAt(net, at);
  const total = new Float64Array(net.size.reduce((a, b) => Math.max(a, b), 1));
  // A variable with unchanged neighbours has nothing new to find, unless a row alone held it back.
  const isOpen = new Uint8Array(net.count).fill(1);
  // Nor has one in the position of its counterpart in another layer, with neighbours in equal
  // positions.
  const keys = new KeyTable();
  const isBest: boolean[] = [];
  for (let round = 0; round < rounds; round++) {
    let moved = false;
    for (let i = 0; i < net.count; i++) {
      if (isOpen[i] === 0 || net.gone[i] === 1 || net.size[i] < 2) continue;
      isOpen[i] = 0;
      const key = nameAt(keys, net, i, at);
      if (isBest[key]) continue;
      costsAt(net, i, at, total);
      const least = firstLeast(total, net.size[i]);
      isBest[key] = !(total[least] < total[at[i]]);
      if (isBest[key]) continue;
      const best = net.rows.length === 0 ? least : leastAllowed(net, i, at[i], total, used);
      if (total[least] < total[best]) isOpen[i] = 1;
      if (best === at[i]) continue;
      for (let r = 0; r < used.length; r++) {
        const { amounts } = net.rows[r];
        if (amounts[i] < 0) continue;
        const takes = net.pool.vectorOf(amounts[i]);
        used[r] += takes[best] - takes[at[i]];
      }
      at[i] = best;
      moved = true;
      for (const id of net.incident[i])
        for (const v of net.factors[id]?.vars ?? []) if (v !== i) isOpen[v] = 1;
    }
    if (!moved) return;
  }
}

/** Names all that the costs of one variable's values depend on, and its own position. */
function nameAt(
  keys: KeyTable,
  { pool, unary, incident, factors }: Network,
  i: number,
  at: Int32Array,
): number {
  keys.begin().add(unary[i]).add(at[i]);
  for (const id of incident[i]) {
    const f = factors[id];
    if (f === undefined) continue;
    const side = f.vars[0] === i ? 0 : 1;
    const other = pool.mapOf(f.maps[1 - side])[at[f.vars[1 - side]]];
    keys.add(f.table.id).add(side).add(f.maps[side]).add(other);
  }
  return keys.end();
}

/** Costs of the values of one variable, given the positions of its neighbours. */
function costsAt(
  { pool, unary, incident, factors, size }: Network,
  i: number,
  at: Int32Array,
  total: Float64Array,
): void {
  total.set(pool.vectorOf(unary[i]));
  for (const id of incident[i]) {
    const f = factors[id];
    if (f === undefined) continue;
    const side = f.vars[0] === i ? 0 : 1;
    const own = pool.mapOf(f.maps[side]);
    const c = pool.mapOf(f.maps[1 - side])[at[f.vars[1 - side]]];
    const width = f.table.dims[1];
    if (c < 0) total.fill(Infinity, 0, size[i]);
    else if (side === 0) addSlice(total, size[i], own, f.table.cells, c, width);
    else addSlice(total, size[i], own, f.table.cells, c * width, 1);
  }
}

/**
 * The best of the values that no row forbids to move to, the first of equals; the present one where
 * none is better.
 */
function leastAllowed(
  { pool, rows, size }: Network,
  i: number,
  present: number,
  total: Float64Array,
  used: readonly number[],
): number {
  let best = present;
  for (let a = 0; a < size[i]; a++) {
    if (!(total[a] < total[best])) continue;
    let isAllowed = true;
    for (let r = 0; r < rows.length && isAllowed; r++) {
      const { amounts, bound } = rows[r];
      if (amounts[i] < 0) continue;
      const takes = pool.vectorOf(amounts[i]);
      isAllowed = takes[a] <= takes[present] || used[r] - takes[present] + takes[a] <= bound;
    }
    if (isAllowed) best = a;
  }
  return best;
}
