/**
 * The cost function. In: a problem without its rows. Out: a function from full choices to costs.
 */
import type { Problem } from '../types.ts';

/** The cost of full choices of a problem, without rows; Infinity for a forbidden one. Exact while sums stay below 2^53. */
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
