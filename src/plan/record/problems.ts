/**
 * The problems behind a plan as plain data, `problems.json.gz` of a plan folder: what a second
 * checker needs beside the certificate. `docs/certificates.md` says what stands where. Lists that
 * several problems share are written once; null is a forbidden value, or a row without a bound.
 */
import { hashProblem } from '../../solver/check/verify.ts';
import type { Problem } from '../../solver/types.ts';

/** A problem and what it is for: `plan`, `free`, `leastBytes` or `within`. */
export interface NamedProblem {
  readonly about: string;
  readonly problem: Problem;
  readonly unitsPerSecond: number;
}

/** The content of `problems.json.gz`, as JSON. */
interface ProblemsRecord {
  readonly version: 1;
  readonly choice: readonly number[];
  readonly problems: readonly object[];
  readonly vectors: readonly (readonly (number | null)[])[];
  readonly maps: readonly (readonly number[])[];
  readonly tables: readonly object[];
}

/** @param choice of the first problem: the values that the plan has */
export function problemsRecord(
  problems: readonly NamedProblem[],
  choice: ArrayLike<number>,
): ProblemsRecord {
  const vectors = new Written((list: Float64Array) => Array.from(list, orNull));
  const maps = new Written((list: Int32Array) => Array.from(list));
  const tables = new Written(({ rows, columns, costs }: Problem['tables'][number]) => ({
    rows,
    columns,
    costs: vectors.idOf(costs),
  }));
  const records = problems.map(({ about, problem, unitsPerSecond }) => {
    const { domains, unary, edges, usage, rows = [], constant = 0, tolerance = 0 } = problem;
    const { first, second, table, firstMap, secondMap } = edges;
    return {
      about,
      hash: hashProblem(problem),
      unitsPerSecond,
      constant,
      tolerance,
      domains: Array.from(domains),
      unary: Array.from(unary),
      vectors: problem.vectors.map((list) => vectors.idOf(list)),
      edges: [first, second, table, firstMap, secondMap].map((list) => Array.from(list)),
      maps: problem.maps.map((list) => maps.idOf(list)),
      tables: problem.tables.map((t) => tables.idOf(t)),
      rows: rows.map((row) => ({
        name: row.name,
        variables: Array.from(row.variables),
        amounts: row.amounts.map((list) => vectors.idOf(list)),
        bound: orNull(row.bound),
      })),
      usage:
        usage === undefined
          ? null
          : {
              limit: orNull(usage.limit),
              pieces: usage.pieces.map((p) => [p.variable, p.lo, p.hi, vectors.idOf(p.amounts)]),
            },
    };
  });
  return {
    version: 1,
    choice: Array.from(choice),
    problems: records,
    vectors: vectors.all,
    maps: maps.all,
    tables: tables.all,
  };
}

/** Objects in the order in which they are first asked for, each written once. */
class Written<T extends object, W> {
  readonly all: W[] = [];
  private readonly ids = new Map<T, number>();

  constructor(private readonly write: (object: T) => W) {}

  idOf(object: T): number {
    let id = this.ids.get(object);
    if (id === undefined) {
      const written = this.write(object);
      id = this.all.push(written) - 1;
      this.ids.set(object, id);
    }
    return id;
  }
}

function orNull(x: number): number | null {
  return Number.isFinite(x) ? x : null;
}
