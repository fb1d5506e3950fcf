/**
 * Fast exact evaluation of full choices (sums stay below 2^53); the BigInt checker decides in the
 * end.
 */
import { costFunction } from '../../solver/problem/cost.ts';
import type { Problem } from '../../solver/types.ts';

export interface Evaluated {
  /** Infinity when the choice holds something forbidden. */
  readonly cost: number;
  /** The time that exceeds the usage limit most, or -1. */
  readonly worstTime: number;
  /** True if some linear row is exceeded. */
  readonly breaksRow: boolean;
}

/** Makes the evaluation function of a problem. */
export function evaluator(problem: Problem): (choice: ArrayLike<number>) => Evaluated {
  const { usage } = problem;
  const pieces = (usage?.pieces ?? []).filter((p) => p.lo < p.hi);
  const times = Float64Array.from(new Set(pieces.flatMap((p) => [p.lo, p.hi]))).sort();
  const place = new Map<number, number>();
  times.forEach((t, k) => place.set(t, k));
  const lo = Int32Array.from(pieces, (p) => place.get(p.lo) ?? 0);
  const hi = Int32Array.from(pieces, (p) => place.get(p.hi) ?? 0);
  const level = new Float64Array(times.length);
  const costOf = costFunction(problem);
  return (choice) => {
    level.fill(0);
    pieces.forEach((p, k) => {
      const u = p.amounts[choice[p.variable]];
      level[lo[k]] += u;
      level[hi[k]] -= u;
    });
    let worstTime = -1;
    let most = usage?.limit ?? Infinity;
    let sum = 0;
    for (let t = 0; t < level.length; t++) {
      sum += level[t];
      if (sum > most) {
        most = sum;
        worstTime = times[t];
      }
    }
    const breaksRow = (problem.rows ?? []).some((row) => {
      let amount = 0;
      row.variables.forEach((v, k) => (amount += row.amounts[k][choice[v]]));
      return amount > row.bound;
    });
    return { cost: costOf(choice), worstTime, breaksRow };
  };
}
