/**
 * The end of a run on a small model: HiGHS as a finisher that may find a better choice, then the
 * exact engine that proves it, each in a thread of its own. What HiGHS says is never a proof; it
 * only decides what is tried.
 */
import { monotonicMilliseconds as milliseconds } from '../../platform/platform.ts';
import type { ThreadCode } from '../../platform/types.ts';
import { evaluate } from '../../solver/check/verify.ts';
import type { AnytimeRun } from '../anytime-run.ts';
import type { Presolved } from '../model/presolve.ts';
import type { BoundReport } from '../run/member.ts';
import type { Findings } from '../run/rounds.ts';
import type { BranchTree, TreeJob } from './branch-tree.ts';
import { branchingOf } from './branching.ts';
import type { Closing, ClosingJob } from './close.ts';
import { sourceOf } from './dual-certificate.ts';
import type { Finish, FinishJob } from './finish.ts';
import { type JobLimits, runJob } from './job.ts';

const FINISH: ThreadCode = {
  from: import.meta.url,
  file: './finish-worker.mjs',
  body: async () => (await import('./finish-thread.ts')).finishThread,
};
const CLOSE: ThreadCode = {
  from: import.meta.url,
  file: './close-worker.mjs',
  body: async () => (await import('./close.ts')).closeThread,
};

/** Rows whose share of all prices is below this are left out of closing at first. */
const ROW_SHARE = 0.01;
/** Up to this many rows all of them take part. */
const FEW_ROWS = 24;
/** Branch-and-bound nodes of the finisher where there is no clock. */
const FINISH_NODES = 2000;
/** Share of the time of closing for the attempt without a plan where there is one. */
const PLAIN_SHARE = 1 / 3;

/** Findings that have a bound. */
type Bounded = Findings & { readonly bound: BoundReport };

/**
 * The report of HiGHS on the reduced model, and the size of its last program. It is evidence and
 * not a proof.
 */
interface Finished {
  readonly word: string;
  readonly runs: number;
  readonly rows: number;
  readonly columns: number;
}

export class Endgame {
  private readonly run: AnytimeRun;
  private readonly reduced: Presolved;
  private wasClosed: Closing | undefined;
  private wasFinished: Finished | undefined;
  private fullAt: number | undefined;
  /** Rows that HiGHS' last program had, once it says that nothing is cheaper. */
  private finishRows: readonly number[] | undefined;

  constructor(run: AnytimeRun, reduced: Presolved) {
    this.run = run;
    this.reduced = reduced;
  }

  /** The best that closing has proven so far. */
  get closed(): Closing | undefined {
    return this.wasClosed;
  }

  get finished(): Finished | undefined {
    return this.wasFinished;
  }

  /** Limits other than the clock that ended closing, one sentence each. */
  get limits(): readonly string[] {
    return this.fullAt === undefined
      ? []
      : [`closing ended at its limit of ${this.fullAt} stored numbers`];
  }

  /** Tells whether HiGHS says that nothing is cheaper. */
  get done(): boolean {
    return this.finishRows !== undefined;
  }

  /**
   * Runs HiGHS on the reduced model; a better choice becomes that of the findings, what HiGHS
   * reports is not a proof.
   */
  async finish(found: Findings, deadline: number): Promise<Findings> {
    if (found.bound === undefined) return found;
    const run = this.run;
    const { model } = this.reduced;
    const bound = found.bound.best;
    run.progress('finish', found.cost, bound);
    const { lambda, toFirst, toSecond } = found.bound;
    const job: FinishJob = {
      model,
      choice: found.choice,
      source: { lambda, toFirst, toSecond },
      deadline,
      ...(run.options.timeLimitSeconds === undefined ? { nodes: FINISH_NODES } : {}),
      seed: run.options.seed ?? 0,
    };
    let best = found;
    const limits: JobLimits = { deadline, stopped: () => run.stopped() };
    const end = await runJob<Finish, Pick<Finish, 'choice' | 'cost'>>(
      FINISH,
      job,
      limits,
      ({ choice, cost }) => {
        // The answer of a foreign solver went through our own evaluation of the reduced model; here
        // the checker looks.
        if (!(cost < best.cost)) return;
        this.inspect(choice, cost);
        best = { ...best, choice, cost };
        run.progress('finish', cost, bound);
      },
    );
    if (end.kind === 'answer') {
      const { word, runs, rows, columns } = end.answer;
      this.wasFinished = { word, runs, rows: rows.length, columns };
      if (word === 'done') this.finishRows = rows;
    } else {
      // Past its memory HiGHS aborts with this; any other fault is ours.
      if (end.kind === 'fault' && end.fault.name !== 'RuntimeError') throw end.fault;
      const word = end.kind === 'stopped' ? 'limit' : `failed: ${end.fault.message}`;
      this.wasFinished = { word, runs: 0, rows: 0, columns: 0 };
    }
    return best;
  }

  /** Throws unless the checker finds a choice of the model without violations and at that cost. */
  private inspect(choice: Int32Array, cost: number): void {
    const checked = evaluate(this.run.problem, this.reduced.expand(choice));
    if (checked.violations.length > 0 || Number(checked.cost) !== cost)
      throw new Error(
        `internal: the checker rejects the finisher's choice ` +
          `(${checked.violations[0]?.code ?? 'cost'})`,
      );
  }

  /**
   * Runs the exact engine; gives up at the deadline (milliseconds since the epoch) or when told to
   * stop. Where HiGHS says that nothing is cheaper, a plan of branching is also made and carried
   * out: whichever proves it first ends both.
   */
  async close(found: Findings, deadline: number): Promise<void> {
    if (!hasBound(found)) return;
    const { problem, options } = this.run;
    const reduced = this.reduced;
    this.run.progress('close', found.cost, found.bound.best);
    const common = { problem, choice: reduced.expand(found.choice), deadline };
    const plain: ClosingJob = { ...common, ...pricedRows(reduced, found.bound.lambda) };
    const rows = this.finishRows;
    if (rows === undefined) return this.attempt(plain);
    const byBranching = async (): Promise<void> => {
      const tree = await this.plan(found, rows, deadline);
      if (tree !== undefined)
        await this.attempt({ ...common, rows: [], prices: [], plan: branchingOf(reduced, tree) });
    };
    // A proof by the plain attempt comes early or not at all, and the plan needs the machine.
    const early = {
      ...plain,
      deadline: Math.min(deadline, milliseconds() + PLAIN_SHARE * (deadline - milliseconds())),
    };
    if ((options.threads ?? 2) > 1) await Promise.all([this.attempt(early), byBranching()]);
    else {
      await this.attempt(early);
      if (!this.proven()) await byBranching();
    }
  }

  private proven(): boolean {
    return this.wasClosed !== undefined && this.wasClosed.bound >= this.wasClosed.objective;
  }

  /** One attempt to close; the better result is kept. */
  private async attempt(job: ClosingJob): Promise<void> {
    const stopped = (): boolean => this.run.stopped() || this.proven();
    const end = await runJob<Closing>(CLOSE, job, { deadline: job.deadline, stopped });
    if (end.kind === 'fault') throw end.fault;
    if (end.kind !== 'answer' || this.proven()) return;
    const { answer } = end;
    this.fullAt = answer.fullAt ?? this.fullAt;
    const known = this.wasClosed;
    const finer =
      known === undefined || answer.objective < known.objective || answer.bound > known.bound;
    if (finer) this.wasClosed = answer;
    this.run.progress('close', answer.objective, answer.bound);
  }

  private async plan(
    found: Bounded,
    rows: readonly number[],
    deadline: number,
  ): Promise<BranchTree | undefined> {
    const { lambda, toFirst, toSecond } = found.bound;
    const source = { lambda, toFirst, toSecond };
    const { model } = this.reduced;
    const job: TreeJob & { readonly kind: 'plan' } = {
      kind: 'plan',
      model,
      source,
      cost: found.cost,
      rows,
      deadline,
    };
    const stopped = (): boolean => this.run.stopped() || this.proven();
    const end = await runJob<BranchTree | undefined>(FINISH, job, { deadline, stopped });
    if (end.kind === 'fault' && end.fault.name !== 'RuntimeError') throw end.fault;
    return end.kind === 'answer' ? end.answer : undefined;
  }
}

function hasBound(found: Findings): found is Bounded {
  return found.bound !== undefined;
}

/** Rows that closing begins with, and their prices in units of 2^-20. */
function pricedRows(
  { model }: Presolved,
  lambda: Float64Array,
): Pick<ClosingJob, 'rows' | 'prices'> {
  const { capacity, sources } = model;
  const worth = lambda.map((l, t) => l * capacity[t]);
  const total = worth.reduce((a, b) => a + b, 0);
  const rows = Array.from(lambda.keys()).filter(
    (t) => lambda.length <= FEW_ROWS || (lambda[t] > 0 && worth[t] >= ROW_SHARE * total),
  );
  return {
    rows: rows.map((t) => sourceOf(sources[t])),
    prices: rows.map((t) => BigInt(Math.round(lambda[t] * 2 ** 20))),
  };
}
