import { internalError } from '../errors.ts';
import { solve } from '../solver/solve.ts';
import type { Problem } from '../solver/types.ts';
import type { KeptList } from './compact.ts';

/**
 * Sum over the memory row of the least bytes of each placement: no plan needs less.
 *
 * @param kept values that are left of each variable, undefined where all are
 */
export function leastMemoryBound(problem: Problem, kept: readonly (KeptList | undefined)[] = []): number {
  let total = 0;
  problem.rows?.[0]?.amounts.forEach((amounts, k) => {
    const values = kept[problem.rows?.[0]?.variables[k] ?? -1]?.values;
    total +=
      values === undefined
        ? amounts.reduce((a, b) => Math.min(a, b), Infinity)
        : values.reduce((least, a) => Math.min(least, amounts[a]), Infinity);
  });
  return total;
}

/** What a choice needs of the memory row. */
export function memoryOf(problem: Problem, choice: Int32Array): number {
  const [row] = problem.rows ?? [];
  let total = 0;
  row?.amounts.forEach((amounts, k) => (total += amounts[choice[row.variables[k]]]));
  return total;
}

/**
 * The least bytes of the memory row over all plans: the same problem with bytes for costs, solved exactly.
 *
 * @returns undefined when the problem has no plan even without a limit
 */
export async function leastMemory(problem: Problem, signal?: AbortSignal): Promise<number | undefined> {
  const [row] = problem.rows ?? [];
  if (row === undefined) return 0;
  const free = (costs: Float64Array): Float64Array => costs.map((c) => (c === Infinity ? Infinity : 0));
  const vectors = problem.vectors.map(free);
  const unary = Int32Array.from(problem.unary);
  row.variables.forEach((variable, k) => {
    const allowed = problem.vectors[problem.unary[variable]];
    unary[variable] = vectors.push(row.amounts[k].map((bytes, a) => (allowed[a] === Infinity ? Infinity : bytes))) - 1;
  });
  const tables = problem.tables.map((t) => ({ ...t, costs: free(t.costs) }));
  const least = await solve(
    { ...problem, unary, vectors, tables, rows: [] },
    { engine: 'exact', ...(signal !== undefined ? { signal } : {}) },
  );
  if (least.status === 'infeasible') return undefined;
  if (least.status !== 'optimal') throw internalError('the least memory was not proven');
  return least.objective;
}
