/**
 * The choice problem as one mixed-integer program in flow form, for the libraries, for `--emit-ilp`
 * and for reading.
 *
 * Variables i with values a; edge e = (i, j) reads its table through classes p = P_e(a), q =
 * Q_e(b). Binary s[i,a] says that i takes a; y[e,p,q] >= 0 says that the edge pays cell (p, q):
 *
 *   minimise c0 + sum_i,a c_i(a) s[i,a] + sum_e,p,q w_e(p,q) y[e,p,q] one sum_a s[i,a] = 1 every
 *   variable i `addOneOf` first sum_q y[e,p,q] - sum_{a: P_e(a)=p} s[i,a] = 0 every edge e, row
 *   class p `addFlow` second sum_p y[e,p,q] - sum_{b: Q_e(b)=q} s[j,b] = 0 every edge e, column
 *   class q `addFlow` row sum_i,a amount_ri(a) s[i,a] <= bound_r every linear row r `addLinearRow`
 *   memory sum of u_q(a) s[i,a] over pieces q of i live at t <= limit every maximal time t
 *   `addUsageRows`
 *
 * Left out: forbidden values and cells, classes that no value reads, edges whose table is zero or
 * separable (w = r(p) + k(q), moved into c_i and c_j), edges of a variable with itself (moved into
 * c_i), times whose live pieces are a subset of a later or earlier time's, and times that even the
 * largest amounts keep. With the s binary the y are integral by themselves. The weaker form y >=
 * s_i + s_j - 1 would be wrong to use: its relaxation is useless.
 *
 * Nothing here is shared with our own engine, so that a second opinion on this program is
 * one.
 */
import type { Problem } from '../types.ts';
import type { LinearProgram } from './linear-program.ts';
import {
  classOf,
  type FlowEdge,
  forBindingTimes,
  type Outline,
  outline,
  type ProgramSize,
} from './outline.ts';
import { ProgramWriter } from './program-writer.ts';

export type { LinearProgram } from './linear-program.ts';
export { lpText } from './lp-text.ts';
export type { ProgramSize } from './outline.ts';

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

/**
 * The integer program of a choice problem; see the head of this file. Costs stay in the problem's
 * integer units.
 */
export function encode(problem: Problem): ChoiceProgram {
  const plan = outline(problem);
  const writer = new ChoiceWriter(plan);
  addOneOf(writer);
  for (const flow of plan.flows) addFlow(writer, flow);
  for (const row of problem.rows ?? [])
    addLinearRow(writer, row.name, row.variables, row.amounts, row.bound);
  addUsageRows(writer);
  return writer.finish();
}

/**
 * The choice that column values spell, or undefined when some variable has not exactly one of its
 * columns at 1 (within 1e-4) and all others at 0: fractional and partial answers are not a choice.
 */
export function decodeColumns(
  problem: Problem,
  lp: ChoiceProgram,
  values: ArrayLike<number>,
): Int32Array | undefined {
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
 * The same program with every row's amounts counted above the least amount of each variable: exact
 * because a variable takes exactly one value. A constant of gigabytes in a row would otherwise
 * drown the bytes that are left to decide.
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
      for (
        ;
        next < end &&
        lp.indices[next] < binaries &&
        lp.choiceVariable[lp.indices[next]] === variable;
        next++
      ) {
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
export function encodeChoice(
  problem: Problem,
  lp: ChoiceProgram,
  choice: Int32Array,
): Float64Array {
  const { first, second, firstMap, secondMap } = problem.edges;
  const values = new Float64Array(lp.columns);
  const binaries = lp.choiceVariable.length;
  for (let j = 0; j < binaries; j++)
    if (choice[lp.choiceVariable[j]] === lp.choiceValue[j]) values[j] = 1;
  for (let k = 0; k < lp.pairEdge.length; k++) {
    const e = lp.pairEdge[k];
    const p = classOf(problem, firstMap[e], choice[first[e]]);
    const q = classOf(problem, secondMap[e], choice[second[e]]);
    if (p === lp.pairRow[k] && q === lp.pairColumn[k]) values[binaries + k] = 1;
  }
  return values;
}

/** The program as it is written: its arrays, and what each column and row is. */
class ChoiceWriter extends ProgramWriter {
  readonly plan: Outline;
  /** Column of a value, by offset; -1 for values that are left out. */
  readonly columnOf: Int32Array;
  private readonly choices: Pick<ChoiceProgram, 'choiceVariable' | 'choiceValue'>;
  private readonly pairs: Pick<ChoiceProgram, 'pairEdge' | 'pairRow' | 'pairColumn'>;
  private readonly rowNames: string[] = [];
  private pairCount = 0;

  constructor(plan: Outline) {
    const { size, problem, offset } = plan;
    if (size.nonzeros >= 2 ** 31 || size.columns >= 2 ** 31) {
      throw new Error(
        `the integer program is too large to write: ${size.columns} columns, ` +
          `${size.nonzeros} nonzeros`,
      );
    }
    super(size.nonzeros);
    const list = (length: number): Int32Array => new Int32Array(length);
    const pairs = size.columns - size.binaries;
    this.choices = { choiceVariable: list(size.binaries), choiceValue: list(size.binaries) };
    this.pairs = { pairEdge: list(pairs), pairRow: list(pairs), pairColumn: list(pairs) };
    this.plan = plan;
    this.columnOf = new Int32Array(plan.alive.length).fill(-1);
    for (let i = 0; i < problem.domains.length; i++)
      for (let a = 0, x = offset[i]; x < offset[i + 1]; a++, x++) {
        if (plan.alive[x] === 0) continue;
        const column = (this.columnOf[x] = this.binary(plan.cost[x]));
        this.choices.choiceVariable[column] = i;
        this.choices.choiceValue[column] = a;
      }
  }

  pair(edge: number, row: number, column: number, cost: number): number {
    const k = this.pairCount++;
    this.pairs.pairEdge[k] = edge;
    this.pairs.pairRow[k] = row;
    this.pairs.pairColumn[k] = column;
    return this.column(cost, Infinity);
  }

  /** Names the row that is written next. */
  named(name: string): this {
    this.rowNames.push(name);
    return this;
  }

  finish(): ChoiceProgram {
    const { choiceVariable: variable, choiceValue: value } = this.choices;
    const { pairEdge: edge, pairRow: row, pairColumn: column } = this.pairs;
    const names = this.rowNames;
    return {
      name: this.plan.problem.name ?? 'choice problem',
      constant: this.plan.problem.constant ?? 0,
      ...this.arrays(),
      columnName: (j) => {
        const k = j - variable.length;
        return k < 0 ? `s_${variable[j]}_${value[j]}` : `y_${edge[k]}_${row[k]}_${column[k]}`;
      },
      rowName: (r) => names[r],
      ...this.choices,
      ...this.pairs,
    };
  }
}

/** Every variable takes exactly one value. */
function addOneOf(writer: ChoiceWriter): void {
  const { offset } = writer.plan;
  for (let i = 0; i + 1 < offset.length; i++)
    writer.named(`one_${i}`).oneOf(writer.columnOf.subarray(offset[i], offset[i + 1]));
}

/** Pair columns of an edge and the rows that tie them to the choices at both ends. */
function addFlow(writer: ChoiceWriter, { edge, rowUsed, columnUsed }: FlowEdge): void {
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
      const y = writer.pair(edge, p, q, w);
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
      if (flag === 1) writer.named(`${side}_${edge}_${c}`).flow(members[c], pairs[c]);
    });
  }
}

/** Sum of amounts <= bound; amounts of a variable that is named twice add up. */
function addLinearRow(
  writer: ChoiceWriter,
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
  writer.named(name).endRow(-Infinity, bound);
}

/** One row per maximal time of the usage over time. */
function addUsageRows(writer: ChoiceWriter): void {
  const { usage } = writer.plan.problem;
  if (usage === undefined) return;
  forBindingTimes(writer.plan.problem, (lo, hi, live) => {
    const variables = live.map((id) => usage.pieces[id].variable);
    const amounts = live.map((id) => usage.pieces[id].amounts);
    addLinearRow(writer, `memory_${lo}_${hi}`, variables, amounts, usage.limit);
  });
}
