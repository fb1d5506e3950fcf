/** The plain start: every variable takes the value that uses least, whatever it costs. */
import { evaluate } from '../check/verify.ts';
import type { Problem } from '../types.ts';

/**
 * The choice of least use (amounts relative to their bounds, summed over rows and pieces; ties by
 * cost, then by value), or undefined when the checker refuses it. With one row and no forbidden
 * cells it is feasible whenever anything is.
 */
export function leastUseChoice(problem: Problem): Int32Array | undefined {
  const { domains, unary, vectors, rows = [], usage } = problem;
  const use = Array.from(domains, (k) => new Float64Array(k));
  const add = (variable: number, amounts: Float64Array, bound: number): void => {
    const unit = Math.max(1, bound);
    amounts.forEach((u, a) => (use[variable][a] += u / unit));
  };
  for (const row of rows) row.variables.forEach((v, k) => add(v, row.amounts[k], row.bound));
  for (const piece of usage?.pieces ?? [])
    if (piece.lo < piece.hi) add(piece.variable, piece.amounts, usage?.limit ?? 1);
  const choice = new Int32Array(domains.length);
  for (let i = 0; i < domains.length; i++) {
    const costs = vectors[unary[i]];
    let best = -1;
    for (let a = 0; a < domains[i]; a++) {
      if (costs[a] === Infinity) continue;
      const better =
        best < 0 ||
        use[i][a] < use[i][best] ||
        (use[i][a] === use[i][best] && costs[a] < costs[best]);
      if (better) best = a;
    }
    if (best < 0) return undefined;
    choice[i] = best;
  }
  return evaluate(problem, choice).violations.length === 0 ? choice : undefined;
}
