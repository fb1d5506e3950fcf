/**
 * Prices full choices of a problem without its rows, and computes the bound that needs no engine,
 * and gaps.
 */
import type { Problem } from '../types.ts';

/**
 * The cost of full choices of a problem, without rows; Infinity for a forbidden one. Exact while
 * sums stay below 2^53.
 */
export function costFunction(problem: Problem): (choice: ArrayLike<number>) => number {
  const { domains, unary, vectors, edges, tables, maps } = problem;
  return (choice) => {
    let sum = problem.constant ?? 0;
    for (let i = 0; i < domains.length; i++) {
      const c = vectors[unary[i]][choice[i]];
      if (!(c < Infinity)) return Infinity;
      sum += c;
    }
    for (let e = 0; e < edges.first.length; e++) {
      const x = choice[edges.first[e]];
      const y = choice[edges.second[e]];
      const t = tables[edges.table[e]];
      const row = edges.firstMap[e] < 0 ? x : maps[edges.firstMap[e]][x];
      const column = edges.secondMap[e] < 0 ? y : maps[edges.secondMap[e]][y];
      const c = t.costs[row * t.columns + column];
      if (!(c < Infinity)) return Infinity;
      sum += c;
    }
    return sum;
  };
}

/**
 * The bound that needs no engine: the constant, every least unary cost and every least cell;
 * Infinity when one has none.
 */
export function leastTotal(problem: Problem): number {
  const least = (costs: Float64Array): number => {
    let found = Infinity;
    for (let k = 0; k < costs.length; k++) if (costs[k] < found) found = costs[k];
    return found;
  };
  const vectors = problem.vectors.map(least);
  const tables = problem.tables.map((t) => least(t.costs));
  let total = problem.constant ?? 0;
  for (const id of problem.unary) total += vectors[id];
  for (const id of problem.edges.table) total += tables[id];
  return total;
}

/** Tells whether nothing costs less than the objective, but for what the problem tolerates. */
export function isLeast({ tolerance = 0 }: Problem, objective: number, bound: number): boolean {
  return bound >= objective - tolerance;
}

/** The gap that is left: 0 where nothing costs less but for what the problem tolerates. */
export function openGap(problem: Problem, objective: number, bound: number): number {
  return isLeast(problem, objective, bound) ? 0 : gapOf(objective, bound);
}

/** (objective - bound) / max(1, |objective|), at least 0; Infinity without a choice or a bound. */
export function gapOf(objective: number, bound: number): number {
  if (objective === Infinity || bound === -Infinity) return Infinity;
  return Math.max(0, objective - bound) / Math.max(1, Math.abs(objective));
}
