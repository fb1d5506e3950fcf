/**
 * Shrinking a draft: values without a partner, edges that are sums of two unary costs, and values
 * that another value of the same variable replaces at no cost and no memory whatever the neighbours
 * do. Every step keeps an optimal choice (not always the lexicographically smallest one).
 */
import {
  type Draft,
  type DraftEdge,
  type DraftVariable,
  removeEdge,
  restrict,
  settle,
} from './draft.ts';

/**
 * Deletes values that are forbidden or that some table leaves without a partner; false when a
 * variable loses its last one. Two edges between the same variables may each leave a value a
 * partner and their sum none, so merging alone does not see them.
 */
export function support(draft: Draft): boolean {
  const queue = [...draft.variables.keys()];
  const queued = new Uint8Array(draft.variables.length).fill(1);
  for (let at = 0; at < queue.length; at++) {
    const i = queue[at];
    queued[i] = 0;
    const v = draft.variables[i];
    if (v === undefined) continue;
    const sides = Array.from(v.edges.values(), (edge) => sideOf(draft, edge, i));
    const keep = Int32Array.from({ length: v.size }, (_, a) => a).filter(
      (a) => v.unary[a] < Infinity && sides.every((side) => hasPartner(side, a)),
    );
    if (keep.length === v.size) continue;
    if (keep.length === 0) return false;
    restrict(draft, i, keep);
    for (const other of v.edges.keys()) {
      if (queued[other] === 1) continue;
      queued[other] = 1;
      queue.push(other);
    }
  }
  return true;
}

function hasPartner({ cells, own, theirs, width }: Side, a: number): boolean {
  for (let b = 0, at = a * own; b < width; b++, at += theirs) if (cells[at] < Infinity) return true;
  return false;
}

/**
 * Moves separable edges into the unaries and settles variables with one value; returns whether
 * anything changed.
 */
export function separate(draft: Draft, touched: Uint8Array): boolean {
  let any = false;
  for (let i = 0; i < draft.variables.length; i++) {
    const v = draft.variables[i];
    if (v === undefined || touched[i] === 0) continue;
    for (const [other, edge] of v.edges) {
      const w = draft.variables[other];
      if (w === undefined || (touched[other] === 1 && edge.a !== i)) continue;
      const [va, vb] = edge.a === i ? [v, w] : [w, v];
      if (!isSeparable(edge.cells, va.size, vb.size)) continue;
      const { cells } = edge;
      const corner = cells[0];
      for (let a = 0; a < va.size; a++) va.unary[a] += cells[a * vb.size];
      for (let b = 0; b < vb.size; b++) vb.unary[b] += cells[b] - corner;
      removeEdge(draft, edge);
      touched[other] = 1;
      any = true;
    }
  }
  for (let i = 0; i < draft.variables.length; i++) {
    if (draft.variables[i]?.size === 1) {
      settle(draft, i);
      any = true;
    }
  }
  return any;
}

function isSeparable(cells: Float64Array, rows: number, columns: number): boolean {
  const corner = cells[0];
  if (corner === Infinity) return false;
  for (let b = 0; b < columns; b++) if (cells[b] === Infinity) return false;
  for (let a = 1; a < rows; a++) {
    const shift = cells[a * columns] - corner;
    if (shift === Infinity) return false;
    for (let b = 1; b < columns; b++) if (cells[a * columns + b] - cells[b] !== shift) return false;
  }
  return true;
}

/**
 * Cells that dominance may look at in one call, and the largest domain that it looks at pair by
 * pair.
 */
const WORK = 3e8;

/**
 * Deletes dominated values of touched variables; returns whether any was deleted. Marks what
 * changed in `touched`.
 */
export function dominate(draft: Draft, touched: Uint8Array): boolean {
  let any = false;
  let work = 0;
  const next = new Uint8Array(touched.length);
  for (let i = 0; i < draft.variables.length && work < WORK; i++) {
    const v = draft.variables[i];
    if (v === undefined || touched[i] === 0 || v.size < 2) continue;
    const found = dominated(draft, v, i);
    work += found.work;
    if (found.dead.includes(1)) {
      const keep = Int32Array.from(found.dead.keys()).filter((a) => found.dead[a] === 0);
      restrict(draft, i, keep, found.by);
      any = true;
      next[i] = 1;
      for (const other of v.edges.keys()) next[other] = 1;
    }
  }
  touched.set(next);
  return any;
}

interface Side {
  readonly cells: Float64Array;
  /** Offset of value a, and of neighbour value b. */
  readonly own: number;
  readonly theirs: number;
  readonly width: number;
}

function sideOf(draft: Draft, edge: DraftEdge, i: number): Side {
  const { a, b, cells } = edge;
  const columns = draft.variables[b]?.size ?? 0;
  const rows = draft.variables[a]?.size ?? 0;
  return a === i
    ? { cells, own: columns, theirs: 1, width: columns }
    : { cells, own: 1, theirs: columns, width: rows };
}

/** Values that another one replaces (marks), and the one that does. */
interface Dominated {
  readonly dead: Uint8Array;
  /** By value: the value that stays in its place; itself where it stays. */
  readonly by: Int32Array;
  readonly work: number;
}

function dominated(draft: Draft, v: DraftVariable, i: number): Dominated {
  const sides = Array.from(v.edges.values(), (edge) => sideOf(draft, edge, i));
  const dead = new Uint8Array(v.size);
  const by = Int32Array.from({ length: v.size }, (_, a) => a);
  let work = 0;
  // A few sample choices of the neighbours reject most pairs: w cannot dominate d if it costs more
  // in any of them.
  const samples = sampleCosts(v, sides);
  for (let d = 0; d < v.size; d++) {
    for (let w = 0; w < v.size && dead[d] === 0; w++) {
      if (w === d || dead[w] === 1) continue;
      if (samples.some((s) => s[w] > s[d])) continue;
      work += v.segments.length;
      if (v.segments.some((s) => s.amounts[w] > s.amounts[d])) continue;
      let sum = v.unary[w] - v.unary[d];
      for (const side of sides) {
        sum += worst(side, w, d);
        work += side.width;
        if (sum === Infinity) break;
      }
      if (
        sum < 0 ||
        (sum === 0 && (w < d || v.segments.some((s) => s.amounts[w] < s.amounts[d])))
      ) {
        dead[d] = 1;
        by[d] = w;
      }
    }
    if (work > WORK / 4) break;
  }
  // The replacement of a value may have been replaced after it.
  for (let d = 0; d < v.size; d++) while (dead[by[d]] === 1) by[d] = by[by[d]];
  return { dead, by, work };
}

/** Most that moving from d to w can cost on one edge. */
function worst(side: Side, w: number, d: number): number {
  const { cells, own, theirs, width } = side;
  let most = -Infinity;
  for (let b = 0, x = w * own, y = d * own; b < width; b++, x += theirs, y += theirs) {
    if (cells[x] === Infinity) {
      if (cells[y] !== Infinity) return Infinity;
      continue;
    }
    const difference = cells[x] - cells[y];
    if (difference > most) most = difference;
  }
  // Without a finite cell in either row, both values are dead anyway.
  return most === -Infinity ? 0 : most;
}

function sampleCosts(v: DraftVariable, sides: readonly Side[]): Float64Array[] {
  const samples: Float64Array[] = [];
  for (let k = 0; k < Math.min(6, v.size); k++) {
    // The neighbours' favourites under one value of v.
    const favourite = Math.floor((k * v.size) / Math.min(6, v.size));
    const costs = v.unary.slice();
    for (const { cells, own, theirs, width } of sides) {
      let best = 0;
      for (let b = 1; b < width; b++)
        if (cells[favourite * own + b * theirs] < cells[favourite * own + best * theirs]) best = b;
      for (let a = 0; a < v.size; a++) costs[a] += cells[a * own + best * theirs];
    }
    samples.push(costs);
  }
  return samples;
}
