/**
 * Groups of variables for the checker of dual bounds: variables that an edge ties to one another share the values of their
 * leader. In: the problem and the edges to join along. Out: what every variable's value is under each value of its leader.
 */
import { Refused } from '../store.ts';
import type { DualCertificate, Problem } from '../../types.ts';

/** Groups of variables whose values are functions of their leader's. */
export class Grouping {
  readonly problem: Problem;
  readonly leader: Int32Array;
  /** Own value of every variable per remaining value of its leader. */
  readonly value: Int32Array[];
  readonly #followers: number[][];
  readonly #strict: number[];

  constructor(problem: Problem) {
    this.problem = problem;
    const { domains, tables, edges } = problem;
    this.leader = Int32Array.from(domains, (_, i) => i);
    this.#followers = Array.from(domains, (_, i) => [i]);
    this.value = Array.from(domains, (size, i) => {
      const costs = problem.vectors[problem.unary[i]];
      return Int32Array.from(Array.from({ length: size }, (_, a) => a).filter((a) => costs[a] < Infinity));
    });
    const holes = tables.map((t) => t.costs.some((c) => c === Infinity));
    this.#strict = Array.from(edges.first.keys()).filter((e) => holes[edges.table[e]]);
    this.#prune();
  }

  follow(joins: DualCertificate['joins']): void {
    const { first, second } = this.problem.edges;
    for (const [e, side] of joins) {
      if (!(e >= 0 && e < first.length) || (side !== 0 && side !== 1))
        throw new Refused(`there is no edge ${e} to join along`);
      const [from, to] = side === 0 ? [first[e], second[e]] : [second[e], first[e]];
      let image = this.#image(e, from, to, side === 0);
      if (image === undefined) {
        this.#prune();
        image = this.#image(e, from, to, side === 0);
      }
      if (image === undefined) throw new Refused(`edge ${e} does not tie variable ${to} to ${from}`);
      const [lead, old] = [this.leader[from], this.leader[to]];
      for (const m of this.#followers[old]) {
        const own = this.value[m];
        this.value[m] = image.map((b) => own[b]);
        this.leader[m] = lead;
        this.#followers[lead].push(m);
      }
      this.#followers[old] = [];
    }
    this.#prune();
  }

  /** For each value of the leader of `from`, the only value of the leader of `to` that edge e allows. */
  #image(e: number, from: number, to: number, forward: boolean): Int32Array | undefined {
    if (this.leader[from] === this.leader[to]) return undefined;
    const [rows, columns] = [this.value[from], this.value[to]];
    const out = new Int32Array(rows.length);
    for (let a = 0; a < rows.length; a++) {
      let only = -1;
      for (let b = 0; b < columns.length; b++) {
        const c = forward ? cell(this.problem, e, rows[a], columns[b]) : cell(this.problem, e, columns[b], rows[a]);
        if (c === Infinity) continue;
        if (only >= 0) return undefined;
        only = b;
      }
      if (only < 0) return undefined;
      out[a] = only;
    }
    return out;
  }

  /** Deletes values of groups that some edge leaves without a partner, until none is left. */
  #prune(): void {
    const { first, second } = this.problem.edges;
    for (let again = true; again;) {
      again = false;
      for (const e of this.#strict) {
        const [u, v] = [first[e], second[e]];
        const [rows, columns] = [this.value[u], this.value[v]];
        if (this.leader[u] === this.leader[v]) {
          if (this.#keep(u, (a) => cell(this.problem, e, rows[a], columns[a]) < Infinity)) again = true;
          continue;
        }
        const used = new Uint8Array(columns.length);
        const live = new Uint8Array(rows.length);
        for (let a = 0; a < rows.length; a++) {
          for (let b = 0; b < columns.length; b++) {
            if (cell(this.problem, e, rows[a], columns[b]) === Infinity) continue;
            live[a] = 1;
            used[b] = 1;
          }
        }
        if (this.#keep(u, (a) => live[a] === 1)) again = true;
        if (this.#keep(v, (b) => used[b] === 1)) again = true;
      }
    }
  }

  #keep(member: number, test: (value: number) => boolean): boolean {
    const lead = this.leader[member];
    const kept = Array.from(this.value[lead].keys()).filter(test);
    if (kept.length === this.value[lead].length) return false;
    for (const m of this.#followers[lead]) {
      const own = this.value[m];
      this.value[m] = Int32Array.from(kept, (a) => own[a]);
    }
    return true;
  }
}

/** Cost of edge e under two values of its ends. */
export function cell(problem: Problem, e: number, x: number, y: number): number {
  const { table, firstMap, secondMap } = problem.edges;
  const { columns, costs } = problem.tables[table[e]];
  const row = firstMap[e] >= 0 ? problem.maps[firstMap[e]][x] : x;
  const column = secondMap[e] >= 0 ? problem.maps[secondMap[e]][y] : y;
  return costs[row * columns + column];
}
