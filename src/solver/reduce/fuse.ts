/**
 * Tightens a node whose core is too large to eliminate: it fuses edges in triangles of the pairwise
 * network into one variable, or names the variable to branch on.
 */
import type { Network } from '../network/network.ts';
import type { Table } from '../store/pool.ts';

/**
 * Fuses edges that lie in a triangle and have few finite pairs, each variable at most once; false
 * when there is none. Weak relaxations live in odd cycles: a fused variable decides two corners at
 * once.
 */
export function fuseTriangles(net: Network): boolean {
  const { pool } = net;
  const used = new Uint8Array(net.count);
  const candidates: { readonly id: number; readonly pairs: number }[] = [];
  for (let id = 0; id < net.factors.length; id++) {
    const f = net.factors[id];
    if (f === undefined) continue;
    const [u, v] = f.vars;
    const pairs = finitePairs(pool.mapOf(f.maps[0]), pool.mapOf(f.maps[1]), f.table);
    const larger = Math.max(net.size[u], net.size[v]);
    if (pairs > MAX_FUSED || pairs > 6 * larger || !inTriangle(net, u, v)) continue;
    candidates.push({ id, pairs });
  }
  candidates.sort((a, b) => a.pairs - b.pairs || a.id - b.id);
  let any = false;
  for (const { id } of candidates) {
    const f = net.factors[id];
    if (f === undefined) continue;
    const [u, v] = f.vars;
    if (u >= used.length || v >= used.length || used[u] === 1 || used[v] === 1) continue;
    used[u] = 1;
    used[v] = 1;
    net.fuse(id);
    any = true;
  }
  return any;
}

const MAX_FUSED = 600;

function finitePairs(a: Int32Array, b: Int32Array, table: Table): number {
  const [rows, columns] = table.dims;
  const x = new Int32Array(rows);
  const y = new Int32Array(columns);
  for (const c of a) if (c >= 0) x[c]++;
  for (const c of b) if (c >= 0) y[c]++;
  let pairs = 0;
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++)
      if (table.cells[r * columns + c] !== Infinity) pairs += x[r] * y[c];
  }
  return pairs;
}

function inTriangle(net: Network, u: number, v: number): boolean {
  const near = new Set<number>();
  for (const id of net.incident[u])
    for (const w of net.factors[id]?.vars ?? []) if (w !== u && w !== v) near.add(w);
  for (const id of net.incident[v])
    for (const w of net.factors[id]?.vars ?? []) if (near.has(w)) return true;
  return false;
}

/** The variable with the most neighbours, then values: deciding it cuts the network best. */
export function branchVariable(net: Network): number {
  let best = -1;
  let score = -1;
  for (let i = 0; i < net.count; i++) {
    if (net.gone[i] === 1 || net.size[i] < 2) continue;
    const s = net.incident[i].length * 1000 + net.size[i];
    if (s > score) {
      score = s;
      best = i;
    }
  }
  if (best < 0) throw new Error('internal: nothing to branch on');
  return best;
}
