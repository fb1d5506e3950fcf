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
import type { LinearProgram } from './linear-program.ts';
import type { Problem } from './types.ts';

export { lpText } from './lp-text.ts';
export type { LinearProgram } from './linear-program.ts';

/** The program of a choice problem: the choice columns s come first, then the pair columns y. */
export interface ChoiceProgram extends LinearProgram {
  /** Variable and value of each choice column. */
  readonly choiceVariable: Int32Array;
  readonly choiceValue: Int32Array;
  /** Edge and classes of each pair column (column number minus the number of choice columns). */
  readonly pairEdge: Int32Array;
  readonly pairRow: Int32Array;
  readonly pairColumn: Int32Array;
}

/** Size of a program, known before anything large is allocated. Row and nonzero counts are upper bounds. */
export interface ProgramSize {
  readonly binaries: number;
  readonly columns: number;
  readonly rows: number;
  readonly nonzeros: number;
  /** Linear rows and rows of memory over time that some combination of values would break. */
  readonly bindingRows: number;
}

const FORBIDDEN = 1e18;

/** What a table is once rows and columns without a finite cell are set aside. */
interface TableShape {
  readonly rowDead: Uint8Array;
  readonly columnDead: Uint8Array;
  /** Present when the live part is r(p) + k(q). */
  readonly parts?: { readonly row: Float64Array; readonly column: Float64Array };
}

interface FlowEdge {
  readonly edge: number;
  /** 1 for classes that some live value reads. */
  readonly rowUsed: Uint8Array;
  readonly columnUsed: Uint8Array;
}

/** Everything but the arrays: which values live, what they cost, which edges need pair columns. */
interface Outline {
  readonly problem: Problem;
  readonly offset: Int32Array;
  readonly alive: Uint8Array;
  readonly cost: Float64Array;
  readonly flows: readonly FlowEdge[];
  readonly size: ProgramSize;
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

function classOf(problem: Problem, map: number, value: number): number {
  return map < 0 ? value : problem.maps[map][value];
}

function shapeOf(table: Problem['tables'][number]): TableShape {
  const { rows, columns, costs } = table;
  const rowDead = new Uint8Array(rows).fill(1);
  const columnDead = new Uint8Array(columns).fill(1);
  for (let p = 0; p < rows; p++) {
    for (let q = 0; q < columns; q++) {
      if (costs[p * columns + q] < FORBIDDEN) rowDead[p] = columnDead[q] = 0;
    }
  }
  const p0 = rowDead.indexOf(0);
  const q0 = columnDead.indexOf(0);
  const row = new Float64Array(rows);
  const column = new Float64Array(columns);
  if (p0 < 0) return { rowDead, columnDead, parts: { row, column } };
  const corner = costs[p0 * columns + q0];
  for (let p = 0; p < rows; p++) if (rowDead[p] === 0) row[p] = costs[p * columns + q0];
  for (let q = 0; q < columns; q++) if (columnDead[q] === 0) column[q] = costs[p0 * columns + q] - corner;
  for (let p = 0; p < rows; p++) {
    for (let q = 0; q < columns; q++) {
      if (rowDead[p] === 1 || columnDead[q] === 1) continue;
      const w = costs[p * columns + q];
      // Compared as two sums: differences of finite integers below 2^52 are exact.
      if (!(w < FORBIDDEN) || w - row[p] !== column[q]) return { rowDead, columnDead };
    }
  }
  return { rowDead, columnDead, parts: { row, column } };
}

function outline(problem: Problem): Outline {
  const { domains, edges } = problem;
  const n = domains.length;
  const offset = new Int32Array(n + 1);
  for (let i = 0; i < n; i++) offset[i + 1] = offset[i] + domains[i];
  const cost = new Float64Array(offset[n]);
  const alive = new Uint8Array(offset[n]);
  for (let i = 0; i < n; i++) {
    const vector = problem.vectors[problem.unary[i]];
    for (let a = 0; a < domains[i]; a++) {
      alive[offset[i] + a] = vector[a] < FORBIDDEN ? 1 : 0;
      cost[offset[i] + a] = vector[a] < FORBIDDEN ? vector[a] : 0;
    }
  }
  const shapes: (TableShape | undefined)[] = problem.tables.map(() => undefined);
  const flowing: number[] = [];
  for (let e = 0; e < edges.first.length; e++) {
    const [i, j] = [edges.first[e], edges.second[e]];
    const table = problem.tables[edges.table[e]];
    if (i === j) {
      for (let a = 0; a < domains[i]; a++) {
        const p = classOf(problem, edges.firstMap[e], a);
        const w = table.costs[p * table.columns + classOf(problem, edges.secondMap[e], a)];
        if (w < FORBIDDEN) cost[offset[i] + a] += w;
        else alive[offset[i] + a] = 0;
      }
      continue;
    }
    const shape = (shapes[edges.table[e]] ??= shapeOf(table));
    for (const [v, map, dead, part] of [
      [i, edges.firstMap[e], shape.rowDead, shape.parts?.row],
      [j, edges.secondMap[e], shape.columnDead, shape.parts?.column],
    ] as const) {
      for (let a = 0; a < domains[v]; a++) {
        const c = classOf(problem, map, a);
        if (dead[c] === 1) alive[offset[v] + a] = 0;
        else if (part !== undefined) cost[offset[v] + a] += part[c];
      }
    }
    if (shape.parts === undefined) flowing.push(e);
  }
  const living = new Int32Array(n);
  for (let i = 0; i < n; i++) for (let x = offset[i]; x < offset[i + 1]; x++) living[i] += alive[x];
  const used = (v: number, map: number, classes: number): Uint8Array => {
    const flags = new Uint8Array(classes);
    for (let a = 0; a < domains[v]; a++) if (alive[offset[v] + a] === 1) flags[classOf(problem, map, a)] = 1;
    return flags;
  };
  const binaries = alive.reduce((sum, x) => sum + x, 0);
  let [columns, rows, nonzeros] = [binaries, n, binaries];
  const flows = flowing.map((e): FlowEdge => {
    const { rows: height, columns: width, costs } = problem.tables[edges.table[e]];
    const rowUsed = used(edges.first[e], edges.firstMap[e], height);
    const columnUsed = used(edges.second[e], edges.secondMap[e], width);
    let cells = 0;
    for (let p = 0; p < height; p++) {
      if (rowUsed[p] === 0) continue;
      for (let q = 0; q < width; q++) if (columnUsed[q] === 1 && costs[p * width + q] < FORBIDDEN) cells++;
    }
    columns += cells;
    nonzeros += 2 * cells + living[edges.first[e]] + living[edges.second[e]];
    for (const flag of rowUsed) rows += flag;
    for (const flag of columnUsed) rows += flag;
    return { edge: e, rowUsed, columnUsed };
  });
  let bindingRows = 0;
  for (const row of problem.rows ?? []) {
    let largest = 0;
    rows++;
    row.variables.forEach((v, k) => {
      nonzeros += living[v];
      largest += row.amounts[k].reduce((most, u) => Math.max(most, u), 0);
    });
    if (!(largest <= row.bound)) bindingRows++;
  }
  forBindingTimes(problem, undefined, (values) => {
    rows++;
    bindingRows++;
    nonzeros += values;
  });
  return { problem, offset, alive, cost, flows, size: { binaries, columns, rows, nonzeros, bindingRows } };
}

/**
 * Calls `count` with the number of values of the live pieces (and `visit` with the pieces) at every time that can bind:
 * only a time after which something ends can have a maximal live set.
 */
function forBindingTimes(
  problem: Problem,
  visit: ((lo: number, hi: number, live: readonly number[]) => void) | undefined,
  count?: (values: number) => void,
): void {
  const { usage, domains } = problem;
  if (usage === undefined) return;
  const { pieces } = usage;
  const starts = new Map<number, number[]>();
  const ends = new Map<number, number[]>();
  const note = (at: Map<number, number[]>, time: number, id: number): void => {
    const list = at.get(time);
    if (list === undefined) at.set(time, [id]);
    else list.push(id);
  };
  const most = pieces.map((p) => p.amounts.reduce((a, b) => Math.max(a, b), 0));
  pieces.forEach((p, id) => {
    if (p.lo >= p.hi) return;
    note(starts, p.lo, id);
    note(ends, p.hi, id);
  });
  const times = [...new Set([...starts.keys(), ...ends.keys()])].sort((a, b) => a - b);
  const live = new Set<number>();
  let values = 0;
  let largest = 0;
  times.forEach((t, k) => {
    for (const id of ends.get(t) ?? []) {
      live.delete(id);
      values -= domains[pieces[id].variable];
      largest -= most[id];
    }
    for (const id of starts.get(t) ?? []) {
      live.add(id);
      values += domains[pieces[id].variable];
      largest += most[id];
    }
    const next = times[k + 1];
    // An amount that is not a safe integer could round the running sum down; such sums are never dropped.
    const keeps = largest <= usage.limit && Number.isSafeInteger(largest);
    if (next === undefined || !ends.has(next) || live.size === 0 || keeps) return;
    count?.(values);
    visit?.(
      t,
      next,
      [...live].sort((a, b) => a - b),
    );
  });
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
      if (usedColumn === 0 || !(w < FORBIDDEN)) return;
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
  writer.endRow(name, -Infinity, bound >= FORBIDDEN ? Infinity : bound);
}

/** One row per maximal time of the memory over time. */
function addUsageRows(writer: Writer): void {
  const { usage } = writer.plan.problem;
  if (usage === undefined) return;
  forBindingTimes(writer.plan.problem, (lo, hi, live) => {
    const variables = live.map((id) => usage.pieces[id].variable);
    const amounts = live.map((id) => usage.pieces[id].amounts);
    addLinearRow(writer, `memory_${lo}_${hi}`, variables, amounts, usage.limit);
  });
}
