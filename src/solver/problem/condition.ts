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
  const { domains } = problem;
  if (problem.usage !== undefined || !domains.includes(1)) return same;
  const free = freeVariables(problem);
  const folded = foldEdges(problem, free);
  if (!Number.isFinite(folded.constant)) return same;
  const rows = rowsOfFree(problem, free);
  if (rows === undefined) return same;
  const { kept } = free;
  return {
    problem: smallerProblem(problem, free, folded, rows),
    variableOf: (v) => kept[v],
    expand: (choice) => {
      const out = new Int32Array(domains.length);
      kept.forEach((i, k) => (out[i] = choice[k]));
      return out;
    },
  };
}

/** The variables that have several values. */
interface FreeVariables {
  /** Number of each variable among them; -1 for one that is fixed. */
  readonly name: Int32Array;
  readonly kept: readonly number[];
}

function freeVariables({ domains }: Problem): FreeVariables {
  const name = new Int32Array(domains.length).fill(-1);
  const kept: number[] = [];
  for (let i = 0; i < domains.length; i++) if (domains[i] !== 1) name[i] = kept.push(i) - 1;
  return { name, kept };
}

/** The costs of the smaller problem. */
interface FoldedCosts {
  readonly constant: number;
  readonly unary: Int32Array;
  readonly vectors: readonly Float64Array[];
  /** Edges between variables that are not fixed. */
  readonly left: readonly number[];
}

/** Adds the costs of fixed variables and of their edges to the constant and to unary vectors. */
function foldEdges(problem: Problem, { name, kept }: FreeVariables): FoldedCosts {
  const { domains, edges, tables, maps } = problem;
  let constant = problem.constant ?? 0;
  for (let i = 0; i < domains.length; i++)
    if (domains[i] === 1) constant += problem.vectors[problem.unary[i]][0];
  const sums = new Sums(problem);
  const unary = Int32Array.from(kept, (i) => problem.unary[i]);
  const left: number[] = [];
  for (let e = 0; e < edges.first.length; e++) {
    const a = name[edges.first[e]];
    const b = name[edges.second[e]];
    if (a >= 0 && b >= 0) left.push(e);
    else if (a >= 0) unary[a] = sums.add(unary[a], e, 'second');
    else if (b >= 0) unary[b] = sums.add(unary[b], e, 'first');
    else {
      const { costs, columns } = tables[edges.table[e]];
      const row = classOf(maps, edges.firstMap[e], 0);
      constant += costs[row * columns + classOf(maps, edges.secondMap[e], 0)];
    }
  }
  return { constant, unary, vectors: sums.vectors, left };
}

type Rows = NonNullable<Problem['rows']>;

/** The rows without what fixed variables use; undefined where they break one. */
function rowsOfFree({ rows = [] }: Problem, { name }: FreeVariables): Rows | undefined {
  const out: Rows[number][] = [];
  for (const row of rows) {
    const at = [...row.variables.keys()].filter((k) => name[row.variables[k]] >= 0);
    let { bound } = row;
    for (let k = 0; k < row.variables.length; k++)
      if (name[row.variables[k]] < 0) bound -= row.amounts[k][0];
    if (bound < 0) return undefined;
    if (at.length === 0) continue;
    out.push({
      ...row,
      bound,
      variables: Int32Array.from(at, (k) => name[row.variables[k]]),
      amounts: at.map((k) => row.amounts[k]),
    });
  }
  return out;
}

function smallerProblem(
  problem: Problem,
  { name, kept }: FreeVariables,
  { constant, unary, vectors, left }: FoldedCosts,
  rows: Rows,
): Problem {
  const { domains, edges, tables, minPairs } = problem;
  const pick = (list: Int32Array): Int32Array => Int32Array.from(left, (e) => list[e]);
  const used = [...new Set(pick(edges.table))].sort((a, b) => a - b);
  const renamed = new Map(used.map((id, at) => [id, at]));
  return {
    ...problem,
    // Few edges are left, and with them few tables: the solver reads every one that it is given.
    tables: used.map((id) => tables[id]),
    domains: Int32Array.from(kept, (i) => domains[i]),
    unary,
    vectors,
    edges: {
      first: Int32Array.from(left, (e) => name[edges.first[e]]),
      second: Int32Array.from(left, (e) => name[edges.second[e]]),
      table: pick(edges.table).map((id) => renamed.get(id) ?? -1),
      firstMap: pick(edges.firstMap),
      secondMap: pick(edges.secondMap),
    },
    constant,
    ...(minPairs === undefined
      ? {}
      : {
          minPairs: {
            first: Int32Array.from(kept, (i) => minPairs.first[i] ?? -1),
            second: Int32Array.from(kept, (i) => minPairs.second[i] ?? -1),
          },
        }),
    ...(problem.rows === undefined ? {} : { rows }),
  };
}

/** The class of a value; without a map (-1) every value is a class of its own. */
function classOf(maps: Problem['maps'], map: number, value: number): number {
  return map < 0 ? value : maps[map][value];
}

/** Unary vectors with slices of tables added to them, each sum made once. */
class Sums {
  readonly vectors: Float64Array[];
  private readonly slices = new Map<string, number>();
  private readonly sums = new Map<number, number>();

  constructor(private readonly problem: Problem) {
    this.vectors = [...problem.vectors];
  }

  /** Id of vector `id` plus what an edge costs its free end where the other end is fixed. */
  add(id: number, edge: number, fixed: 'first' | 'second'): number {
    const { edges, tables, maps } = this.problem;
    const table = edges.table[edge];
    const { columns, costs } = tables[table];
    const [fixedMap, map] =
      fixed === 'first'
        ? [edges.firstMap[edge], edges.secondMap[edge]]
        : [edges.secondMap[edge], edges.firstMap[edge]];
    const at = classOf(maps, fixedMap, 0);
    const key = id * 2 ** 26 + this.sliceId(`${table},${fixed},${at},${map}`);
    let sum = this.sums.get(key);
    if (sum === undefined) {
      const [start, step] = fixed === 'first' ? [at * columns, 1] : [at, columns];
      const added = this.vectors[id].map((c, a) => c + costs[start + step * classOf(maps, map, a)]);
      sum = this.vectors.push(added) - 1;
      this.sums.set(key, sum);
    }
    return sum;
  }

  private sliceId(text: string): number {
    let id = this.slices.get(text);
    if (id === undefined) this.slices.set(text, (id = this.slices.size));
    return id;
  }
}
