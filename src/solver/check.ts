/**
 * The judge: evaluates choices and replays proofs from the problem alone. It shares no code with the engines of this
 * room. Sums are BigInt; tables of the replay are Float64 integers, and every cell is checked to stay exact (< 2^53).
 */
import type { Problem } from './types.ts';

/** Why a choice is not a solution. */
export type Violation =
  | { readonly code: 'length'; readonly expected: number; readonly got: number }
  | { readonly code: 'range'; readonly variable: number; readonly value: number; readonly size: number }
  | { readonly code: 'forbidden-node'; readonly variable: number; readonly value: number }
  | { readonly code: 'forbidden-edge'; readonly edge: number; readonly first: number; readonly second: number }
  | { readonly code: 'row'; readonly row: string; readonly amount: bigint; readonly bound: number }
  | { readonly code: 'memory'; readonly time: number; readonly amount: bigint; readonly limit: number };

/** What a choice costs and uses. `cost` sums the finite terms only; with no violation it is the objective. */
export interface Evaluation {
  readonly violations: readonly Violation[];
  readonly cost: bigint;
  readonly unaryCost: bigint;
  readonly edgeCost: bigint;
  /** Usage at every distinct endpoint of a piece, and its peak. */
  readonly peak: bigint;
  readonly peakTime: number;
  readonly rows: readonly { readonly name: string; readonly amount: bigint; readonly bound: number }[];
}

const FORBIDDEN = 1e18;

/** Evaluates a choice against the whole problem. */
export function evaluate(problem: Problem, choice: ArrayLike<number>): Evaluation {
  const n = problem.domains.length;
  const violations: Violation[] = [];
  const nothing = { cost: 0n, unaryCost: 0n, edgeCost: 0n, peak: 0n, peakTime: 0, rows: [] };
  if (choice.length !== n) {
    return { violations: [{ code: 'length', expected: n, got: choice.length }], ...nothing };
  }
  for (let i = 0; i < n; i++) {
    const value = choice[i];
    if (!Number.isInteger(value) || value < 0 || value >= problem.domains[i]) {
      violations.push({ code: 'range', variable: i, value, size: problem.domains[i] });
    }
  }
  if (violations.length > 0) return { violations, ...nothing };
  let unaryCost = BigInt(problem.constant ?? 0);
  for (let i = 0; i < n; i++) {
    const c = problem.vectors[problem.unary[i]][choice[i]];
    if (c >= FORBIDDEN) violations.push({ code: 'forbidden-node', variable: i, value: choice[i] });
    else unaryCost += BigInt(c);
  }
  let edgeCost = 0n;
  const { first, second } = problem.edges;
  for (let e = 0; e < first.length; e++) {
    const c = edgeCell(problem, e, choice[first[e]], choice[second[e]]);
    if (c >= FORBIDDEN) violations.push({ code: 'forbidden-edge', edge: e, first: first[e], second: second[e] });
    else edgeCost += BigInt(c);
  }
  const rows = (problem.rows ?? []).map((row) => {
    let amount = 0n;
    row.variables.forEach((v, k) => {
      amount += BigInt(row.amounts[k][choice[v]]);
    });
    if (Number(amount) > row.bound || (row.bound < 1e18 && amount > BigInt(Math.floor(row.bound)))) {
      violations.push({ code: 'row', row: row.name, amount, bound: row.bound });
    }
    return { name: row.name, amount, bound: row.bound };
  });
  const { peak, peakTime } = peakUsage(problem, choice);
  const limit = problem.usage?.limit;
  if (limit !== undefined && limit < 1e18 && peak > BigInt(Math.floor(limit))) {
    violations.push({ code: 'memory', time: peakTime, amount: peak, limit });
  }
  return { violations, cost: unaryCost + edgeCost, unaryCost, edgeCost, peak, peakTime, rows };
}

/** Cost of edge e under two values. */
function edgeCell(problem: Problem, e: number, x: number, y: number): number {
  const { table, firstMap, secondMap } = problem.edges;
  const { columns, costs } = problem.tables[table[e]];
  const row = firstMap[e] >= 0 ? problem.maps[firstMap[e]][x] : x;
  const column = secondMap[e] >= 0 ? problem.maps[secondMap[e]][y] : y;
  return costs[row * columns + column];
}

/** Largest total usage over all times and the first time that attains it. */
function peakUsage(problem: Problem, choice: ArrayLike<number>): { peak: bigint; peakTime: number } {
  const changes = new Map<number, bigint>();
  for (const piece of problem.usage?.pieces ?? []) {
    if (piece.lo >= piece.hi) continue;
    const amount = BigInt(piece.amounts[choice[piece.variable]]);
    changes.set(piece.lo, (changes.get(piece.lo) ?? 0n) + amount);
    changes.set(piece.hi, (changes.get(piece.hi) ?? 0n) - amount);
  }
  let level = 0n;
  let peak = 0n;
  let peakTime = 0;
  for (const time of [...changes.keys()].sort((a, b) => a - b)) {
    level += changes.get(time) ?? 0n;
    if (level > peak) {
      peak = level;
      peakTime = time;
    }
  }
  return { peak, peakTime };
}
