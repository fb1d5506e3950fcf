import { describe, expect, it } from 'vitest';

import { verifyCertificate } from '../../src/solver/check/verify.ts';
import { solveNow } from '../../src/solver/solve.ts';
import type { LinearRow, Problem, UsagePiece } from '../../src/solver/types.ts';
import { FULL } from '../support/full.ts';

/** The random generator mulberry32. */
function randomOf(seed: number): (n: number) => number {
  let a = seed;
  return (n) => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return Math.floor((((t ^ (t >>> 14)) >>> 0) / 2 ** 32) * n);
  };
}

interface Truth {
  readonly least: number;
  readonly count: number;
}

/**
 * Cost of a choice, Infinity when it is forbidden or breaks a row: written from the definition,
 * shares no code.
 */
function costOf(p: Problem, x: readonly number[]): number {
  let sum = p.constant ?? 0;
  x.forEach((a, i) => (sum += p.vectors[p.unary[i]][a]));
  for (let e = 0; e < p.edges.first.length; e++) {
    const a = x[p.edges.first[e]];
    const b = x[p.edges.second[e]];
    const r = p.edges.firstMap[e] < 0 ? a : p.maps[p.edges.firstMap[e]][a];
    const c = p.edges.secondMap[e] < 0 ? b : p.maps[p.edges.secondMap[e]][b];
    const t = p.tables[p.edges.table[e]];
    sum += t.costs[r * t.columns + c];
  }
  for (const row of p.rows ?? []) {
    let amount = 0;
    row.variables.forEach((v, k) => (amount += row.amounts[k][x[v]]));
    if (amount > row.bound) return Infinity;
  }
  if (p.usage !== undefined) {
    for (const at of p.usage.pieces) {
      let amount = 0;
      for (const q of p.usage.pieces)
        if (q.lo <= at.lo && at.lo < q.hi) amount += q.amounts[x[q.variable]];
      if (amount > p.usage.limit) return Infinity;
    }
  }
  return sum;
}

function exhaustive(p: Problem): Truth {
  const x = new Array<number>(p.domains.length).fill(0);
  let least = Infinity;
  let count = 0;
  for (;;) {
    const c = costOf(p, x);
    if (c < least) {
      least = c;
      count = 1;
    } else if (c === least) {
      count++;
    }
    let k = x.length - 1;
    while (k >= 0 && ++x[k] === p.domains[k]) x[k--] = 0;
    if (k < 0) return { least, count };
  }
}

class Builder {
  readonly domains: number[] = [];
  readonly unary: number[] = [];
  readonly vectors: Float64Array[] = [];
  readonly maps: Int32Array[] = [];
  readonly tables: { rows: number; columns: number; costs: Float64Array }[] = [];
  readonly first: number[] = [];
  readonly second: number[] = [];
  readonly table: number[] = [];
  readonly firstMap: number[] = [];
  readonly secondMap: number[] = [];

  constructor(
    readonly int: (n: number) => number,
    readonly barred: number,
  ) {}

  cost(scale: number): number {
    return this.int(100) < this.barred ? Infinity : this.int(scale);
  }

  vector(k: number, scale: number): number {
    return this.vectors.push(Float64Array.from({ length: k }, () => this.cost(scale))) - 1;
  }

  map(k: number, classes: number): number {
    return this.maps.push(Int32Array.from({ length: k }, () => this.int(classes))) - 1;
  }

  tableOf(rows: number, columns: number, scale: number): number {
    const costs = Float64Array.from({ length: rows * columns }, () => this.cost(scale));
    return this.tables.push({ rows, columns, costs }) - 1;
  }

  variable(k: number, vector: number): number {
    this.unary.push(vector);
    return this.domains.push(k) - 1;
  }

  edge(i: number, j: number, table: number, mapI: number, mapJ: number): void {
    this.first.push(i);
    this.second.push(j);
    this.table.push(table);
    this.firstMap.push(mapI);
    this.secondMap.push(mapJ);
  }

  build(rows: LinearRow[], usage?: Problem['usage']): Problem {
    const i32 = (x: number[]): Int32Array => Int32Array.from(x);
    return {
      domains: i32(this.domains),
      unary: i32(this.unary),
      vectors: this.vectors,
      maps: this.maps,
      tables: this.tables,
      edges: {
        first: i32(this.first),
        second: i32(this.second),
        table: i32(this.table),
        firstMap: i32(this.firstMap),
        secondMap: i32(this.secondMap),
      },
      constant: this.int(50),
      rows,
      ...(usage === undefined ? {} : { usage }),
    };
  }
}

/** Rows whose bound lies between the least and the most that the row can hold. */
function randomRows(b: Builder, count: number): LinearRow[] {
  return Array.from({ length: count }, (_, r) => {
    const variables = b.domains.map((_k, i) => i).filter(() => b.int(3) > 0);
    const amounts = variables.map((v) =>
      Float64Array.from({ length: b.domains[v] }, () => b.int(20)),
    );
    const low = amounts.reduce((s, a) => s + Math.min(...a), 0);
    const high = amounts.reduce((s, a) => s + Math.max(...a), 0);
    const bound = low + Math.floor(((high - low) * (10 + b.int(60))) / 100);
    return { name: `row ${r}`, variables: Int32Array.from(variables), amounts, bound };
  });
}

function randomProblem(seed: number, rows: number): Problem {
  const int = randomOf(seed);
  const b = new Builder(int, seed % 3 === 0 ? 0 : 12);
  const n = 3 + int(4);
  const scale = seed % 4 === 0 ? 4 : 1000;
  for (let i = 0; i < n; i++) {
    const k = 1 + int(5);
    b.variable(k, b.vector(k, scale));
  }
  const edges = int(2 * n + 1);
  for (let e = 0; e < edges; e++) {
    const i = int(n);
    const j = int(n);
    const shape = (v: number): readonly [number, number] => {
      if (int(2) === 0) return [b.domains[v], -1];
      const classes = 1 + int(4);
      return [classes, b.map(b.domains[v], classes)];
    };
    const [r, mi] = shape(i);
    const [c, mj] = shape(j);
    b.edge(i, j, b.tableOf(r, c, scale), mi, mj);
  }
  let usage: Problem['usage'];
  if (rows > 0 && seed % 5 === 0) {
    const pieces: UsagePiece[] = b.domains.map((k, i) => {
      const lo = int(6);
      return {
        variable: i,
        lo,
        hi: lo + int(4),
        amounts: Float64Array.from({ length: k }, () => int(30)),
      };
    });
    usage = { pieces, limit: 25 + int(60) };
  }
  return b.build(randomRows(b, rows), usage);
}

/** Equal blocks in a forward chain and a backward chain, with hubs that every block sees. */
function layeredProblem(seed: number, rows: number, layers: number): Problem {
  const int = randomOf(seed);
  const b = new Builder(int, 8);
  const scale = 1000;
  const hub = b.variable(2, b.vector(2, scale));
  const fvec = b.vector(3, scale);
  const gvec = b.vector(2, scale);
  const inside = b.tableOf(3, 3, scale);
  const across = b.tableOf(3, 2, scale);
  const fromHub = b.tableOf(2, 2, 200);
  const saved = b.tableOf(2, 2, scale);
  const fold = b.map(3, 2);
  const forward: number[] = [];
  const backward: number[] = [];
  for (let l = 0; l < layers; l++) forward.push(b.variable(3, l === 0 ? b.vector(3, scale) : fvec));
  for (let l = 0; l < layers; l++) backward.push(b.variable(2, gvec));
  for (let l = 0; l < layers; l++) {
    if (l > 0) b.edge(forward[l - 1], forward[l], inside, -1, -1);
    if (l > 0) b.edge(backward[l - 1], backward[l], saved, -1, -1);
    b.edge(forward[l], backward[layers - 1 - l], across, -1, -1);
    b.edge(hub, forward[l], fromHub, -1, fold);
  }
  return b.build(randomRows(b, rows));
}

function check(p: Problem, name: string): void {
  const { least } = exhaustive(p);
  const s = solveNow(p);
  if (least === Infinity) {
    expect(s.status, name).toBe('infeasible');
    return;
  }
  expect(s.objective, name).toBe(least);
  expect(s.bound, name).toBe(least);
  expect(s.status, name).toBe('optimal');
  expect(costOf(p, [...s.choice]), name).toBe(least);
}

/** Random problems of each kind; all of them with SHARDWRIGHT_FULL. */
const share = FULL ? 1 : 1 / 6;

describe('exact engine against exhaustive search', () => {
  it('the optimum of problems without rows is that of enumeration', () => {
    for (let seed = 1; seed <= 300 * share; seed++) check(randomProblem(seed, 0), `seed ${seed}`);
  });
  it('the optimum of problems with one row is that of enumeration', () => {
    for (let seed = 1; seed <= 200 * share; seed++)
      check(randomProblem(1000 + seed, 1), `seed ${1000 + seed}`);
  });
  it('the optimum of problems with two rows is that of enumeration', () => {
    for (let seed = 1; seed <= 100 * share; seed++)
      check(randomProblem(2000 + seed, 2), `seed ${2000 + seed}`);
  });
  it('with a tolerance: optimal is what costs no more than it above the least, and so says the certificate', () => {
    let loose = 0;
    for (let seed = 1; seed <= 150 * share; seed++) {
      const problem = { ...randomProblem(4000 + seed, seed % 2), tolerance: 40 };
      const { least } = exhaustive(problem);
      const s = solveNow(problem);
      if (least === Infinity) continue;
      expect(s.status, `seed ${seed}`).toBe('optimal');
      expect(costOf(problem, [...s.choice]), `seed ${seed}`).toBe(s.objective);
      expect(s.bound, `seed ${seed}`).toBeLessThanOrEqual(least);
      expect(s.bound, `seed ${seed}`).toBeGreaterThanOrEqual(s.objective - 40);
      const { accepted, bound } = verifyCertificate(problem, s);
      expect(accepted, `seed ${seed}`).toBe(true);
      expect(bound, `seed ${seed}`).toBe(BigInt(s.bound));
      if (s.bound < s.objective) loose++;
    }
    expect(loose).toBeGreaterThan(0);
  });
  it('layered problems with a hub', () => {
    for (let seed = 1; seed <= 60 * share; seed++)
      check(layeredProblem(3000 + seed, seed % 3 === 0 ? 1 : 0, 4), `seed ${seed}`);
  });
});
