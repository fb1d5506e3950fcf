/**
 * Questions about feasibility alone, answered by the exact engine on a problem whose costs are
 * replaced: which rows are in each other's way, how much of a row any choice needs, and whether
 * there is a choice at all.
 */
import { type PlainRow, plainRows } from '../../network/rows.ts';
import { rowAsCost, withoutCosts } from '../../problem/recost.ts';
import type { Problem, Solution, SolveOptions } from '../../types.ts';

/** The engine. It is a parameter, because the file of the engine imports this one. */
export type Solver = (problem: Problem, options: SolveOptions) => Solution;

/**
 * Why there is no choice, and the smallest bound that would admit one where a single bound is to
 * blame.
 */
interface Explanation {
  readonly conflict: readonly string[];
  readonly emptyVariable?: number;
  readonly smallestBudget?: number;
}

/**
 * The choice with the least amount of a row among all that no forbidden entry rules out; undefined
 * when there is none.
 */
function leastAmount(
  problem: Problem,
  row: PlainRow,
  solver: Solver,
  options: SolveOptions = {},
): Solution | undefined {
  const solution = solver(rowAsCost(problem, row), options);
  return solution.status === 'infeasible' ? undefined : solution;
}

/**
 * Some choice that keeps all rows; undefined when there is none, `open` where `seconds` are too few
 * to decide, which the solver may also say by throwing.
 */
export function anyChoice(
  problem: Problem,
  seconds: number,
  solver: Solver,
): Int32Array | 'open' | undefined {
  const rows = plainRows(problem);
  const limit = seconds === Infinity ? {} : { timeLimitSeconds: seconds };
  if (rows.length === 1) {
    const least = leastAmount(problem, rows[0], solver, limit);
    if (least === undefined || least.objective <= rows[0].bound) return least?.choice;
    return least.status === 'optimal' ? undefined : 'open';
  }
  const solution = solver(withoutCosts(problem, rows), limit);
  return solution.status === 'infeasible' ? undefined : solution.choice;
}

/** Explains why a problem has no choice. `problem` must be infeasible. */
export function explain(problem: Problem, solver: Solver): Explanation {
  const admits = (rows: readonly PlainRow[]): boolean =>
    solver(withoutCosts(problem, rows), {}).status !== 'infeasible';
  if (!admits([])) {
    const empty = emptyVariable(problem);
    return empty === undefined
      ? {
          conflict: [
            'the forbidden pairs of the edges admit no choice, though every value has partners',
          ],
        }
      : { conflict: [`variable ${empty}`], emptyVariable: empty };
  }
  const needed = irreducible(plainRows(problem), admits);
  const linear = needed.filter((r) => 'row' in r.source);
  const conflict = needed.map((r) => r.name);
  if (needed.length === 1 && linear.length === 1) {
    const least = leastAmount(problem, needed[0], solver);
    return {
      conflict,
      ...(least?.status !== 'optimal' ? {} : { smallestBudget: least.objective }),
    };
  }
  if (linear.length > 0) return { conflict };
  // A linear row that no choice keeps on its own conflicts with any usage limit.
  if (!admits(plainRows(problem).filter((r) => 'row' in r.source))) return { conflict };
  return { conflict, smallestBudget: smallestLimit(problem, admits) };
}

/** Deletion filtering: rows are left out one by one as long as the rest still admits nothing. */
function irreducible(
  rows: readonly PlainRow[],
  admits: (rows: readonly PlainRow[]) => boolean,
): readonly PlainRow[] {
  // A single row that nothing can keep needs no filtering; try those first, they are cheap to
  // decide.
  const alone = rows.find((row) => !admits([row]));
  if (alone !== undefined) return [alone];
  let kept = rows;
  for (const row of rows) {
    const rest = kept.filter((r) => r !== row);
    if (!admits(rest)) kept = rest;
  }
  return kept;
}

/**
 * Least usage limit under which the usage and the linear rows admit a choice together, by
 * bisection.
 */
function smallestLimit(problem: Problem, admits: (rows: readonly PlainRow[]) => boolean): number {
  const under = (limit: number): boolean => {
    const { usage } = problem;
    return admits(
      plainRows(usage === undefined ? problem : { ...problem, usage: { ...usage, limit } }),
    );
  };
  let low = Math.floor(problem.usage?.limit ?? 0);
  let high = Math.max(1, 2 * low);
  while (!under(high)) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2);
    if (under(middle)) high = middle;
    else low = middle;
  }
  return high;
}

/**
 * The first variable that loses its last value when values without a partner are deleted one by
 * one.
 */
function emptyVariable(problem: Problem): number | undefined {
  const { domains, edges, tables, maps } = problem;
  const alive = Array.from(domains, (size, i) =>
    Uint8Array.from({ length: size }, (_, a) =>
      problem.vectors[problem.unary[i]][a] < Infinity ? 1 : 0,
    ),
  );
  const none = alive.findIndex((values) => !values.includes(1));
  if (none >= 0) return none;
  for (let changed = true; changed;) {
    changed = false;
    for (let e = 0; e < edges.first.length; e++) {
      const { columns, costs } = tables[edges.table[e]];
      const ends = [edges.first[e], edges.second[e]] as const;
      const classes = [edges.firstMap[e], edges.secondMap[e]].map((m, k) =>
        m < 0 ? Int32Array.from(alive[ends[k]].keys()) : maps[m],
      );
      for (const side of [0, 1] as const) {
        const [own, other] = [ends[side], ends[1 - side]];
        for (let a = 0; a < domains[own]; a++) {
          if (alive[own][a] === 0) continue;
          let partner = false;
          for (let b = 0; b < domains[other] && !partner; b++) {
            if (alive[other][b] === 0 || (own === other && a !== b)) continue;
            const [x, y] = side === 0 ? [a, b] : [b, a];
            partner = costs[classes[0][x] * columns + classes[1][y]] < Infinity;
          }
          if (partner) continue;
          alive[own][a] = 0;
          changed = true;
          if (!alive[own].includes(1)) return own;
        }
      }
    }
  }
  return undefined;
}
