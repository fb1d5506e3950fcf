/**
 * Certifies an answer: the checker replays the proof log of the search. It gives the certificate
 * that the checker accepted, and the bound that it proves.
 */
import { STEP } from '../../check/certificate-format.ts';
import { hashProblem, NO_CHOICE, verifyHashed } from '../../check/verify.ts';
import { certificateOf, type Log } from '../../network/proof-log.ts';
import type { PlainRow } from '../../network/rows.ts';
import { isLeast } from '../../problem/cost.ts';
import type { Pool } from '../../store/pool.ts';
import type { Certificate, CertificateRow, Problem } from '../../types.ts';

/** The claims that the checker accepted. */
export interface Proven {
  /** Lower bound on every choice; Infinity when there is none. */
  readonly bound: number;
  readonly certificate: Certificate;
  /** Why the proof of the search was not accepted; absent when it was. */
  readonly refused?: string;
}

/** The log of a search, not yet replayed, and whether it is about the problem with its rows. */
interface UncertifiedProof {
  readonly log: Log;
  readonly rows: boolean;
}

/** The problem that was searched, with the pool of its tables and its rows. */
interface Searched {
  readonly problem: Problem;
  readonly pool: Pool;
  readonly rows: readonly PlainRow[];
}

/**
 * Has the checker replay the proof of the search; where it is refused (or there is none), a plain
 * elimination of the whole problem, and at last the sum of all minima, which is always a proof.
 * `choice` empty: the log is to prove that there is none. `complete`: the search found that nothing
 * costs less, so a weaker bound is worth a second attempt.
 */
export function prove(
  { problem, pool, rows }: Searched,
  { choice, objective }: { readonly choice: Int32Array; readonly objective: number },
  uncertified: UncertifiedProof | undefined,
  complete: boolean,
): Proven {
  const hash = hashProblem(problem);
  const attempts: (() => Certificate | undefined)[] = [
    () =>
      uncertified &&
      certificateOf(
        uncertified.log,
        pool,
        hash,
        uncertified.rows ? rows.map((row) => row.source) : [],
      ),
    () =>
      eliminationCertificate(
        problem,
        hash,
        rows.map((row) => row.source),
      ),
    () => ({ version: 2, problem: hash, rows: [], steps: [], lists: [] }),
  ];
  let refused: string | undefined;
  let best: { readonly bound: number; readonly certificate: Certificate } | undefined;
  for (const attempt of attempts) {
    const certificate = attempt();
    if (certificate === undefined) continue;
    const verdict = verifyHashed(problem, hash, { choice, objective, certificate });
    if (!verdict.accepted) {
      refused ??= verdict.reason ?? 'refused';
      continue;
    }
    const bound = verdict.bound === NO_CHOICE ? Infinity : Number(verdict.bound);
    if (best === undefined || bound > best.bound) best = { bound, certificate };
    if (isLeast(problem, objective, bound) || !complete) break;
  }
  if (best === undefined)
    throw new Error(`internal: the checker refuses every proof (${refused ?? ''})`);
  return refused === undefined ? best : { ...best, refused };
}

/** Plain elimination is tried on problems of at most this many variables. */
const PLAIN_VARIABLES = 400;

/**
 * The simplest certificate: eliminate every variable, fewest neighbours first; with rows, one
 * Pareto elimination. Undefined for problems above 400 variables; where the problem is wide, the
 * checker refuses it.
 */
export function eliminationCertificate(
  problem: Problem,
  hash: string,
  rows: readonly CertificateRow[],
): Certificate | undefined {
  const n = problem.domains.length;
  if (n > PLAIN_VARIABLES) return undefined;
  if (rows.length > 0) return { version: 2, problem: hash, rows, steps: [STEP.pareto], lists: [] };
  const near = Array.from({ length: n }, () => new Set<number>());
  for (let e = 0; e < problem.edges.first.length; e++) {
    const i = problem.edges.first[e];
    const j = problem.edges.second[e];
    if (i === j) continue;
    near[i].add(j);
    near[j].add(i);
  }
  const steps: number[] = [];
  const left = new Set(near.keys());
  while (left.size > 0) {
    let chosen = -1;
    for (const v of left) if (chosen < 0 || near[v].size < near[chosen].size) chosen = v;
    left.delete(chosen);
    steps.push(STEP.eliminate, chosen);
    for (const a of near[chosen]) {
      near[a].delete(chosen);
      for (const b of near[chosen]) if (a !== b) near[a].add(b);
    }
  }
  return { version: 2, problem: hash, rows: [], steps, lists: [] };
}
