/**
 * Conditions a problem on the variables that have one value: it gives the problem on the other
 * variables.
 */
import type { Problem } from '../types.ts';

/** A problem without some variables of another. */
interface SmallerProblem {
  readonly problem: Problem;
  /** Choice of the other problem for one of this. */
  readonly expand: (choice: Int32Array) => Int32Array;
  /** Number of a variable in the other problem. */
  readonly variableOf: (variable: number) => number;
}

/**
 * Leaves out the variables that have one value only: what they cost alone joins the constant, what
 * they cost a neighbour joins its unary vector, what they use of a row is taken from its bound. A
 * recipe fixes nine variables in ten, so most of its problem is arithmetic. Where a fixed part is
 * forbidden or breaks a row, the problem is returned as it is: the solver reports why.
 */
export function withoutFixed(problem: Problem): SmallerProblem {
  const same: SmallerProblem = {
    problem,
    expand: (choice) => choice,
    variableOf: (v) => v,
  };
  const { domains, edges, tables, maps } = problem;
  if (problem.usage !== undefined || !domains.includes(1)) return same;
  const name = new Int32Array(domains.length).fill(-1);
  const kept: number[] = [];
  let constant = problem.constant ?? 0;
  for (let i = 0; i < domains.length; i++) {
    if (domains[i] !== 1) name[i] = kept.push(i) - 1;
    else constant += problem.vectors[problem.unary[i]][0];
  }
  const costs = new Sums(problem.vectors);
  const unary = Int32Array.from(kept, (i) => problem.unary[i]);
  const left: number[] = [];
  const classOf = (map: number, value: number): number => (map < 0 ? value : maps[map][value]);
  for (let e = 0; e < edges.first.length; e++) {
    const a = name[edges.first[e]];
    const b = name[edges.second[e]];
    if (a >= 0 && b >= 0) {
      left.push(e);
      continue;
    }
    const table = tables[edges.table[e]];
    const row = classOf(edges.firstMap[e], 0);
    const column = classOf(edges.secondMap[e], 0);
    if (a < 0 && b < 0) {
      constant += table.costs[row * table.columns + column];
    } else if (a < 0) {
      const slice = (): Float64Array =>
        table.costs.subarray(row * table.columns, (row + 1) * table.columns);
      unary[b] = costs.add(unary[b], 2 * edges.table[e], row, edges.secondMap[e], classOf, slice);
    } else {
      const slice = (): Float64Array =>
        Float64Array.from(
          { length: table.rows },
          (_, r) => table.costs[r * table.columns + column],
        );
      unary[a] = costs.add(
        unary[a],
        2 * edges.table[e] + 1,
        column,
        edges.firstMap[e],
        classOf,
        slice,
      );
    }
  }
  if (!Number.isFinite(constant)) return same;
  const rows: NonNullable<Problem['rows']>[number][] = [];
  for (const row of problem.rows ?? []) {
    const at = [...row.variables.keys()].filter((k) => name[row.variables[k]] >= 0);
    let { bound } = row;
    for (let k = 0; k < row.variables.length; k++)
      if (name[row.variables[k]] < 0) bound -= row.amounts[k][0];
    if (bound < 0) return same;
    if (at.length === 0) continue;
    rows.push({
      ...row,
      bound,
      variables: Int32Array.from(at, (k) => name[row.variables[k]]),
      amounts: at.map((k) => row.amounts[k]),
    });
  }
  const pick = (list: Int32Array): Int32Array => Int32Array.from(left, (e) => list[e]);
  const used = [...new Set(pick(edges.table))].sort((a, b) => a - b);
  const renamed = new Map(used.map((id, at) => [id, at]));
  return {
    problem: {
      ...problem,
      // Few edges are left, and with them few tables: the solver reads every one that it is given.
      tables: used.map((id) => tables[id]),
      domains: Int32Array.from(kept, (i) => domains[i]),
      unary,
      vectors: costs.vectors,
      edges: {
        first: Int32Array.from(left, (e) => name[edges.first[e]]),
        second: Int32Array.from(left, (e) => name[edges.second[e]]),
        table: pick(edges.table).map((id) => renamed.get(id) ?? -1),
        firstMap: pick(edges.firstMap),
        secondMap: pick(edges.secondMap),
      },
      constant,
      ...(problem.minPairs === undefined
        ? {}
        : {
            minPairs: {
              first: Int32Array.from(kept, (i) => problem.minPairs?.first[i] ?? -1),
              second: Int32Array.from(kept, (i) => problem.minPairs?.second[i] ?? -1),
            },
          }),
      ...(problem.rows === undefined ? {} : { rows }),
    },
    variableOf: (v) => kept[v],
    expand: (choice) => {
      const out = new Int32Array(domains.length);
      kept.forEach((i, k) => (out[i] = choice[k]));
      return out;
    },
  };
}

/** Unary vectors with slices of tables added to them, each sum made once. */
class Sums {
  readonly vectors: Float64Array[];
  private readonly slices = new Map<string, number>();
  private readonly sums = new Map<number, number>();
  private count = 0;

  constructor(vectors: readonly Float64Array[]) {
    this.vectors = [...vectors];
  }

  /** Id of vector `id` plus the slice `at` of a table side, read along `map`. */
  add(
    id: number,
    side: number,
    at: number,
    map: number,
    classOf: (map: number, value: number) => number,
    slice: () => Float64Array,
  ): number {
    const text = `${side},${at},${map}`;
    let name = this.slices.get(text);
    if (name === undefined) this.slices.set(text, (name = this.count++));
    const key = id * 2 ** 26 + name;
    let sum = this.sums.get(key);
    if (sum === undefined) {
      const costs = slice();
      sum = this.vectors.push(this.vectors[id].map((c, a) => c + costs[classOf(map, a)])) - 1;
      this.sums.set(key, sum);
    }
    return sum;
  }
}
