/**
 * Composite variables: an edge whose finite cells give every value of one end exactly one partner
 * makes the other end a function of it. Such ends are merged, values without a finite partner are
 * deleted, until nothing changes.
 */
import type { Problem } from '../../solver/types.ts';

/** The second end of an edge became a function of its first one, or backward. */
interface Join {
  readonly edge: number;
  readonly isBackward: boolean;
  /** True if values have lost their partners since the join before. */
  readonly afterDeletions: boolean;
}

/** Groups of variables that are functions of one root each. */
export interface Groups {
  /** Root of every variable. */
  readonly root: Int32Array;
  /** Per variable: root value -> own value. */
  readonly maps: Int32Array[];
  /** Number of values left of every root. */
  readonly size: Int32Array;
  /** Edges along which roots were merged, in order. */
  readonly joins: readonly Join[];
  /** Members of every root (the root first); empty for those that are not a root. */
  readonly members: number[][];
}

/** Merges to a fixpoint; undefined when some variable has lost its last value. */
export function mergeFollowers(problem: Problem): Groups | undefined {
  const merger = new Merger(problem);
  return merger.run() ? merger : undefined;
}

class Merger implements Groups {
  private readonly problem: Problem;
  readonly root: Int32Array;
  readonly maps: Int32Array[];
  readonly size: Int32Array;
  readonly members: number[][];
  readonly joins: Join[] = [];
  /** Edges with a forbidden cell, by variable: only they can delete or tie values. */
  private readonly barred: number[][];
  private readonly queue: number[] = [];
  private readonly queued: Uint8Array;
  private hasDeleted = false;

  constructor(problem: Problem) {
    this.problem = problem;
    const { domains, unary, vectors, edges, tables } = problem;
    const n = domains.length;
    this.root = Int32Array.from({ length: n }, (_, i) => i);
    this.members = Array.from({ length: n }, (_, i) => [i]);
    this.maps = Array.from(domains, (size, i) => {
      const costs = vectors[unary[i]];
      return Int32Array.from({ length: size }, (_, a) => a).filter((a) => costs[a] < Infinity);
    });
    this.size = Int32Array.from(this.maps, (m) => m.length);
    this.barred = Array.from({ length: n }, () => []);
    const count = edges.first.length;
    this.queued = new Uint8Array(count);
    const holes = tables.map((t) => t.costs.some((c) => c === Infinity));
    for (let e = 0; e < count; e++) {
      if (!holes[edges.table[e]]) continue;
      this.barred[edges.first[e]].push(e);
      if (edges.second[e] !== edges.first[e]) this.barred[edges.second[e]].push(e);
      this.enqueue(e);
    }
  }

  run(): boolean {
    if (this.size.includes(0)) return false;
    for (let at = 0; at < this.queue.length; at++) {
      const e = this.queue[at];
      this.queued[e] = 0;
      if (!this.look(e)) return false;
      if (at > 1_000_000) {
        this.queue.splice(0, at + 1);
        at = -1;
      }
    }
    return true;
  }

  private enqueue(e: number): void {
    if (this.queued[e] === 1) return;
    this.queued[e] = 1;
    this.queue.push(e);
  }

  /**
   * Deletes values that edge e leaves without a partner and merges its ends if one is a function of
   * the other.
   */
  private look(e: number): boolean {
    const { edges, tables, maps } = this.problem;
    const [u, v] = [edges.first[e], edges.second[e]];
    const [r, s] = [this.root[u], this.root[v]];
    const { columns, costs } = tables[edges.table[e]];
    const rows = through(this.maps[u], edges.firstMap[e] < 0 ? undefined : maps[edges.firstMap[e]]);
    const cols = through(
      this.maps[v],
      edges.secondMap[e] < 0 ? undefined : maps[edges.secondMap[e]],
    );
    const [k, l] = [this.size[r], this.size[s]];
    if (r === s) {
      const keep = Int32Array.from({ length: k }, (_, a) => a).filter(
        (a) => costs[rows[a] * columns + cols[a]] < Infinity,
      );
      return this.restrict(r, keep);
    }
    // Partners of each value: their number, and the last one.
    const rowCount = new Int32Array(k);
    const rowPartner = new Int32Array(k);
    const colCount = new Int32Array(l);
    const colPartner = new Int32Array(l);
    for (let a = 0; a < k; a++) {
      const start = rows[a] * columns;
      for (let b = 0; b < l; b++) {
        if (costs[start + cols[b]] === Infinity) continue;
        rowCount[a]++;
        rowPartner[a] = b;
        colCount[b]++;
        colPartner[b] = a;
      }
    }
    if (rowCount.includes(0) || colCount.includes(0)) {
      // The edge is queued again by the restriction.
      const keepRows = Int32Array.from(rowCount.keys()).filter((a) => rowCount[a] > 0);
      const keepCols = Int32Array.from(colCount.keys()).filter((b) => colCount[b] > 0);
      return this.restrict(r, keepRows) && this.restrict(s, keepCols);
    }
    const forward = rowCount.every((c) => c === 1);
    const backward = colCount.every((c) => c === 1);
    if (forward && backward) {
      if (this.members[s].length <= this.members[r].length) this.merge(e, false, s, r, rowPartner);
      else this.merge(e, true, r, s, colPartner);
    } else if (forward) this.merge(e, false, s, r, rowPartner);
    else if (backward) this.merge(e, true, r, s, colPartner);
    return true;
  }

  /** Keeps the listed values of root r; false when none is left. */
  private restrict(r: number, keep: Int32Array): boolean {
    if (keep.length === this.size[r]) return true;
    if (keep.length === 0) return false;
    this.size[r] = keep.length;
    this.hasDeleted = true;
    for (const m of this.members[r]) {
      const map = this.maps[m];
      this.maps[m] = keep.map((a) => map[a]);
      for (const e of this.barred[m]) this.enqueue(e);
    }
    return true;
  }

  /** Makes root s and its members functions of root r: `of[value of r]` is the value of s. */
  private merge(edge: number, isBackward: boolean, s: number, r: number, of: Int32Array): void {
    this.joins.push({ edge, isBackward, afterDeletions: this.hasDeleted });
    this.hasDeleted = false;
    for (const m of this.members[s]) {
      const map = this.maps[m];
      this.maps[m] = of.map((b) => map[b]);
      this.root[m] = r;
      this.members[r].push(m);
      for (const e of this.barred[m]) this.enqueue(e);
    }
    this.members[s] = [];
  }
}

function through(map: Int32Array, classes: Int32Array | undefined): Int32Array {
  return classes === undefined ? map : map.map((a) => classes[a]);
}
