/**
 * From a problem to its network: every vector, map and table is interned once, forbidden costs
 * become Infinity.
 */
import type { Pool } from '../store/pool.ts';
import type { Problem } from '../types.ts';
import { Network } from './network.ts';
import { sweepPlaces } from './sweep-order.ts';

/**
 * The costs with -0 made 0, which content hashes tell apart; the given array where there is none.
 */
function clean(costs: Float64Array): Float64Array {
  for (let k = 0; k < costs.length; k++)
    if (costs[k] === 0 && Object.is(costs[k], -0)) return costs.map((c) => c + 0);
  return costs;
}

/** Largest power of two, up to 2^30, that divides every cost of a problem. */
function quantumOf(problem: Problem): number {
  let quantum = commonPower(Float64Array.of(problem.constant ?? 0), 2 ** 30);
  for (const vector of problem.vectors) quantum = commonPower(vector, quantum);
  for (const table of problem.tables) quantum = commonPower(table.costs, quantum);
  return quantum;
}

/** Largest power of two, at most `quantum`, that divides all of these costs. */
function commonPower(costs: Float64Array, quantum: number): number {
  let parts = 1 / quantum;
  for (let k = 0; k < costs.length; k++) {
    const c = costs[k];
    if (c < Infinity) while (Math.floor(c * parts) !== c * parts) parts *= 2;
    if (parts >= 1) return 1;
  }
  return 1 / parts;
}

/**
 * Interns a problem without its rows (see `rows.ts`). Self loops fold into the unary of their
 * variable.
 */
export function networkOf(problem: Problem, pool: Pool): Network {
  const net = new Network(pool, problem.domains);
  const n = problem.domains.length;
  const vectors = problem.vectors.map((v) => pool.vector(clean(v)));
  for (let i = 0; i < n; i++) net.unary[i] = vectors[problem.unary[i]];
  const maps = problem.maps.map((m) => pool.map(m));
  setMinPairs(net, problem, maps);
  const tables = problem.tables.map((t) => pool.table([t.rows, t.columns], clean(t.costs)));
  const { first, second, table, firstMap, secondMap } = problem.edges;
  for (let e = 0; e < first.length; e++) {
    const i = first[e];
    const j = second[e];
    const interned = tables[table[e]];
    const ids = [
      firstMap[e] < 0 ? pool.identity(problem.domains[i]) : maps[firstMap[e]],
      secondMap[e] < 0 ? pool.identity(problem.domains[j]) : maps[secondMap[e]],
    ];
    if (i === j) {
      const p = pool.mapOf(ids[0]);
      const q = pool.mapOf(ids[1]);
      const { cells, dims } = interned;
      const diagonal = Float64Array.from(p, (row, x) => cells[row * dims[1] + q[x]]);
      net.unary[i] = pool.sum(net.unary[i], pool.vector(diagonal));
      net.addFactor(undefined);
      continue;
    }
    const small = net.compressed(interned, ids);
    net.addFactor({ vars: [i, j], maps: small.maps, table: small.table });
  }
  net.place = sweepPlaces(net);
  net.constant = problem.constant ?? 0;
  net.quantum = quantumOf(problem);
  net.tolerance = problem.tolerance ?? 0;
  return net;
}

/** Hints whose length is not the domain's are left out: they are of another problem. */
function setMinPairs(
  net: Network,
  { minPairs, domains, maps }: Problem,
  ids: readonly number[],
): void {
  if (minPairs === undefined) return;
  for (let i = 0; i < domains.length; i++) {
    const first = minPairs.first[i] ?? -1;
    const second = minPairs.second[i] ?? -1;
    if (first < 0 || second < 0) continue;
    if (maps[first].length !== domains[i] || maps[second].length !== domains[i]) continue;
    net.minPairs[2 * i] = ids[first];
    net.minPairs[2 * i + 1] = ids[second];
  }
}
