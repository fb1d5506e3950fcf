/**
 * Closing: the exact engine on the whole problem with only those rows that carry a price, starting from the best choice
 * found. Rows that are left out can only lower a bound, so what it proves holds for the whole problem; rows that its
 * relaxed optima break are added and it tries again.
 */
import { prove } from '../certify.ts';
import { networkOf } from '../intern.ts';
import { Pool } from '../pool.ts';
import { installRows, type PlainRow } from '../rows.ts';
import { makeEngines, Search } from '../search.ts';
import type { Certificate, CertificateRow, Problem } from '../types.ts';
import { evaluator, type Evaluated } from './evaluator.ts';

/** What closing is to do. */
export interface ClosingJob {
  readonly problem: Problem;
  readonly choice: Int32Array;
  readonly rows: readonly CertificateRow[];
  /** One price per row, in units of 2^-20. */
  readonly prices: readonly bigint[];
  /** Milliseconds since the epoch. */
  readonly deadline: number;
}

export interface Closing {
  readonly choice: Int32Array;
  readonly objective: number;
  /** What the checker accepted. */
  readonly bound: number;
  readonly certificate: Certificate;
  readonly nodes: number;
}

/** Most rows that closing works with; beyond, labels explode. */
const MOST_ROWS = 40;

/** Most rows that are added after one attempt. */
const MOST_FRESH = 4;

/** Tries to prove that nothing costs less than the job's choice, or finds what does. */
export function close(job: ClosingJob): Closing {
  const { problem, deadline } = job;
  const sources = [...job.rows];
  const prices = [...job.prices];
  let { choice } = job;
  const evaluateChoice = evaluator(problem);
  for (;;) {
    const result = attempt({ ...job, choice, rows: sources, prices }, evaluateChoice);
    choice = result.choice;
    if (result.bound >= result.objective || Date.now() > deadline) return result;
    if (result.broken.length === 0 || sources.length >= MOST_ROWS) return result;
    for (const time of result.broken) {
      sources.push({ time });
      prices.push(0n);
    }
  }
}

function attempt(
  job: ClosingJob,
  evaluateChoice: (choice: Int32Array) => Evaluated,
): Closing & { readonly broken: readonly number[] } {
  const { problem, deadline } = job;
  const rows = job.rows.map((source) => rowOf(problem, source));
  const pool = new Pool();
  const net = networkOf(problem, pool);
  installRows(net, rows);
  // Times that choices cheaper than the best one break, and that are not among the rows yet.
  const known = new Set(job.rows.flatMap((s) => ('time' in s ? [s.time] : [])));
  const broken = new Map<number, number>();
  const cost = (choice: Int32Array, withRows: boolean): number => {
    const { cost: value, worstTime, breaksRow } = evaluateChoice(choice);
    if (worstTime >= 0 && value < Infinity && !known.has(worstTime))
      broken.set(worstTime, Math.min(value, broken.get(worstTime) ?? Infinity));
    return withRows && (worstTime >= 0 || breaksRow) ? Infinity : value;
  };
  const stopped = (): boolean => Date.now() > deadline;
  const search = new Search({ evaluate: cost, stopped, progress: () => undefined, gap: 0 }, makeEngines(net));
  search.offer(job.choice);
  const bound = Math.ceil(search.solvePriced(net, job.prices) / net.quantum) * net.quantum;
  const { choice, objective } = search.best ?? { choice: job.choice, objective: cost(job.choice, true) };
  const proven = prove(problem, choice, objective, pool, rows, search.proof, bound >= objective);
  return {
    choice,
    objective,
    bound: proven.bound,
    certificate: proven.certificate,
    nodes: search.nodes,
    broken: Array.from(broken)
      .filter(([, value]) => value < objective)
      .sort((a, b) => a[1] - b[1] || a[0] - b[0])
      .slice(0, MOST_FRESH)
      .map(([time]) => time),
  };
}

function rowOf(problem: Problem, source: CertificateRow): PlainRow {
  if ('row' in source) {
    const row = problem.rows?.[source.row];
    if (row === undefined) throw new Error(`internal: there is no row ${source.row}`);
    return { name: row.name, source, bound: row.bound, variables: [...row.variables], amounts: row.amounts };
  }
  const pieces = (problem.usage?.pieces ?? []).filter((p) => p.lo <= source.time && source.time < p.hi);
  return {
    name: `memory at ${source.time}`,
    source,
    bound: problem.usage?.limit ?? Infinity,
    variables: pieces.map((p) => p.variable),
    amounts: pieces.map((p) => p.amounts),
  };
}
