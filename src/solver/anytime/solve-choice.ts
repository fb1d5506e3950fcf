/**
 * The way in for large problems with memory over time: reduce, raise a bound by prices and messages, search in blocks,
 * close exactly where the reduced model is small, and hand out nothing but checked choices and checked bounds.
 */
import { evaluate } from '../check.ts';
import { verifyDual, type DualCertificate } from '../check-dual.ts';
import { solve } from '../solve.ts';
import type { Certificate, Problem } from '../types.ts';
import { aside, type AsideLimits } from './aside.ts';
import type { Closing, ClosingJob } from './close.ts';
import { compact, type Compact } from './compact.ts';
import type { BranchTree, TreeJob } from './branch-tree.ts';
import { costOf } from './dual.ts';
import type { Finish, FinishJob } from './finish.ts';
import { firstChoice, type BoundReport } from './lane.ts';
import { planOf } from './plan.ts';
import { dualCertificate, sourceOf } from './prove.ts';
import { search, type Findings } from './rounds.ts';

export interface ChoiceOptions {
  /** Wall-clock limit of everything, reading excluded. Default: none, stop at proof or after `rounds`. */
  readonly timeLimitSeconds?: number;
  /** Stop once (objective - bound) / max(1, |objective|) is at most this. Default 0. */
  readonly gap?: number;
  readonly seed?: number;
  /** Worker threads; 1 works in the calling thread. The answer does not depend on it. Default 2. */
  readonly threads?: number;
  /** Most rounds of search: the deterministic limit. Default: none when there is a time limit, else 400. */
  readonly rounds?: number;
  /** Whether the exact engine may close small models (at most a minute of it without a time limit). Default true. */
  readonly close?: boolean;
  readonly signal?: AbortSignal;
  readonly onProgress?: (event: ChoiceProgress) => void;
}

/** Objective falls and bound rises; the bound of an event is not yet certified, the one of the solution is. */
export interface ChoiceProgress {
  readonly phase: 'reduce' | 'search' | 'finish' | 'close' | 'certify';
  readonly seconds: number;
  readonly objective: number;
  readonly bound: number;
  readonly gap: number;
}

export interface ChoiceSolution {
  readonly status: 'optimal' | 'feasible' | 'infeasible';
  readonly choice: Int32Array;
  /** Cost by the checker; absent when infeasible. */
  readonly objective?: bigint;
  /** Lower bound by the checker; absent when infeasible. */
  readonly bound?: bigint;
  readonly gap: number;
  readonly seconds: number;
  readonly rounds: number;
  readonly certificate?: Certificate | DualCertificate;
  /** What HiGHS said about the reduced model, where it was asked, and the size of its last program. Evidence, no proof. */
  readonly finisher?: {
    readonly word: string;
    readonly runs: number;
    readonly rows: number;
    readonly columns: number;
  };
  readonly conflict?: readonly string[];
  readonly smallestBudget?: number;
}

/** Problems of at most this many variables go to the exact engine when they are infeasible or have no easy first choice. */
const SMALL = 2000;
/** Closing is tried on reduced models of at most this many values. */
const CLOSE_VALUES = 6000;
/** Rounds without a better choice before closing is tried, and the least number of rounds before it. */
const CLOSE_PATIENCE = 2;
const CLOSE_ROUNDS = 4;
/** Rows whose share of all prices is below this are left out of closing at first. */
const ROW_SHARE = 0.01;
/** Up to this many rows all of them take part. */
const FEW_ROWS = 24;
/** Reduced models of at least this many values get the finisher first: smaller ones are closed before HiGHS is loaded. */
const FINISH_VALUES = 300;
/** Share of the time left that the finisher may take, and its limit of branch-and-bound nodes where there is no clock. */
const FINISH_SHARE = 0.3;
const FINISH_NODES = 2000;
/** Share of the time left that closing may take; the rest is for more search. */
const CLOSE_SHARE = 0.6;
/** The same where HiGHS says that there is nothing better to find. */
const CLOSE_SHARE_DONE = 0.95;
/** Share of the time of closing for the attempt without a plan where there is one. */
const PLAIN_SHARE = 1 / 3;
/** Milliseconds of closing when there is no time limit. */
const CLOSE_MILLISECONDS = 60_000;
/** Time set aside for the certificate, in multiples of the time of the reduction, and beyond. */
const RESERVE = 4;
const RESERVE_SECONDS = 0.5;

/** Solves a choice problem within limits. Never calls an answer optimal without a certificate that the checker accepted. */
export async function solveChoice(problem: Problem, options: ChoiceOptions = {}): Promise<ChoiceSolution> {
  return new Run(problem, options).solve();
}

class Run {
  readonly #problem: Problem;
  readonly #options: ChoiceOptions;
  readonly #started = performance.now();
  readonly #control = new Int32Array(new SharedArrayBuffer(4));
  #closed: Closing | undefined;
  #finished: ChoiceSolution['finisher'];
  /** Rows that HiGHS' last program had, once it says that nothing is cheaper. */
  #finishRows: readonly number[] | undefined;
  #lastBound = -Infinity;

  constructor(problem: Problem, options: ChoiceOptions) {
    this.#problem = problem;
    this.#options = options;
  }

  #elapsed(): number {
    return (performance.now() - this.#started) / 1000;
  }

  #progress(phase: ChoiceProgress['phase'], objective: number, bound: number): void {
    this.#lastBound = Math.max(this.#lastBound, bound);
    const best = Math.min(this.#lastBound, objective);
    this.#options.onProgress?.({
      phase,
      seconds: this.#elapsed(),
      objective,
      bound: best,
      gap: gapOf(objective, best),
    });
  }

  async solve(): Promise<ChoiceSolution> {
    const { signal } = this.#options;
    const abort = (): void => void Atomics.store(this.#control, 0, 1);
    if (signal?.aborted === true) abort();
    signal?.addEventListener('abort', abort, { once: true });
    try {
      const reduced = compact(this.#problem);
      const start = reduced === undefined ? undefined : firstChoice(reduced.model);
      if (reduced === undefined || start === undefined) return await this.#byEngine(reduced);
      return await this.#search(reduced, start);
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  }

  async #search(reduced: Compact, start: Int32Array): Promise<ChoiceSolution> {
    const { model } = reduced;
    const options = this.#options;
    const cost = costOf(model, start);
    this.#progress('reduce', cost, -Infinity);
    const reserve = RESERVE * this.#elapsed() + RESERVE_SECONDS;
    const limit = options.timeLimitSeconds ?? Infinity;
    const deadline =
      limit === Infinity ? Infinity : Date.now() + 1000 * Math.max(0.05, limit - this.#elapsed() - reserve);
    const gap = options.gap ?? 0;
    const closable = options.close !== false && model.start[model.count] <= CLOSE_VALUES;
    let pending = closable && model.start[model.count] >= FINISH_VALUES;
    let closing = closable;
    let patience = 0;
    let known = cost;
    const pauses = (found: Findings): boolean => {
      const bound = found.bound?.best ?? -Infinity;
      this.#progress('search', found.cost, bound);
      if (gapOf(found.cost, bound) <= gap && gap > 0) return true;
      if (found.cost - bound < 0.5) return true;
      patience = found.cost < known ? 0 : patience + 1;
      known = Math.min(known, found.cost);
      if (base + found.rounds < CLOSE_ROUNDS) return false;
      return closing && ((pending && found.bound?.raw === false) || patience >= CLOSE_PATIENCE);
    };
    const budget = options.rounds ?? (limit === Infinity ? 400 : Infinity);
    const settings = { threads: options.threads ?? 2, deadline, control: this.#control, onRound: pauses };
    const share = (part: number): number =>
      deadline === Infinity ? Infinity : Date.now() + part * (deadline - Date.now());
    let found: Findings = { choice: start, cost, bound: undefined, rounds: 0 };
    let base = 0;
    if (model.count === 0) found = { ...found, bound: noPrices(reduced) };
    else found = await search(model, start, cost, { ...settings, seed: options.seed ?? 0, rounds: budget });
    // Every pause of the search is for the finisher, then for closing; what they leave open the search goes on with.
    for (let part = 1; closing && !this.#over(found, gap, deadline); part++) {
      const met = found.cost - (found.bound?.best ?? -Infinity) < 0.5;
      if (pending && !met) {
        pending = false;
        found = await this.#finish(reduced, found, share(FINISH_SHARE));
        known = found.cost;
        patience = this.#finished?.word === 'done' ? CLOSE_PATIENCE : 0;
      }
      if (met || model.count === 0 || found.rounds >= budget || patience >= CLOSE_PATIENCE) {
        closing = false;
        await this.#close(reduced, found, share(this.#finishRows === undefined ? CLOSE_SHARE : CLOSE_SHARE_DONE));
        const closed = this.#closed;
        if (closed !== undefined && gapOf(closed.objective, closed.bound) <= gap) break;
      }
      if (model.count === 0 || found.rounds >= budget || this.#over(found, gap, deadline)) continue;
      base = found.rounds;
      const seed = (options.seed ?? 0) + part;
      const more = await search(model, found.choice, found.cost, { ...settings, seed, rounds: budget - base });
      found = { ...more, bound: better(more.bound, found.bound), rounds: base + more.rounds };
    }
    return this.#conclude(reduced, found);
  }

  #over(found: Findings, gap: number, deadline: number): boolean {
    if (Atomics.load(this.#control, 0) !== 0 || Date.now() > deadline) return true;
    return gap > 0 && gapOf(found.cost, found.bound?.best ?? -Infinity) <= gap;
  }

  /** Runs HiGHS on the reduced model; a better choice becomes that of the findings, its word is no proof. */
  async #finish(reduced: Compact, found: Findings, deadline: number): Promise<Findings> {
    if (found.bound === undefined) return found;
    const { model } = reduced;
    const bound = found.bound.best;
    this.#progress('finish', found.cost, bound);
    const { lambda, toFirst, toSecond } = found.bound;
    const job: FinishJob = {
      model,
      choice: found.choice,
      source: { lambda, toFirst, toSecond },
      deadline,
      ...(deadline === Infinity ? { nodes: FINISH_NODES } : {}),
      seed: this.#options.seed ?? 0,
    };
    let best = found;
    const limits: AsideLimits = { deadline, stopped: () => this.#stopped() };
    const url = new URL('./finish-worker.mjs', import.meta.url);
    const end = await aside<Finish, Pick<Finish, 'choice' | 'cost'>>(url, job, limits, ({ choice, cost }) => {
      // The word of a foreign solver went through our own evaluation of the reduced model; here the checker looks.
      if (!(cost < best.cost) || !this.#accepts(reduced, choice, cost)) return;
      best = { ...best, choice, cost };
      this.#progress('finish', cost, bound);
    });
    if (end.kind === 'answer') {
      const { word, runs, rows, columns } = end.answer;
      this.#finished = { word, runs, rows: rows.length, columns };
      if (word === 'done') this.#finishRows = rows;
    } else {
      // Past its memory HiGHS aborts with this; any other fault is ours.
      if (end.kind === 'fault' && end.fault.name !== 'RuntimeError') throw end.fault;
      const word = end.kind === 'stopped' ? 'limit' : `failed: ${end.fault.message}`;
      this.#finished = { word, runs: 0, rows: 0, columns: 0 };
    }
    return best;
  }

  /** Whether the checker finds a choice of the model without violations and at that cost. */
  #accepts(reduced: Compact, choice: Int32Array, cost: number): boolean {
    const checked = evaluate(this.#problem, reduced.expand(choice));
    if (checked.violations.length > 0 || Number(checked.cost) !== cost)
      throw new Error(`internal: the checker rejects the finisher's choice (${checked.violations[0]?.code ?? 'cost'})`);
    return true;
  }

  #stopped(): boolean {
    return Atomics.load(this.#control, 0) !== 0;
  }

  /**
   * Runs the exact engine in a thread of its own; gives up at the deadline or when told to stop. Where HiGHS says that
   * nothing is cheaper, a plan of branching is made beside it and carried out, too: whichever proves it first ends both.
   */
  async #close(reduced: Compact, found: Findings, limit: number): Promise<void> {
    if (found.bound === undefined) return;
    const deadline = Math.min(limit, Date.now() + (limit === Infinity ? CLOSE_MILLISECONDS : Infinity));
    this.#progress('close', found.cost, found.bound.best);
    const { lambda } = found.bound;
    const { capacity, sources } = reduced.model;
    const worth = lambda.map((l, t) => l * capacity[t]);
    const total = worth.reduce((a, b) => a + b, 0);
    const rows = Array.from(lambda.keys()).filter(
      (t) => lambda.length <= FEW_ROWS || (lambda[t] > 0 && worth[t] >= ROW_SHARE * total),
    );
    const common = { problem: this.#problem, choice: reduced.expand(found.choice), deadline };
    const plain: ClosingJob = {
      ...common,
      rows: rows.map((t) => sourceOf(sources[t])),
      prices: rows.map((t) => BigInt(Math.round(lambda[t] * 2 ** 20))),
    };
    if (this.#finishRows === undefined) return this.#attempt(plain);
    const byPlan = async (): Promise<void> => {
      const tree = await this.#plan(reduced, found, deadline);
      if (tree !== undefined) await this.#attempt({ ...common, rows: [], prices: [], plan: planOf(reduced, tree) });
    };
    // What the plain attempt proves at all it proves early, and the plan needs the machine.
    const early = { ...plain, deadline: Math.min(deadline, Date.now() + PLAIN_SHARE * (deadline - Date.now())) };
    if ((this.#options.threads ?? 2) > 1) await Promise.all([this.#attempt(early), byPlan()]);
    else {
      await this.#attempt(early);
      if (!this.#proven()) await byPlan();
    }
  }

  #proven(): boolean {
    return this.#closed !== undefined && this.#closed.bound >= this.#closed.objective;
  }

  /** One attempt to close; the better result is kept. */
  async #attempt(job: ClosingJob): Promise<void> {
    const url = new URL('./close-worker.mjs', import.meta.url);
    const stopped = (): boolean => this.#stopped() || this.#proven();
    const end = await aside<Closing>(url, job, { deadline: job.deadline, stopped });
    if (end.kind === 'fault') throw end.fault;
    if (end.kind !== 'answer' || this.#proven()) return;
    const { answer } = end;
    const known = this.#closed;
    const finer = known === undefined || answer.objective < known.objective || answer.bound > known.bound;
    if (finer) this.#closed = answer;
    this.#progress('close', answer.objective, answer.bound);
  }

  async #plan(reduced: Compact, found: Findings, deadline: number): Promise<BranchTree | undefined> {
    if (found.bound === undefined || this.#finishRows === undefined) return undefined;
    const { lambda, toFirst, toSecond } = found.bound;
    const source = { lambda, toFirst, toSecond };
    const job: TreeJob & { readonly kind: 'plan' } = {
      kind: 'plan',
      model: reduced.model,
      source,
      cost: found.cost,
      rows: this.#finishRows,
      deadline,
    };
    const url = new URL('./finish-worker.mjs', import.meta.url);
    const stopped = (): boolean => this.#stopped() || this.#proven();
    const end = await aside<BranchTree | undefined>(url, job, { deadline, stopped });
    if (end.kind === 'fault' && end.fault.name !== 'RuntimeError') throw end.fault;
    return end.kind === 'answer' ? end.answer : undefined;
  }

  /** Checks the best choice and the best bound; what the checker says is the answer. */
  #conclude(reduced: Compact, found: Findings): ChoiceSolution {
    const problem = this.#problem;
    const closed = this.#closed;
    let choice = reduced.expand(found.choice);
    if (closed !== undefined && closed.objective < found.cost) ({ choice } = closed);
    const checked = evaluate(problem, choice);
    if (checked.violations.length > 0)
      throw new Error(`internal: the checker rejects the solver's choice (${checked.violations[0].code})`);
    const objective = checked.cost;
    let bound = -1n << 62n;
    let certificate: Certificate | DualCertificate | undefined;
    if (closed !== undefined) {
      bound = BigInt(closed.bound);
      ({ certificate } = closed);
    }
    if (bound < objective && found.bound !== undefined) {
      this.#progress('certify', Number(objective), found.bound.best);
      const dual = dualCertificate(problem, reduced, found.bound);
      const verdict = verifyDual(problem, dual);
      if (!verdict.accepted) throw new Error(`internal: the checker rejects the bound (${verdict.reason ?? ''})`);
      if (verdict.bound > bound) {
        bound = verdict.bound;
        certificate = dual;
      }
    }
    if (bound > objective) throw new Error('internal: a bound above a checked choice');
    return {
      status: bound === objective ? 'optimal' : 'feasible',
      choice,
      objective,
      bound,
      gap: gapOf(Number(objective), Number(bound)),
      seconds: this.#elapsed(),
      rounds: found.rounds,
      ...(certificate === undefined ? {} : { certificate }),
      ...(this.#finished === undefined ? {} : { finisher: this.#finished }),
    };
  }

  /** No easy first choice: the exact engine decides whether there is any. */
  async #byEngine(reduced: Compact | undefined): Promise<ChoiceSolution> {
    const { timeLimitSeconds, gap, signal } = this.#options;
    const size = this.#problem.domains.length;
    if (reduced === undefined && size > SMALL) {
      return {
        status: 'infeasible',
        choice: new Int32Array(0),
        gap: 0,
        seconds: this.#elapsed(),
        rounds: 0,
        conflict: ['least usage of all variables exceeds a row, or some variable has no value with a partner'],
      };
    }
    const solution = await solve(this.#problem, {
      engine: 'exact',
      ...(timeLimitSeconds === undefined
        ? {}
        : { timeLimitSeconds: Math.max(0.05, timeLimitSeconds - this.#elapsed()) }),
      ...(gap === undefined ? {} : { gap }),
      ...(signal === undefined ? {} : { signal }),
    });
    const { status, choice, certificate, conflict, smallestBudget } = solution;
    const finite = status !== 'infeasible';
    return {
      status,
      choice,
      ...(finite ? { objective: BigInt(solution.objective), bound: BigInt(Math.ceil(solution.bound)) } : {}),
      gap: solution.gap,
      seconds: this.#elapsed(),
      rounds: 0,
      ...(certificate === undefined ? {} : { certificate }),
      ...(conflict === undefined ? {} : { conflict }),
      ...(smallestBudget === undefined ? {} : { smallestBudget }),
    };
  }
}

/** The report of the higher bound. */
function better(a: BoundReport | undefined, b: BoundReport | undefined): BoundReport | undefined {
  return a === undefined || (b !== undefined && b.best > a.best) ? b : a;
}

/** The bound of a model without variables: its constant. */
function noPrices({ model }: Compact): BoundReport {
  const none = new Float64Array(0);
  return {
    best: model.constant,
    present: model.constant,
    lambda: new Float64Array(model.rows),
    marginal: none,
    guests: [],
    toFirst: none,
    toSecond: none,
    raw: false,
    stalled: true,
  };
}

function gapOf(objective: number, bound: number): number {
  return bound === -Infinity ? Infinity : Math.max(0, objective - bound) / Math.max(1, Math.abs(objective));
}
