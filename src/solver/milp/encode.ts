/**
 * The choice problem as one mixed-integer program in flow form, for the libraries, for `--emit-ilp` and for reading.
 *
 * Variables i with values a; edge e = (i, j) reads its table through classes p = P_e(a), q = Q_e(b). Binary s[i,a] says
 * that i takes a; y[e,p,q] >= 0 says that the edge pays cell (p, q):
 *
 *   minimise    c0 + sum_i,a c_i(a) s[i,a] + sum_e,p,q w_e(p,q) y[e,p,q]
 *   one         sum_a s[i,a] = 1                                        every variable i            `addOneOf`
 *   first       sum_q y[e,p,q] - sum_{a: P_e(a)=p} s[i,a] = 0           every edge e, row class p   `addFlow`
 *   second      sum_p y[e,p,q] - sum_{b: Q_e(b)=q} s[j,b] = 0           every edge e, column class q `addFlow`
 *   row         sum_i,a amount_ri(a) s[i,a] <= bound_r                  every linear row r          `addLinearRow`
 *   memory      sum of u_q(a) s[i,a] over pieces q of i live at t <= limit   every maximal time t   `addUsageRows`
 *
 * Left out: forbidden values and cells, classes that no value reads, edges whose table is zero or separable
 * (w = r(p) + k(q), moved into c_i and c_j), edges of a variable with itself (moved into c_i), times whose live pieces are
 * a subset of a later or earlier time's, and times that even the largest amounts keep. With the s binary the y are
 * integral by themselves. The weaker form y >= s_i + s_j - 1 would be wrong to use: its relaxation is useless.
 *
 * Nothing here is shared with the room's own engine, so that a second opinion on this program is one.
 */
import { classOf, type FlowEdge, forBindingTimes, type Outline, outline, type ProgramSize } from './outline.ts';
import type { LinearProgram } from './linear-program.ts';
import type { Problem } from '../types.ts';

export { lpText } from './lp-text.ts';
export type { ProgramSize } from './outline.ts';
export type { LinearProgram } from './linear-program.ts';

/** The program of a choice problem: the choice columns s come first, then the pair columns y. */
interface ChoiceProgram extends LinearProgram {
  /** Variable and value of each choice column. */
  readonly choiceVariable: Int32Array;
  readonly choiceValue: Int32Array;
  /** Edge and classes of each pair column (column number minus the number of choice columns). */
  readonly pairEdge: Int32Array;
  readonly pairRow: Int32Array;
  readonly pairColumn: Int32Array;
}

/** Columns, rows and nonzeros that `encode` would make, without making them. */
export function programSize(problem: Problem): ProgramSize {
  return outline(problem).size;
}

/** The integer program of a choice problem; see the head of this file. Costs stay in the problem's integer units. */
export function encode(problem: Problem): ChoiceProgram {
  const plan = outline(problem);
  const writer = new Writer(plan);
  addOneOf(writer);
  for (const flow of plan.flows) addFlow(writer, flow);
  for (const row of problem.rows ?? []) addLinearRow(writer, row.name, row.variables, row.amounts, row.bound);
  addUsageRows(writer);
  return writer.finish();
}

/**
 * The choice that column values spell, or undefined when some variable has not exactly one of its columns at 1 (within
 * 1e-4) and all others at 0: fractional and partial answers are no choice.
 */
export function decodeColumns(problem: Problem, lp: ChoiceProgram, values: ArrayLike<number>): Int32Array | undefined {
  const choice = new Int32Array(problem.domains.length).fill(-1);
  for (let j = 0; j < lp.choiceVariable.length; j++) {
    const x = values[j];
    if (Math.abs(x) <= 1e-4) continue;
    if (!(Math.abs(x - 1) <= 1e-4) || choice[lp.choiceVariable[j]] >= 0) return undefined;
    choice[lp.choiceVariable[j]] = lp.choiceValue[j];
  }
  return choice.includes(-1) ? undefined : choice;
}

/**
 * The same program with every row's amounts counted above the least amount of each variable: exact because a variable
 * takes exactly one value. A constant of gigabytes in a row would otherwise drown the bytes that are left to decide.
 */
export function aboveLeast(lp: ChoiceProgram): ChoiceProgram {
  const binaries = lp.choiceVariable.length;
  const columnsOf = new Map<number, number>();
  for (const v of lp.choiceVariable) columnsOf.set(v, (columnsOf.get(v) ?? 0) + 1);
  const values = lp.values.slice();
  const rowLower = lp.rowLower.slice();
  const rowUpper = lp.rowUpper.slice();
  for (let r = 0; r < lp.rows; r++) {
    if (rowLower[r] !== -Infinity) continue;
    const end = lp.starts[r + 1];
    for (let k = lp.starts[r]; k < end;) {
      const variable = lp.indices[k] < binaries ? lp.choiceVariable[lp.indices[k]] : -1;
      let [next, least] = [k, Infinity];
      for (; next < end && lp.indices[next] < binaries && lp.choiceVariable[lp.indices[next]] === variable; next++) {
        least = Math.min(least, values[next]);
      }
      if (next === k) next++;
      else if (next - k === columnsOf.get(variable)) {
        for (let m = k; m < next; m++) values[m] -= least;
        rowUpper[r] -= least;
      }
      k = next;
    }
  }
  return { ...lp, values, rowLower, rowUpper };
}

/** Column values of a choice: the start that a library is given. */
export function encodeChoice(problem: Problem, lp: ChoiceProgram, choice: Int32Array): Float64Array {
  const { first, second, firstMap, secondMap } = problem.edges;
  const values = new Float64Array(lp.columns);
  const binaries = lp.choiceVariable.length;
  for (let j = 0; j < binaries; j++) if (choice[lp.choiceVariable[j]] === lp.choiceValue[j]) values[j] = 1;
  for (let k = 0; k < lp.pairEdge.length; k++) {
    const e = lp.pairEdge[k];
    const p = classOf(problem, firstMap[e], choice[first[e]]);
    const q = classOf(problem, secondMap[e], choice[second[e]]);
    if (p === lp.pairRow[k] && q === lp.pairColumn[k]) values[binaries + k] = 1;
  }
  return values;
}

/** Fills the arrays of the program; capacities come from the outline. */
class Writer {
  readonly plan: Outline;
  /** Column of a value, by offset; -1 for values that are left out. */
  readonly columnOf: Int32Array;
  readonly #cost: Float64Array;
  readonly #choiceVariable: Int32Array;
  readonly #choiceValue: Int32Array;
  readonly #pairEdge: Int32Array;
  readonly #pairRow: Int32Array;
  readonly #pairColumn: Int32Array;
  readonly #starts: Int32Array;
  readonly #indices: Int32Array;
  readonly #values: Float64Array;
  readonly #rowLower: Float64Array;
  readonly #rowUpper: Float64Array;
  readonly #rowNames: string[] = [];
  #columns: number;
  #rows = 0;
  #entries = 0;

  constructor(plan: Outline) {
    const { size, problem } = plan;
    if (size.nonzeros >= 2 ** 31 || size.columns >= 2 ** 31) {
      throw new Error(`the integer program is too large to write: ${size.columns} columns, ${size.nonzeros} nonzeros`);
    }
    this.plan = plan;
    this.columnOf = new Int32Array(plan.alive.length).fill(-1);
    this.#cost = new Float64Array(size.columns);
    this.#choiceVariable = new Int32Array(size.binaries);
    this.#choiceValue = new Int32Array(size.binaries);
    const pairs = size.columns - size.binaries;
    this.#pairEdge = new Int32Array(pairs);
    this.#pairRow = new Int32Array(pairs);
    this.#pairColumn = new Int32Array(pairs);
    this.#starts = new Int32Array(size.rows + 1);
    this.#indices = new Int32Array(size.nonzeros);
    this.#values = new Float64Array(size.nonzeros);
    this.#rowLower = new Float64Array(size.rows);
    this.#rowUpper = new Float64Array(size.rows);
    let column = 0;
    for (let i = 0; i < problem.domains.length; i++) {
      for (let a = 0; a < problem.domains[i]; a++) {
        const x = plan.offset[i] + a;
        if (plan.alive[x] === 0) continue;
        this.columnOf[x] = column;
        this.#cost[column] = plan.cost[x];
        this.#choiceVariable[column] = i;
        this.#choiceValue[column++] = a;
      }
    }
    this.#columns = column;
  }

  addPair(edge: number, row: number, column: number, cost: number): number {
    const k = this.#columns - this.#choiceVariable.length;
    this.#pairEdge[k] = edge;
    this.#pairRow[k] = row;
    this.#pairColumn[k] = column;
    this.#cost[this.#columns] = cost;
    return this.#columns++;
  }

  entry(column: number, value: number): void {
    this.#indices[this.#entries] = column;
    this.#values[this.#entries++] = value;
  }

  endRow(name: string, lower: number, upper: number): void {
    this.#rowLower[this.#rows] = lower;
    this.#rowUpper[this.#rows] = upper;
    this.#rowNames.push(name);
    this.#starts[++this.#rows] = this.#entries;
  }

  finish(): ChoiceProgram {
    const columns = this.#columns;
    const binaries = this.#choiceVariable.length;
    const [variable, value] = [this.#choiceVariable, this.#choiceValue];
    const [edge, row, column] = [this.#pairEdge, this.#pairRow, this.#pairColumn];
    const names = this.#rowNames;
    return {
      name: this.plan.problem.name ?? 'choice problem',
      constant: this.plan.problem.constant ?? 0,
      columns,
      rows: this.#rows,
      cost: this.#cost,
      lower: new Float64Array(columns),
      upper: new Float64Array(columns).fill(1, 0, binaries).fill(Infinity, binaries),
      integer: new Uint8Array(columns).fill(1, 0, binaries),
      starts: this.#starts.slice(0, this.#rows + 1),
      indices: this.#indices.slice(0, this.#entries),
      values: this.#values.slice(0, this.#entries),
      rowLower: this.#rowLower.slice(0, this.#rows),
      rowUpper: this.#rowUpper.slice(0, this.#rows),
      columnName: (j) => {
        const k = j - binaries;
        return k < 0 ? `s_${variable[j]}_${value[j]}` : `y_${edge[k]}_${row[k]}_${column[k]}`;
      },
      rowName: (r) => names[r],
      choiceVariable: variable,
      choiceValue: value,
      pairEdge: edge,
      pairRow: row,
      pairColumn: column,
    };
  }
}

/** Every variable takes exactly one value. */
function addOneOf(writer: Writer): void {
  const { offset } = writer.plan;
  for (let i = 0; i + 1 < offset.length; i++) {
    for (let x = offset[i]; x < offset[i + 1]; x++) if (writer.columnOf[x] >= 0) writer.entry(writer.columnOf[x], 1);
    writer.endRow(`one_${i}`, 1, 1);
  }
}

/** Pair columns of an edge and the rows that tie them to the choices at both ends. */
function addFlow(writer: Writer, { edge, rowUsed, columnUsed }: FlowEdge): void {
  const { problem, offset } = writer.plan;
  const { edges } = problem;
  const { columns: width, costs } = problem.tables[edges.table[edge]];
  const byRow: number[][] = Array.from(rowUsed, () => []);
  const byColumn: number[][] = Array.from(columnUsed, () => []);
  rowUsed.forEach((usedRow, p) => {
    if (usedRow === 0) return;
    columnUsed.forEach((usedColumn, q) => {
      const w = costs[p * width + q];
      if (usedColumn === 0 || w === Infinity) return;
      const y = writer.addPair(edge, p, q, w);
      byRow[p].push(y);
      byColumn[q].push(y);
    });
  });
  for (const [side, v, map, used, pairs] of [
    ['first', edges.first[edge], edges.firstMap[edge], rowUsed, byRow],
    ['second', edges.second[edge], edges.secondMap[edge], columnUsed, byColumn],
  ] as const) {
    const members: number[][] = Array.from(used, () => []);
    for (let a = 0; a < problem.domains[v]; a++) {
      const s = writer.columnOf[offset[v] + a];
      if (s >= 0) members[classOf(problem, map, a)].push(s);
    }
    used.forEach((flag, c) => {
      if (flag === 0) return;
      for (const s of members[c]) writer.entry(s, -1);
      for (const y of pairs[c]) writer.entry(y, 1);
      writer.endRow(`${side}_${edge}_${c}`, 0, 0);
    });
  }
}

/** Sum of amounts <= bound; amounts of a variable that is named twice add up. */
function addLinearRow(
  writer: Writer,
  name: string,
  variables: ArrayLike<number>,
  amounts: readonly Float64Array[],
  bound: number,
): void {
  const { offset } = writer.plan;
  const sums = new Map<number, number>();
  for (let k = 0; k < variables.length; k++) {
    amounts[k].forEach((u, a) => {
      const s = writer.columnOf[offset[variables[k]] + a];
      if (s >= 0 && u !== 0) sums.set(s, (sums.get(s) ?? 0) + u);
    });
  }
  for (const s of [...sums.keys()].sort((a, b) => a - b)) writer.entry(s, sums.get(s) ?? 0);
  writer.endRow(name, -Infinity, bound);
}

/** One row per maximal time of the usage over time. */
function addUsageRows(writer: Writer): void {
  const { usage } = writer.plan.problem;
  if (usage === undefined) return;
  forBindingTimes(writer.plan.problem, (lo, hi, live) => {
    const variables = live.map((id) => usage.pieces[id].variable);
    const amounts = live.map((id) => usage.pieces[id].amounts);
    addLinearRow(writer, `memory_${lo}_${hi}`, variables, amounts, usage.limit);
  });
}
