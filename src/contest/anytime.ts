/**
 * The anytime solver, for large problems with usage at every time: reduce, raise a bound by prices
 * and messages, search in blocks, close exactly where the reduced model is small, and hand out
 * nothing but checked choices and checked bounds.
 */
import { monotonicMilliseconds as milliseconds } from '../platform/platform.ts';
import { gapOf } from '../solver/problem/cost.ts';
import type { Problem, Solution } from '../solver/types.ts';
import { AnytimeRun } from './anytime-run.ts';
import { costOf } from './bound/trws.ts';
import { conclude, concludeByEngine } from './conclude.ts';
import { Endgame } from './finish/endgame.ts';
import { presolve, type Presolved } from './model/presolve.ts';
import type { ContestOptions } from './options.ts';
import { BoundByParts } from './proof/bound-by-parts.ts';
import { type BoundReport, firstChoice } from './run/member.ts';
import { type Findings, MEMBERS, search } from './run/rounds.ts';

/** Closing is tried on reduced models of at most this many values. */
const CLOSE_VALUES = 6000;
/**
 * Rounds without a better choice before closing is tried, and the least number of rounds before it.
 */
const CLOSE_PATIENCE = 2;
const CLOSE_ROUNDS = 4;
/**
 * Reduced models of at least this many values get the finisher first: smaller ones are closed
 * before HiGHS is loaded.
 */
const FINISH_VALUES = 300;
/** Share of the time left that the finisher may take. */
const FINISH_SHARE = 0.3;
/** Share of the time left that closing may take; the rest is for more search. */
const CLOSE_SHARE = 0.6;
/** The same where HiGHS says that there is nothing better to find. */
const CLOSE_SHARE_DONE = 0.95;
/**
 * Models of at most this many variables are bounded by parts as soon as the search has found
 * nothing for so many rounds.
 */
const FEW_VARIABLES = 1000;
const PARTS_PATIENCE = 4;
/**
 * Share of the time left that parts may then take before the search goes on, with twice the
 * patience.
 */
const PARTS_SHARE = 0.5;
/**
 * Others are, where the bound lies this close to the best choice (relative), in this last share of
 * the time.
 */
const TIGHT = 0.01;
const LAST_SHARE = 0.2;
/** Time reserved for the certificate, in multiples of the time of the reduction, and beyond. */
const RESERVE = 4;
const RESERVE_SECONDS = 0.5;
/** Rounds of search where nothing else limits them. */
const ROUNDS = 400;

/**
 * Solves a problem within limits. Never calls an answer optimal without a certificate that the
 * checker accepted.
 */
export async function solveAnytime(
  problem: Problem,
  options: ContestOptions = {},
): Promise<Solution> {
  const run = new AnytimeRun(problem, options);
  const { signal } = options;
  const abort = (): void => run.stop();
  if (signal?.aborted === true) abort();
  signal?.addEventListener('abort', abort, { once: true });
  try {
    const reduced = presolve(problem);
    const known = (options.starts ?? []).flatMap((choice) => reduced?.contract(choice) ?? []);
    const start = reduced === undefined ? undefined : firstChoice(reduced.model, known);
    if (reduced === undefined || start === undefined)
      return run.done(concludeByEngine(run, reduced));
    return run.done(await searchAndClose(run, reduced, start));
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

function searchAndClose(run: AnytimeRun, reduced: Presolved, start: Int32Array): Promise<Solution> {
  const cost = costOf(reduced.model, start);
  run.progress('reduce', cost, -Infinity);
  return new PausedSearch(run, reduced, { choice: start, cost, bound: undefined, rounds: 0 }).run();
}

/**
 * A search in parts. Every pause of it is for the finisher, then for closing, then for the bound by
 * parts; what they leave open the search goes on with.
 */
class PausedSearch {
  /** Milliseconds that the reduction took. */
  private readonly reduction: number;
  private readonly deadline: number;
  /** When the last share of the time begins. */
  private readonly last: number;
  /** Rounds of search in all. */
  private readonly budget: number;
  private readonly endgame: Endgame;
  private readonly parts: BoundByParts;
  /** True while the finisher, and while closing, has not been tried. */
  private pending: boolean;
  private closing: boolean;
  /** Rounds without a better choice, and how many of them bring the bound by parts. */
  private patience = 0;
  private partsPatience = PARTS_PATIENCE;
  /** Cost of the best choice, and the rounds before this part of the search. */
  private known: number;
  private base = 0;

  constructor(
    private readonly asked: AnytimeRun,
    private readonly reduced: Presolved,
    private found: Findings,
  ) {
    const { options } = asked;
    this.reduction = 1000 * asked.elapsed();
    const reserve = RESERVE * asked.elapsed() + RESERVE_SECONDS;
    const limit = options.timeLimitSeconds ?? Infinity;
    this.deadline =
      limit === Infinity
        ? Infinity
        : milliseconds() + 1000 * Math.max(0.05, limit - asked.elapsed() - reserve);
    this.last = limit === Infinity ? Infinity : this.deadline - LAST_SHARE * 1000 * limit;
    this.budget = options.rounds ?? (limit === Infinity ? ROUNDS : Infinity);
    const { model } = reduced;
    const values = model.start[model.count];
    this.closing = options.close !== false && values <= CLOSE_VALUES;
    this.pending = this.closing && values >= FINISH_VALUES;
    this.endgame = new Endgame(asked, reduced);
    this.parts = new BoundByParts(asked, reduced);
    this.known = found.cost;
  }

  async run(): Promise<Solution> {
    const isEmpty = this.reduced.model.count === 0;
    if (isEmpty) this.found = { ...this.found, bound: noPrices(this.reduced) };
    else this.found = await this.search(0);
    for (
      let part = 1;
      (this.closing || this.splits(this.found)) && !this.isOver(this.found);
      part++
    ) {
      const isEnd = this.closing ? await this.finishAndClose() : await this.raiseByParts();
      if (isEnd) break;
      const { found } = this;
      if (isEmpty || found.rounds >= this.budget || this.isOver(found)) continue;
      this.base = found.rounds;
      const more = await this.search(part);
      this.found = {
        ...more,
        bound: better(more.bound, found.bound),
        rounds: found.rounds + more.rounds,
      };
    }
    return conclude(this.asked, this.reduced, this.found, this.endgame, this.parts);
  }

  /** Searches from the best choice, until a pause. */
  private search(part: number): Promise<Findings> {
    const { asked, found } = this;
    const { options } = asked;
    return search(this.reduced.model, found.choice, found.cost, {
      threads: options.threads ?? 2,
      members: options.members ?? MEMBERS,
      deadline: this.deadline,
      control: asked.control,
      onRound: (now) => this.pauses(now),
      seed: (options.seed ?? 0) + part,
      rounds: this.budget - this.base,
    });
  }

  /** Hears of a round of the search; true where the search pauses. */
  private pauses(found: Findings): boolean {
    const { gap = 0, lowerBound = -Infinity } = this.asked.options;
    const bound = Math.max(lowerBound, found.bound?.best ?? -Infinity);
    this.asked.progress('search', found.cost, bound);
    if (gapOf(found.cost, bound) <= gap && gap > 0) return true;
    if (found.cost - bound < 0.5) return true;
    this.patience = found.cost < this.known ? 0 : this.patience + 1;
    this.known = Math.min(this.known, found.cost);
    const rounds = this.base + found.rounds;
    if (rounds < CLOSE_ROUNDS) return false;
    if (!this.closing) return this.splits({ ...found, rounds });
    return (this.pending && found.bound?.unconverged === false) || this.patience >= CLOSE_PATIENCE;
  }

  private isOver(found: Findings): boolean {
    const { gap = 0, lowerBound = -Infinity } = this.asked.options;
    const known = Math.max(lowerBound, this.parts.best);
    if (this.asked.stopped() || milliseconds() > this.deadline || found.cost - known < 0.5)
      return true;
    return gap > 0 && gapOf(found.cost, Math.max(found.bound?.best ?? -Infinity, known)) <= gap;
  }

  /** Tells whether the bound is to be raised by parts now, and where it may. */
  private splits({ bound, rounds, cost }: Findings): boolean {
    const { options, closing: time } = this.asked;
    if (options.close === false || bound === undefined || bound.unconverged) return false;
    if (cost - Math.max(bound.best, this.parts.best) < 0.5 || time.left === 0) return false;
    const few = this.reduced.model.count <= FEW_VARIABLES;
    if (!few && gapOf(cost, bound.best) > TIGHT) return false;
    return (
      (few && this.patience >= this.partsPatience) ||
      milliseconds() > this.last ||
      rounds >= this.budget
    );
  }

  /** Raises the bound by parts; true where nothing follows. */
  private async raiseByParts(): Promise<boolean> {
    const ends = milliseconds() > this.last || this.found.rounds >= this.budget;
    const until = this.share(ends ? 1 : PARTS_SHARE);
    await this.asked.closing.counted(() => this.parts.raise(this.found, until, this.reduction));
    if (ends) return true;
    this.partsPatience *= 2;
    this.patience = 0;
    return false;
  }

  /** Finishes the search, then closes the gap, each once; true where the gap is closed. */
  private async finishAndClose(): Promise<boolean> {
    const { endgame } = this;
    const { closing: time } = this.asked;
    if (time.left === 0) {
      this.closing = false;
      return false;
    }
    const isMet = this.found.cost - (this.found.bound?.best ?? -Infinity) < 0.5;
    if (this.pending && !isMet) {
      this.pending = false;
      const until = this.share(FINISH_SHARE);
      this.found = await time.counted(() => endgame.finish(this.found, until));
      this.known = this.found.cost;
      this.patience = endgame.done ? CLOSE_PATIENCE : 0;
    }
    const isDue =
      isMet ||
      this.reduced.model.count === 0 ||
      this.found.rounds >= this.budget ||
      this.patience >= CLOSE_PATIENCE;
    if (!isDue) return false;
    this.closing = false;
    const until = this.share(endgame.done ? CLOSE_SHARE_DONE : CLOSE_SHARE);
    await time.counted(() => endgame.close(this.found, until));
    const { closed } = endgame;
    const { gap = 0 } = this.asked.options;
    return closed !== undefined && gapOf(closed.objective, closed.bound) <= gap;
  }

  /** The end of a share of the time that is left, or, without a time limit, left for closing. */
  private share(part: number): number {
    const left = Math.min(this.deadline - milliseconds(), 1000 * this.asked.closing.left);
    return milliseconds() + part * left;
  }
}

/** The report of the higher bound. */
function better(a: BoundReport | undefined, b: BoundReport | undefined): BoundReport | undefined {
  return a === undefined || (b !== undefined && b.best > a.best) ? b : a;
}

/** The bound of a model without variables: its constant. */
function noPrices({ model }: Presolved): BoundReport {
  const none = new Float64Array(0);
  return {
    best: model.constant,
    present: model.constant,
    lambda: new Float64Array(model.rows),
    marginal: none,
    injected: [],
    toFirst: none,
    toSecond: none,
    unconverged: false,
    rising: false,
    recent: 0,
    stalled: true,
  };
}
