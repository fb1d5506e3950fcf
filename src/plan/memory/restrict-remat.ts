/**
 * Parts of a rematerialization problem and questions about them, as problems.
 * In: the problem, the decisions to fix or the row to minimise. Out: the restricted problem.
 */
import type { LinearRow, Problem } from '../../solver/types.ts';
import { compactProblem, KeptLists, type CompactProblem } from '../../solver/problem/restrict.ts';
import type { RematProblem } from './remat-problem.ts';

/** All of a problem. */
export function whole(problem: Problem): CompactProblem {
  return { problem, expand: (choice) => choice, contract: (choice) => choice };
}

/** The rematerialization problem with every strategy, copy and output fixed and the decisions left: checkpointing after sharding. */
export function fixedStrategies(remat: RematProblem, compact: Int32Array): CompactProblem {
  const lists = new KeptLists();
  const kept = Array.from(remat.problem.domains, (size, v) => {
    const decisions = remat.decisionsOf(v);
    const from = compact[v] * decisions;
    return lists.of(`${from}:${decisions}:${size}`, () => Int32Array.from({ length: decisions }, (_, k) => from + k));
  });
  return compactProblem(remat.problem, kept);
}

/** Rows of the rematerialization problem on the values that a restricted one has. */
export function restrictRows(rows: readonly LinearRow[], restricted: CompactProblem): LinearRow[] {
  const { domains } = restricted.problem;
  const most = domains.reduce((a, b) => Math.max(a, b), 0);
  const columns = Array.from({ length: most }, (_, a) =>
    restricted.expand(domains.map((size) => Math.min(a, size - 1))),
  );
  return rows.map((row) => ({
    ...row,
    amounts: row.amounts.map((amounts, k) => {
      const v = row.variables[k];
      return Float64Array.from({ length: domains[v] }, (_, a) => amounts[columns[a][v]]);
    }),
  }));
}

/** The problem with the amounts of a row for costs. */
export function withRowAsCost(problem: Problem, row: LinearRow): Problem {
  const free = (costs: Float64Array): Float64Array => costs.map((c) => (c === Infinity ? Infinity : 0));
  const vectors = problem.vectors.map(free);
  const unary = Int32Array.from(problem.unary);
  row.variables.forEach((v, k) => {
    const allowed = problem.vectors[problem.unary[v]];
    unary[v] = vectors.push(row.amounts[k].map((bytes, a) => (allowed[a] === Infinity ? Infinity : bytes))) - 1;
  });
  return { ...problem, vectors, unary, tables: problem.tables.map((t) => ({ ...t, costs: free(t.costs) })), rows: [] };
}
