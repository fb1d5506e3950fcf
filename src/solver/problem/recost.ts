/**
 * Changes the costs of a problem on the same values: those of single variables and edges, or to
 * minimise a row. A change may forbid more, and never less.
 */
import type { LinearRow, Problem } from '../types.ts';

/**
 * A problem whose costs change variable by variable and edge by edge; equal changes of equal costs
 * are made once.
 */
export class Recosting {
  private readonly original: Problem;
  private readonly vectors: Float64Array[];
  private readonly unary: Int32Array;
  private readonly tables: Problem['tables'][number][];
  private readonly table: Int32Array;
  private readonly known = new Map<string, number>();

  constructor(problem: Problem) {
    this.original = problem;
    this.vectors = [...problem.vectors];
    this.unary = problem.unary.slice();
    this.tables = [...problem.tables];
    this.table = problem.edges.table.slice();
  }

  /**
   * Changes the costs of a variable. `key` names the change; one that returns what it got changes
   * nothing.
   */
  variable(v: number, key: string | number, change: (costs: Float64Array) => Float64Array): void {
    const id = this.unary[v];
    this.unary[v] = this.made(`v${id}|${key}`, () => {
      const costs = change(this.vectors[id]);
      return costs === this.vectors[id] ? id : this.vectors.push(costs) - 1;
    });
  }

  /** The same for the table of an edge: row-major over its classes. */
  edge(e: number, key: string | number, change: (costs: Float64Array) => Float64Array): void {
    const id = this.table[e];
    this.table[e] = this.made(`t${id}|${key}`, () => {
      const costs = change(this.tables[id].costs);
      return costs === this.tables[id].costs
        ? id
        : this.tables.push({ ...this.tables[id], costs }) - 1;
    });
  }

  /**
   * The problem as changed so far, the given one where nothing was; to be taken once, at the end.
   */
  get problem(): Problem {
    const { unary, edges: given } = this.original;
    if (
      this.unary.every((id, v) => id === unary[v]) &&
      this.table.every((id, e) => id === given.table[e])
    )
      return this.original;
    const edges = { ...this.original.edges, table: this.table };
    return {
      ...this.original,
      vectors: this.vectors,
      unary: this.unary,
      tables: this.tables,
      edges,
    };
  }

  private made(key: string, make: () => number): number {
    let id = this.known.get(key);
    if (id === undefined) this.known.set(key, (id = make()));
    return id;
  }
}

/**
 * Costs with the values forbidden that the predicate does not allow; the given array where it
 * allows all.
 */
export function allowOnly(costs: Float64Array, allows: (at: number) => boolean): Float64Array {
  return costs.every((_, at) => allows(at))
    ? costs
    : costs.map((c, at) => (allows(at) ? c : Infinity));
}

/** The problem with all costs 0 but for what is forbidden, under other rows. */
export function withoutCosts(problem: Problem, rows: readonly LinearRow[]): Problem {
  const { usage: _, ...rest } = problem;
  const free = (costs: Float64Array): Float64Array =>
    costs.map((c) => (c === Infinity ? Infinity : 0));
  const tables = problem.tables.map((t) => ({ ...t, costs: free(t.costs) }));
  return { ...rest, constant: 0, tolerance: 0, vectors: problem.vectors.map(free), tables, rows };
}

/** The problem with the amounts of a row for costs, without rows. */
export function rowAsCost(
  problem: Problem,
  row: Pick<LinearRow, 'variables' | 'amounts'>,
): Problem {
  const free = withoutCosts(problem, []);
  const vectors = [...free.vectors];
  const unary = problem.unary.slice();
  row.variables.forEach((v, k) => {
    unary[v] = vectors.push(vectors[unary[v]].map((c, a) => c + row.amounts[k][a])) - 1;
  });
  return { ...free, vectors, unary };
}
