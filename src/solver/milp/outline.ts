/**
 * Outlines the integer program of a choice problem: the values that live, their costs, the edges
 * that take pair columns, and the size of the program. See `encode.ts`.
 */
import type { Problem } from '../types.ts';

/**
 * Size of a program, known before anything large is allocated. Row and nonzero counts are upper
 * bounds.
 */
export interface ProgramSize {
  readonly binaries: number;
  readonly columns: number;
  readonly rows: number;
  readonly nonzeros: number;
  /** Linear rows and rows of usage over time that some combination of values would break. */
  readonly bindingRows: number;
}

/** The shape of a table once rows and columns without a finite cell are set aside. */
interface TableShape {
  readonly rowDead: Uint8Array;
  readonly columnDead: Uint8Array;
  /** Present when the live part is r(p) + k(q). */
  readonly parts?: { readonly row: Float64Array; readonly column: Float64Array };
}

export interface FlowEdge {
  readonly edge: number;
  /** 1 for classes that some live value reads. */
  readonly rowUsed: Uint8Array;
  readonly columnUsed: Uint8Array;
}

/** Everything but the arrays: which values live, what they cost, which edges need pair columns. */
export interface Outline {
  readonly problem: Problem;
  readonly offset: Int32Array;
  readonly alive: Uint8Array;
  readonly cost: Float64Array;
  readonly flows: readonly FlowEdge[];
  readonly size: ProgramSize;
}

export function classOf(problem: Problem, map: number, value: number): number {
  return map < 0 ? value : problem.maps[map][value];
}

function shapeOf(table: Problem['tables'][number]): TableShape {
  const { rows, columns, costs } = table;
  const rowDead = new Uint8Array(rows).fill(1);
  const columnDead = new Uint8Array(columns).fill(1);
  for (let p = 0; p < rows; p++) {
    for (let q = 0; q < columns; q++) {
      if (costs[p * columns + q] < Infinity) rowDead[p] = columnDead[q] = 0;
    }
  }
  const p0 = rowDead.indexOf(0);
  const q0 = columnDead.indexOf(0);
  const row = new Float64Array(rows);
  const column = new Float64Array(columns);
  if (p0 < 0) return { rowDead, columnDead, parts: { row, column } };
  const corner = costs[p0 * columns + q0];
  for (let p = 0; p < rows; p++) if (rowDead[p] === 0) row[p] = costs[p * columns + q0];
  for (let q = 0; q < columns; q++)
    if (columnDead[q] === 0) column[q] = costs[p0 * columns + q] - corner;
  for (let p = 0; p < rows; p++) {
    for (let q = 0; q < columns; q++) {
      if (rowDead[p] === 1 || columnDead[q] === 1) continue;
      const w = costs[p * columns + q];
      // Compared as two sums: differences of finite integers below 2^52 are exact.
      if (w === Infinity || w - row[p] !== column[q]) return { rowDead, columnDead };
    }
  }
  return { rowDead, columnDead, parts: { row, column } };
}

export function outline(problem: Problem): Outline {
  const { domains } = problem;
  const n = domains.length;
  const values = valuesAlone(problem);
  const flowing = addEdges(problem, values);
  const { offset, alive, cost } = values;
  const living = new Int32Array(n);
  for (let i = 0; i < n; i++) for (let x = offset[i]; x < offset[i + 1]; x++) living[i] += alive[x];
  const binaries = alive.reduce((sum, x) => sum + x, 0);
  const flows = flowing.map((e) => flowOf(problem, values, e));
  const size = { binaries, columns: binaries, rows: n, nonzeros: binaries, bindingRows: 0 };
  for (const flow of flows) countFlow(size, problem, living, flow);
  countRows(size, problem, living);
  return { problem, offset, alive, cost, flows, size };
}

/** Which values live, and what they cost: the values of variable i begin at `offset[i]`. */
type Values = Pick<Outline, 'offset' | 'alive' | 'cost'>;

function valuesAlone({ domains, vectors, unary }: Problem): Values {
  const n = domains.length;
  const offset = new Int32Array(n + 1);
  for (let i = 0; i < n; i++) offset[i + 1] = offset[i] + domains[i];
  const cost = new Float64Array(offset[n]);
  const alive = new Uint8Array(offset[n]);
  for (let i = 0; i < n; i++) {
    const vector = vectors[unary[i]];
    for (let a = 0; a < domains[i]; a++) {
      alive[offset[i] + a] = vector[a] < Infinity ? 1 : 0;
      cost[offset[i] + a] = vector[a] < Infinity ? vector[a] : 0;
    }
  }
  return { offset, alive, cost };
}

/** Adds edges whose costs are sums of two parts; the others, which take pair columns. */
function addEdges(problem: Problem, { offset, alive, cost }: Values): number[] {
  const { domains, edges, tables } = problem;
  const shapes: (TableShape | undefined)[] = tables.map(() => undefined);
  const flowing: number[] = [];
  for (let e = 0; e < edges.first.length; e++) {
    const [i, j] = [edges.first[e], edges.second[e]];
    const table = tables[edges.table[e]];
    if (i === j) {
      for (let a = 0; a < domains[i]; a++) {
        const p = classOf(problem, edges.firstMap[e], a);
        const w = table.costs[p * table.columns + classOf(problem, edges.secondMap[e], a)];
        if (w < Infinity) cost[offset[i] + a] += w;
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
  return flowing;
}

function flowOf(problem: Problem, { offset, alive }: Values, edge: number): FlowEdge {
  const { domains, edges, tables } = problem;
  const { rows, columns } = tables[edges.table[edge]];
  const used = (v: number, map: number, classes: number): Uint8Array => {
    const flags = new Uint8Array(classes);
    for (let a = 0; a < domains[v]; a++)
      if (alive[offset[v] + a] === 1) flags[classOf(problem, map, a)] = 1;
    return flags;
  };
  return {
    edge,
    rowUsed: used(edges.first[edge], edges.firstMap[edge], rows),
    columnUsed: used(edges.second[edge], edges.secondMap[edge], columns),
  };
}

/** A size that is being counted. */
type Count = { -readonly [K in keyof ProgramSize]: ProgramSize[K] };

/** Counts the columns of an edge, one for each pair of live classes, and its rows. */
function countFlow(
  size: Count,
  { edges, tables }: Problem,
  living: Int32Array,
  { edge, rowUsed, columnUsed }: FlowEdge,
): void {
  const { rows: height, columns: width, costs } = tables[edges.table[edge]];
  let cells = 0;
  for (let p = 0; p < height; p++) {
    if (rowUsed[p] === 0) continue;
    for (let q = 0; q < width; q++)
      if (columnUsed[q] === 1 && costs[p * width + q] < Infinity) cells++;
  }
  size.columns += cells;
  size.nonzeros += 2 * cells + living[edges.first[edge]] + living[edges.second[edge]];
  for (const flag of rowUsed) size.rows += flag;
  for (const flag of columnUsed) size.rows += flag;
}

/** Counts the rows of the problem, and those of its usage over time. */
function countRows(size: Count, problem: Problem, living: Int32Array): void {
  for (const row of problem.rows ?? []) {
    let largest = 0;
    size.rows++;
    row.variables.forEach((v, k) => {
      size.nonzeros += living[v];
      largest += row.amounts[k].reduce((most, u) => Math.max(most, u), 0);
    });
    if (!(largest <= row.bound)) size.bindingRows++;
  }
  forBindingTimes(problem, undefined, (values) => {
    size.rows++;
    size.bindingRows++;
    size.nonzeros += values;
  });
}

/**
 * Calls `count` with the number of values of the live pieces (and `visit` with the pieces) at every
 * time that can bind: only a time after which something ends can have a maximal live set.
 */
export function forBindingTimes(
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
    // An amount that is not a safe integer could round the running sum down; such sums are never
    // dropped.
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
