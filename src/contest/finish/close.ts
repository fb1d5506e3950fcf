/**
 * Closing: the exact engine on the whole problem with only those rows that carry a price, starting
 * from the best choice found. Rows that are left out can only lower a bound, so what it proves
 * holds for the whole problem; rows that its relaxed optima break are added and it tries again.
 */
import { monotonicMilliseconds as milliseconds } from '../../platform/platform.ts';
import type { ThreadPort } from '../../platform/types.ts';
import { networkOf } from '../../solver/network/from-problem.ts';
import type { Network } from '../../solver/network/network.ts';
import { STEP } from '../../solver/network/proof-log.ts';
import { installRows, type PlainRow } from '../../solver/network/rows.ts';
import { prove } from '../../solver/search/answer/certify.ts';
import { Search } from '../../solver/search/branch-and-bound.ts';
import { MOST_CELLS } from '../../solver/search/limits.ts';
import { makeWorkspace } from '../../solver/search/workspace.ts';
import { Pool } from '../../solver/store/pool.ts';
import type { Certificate, CertificateRow, Problem } from '../../solver/types.ts';
import { type Evaluated, evaluator } from '../model/evaluator.ts';

/** A split of a variable of the problem into the listed values and all others. */
interface BranchingSplit {
  readonly variable: number;
  readonly values: readonly number[];
  readonly parts: readonly [BranchingNode, BranchingNode];
}

/** A leaf has one price per row of the plan, in units of 2^-20. */
export type BranchingNode = BranchingSplit | { readonly prices: readonly bigint[] };

/** A plan of branching; nothing in it is trusted. */
export interface Branching {
  readonly rows: readonly CertificateRow[];
  readonly root: BranchingNode;
}

/** The job of closing a gap. */
export interface ClosingJob {
  readonly problem: Problem;
  readonly choice: Int32Array;
  readonly rows: readonly CertificateRow[];
  /** One price per row, in units of 2^-20. */
  readonly prices: readonly bigint[];
  /** A known way to branch, with prices for every leaf, instead of `rows` and `prices`. */
  readonly plan?: Branching;
  /** Milliseconds since the epoch. */
  readonly deadline: number;
  /** Numbers that an attempt may keep; default half of `MOST_CELLS`, because two run at a time. */
  readonly cellLimit?: number;
}

export interface Closing {
  readonly choice: Int32Array;
  readonly objective: number;
  /** The bound that the checker accepted. */
  readonly bound: number;
  readonly certificate: Certificate;
  readonly nodes: number;
  /** The limit on stored numbers that ended it; absent where none did. */
  readonly fullAt?: number;
}

/** Most rows that closing works with; beyond, labels explode. */
const MOST_ROWS = 40;

const CELLS = MOST_CELLS / 2;

/** Most rows that are added after one attempt. */
const MOST_FRESH = 4;

/** The work of its thread. */
export function closeThread(port: ThreadPort, job: ClosingJob): void {
  port.postMessage({ answer: close(job) });
}

/** Tries to prove that nothing costs less than the job's choice, or finds what does. */
export function close(job: ClosingJob): Closing {
  const { problem, deadline } = job;
  const sources = [...job.rows];
  const prices = [...job.prices];
  let { choice } = job;
  const evaluateChoice = evaluator(problem);
  if (job.plan !== undefined) return carryOut(job, job.plan, evaluateChoice);
  for (;;) {
    const result = attempt({ ...job, choice, rows: sources, prices }, evaluateChoice);
    choice = result.choice;
    if (result.bound >= result.objective || milliseconds() > deadline) return result;
    if (result.fullAt !== undefined) return result;
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
  const { problem } = job;
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
  const limits = new Limits(job, pool);
  const search = new Search(
    { evaluate: cost, stopped: limits.stopped, progress: () => undefined, gap: 0 },
    makeWorkspace(net),
  );
  search.propose(job.choice);
  const bound = Math.ceil(search.solvePriced(net, job.prices) / net.quantum) * net.quantum;
  const { choice, objective } = search.best ?? {
    choice: job.choice,
    objective: cost(job.choice, true),
  };
  const searched = { problem, pool, rows };
  const proven = prove(searched, { choice, objective }, search.proof, bound >= objective);
  return {
    choice,
    objective,
    bound: proven.bound,
    certificate: proven.certificate,
    nodes: search.nodes,
    ...limits.reached,
    broken: Array.from(broken)
      .filter(([, value]) => value < objective)
      .sort((a, b) => a[1] - b[1] || a[0] - b[0])
      .slice(0, MOST_FRESH)
      .map(([time]) => time),
  };
}

/**
 * Carries out a plan of branching: reduces, splits as it says, and has the engine solve every leaf
 * at the leaf's prices.
 */
function carryOut(
  job: ClosingJob,
  plan: Branching,
  evaluateChoice: (choice: Int32Array) => Evaluated,
): Closing {
  const { problem } = job;
  const rows = plan.rows.map((source) => rowOf(problem, source));
  const pool = new Pool();
  const net = networkOf(problem, pool);
  installRows(net, rows);
  const cost = (choice: Int32Array, withRows: boolean): number => {
    const { cost: value, worstTime, breaksRow } = evaluateChoice(choice);
    return withRows && (worstTime >= 0 || breaksRow) ? Infinity : value;
  };
  const limits = new Limits(job, pool);
  const workspace = makeWorkspace(net);
  const search = new Search(
    { evaluate: cost, stopped: limits.stopped, progress: () => undefined, gap: 0 },
    workspace,
  );
  search.propose(job.choice);
  const visit = (node: BranchingNode, at: Network): number => {
    if ('prices' in node) return search.solvePriced(at, node.prices);
    const part = positionsOf(at, node);
    // The reduction has settled the variable, which it had not on the model of the plan: no plan
    // for this network.
    if (part === undefined) return -Infinity;
    at.log.push(STEP.branch, part.variable, 2);
    let least = Infinity;
    node.parts.forEach((child, k) => {
      const side = at.clone();
      const keep = pool.map(k === 0 ? part.inside : part.outside);
      side.restrict(part.variable, keep);
      least = Math.min(least, visit(child, side));
      at.log.push(STEP.part, keep);
      at.log.absorb(side.log);
      at.log.push(STEP.end);
    });
    return least;
  };
  const bound = workspace.reducer.reduce(net)
    ? Math.ceil(visit(plan.root, net) / net.quantum) * net.quantum
    : Infinity;
  const { choice, objective } = search.best ?? {
    choice: job.choice,
    objective: cost(job.choice, true),
  };
  const uncertified = { log: net.log, rows: true };
  const searched = { problem, pool, rows };
  const proven = prove(searched, { choice, objective }, uncertified, bound >= objective);
  return {
    choice,
    objective,
    bound: proven.bound,
    certificate: proven.certificate,
    nodes: search.nodes,
    ...limits.reached,
  };
}

/** The clock of an attempt, and how much it has stored since it began. */
class Limits {
  private readonly deadline: number;
  private readonly cellLimit: number;
  private readonly least: number;
  private isFull = false;

  constructor(
    { deadline, cellLimit = CELLS }: ClosingJob,
    private readonly pool: Pool,
  ) {
    this.deadline = deadline;
    this.cellLimit = cellLimit;
    this.least = pool.cells;
  }

  readonly stopped = (): boolean => {
    this.isFull ||= this.pool.cells - this.least > this.cellLimit;
    return this.isFull || milliseconds() > this.deadline;
  };

  get reached(): Pick<Closing, 'fullAt'> {
    return this.isFull ? { fullAt: this.cellLimit } : {};
  }
}

/**
 * The network's variable that decides a variable of the problem, and its positions with the listed
 * values and without.
 */
function positionsOf(
  net: Network,
  { variable, values }: BranchingSplit,
):
  | { readonly variable: number; readonly inside: Int32Array; readonly outside: Int32Array }
  | undefined {
  const { pool } = net;
  for (let i = 0; i < net.count; i++) {
    if (net.gone[i] === 1) continue;
    const member = net.members[i].find((m) => m.variable === variable);
    if (member === undefined) continue;
    const own = pool.mapOf(pool.compose(member.map, net.values[i]));
    const positions = Int32Array.from(own.keys());
    return {
      variable: i,
      inside: positions.filter((p) => values.includes(own[p])),
      outside: positions.filter((p) => !values.includes(own[p])),
    };
  }
  return undefined;
}

function rowOf(problem: Problem, source: CertificateRow): PlainRow {
  if ('row' in source) {
    const row = problem.rows?.[source.row];
    if (row === undefined) throw new Error(`internal: there is no row ${source.row}`);
    return { ...row, source };
  }
  const pieces = (problem.usage?.pieces ?? []).filter(
    (p) => p.lo <= source.time && source.time < p.hi,
  );
  return {
    name: `memory at ${source.time}`,
    source,
    bound: problem.usage?.limit ?? Infinity,
    variables: Int32Array.from(pieces, (p) => p.variable),
    amounts: pieces.map((p) => p.amounts),
  };
}
