/**
 * Usage over time as rows: one per distinct set of live pieces. Rows that no choice can exceed, and
 * rows that another one implies, are dropped.
 */
import type { Draft, Segment } from './draft.ts';

/** Pieces of one variable that may overlap; `profile` sums them. */
export interface Piece {
  readonly lo: number;
  readonly hi: number;
  readonly amounts: Float64Array;
}

/** Sums overlapping pieces into segments, ascending and disjoint. Equal neighbours become one. */
export function profile(pieces: readonly Piece[], size: number): Segment[] {
  if (pieces.length === 0) return [];
  if (pieces.length === 1)
    return [{ lo: pieces[0].lo, hi: pieces[0].hi, amounts: pieces[0].amounts }];
  const events = pieces.flatMap((p, k) => [
    { at: p.lo, piece: k, sign: 1 },
    { at: p.hi, piece: k, sign: -1 },
  ]);
  events.sort((x, y) => x.at - y.at || x.sign - y.sign);
  const level = new Float64Array(size);
  const out: Segment[] = [];
  let live = 0;
  let from = 0;
  for (let k = 0; k < events.length;) {
    const { at } = events[k];
    if (live > 0 && at > from) {
      const last = out.at(-1);
      if (last !== undefined && last.hi === from && same(last.amounts, level)) {
        out[out.length - 1] = { lo: last.lo, hi: at, amounts: last.amounts };
      } else out.push({ lo: from, hi: at, amounts: level.slice() });
    }
    for (; k < events.length && events[k].at === at; k++) {
      const { piece, sign } = events[k];
      live += sign;
      const { amounts } = pieces[piece];
      for (let a = 0; a < size; a++) level[a] += sign * amounts[a];
    }
    from = at;
  }
  return out;
}

function same(x: Float64Array, y: Float64Array): boolean {
  for (let k = 0; k < x.length; k++) if (x[k] !== y[k]) return false;
  return true;
}

/** Most variables that may differ between two rows that are compared. */
const MOST_CHANGES = 64;

/**
 * Moves every segment's least amount into the capacity, then drops rows that cannot be exceeded or
 * that another row implies, and renumbers the rest. Returns false when some row cannot be kept by
 * any choice.
 */
export function pruneRows(draft: Draft): boolean {
  const rows = draft.capacity.length;
  const capacity = draft.capacity;
  const most = new Float64Array(rows + 1);
  for (const v of draft.variables) {
    if (v === undefined) continue;
    const segments: Segment[] = [];
    for (const s of v.segments) {
      let least = Infinity;
      let top = 0;
      for (const u of s.amounts) {
        if (u < least) least = u;
        if (u > top) top = u;
      }
      if (least > 0) for (let t = s.lo; t < s.hi; t++) capacity[t] -= least;
      if (top === least) continue;
      const amounts = least > 0 ? s.amounts.map((u) => u - least) : s.amounts;
      const last = segments.at(-1);
      if (last !== undefined && last.hi === s.lo && same(last.amounts, amounts))
        segments[segments.length - 1] = { lo: last.lo, hi: s.hi, amounts: last.amounts };
      else segments.push({ lo: s.lo, hi: s.hi, amounts });
      most[s.lo] += top - least;
      most[s.hi] -= top - least;
    }
    v.segments = segments;
  }
  const keep = new Uint8Array(rows);
  let level = 0;
  for (let t = 0; t < rows; t++) {
    level += most[t];
    if (capacity[t] < 0) return false;
    keep[t] = level > capacity[t] ? 1 : 0;
  }
  dropImplied(draft, keep);
  renumber(draft, keep);
  return true;
}

/**
 * Clears `keep` of rows that a neighbouring kept row implies: no smaller amounts, no larger
 * capacity.
 */
function dropImplied(draft: Draft, keep: Uint8Array): void {
  const { capacity } = draft;
  // Variables whose segments begin or end at a row.
  const changes: number[][] = Array.from({ length: capacity.length + 1 }, () => []);
  draft.variables.forEach((v, i) => {
    for (const s of v?.segments ?? []) {
      changes[s.lo].push(i);
      changes[s.hi].push(i);
    }
  });
  const zero = new Float64Array(0);
  const at = (i: number, t: number): Float64Array => {
    const segments = draft.variables[i]?.segments ?? [];
    let low = 0;
    let high = segments.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (segments[middle].hi <= t) low = middle + 1;
      else high = middle;
    }
    return low < segments.length && segments[low].lo <= t ? segments[low].amounts : zero;
  };
  /** Tells whether row t implies row s; `changed` holds the variables that may differ. */
  const implies = (t: number, s: number, changed: Iterable<number>): boolean => {
    if (capacity[t] > capacity[s]) return false;
    for (const i of changed) {
      const more = at(i, t);
      const less = at(i, s);
      for (let a = 0; a < less.length; a++)
        if (less[a] > (more.length === 0 ? 0 : more[a])) return false;
    }
    return true;
  };
  const stack: number[] = [];
  const between: Set<number>[] = [];
  let changed = new Set<number>();
  for (let t = 0; t < draft.timeRows; t++) {
    for (const i of changes[t]) changed.add(i);
    if (keep[t] === 0) continue;
    while (stack.length > 0 && changed.size <= MOST_CHANGES) {
      const top = stack[stack.length - 1];
      if (implies(top, t, changed)) {
        keep[t] = 0;
        break;
      }
      if (!implies(t, top, changed)) break;
      keep[top] = 0;
      stack.pop();
      for (const i of between.pop() ?? []) changed.add(i);
    }
    if (keep[t] === 0) continue;
    stack.push(t);
    between.push(changed);
    changed = new Set();
  }
}

function renumber(draft: Draft, keep: Uint8Array): void {
  const index = new Int32Array(keep.length + 1);
  for (let t = 0; t < keep.length; t++) index[t + 1] = index[t] + keep[t];
  for (const v of draft.variables) {
    if (v === undefined) continue;
    const segments: Segment[] = [];
    for (const s of v.segments) {
      const [lo, hi] = [index[s.lo], index[s.hi]];
      if (lo === hi) continue;
      const last = segments.at(-1);
      if (last !== undefined && last.hi === lo && same(last.amounts, s.amounts))
        segments[segments.length - 1] = { lo: last.lo, hi, amounts: last.amounts };
      else segments.push({ lo, hi, amounts: s.amounts });
    }
    v.segments = segments;
  }
  draft.timeRows = index[draft.timeRows];
  draft.capacity = draft.capacity.filter((_, t) => keep[t] === 1);
  draft.sources = draft.sources.filter((_, t) => keep[t] === 1);
}
