/**
 * The model that search and bounds run on: flat typed arrays, so that it can be shared between
 * threads as it is.
 *
 *   minimise constant + sum_i unary_i(x_i) + sum_e cells_e(x_first, x_second)
 *   subject to, in every row t, the sum of the amounts of the segments that cover t <= capacity_t
 *
 * Infinity in a cost is the only token for "forbidden".
 */
import type { Draft, DraftEdge, DraftVariable } from './draft.ts';

export interface Model {
  /** Number of variables. */
  readonly count: number;
  /** Number of values of every variable. */
  readonly sizes: Int32Array;
  /**
   * Values of variable i are start[i] .. start[i + 1] - 1 in `unary` and in every per-value array.
   */
  readonly start: Int32Array;
  readonly unary: Float64Array;
  readonly constant: number;
  /** Endpoints of every edge, first < second. */
  readonly first: Int32Array;
  readonly second: Int32Array;
  /**
   * The place in `cells` where the table of an edge begins; row-major over (first, second). Equal
   * tables are stored once.
   */
  readonly table: Int32Array;
  /** The place in `cells` where the transposed table begins. */
  readonly transposed: Int32Array;
  readonly cells: Float64Array;
  /** Incidences of variable i: incident[i] .. incident[i + 1] - 1. */
  readonly incident: Int32Array;
  /**
   * Edge, neighbour and the table seen from i (row-major over (own value, neighbour value)) of
   * every incidence.
   */
  readonly edge: Int32Array;
  readonly other: Int32Array;
  readonly view: Int32Array;
  /** Rows: times first, then linear rows. */
  readonly rows: number;
  readonly capacity: Float64Array;
  /** Origin of every row in the problem: a time, or -1 - index of a linear row. */
  readonly sources: Float64Array;
  /** Segments of variable i: segment[i] .. segment[i + 1] - 1; each covers rows lo .. hi - 1. */
  readonly segment: Int32Array;
  readonly lo: Int32Array;
  readonly hi: Int32Array;
  /** The place in `amounts` where the amounts of a segment begin, one per value of its variable. */
  readonly amount: Int32Array;
  readonly amounts: Float64Array;
}

/** Stores equal arrays once in one flat array. */
class Store {
  private readonly buckets = new Map<number, { at: number; length: number }[]>();
  private buffer = new Float64Array(1024);
  private length = 0;

  add(values: Float64Array): number {
    const words = new Int32Array(values.buffer, values.byteOffset, values.length * 2);
    let h = words.length;
    for (let k = 0; k < words.length; k++) h = Math.imul(h ^ words[k], 0x9e3779b1) ^ (h >>> 15);
    const bucket = this.buckets.get(h) ?? [];
    for (const { at, length } of bucket) {
      if (length !== values.length) continue;
      let k = 0;
      while (k < length && this.buffer[at + k] === values[k]) k++;
      if (k === length) return at;
    }
    const at = this.length;
    this.length += values.length;
    if (this.length > this.buffer.length) {
      const bigger = new Float64Array(Math.max(this.length, 2 * this.buffer.length));
      bigger.set(this.buffer);
      this.buffer = bigger;
    }
    this.buffer.set(values, at);
    bucket.push({ at, length: values.length });
    this.buckets.set(h, bucket);
    return at;
  }

  get data(): Float64Array {
    return this.buffer.slice(0, this.length);
  }
}

/** Freezes a draft; `index[i]` is the number of draft variable i in the model, or -1. */
export function freeze(draft: Draft): { model: Model; index: Int32Array } {
  const index = new Int32Array(draft.variables.length).fill(-1);
  const kept = draft.variables.flatMap((v, i) => (v === undefined ? [] : [{ v, i }]));
  kept.forEach(({ i }, k) => (index[i] = k));
  const count = kept.length;
  const sizes = Int32Array.from(kept, ({ v }) => v.size);
  const start = new Int32Array(count + 1);
  for (let i = 0; i < count; i++) start[i + 1] = start[i] + sizes[i];
  const unary = new Float64Array(start[count]);
  kept.forEach(({ v }, k) => unary.set(v.unary, start[k]));
  const drafted: DraftEdge[] = kept.flatMap(({ v, i }) =>
    [...v.edges.values()].filter((e) => e.a === i).sort((x, y) => x.b - y.b),
  );
  const edges = frozenEdges(drafted, index, sizes);
  const model: Model = {
    count,
    sizes,
    start,
    unary,
    constant: draft.constant,
    ...edges,
    ...incidence(count, edges),
    rows: draft.capacity.length,
    capacity: draft.capacity,
    sources: draft.sources,
    ...frozenSegments(kept.map(({ v }) => v)),
  };
  return { model, index };
}

type Edges = Pick<Model, 'first' | 'second' | 'table' | 'transposed' | 'cells'>;

/** Edges with their tables both ways, each table of equal content once. */
function frozenEdges(edges: readonly DraftEdge[], index: Int32Array, sizes: Int32Array): Edges {
  const store = new Store();
  const first = Int32Array.from(edges, (e) => index[e.a]);
  const second = Int32Array.from(edges, (e) => index[e.b]);
  const table = new Int32Array(edges.length);
  const transposed = new Int32Array(edges.length);
  const flipped = new Map<number, number>();
  edges.forEach((e, k) => {
    const at = store.add(e.cells);
    table[k] = at;
    let back = flipped.get(at);
    if (back === undefined) {
      back = store.add(transpose(e.cells, sizes[first[k]], sizes[second[k]]));
      flipped.set(at, back);
    }
    transposed[k] = back;
  });
  return { first, second, table, transposed, cells: store.data };
}

/** The edges of each variable, with the other end and the table as the variable sees it. */
function incidence(
  count: number,
  { first, second, table, transposed }: Edges,
): Pick<Model, 'incident' | 'edge' | 'other' | 'view'> {
  const incident = new Int32Array(count + 1);
  for (let e = 0; e < first.length; e++) {
    incident[first[e] + 1]++;
    incident[second[e] + 1]++;
  }
  for (let i = 0; i < count; i++) incident[i + 1] += incident[i];
  const fill = incident.slice();
  const edge = new Int32Array(2 * first.length);
  const other = new Int32Array(2 * first.length);
  const view = new Int32Array(2 * first.length);
  for (let e = 0; e < first.length; e++) {
    for (const side of [0, 1]) {
      const at = fill[side === 0 ? first[e] : second[e]]++;
      edge[at] = e;
      other[at] = side === 0 ? second[e] : first[e];
      view[at] = side === 0 ? table[e] : transposed[e];
    }
  }
  return { incident, edge, other, view };
}

/** The usage over time of all variables, variable by variable. */
function frozenSegments(
  variables: readonly DraftVariable[],
): Pick<Model, 'segment' | 'lo' | 'hi' | 'amount' | 'amounts'> {
  const amounts = new Store();
  const segment = new Int32Array(variables.length + 1);
  variables.forEach((v, k) => (segment[k + 1] = segment[k] + v.segments.length));
  const flat = variables.flatMap((v) => v.segments);
  const amount = Int32Array.from(flat, (s) => amounts.add(s.amounts));
  return {
    segment,
    lo: Int32Array.from(flat, (s) => s.lo),
    hi: Int32Array.from(flat, (s) => s.hi),
    amount,
    amounts: amounts.data,
  };
}

function transpose(cells: Float64Array, rows: number, columns: number): Float64Array {
  const out = new Float64Array(cells.length);
  for (let a = 0; a < rows; a++)
    for (let b = 0; b < columns; b++) out[b * rows + a] = cells[a * columns + b];
  return out;
}
