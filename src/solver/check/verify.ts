/**
 * The checker: evaluates choices and replays certificates from the problem alone. It shares no code
 * with the engines. It gives the violations and the cost of a choice, and the bound that a
 * certificate proves. Sums are BigInt; tables of the replay are Float64 integers, and every one is
 * checked to stay exact.
 */
import type { Certificate, Problem } from '../types.ts';
import { formFault } from './certificate-form.ts';
import { hashProblem } from './hash.ts';
import { Refused } from './refused.ts';
import { replay } from './replay.ts';

export { hashProblem } from './hash.ts';

/** Why a choice is not a solution. */
type Violation =
  | { readonly code: 'length'; readonly expected: number; readonly got: number }
  | {
      readonly code: 'range';
      readonly variable: number;
      readonly value: number;
      readonly size: number;
    }
  | { readonly code: 'forbidden-node'; readonly variable: number; readonly value: number }
  | {
      readonly code: 'forbidden-edge';
      readonly edge: number;
      readonly first: number;
      readonly second: number;
    }
  | { readonly code: 'row'; readonly row: string; readonly amount: bigint; readonly bound: number }
  | {
      readonly code: 'memory';
      readonly time: number;
      readonly amount: bigint;
      readonly limit: number;
    };

/**
 * The cost and usage of a choice. `cost` sums the finite terms only; with no violation it is the
 * objective.
 */
interface Evaluation {
  readonly violations: readonly Violation[];
  readonly cost: bigint;
  readonly unaryCost: bigint;
  readonly edgeCost: bigint;
  /** Usage at every distinct endpoint of a piece, and its peak. */
  readonly peak: bigint;
  readonly peakTime: number;
  readonly rows: readonly {
    readonly name: string;
    readonly amount: bigint;
    readonly bound: number;
  }[];
}

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
    if (c === Infinity) violations.push({ code: 'forbidden-node', variable: i, value: choice[i] });
    else unaryCost += BigInt(c);
  }
  let edgeCost = 0n;
  const { first, second } = problem.edges;
  for (let e = 0; e < first.length; e++) {
    const c = edgeCell(problem, e, choice[first[e]], choice[second[e]]);
    if (c === Infinity)
      violations.push({ code: 'forbidden-edge', edge: e, first: first[e], second: second[e] });
    else edgeCost += BigInt(c);
  }
  const rows = (problem.rows ?? []).map((row) => {
    let amount = 0n;
    row.variables.forEach((v, k) => {
      amount += BigInt(row.amounts[k][choice[v]]);
    });
    if (
      Number(amount) > row.bound ||
      (row.bound < Infinity && amount > BigInt(Math.floor(row.bound)))
    ) {
      violations.push({ code: 'row', row: row.name, amount, bound: row.bound });
    }
    return { name: row.name, amount, bound: row.bound };
  });
  const { peak, peakTime } = peakUsage(problem, choice);
  const limit = problem.usage?.limit;
  if (limit !== undefined && limit < Infinity && peak > BigInt(Math.floor(limit))) {
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
function peakUsage(
  problem: Problem,
  choice: ArrayLike<number>,
): { peak: bigint; peakTime: number } {
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

/** The bound of a certificate which proves that there is no choice at all. */
export const NO_CHOICE = 1n << 62n;

/** The verdict of the checker on a solution. */
export interface Verdict {
  /**
   * The choice (if any) is a solution of the stated objective, and every step of the certificate
   * holds.
   */
  readonly accepted: boolean;
  readonly reason?: string;
  /**
   * Proven lower bound on every choice (`NO_CHOICE` when there is none); without meaning unless
   * accepted.
   */
  readonly bound: bigint;
}

/**
 * Checks a choice and replays its certificate against the problem. A solution without choice
 * (infeasible) has objective Infinity. Never throws on a bad certificate: it says `accepted: false`
 * and why.
 */
export function verifyCertificate(
  problem: Problem,
  solution: {
    readonly choice: ArrayLike<number>;
    readonly objective: number;
    readonly certificate?: Certificate;
  },
): Verdict {
  return verifyHashed(problem, hashProblem(problem), solution);
}

/** `verifyCertificate` for a problem whose hash is known. */
export function verifyHashed(
  problem: Problem,
  hash: string,
  solution: {
    readonly choice: ArrayLike<number>;
    readonly objective: number;
    readonly certificate?: Certificate;
  },
): Verdict {
  const refuse = (reason: string): Verdict => ({ accepted: false, reason, bound: -NO_CHOICE });
  const { certificate, choice, objective } = solution;
  if (certificate === undefined) return refuse('there is no certificate');
  const fault = formFault(certificate);
  if (fault !== undefined) return refuse(fault);
  if (objective !== Infinity) {
    if (!Number.isSafeInteger(objective)) return refuse(`the objective is ${objective}`);
    const { violations, cost } = evaluate(problem, choice);
    if (violations.length > 0)
      return refuse(`the choice breaks the problem: ${violations[0].code}`);
    if (cost !== BigInt(objective)) return refuse(`the choice costs ${cost}, not ${objective}`);
  }
  if (certificate.problem !== hash)
    return refuse(`it is about problem ${certificate.problem}, not ${hash}`);
  try {
    const bound = replayedBound(problem, certificate);
    if (objective !== Infinity && bound > BigInt(objective)) {
      return refuse(`internal: it proves ${bound}, more than a choice costs`);
    }
    return { accepted: true, bound };
  } catch (error) {
    if (error instanceof Refused) return refuse(error.message);
    throw error;
  }
}

/**
 * The bound that the steps prove. Every choice's cost is a multiple of the divisor of all costs,
 * which raises the bound to the next multiple.
 */
function replayedBound(problem: Problem, certificate: Certificate): bigint {
  const least = replay(problem, certificate);
  return least === undefined ? NO_CHOICE : nextMultiple(least, commonDivisor(problem));
}

/**
 * Greatest common divisor of all costs that are not forbidden: it divides what any choice costs.
 */
function commonDivisor(problem: Problem): bigint {
  let divisor = Math.abs(problem.constant ?? 0);
  const lists = [...problem.vectors, ...problem.tables.map((t) => t.costs)];
  for (const costs of lists) {
    for (let k = 0; k < costs.length && divisor !== 1; k++) {
      const cost = Math.abs(costs[k]);
      if (cost === Infinity || cost === 0) continue;
      // Nearly all costs are multiples of what the first few have in common.
      let rest = divisor === 0 ? 0 : cost % divisor;
      if (divisor === 0) divisor = cost;
      while (rest !== 0) {
        const less = divisor % rest;
        divisor = rest;
        rest = less;
      }
    }
  }
  return BigInt(Math.max(1, divisor));
}

function nextMultiple(x: bigint, divisor: bigint): bigint {
  const over = ((x % divisor) + divisor) % divisor;
  return over === 0n ? x : x + divisor - over;
}
