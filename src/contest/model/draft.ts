/**
 * The draft of a reduced problem: composite variables, one table per pair of variables, and a row
 * per distinct time. The steps of the reduction (`merge.ts`, `shrink.ts`, `time-rows.ts`) rewrite
 * it in place; `presolve.ts` freezes the result.
 */

/**
 * Amounts that a variable holds in the rows lo .. hi - 1, one per value; the segments of a variable
 * do not overlap.
 */
export interface Segment {
  readonly lo: number;
  readonly hi: number;
  readonly amounts: Float64Array;
}

/** Cost table of two variables a < b, row-major over (value of a, value of b). */
export interface DraftEdge {
  readonly a: number;
  readonly b: number;
  cells: Float64Array;
}

export interface DraftVariable {
  size: number;
  unary: Float64Array;
  segments: Segment[];
  /** Edge to each neighbour. */
  readonly edges: Map<number, DraftEdge>;
  /** Original variables that are functions of this one: `map[value]` is the original value. */
  members: { readonly variable: number; map: Int32Array }[];
  /**
   * The present place of every value of the beginning: itself, or the value that replaces it; -1
   * for values of no choice at all.
   */
  place: Int32Array;
}

export interface Draft {
  /** Undefined where a variable has been fixed and moved into `constant` and `capacity`. */
  readonly variables: (DraftVariable | undefined)[];
  /** Original variables whose value is settled; -1 elsewhere. */
  readonly settled: Int32Array;
  constant: number;
  /** The capacity that each row still has. */
  capacity: Float64Array;
  /** Number of rows that are times; the linear rows of the problem follow them. */
  timeRows: number;
  /** Original source of every row: a time, or -1 - index of a linear row. */
  sources: Float64Array;
}

/**
 * Keeps the listed values (ascending) of variable i. With `by` every other value has one among them
 * that replaces it; without, the others are in no choice.
 */
export function restrict(draft: Draft, i: number, keep: Int32Array, by?: Int32Array): void {
  const v = draft.variables[i];
  if (v === undefined) throw new Error('internal: a settled variable has no values to keep');
  const pick = (from: Float64Array): Float64Array => {
    const to = new Float64Array(keep.length);
    for (let k = 0; k < keep.length; k++) to[k] = from[keep[k]];
    return to;
  };
  for (const [other, edge] of v.edges) {
    const width = draft.variables[other]?.size ?? 0;
    edge.cells =
      edge.a === i ? rowsOf(edge.cells, width, keep) : columnsOf(edge.cells, v.size, width, keep);
  }
  v.unary = pick(v.unary);
  v.segments = v.segments.map((s) => ({ lo: s.lo, hi: s.hi, amounts: pick(s.amounts) }));
  for (const member of v.members) {
    const { map } = member;
    member.map = keep.map((a) => map[a]);
  }
  const place = new Int32Array(v.size).fill(-1);
  for (let k = 0; k < keep.length; k++) place[keep[k]] = k;
  v.place = v.place.map((a) => (a < 0 ? -1 : place[by === undefined ? a : by[a]]));
  v.size = keep.length;
}

function rowsOf(cells: Float64Array, width: number, keep: Int32Array): Float64Array {
  const out = new Float64Array(keep.length * width);
  for (let k = 0; k < keep.length; k++)
    out.set(cells.subarray(keep[k] * width, (keep[k] + 1) * width), k * width);
  return out;
}

function columnsOf(
  cells: Float64Array,
  size: number,
  rows: number,
  keep: Int32Array,
): Float64Array {
  const out = new Float64Array(rows * keep.length);
  for (let r = 0, at = 0; r < rows; r++)
    for (let k = 0; k < keep.length; k++) out[at++] = cells[r * size + keep[k]];
  return out;
}

/** Removes an edge from both of its ends. */
export function removeEdge(draft: Draft, edge: DraftEdge): void {
  draft.variables[edge.a]?.edges.delete(edge.b);
  draft.variables[edge.b]?.edges.delete(edge.a);
}

/**
 * Settles variable i, which has one value left: costs move to its neighbours and the constant,
 * amounts to the rows.
 */
export function settle(draft: Draft, i: number): void {
  const v = draft.variables[i];
  if (v === undefined) return;
  draft.constant += v.unary[0];
  for (const [other, edge] of v.edges) {
    const w = draft.variables[other];
    if (w !== undefined) for (let b = 0; b < w.size; b++) w.unary[b] += edge.cells[b];
    w?.edges.delete(i);
  }
  for (const s of v.segments) for (let t = s.lo; t < s.hi; t++) draft.capacity[t] -= s.amounts[0];
  for (const { variable, map } of v.members) draft.settled[variable] = map[0];
  draft.variables[i] = undefined;
}
