/**
 * Finds a choice that takes little of a row, whatever it costs: whether a row can be kept at all is
 * most often answered by one. The choice has the least amount among those whose middle blocks are
 * tied, uncertified.
 */
import { Network } from '../network/network.ts';
import type { Table } from '../store/pool.ts';
import type { LinearRow } from '../types.ts';
import type { PreparedProblem } from './prepared.ts';
import { solveUncertified } from './tight-relaxation.ts';
import { makeWorkspace } from './workspace.ts';

/** Undefined where none was found, which says nothing. */
export function choiceOfLeastRow(
  prepared: PreparedProblem,
  row: Pick<LinearRow, 'variables' | 'amounts'>,
  stopped: () => boolean,
): { readonly choice: Int32Array; readonly amount: number } | undefined {
  const { fold, cost } = prepared;
  const found = solveUncertified(rowNetwork(prepared, row), makeWorkspace(prepared), stopped);
  if (found === undefined) return undefined;
  const choice = fold === undefined ? found.choice : fold.variable.map((v) => found.choice[v]);
  if (cost(choice) === Infinity) return undefined;
  return {
    choice,
    amount: row.variables.reduce((sum, v, k) => sum + row.amounts[k][choice[v]], 0),
  };
}

/** The tied network with the amounts of a row for costs; what is forbidden stays so. */
function rowNetwork(
  { tied, fold }: PreparedProblem,
  row: Pick<LinearRow, 'variables' | 'amounts'>,
): Network {
  const { pool } = tied;
  const free = (costs: Float64Array): Float64Array =>
    costs.map((c) => (c === Infinity ? Infinity : 0));
  const net = new Network(pool, tied.size);
  const amounts: (Float64Array | undefined)[] = [];
  row.variables.forEach((v, k) => {
    const own = fold === undefined ? v : fold.variable[v];
    const sum = (amounts[own] ??= new Float64Array(tied.size[own]));
    row.amounts[k].forEach((amount, a) => (sum[a] += amount));
  });
  for (let i = 0; i < net.count; i++) {
    const costs = free(pool.vectorOf(tied.unary[i]));
    const taken = amounts[i];
    net.unary[i] = pool.vector(taken === undefined ? costs : costs.map((c, a) => c + taken[a]));
    net.rank[i] = tied.rank[i];
    net.place[i] = tied.place[i];
  }
  const tables = new Map<number, Table>();
  for (const f of tied.factors) {
    if (f === undefined) continue;
    let table = tables.get(f.table.id);
    if (table === undefined)
      tables.set(f.table.id, (table = pool.table(f.table.dims, free(f.table.cells))));
    const small = net.compressed(table, f.maps);
    net.addFactor({ vars: f.vars, maps: small.maps, table: small.table });
  }
  return net;
}
