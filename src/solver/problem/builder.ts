/**
 * Building a `Problem`: vectors, class maps and tables are stored once by content, so that equal
 * layers get equal ids.
 */
import { defined } from '../../defined.ts';
import type { LinearRow, Problem, UsagePiece } from '../types.ts';
import { checkProblem, MalformedProblem } from './check-problem.ts';

/**
 * How an edge end reads its table: `of[value]` is the row (column), out of `classes`; absent: the
 * value itself.
 */
export interface End {
  readonly classes: number;
  readonly of: Int32Array;
}

interface CostTable {
  readonly rows: number;
  readonly columns: number;
  readonly costs: Float64Array;
}

class ByContent {
  private readonly buckets = new Map<number, number[]>();

  /** Index of an equal earlier array, or of this one (`next`). */
  find(words: Int32Array, next: number, equal: (earlier: number) => boolean): number {
    let h = words.length | 0;
    for (let i = 0; i < words.length; i++) {
      h = Math.imul(h ^ words[i], 0x9e3779b1);
      h ^= h >>> 15;
    }
    const bucket = this.buckets.get(h);
    if (bucket === undefined) {
      this.buckets.set(h, [next]);
      return next;
    }
    for (const earlier of bucket) if (equal(earlier)) return earlier;
    bucket.push(next);
    return next;
  }
}

function bits(v: Float64Array): Int32Array {
  return new Int32Array(v.buffer, v.byteOffset, v.length * 2);
}

function sameFloats(a: Float64Array, b: Float64Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/**
 * Collects variables, edges, rows and usage pieces; `build()` validates and returns the problem.
 *
 * Arrays that are handed over belong to the builder from then on. Costs must be integers or
 * `Infinity`.
 */
export class ProblemBuilder {
  private readonly domains: number[] = [];
  private readonly unary: number[] = [];
  private readonly vectors: Float64Array[] = [];
  private readonly tables: CostTable[] = [];
  private readonly maps: Int32Array[] = [];
  private readonly first: number[] = [];
  private readonly second: number[] = [];
  private readonly table: number[] = [];
  private readonly firstMap: number[] = [];
  private readonly secondMap: number[] = [];
  private readonly rows: LinearRow[] = [];
  private readonly pieces: UsagePiece[] = [];
  private readonly vectorIndex = new ByContent();
  private readonly tableIndex = new ByContent();
  private readonly mapIndex = new ByContent();
  private readonly tableByArray = new Map<Float64Array, number>();
  private limit: number | undefined;
  /** Added to every objective. */
  constant = 0;
  name: string | undefined;

  /** Adds a variable with one value per entry of `unary` and returns its number. */
  addVariable(unary: Float64Array): number {
    this.domains.push(unary.length);
    this.unary.push(this.internVector(unary));
    return this.domains.length - 1;
  }

  /**
   * Adds an edge with a row-major table over (values or classes of i) x (values or classes of j)
   * and returns its number. The same array object may be passed for many edges: it is hashed once.
   */
  addEdge(i: number, j: number, table: Float64Array, first?: End, second?: End): number {
    this.first.push(i);
    this.second.push(j);
    let id = this.tableByArray.get(table);
    const rows = first === undefined ? this.domains[i] : first.classes;
    const columns = second === undefined ? this.domains[j] : second.classes;
    if (id === undefined || this.tables[id].rows !== rows) {
      const { length } = this.tables;
      id = this.tableIndex.find(bits(table), length, (t) => {
        const known = this.tables[t];
        return known.rows === rows && sameFloats(known.costs, table);
      });
      if (id === length) this.tables.push({ rows, columns, costs: table });
      this.tableByArray.set(table, id);
    }
    this.table.push(id);
    this.firstMap.push(this.internMap(first));
    this.secondMap.push(this.internMap(second));
    return this.first.length - 1;
  }

  /** Adds a linear row: sum of amounts <= bound. */
  addRow(row: LinearRow): void {
    this.rows.push(row);
  }

  /** Adds a usage piece: `variable` holds `amounts[value]` during [lo, hi). Needs `setLimit`. */
  addUsage(piece: UsagePiece): void {
    this.pieces.push(piece);
  }

  /** Limit of the usage at every time. */
  setLimit(limit: number): void {
    this.limit = limit;
  }

  /** The finished, validated problem. Throws `MalformedProblem`. */
  build(): Problem {
    if (this.pieces.length > 0 && this.limit === undefined) {
      throw new MalformedProblem('it has usage pieces and no limit; call setLimit before build');
    }
    const problem: Problem = {
      ...defined({ name: this.name }),
      domains: Int32Array.from(this.domains),
      unary: Int32Array.from(this.unary),
      vectors: this.vectors,
      edges: {
        first: Int32Array.from(this.first),
        second: Int32Array.from(this.second),
        table: Int32Array.from(this.table),
        firstMap: Int32Array.from(this.firstMap),
        secondMap: Int32Array.from(this.secondMap),
      },
      tables: this.tables,
      maps: this.maps,
      constant: this.constant,
      rows: this.rows,
      ...(this.limit === undefined ? {} : { usage: { pieces: this.pieces, limit: this.limit } }),
    };
    checkProblem(problem);
    return problem;
  }

  private internVector(v: Float64Array): number {
    const { length } = this.vectors;
    const id = this.vectorIndex.find(bits(v), length, (t) => sameFloats(this.vectors[t], v));
    if (id === length) this.vectors.push(v);
    return id;
  }

  private internMap(end: End | undefined): number {
    if (end === undefined) return -1;
    const { length } = this.maps;
    const id = this.mapIndex.find(end.of, length, (t) => {
      const known = this.maps[t];
      return known.length === end.of.length && end.of.every((c, v) => c === known[v]);
    });
    if (id === length) this.maps.push(end.of);
    return id;
  }
}
