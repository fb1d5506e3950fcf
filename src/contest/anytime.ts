/**
 * The anytime solver, for large problems with usage at every time: reduce, raise a bound by prices and
 * messages, search in blocks, close exactly where the reduced model is small, and hand out nothing
 * but checked choices and checked bounds.
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

async function searchAndClose(
  run: AnytimeRun,
  reduced: Presolved,
  start: Int32Array,
): Promise<Solution> {
  const { model } = reduced;
  const { options } = run;
  const cost = costOf(model, start);
  run.progress('reduce', cost, -Infinity);
  /** Milliseconds. */
  const reduction = 1000 * run.elapsed();
  const reserve = RESERVE * run.elapsed() + RESERVE_SECONDS;
  const limit = options.timeLimitSeconds ?? Infinity;
  const deadline =
    limit === Infinity
      ? Infinity
      : milliseconds() + 1000 * Math.max(0.05, limit - run.elapsed() - reserve);
  const { gap = 0, lowerBound = -Infinity } = options;
  const over = (found: Findings): boolean => {
    const known = Math.max(lowerBound, parts.best);
    if (run.stopped() || milliseconds() > deadline || found.cost - known < 0.5) return true;
    return gap > 0 && gapOf(found.cost, Math.max(found.bound?.best ?? -Infinity, known)) <= gap;
  };
  const values = model.start[model.count];
  const closable = options.close !== false && values <= CLOSE_VALUES;
  const endgame = new Endgame(run, reduced);
  let pending = closable && values >= FINISH_VALUES;
  let closing = closable;
  let patience = 0;
  let known = cost;
  const parts = new BoundByParts(run, reduced);
  const few = model.count <= FEW_VARIABLES;
  const last = deadline === Infinity ? Infinity : deadline - LAST_SHARE * 1000 * limit;
  let partsPatience = PARTS_PATIENCE;
  /** Tells whether the bound is to be raised by parts now, and where it may. */
  const splits = ({ bound, rounds, cost: objective }: Findings): boolean => {
    if (options.close === false || bound === undefined || bound.unconverged) return false;
    if (objective - Math.max(bound.best, parts.best) < 0.5) return false;
    if (!few && gapOf(objective, bound.best) > TIGHT) return false;
    return (few && patience >= partsPatience) || milliseconds() > last || rounds >= budget;
  };
  const pauses = (found: Findings): boolean => {
    const bound = Math.max(lowerBound, found.bound?.best ?? -Infinity);
    run.progress('search', found.cost, bound);
    if (gapOf(found.cost, bound) <= gap && gap > 0) return true;
    if (found.cost - bound < 0.5) return true;
    patience = found.cost < known ? 0 : patience + 1;
    known = Math.min(known, found.cost);
    if (base + found.rounds < CLOSE_ROUNDS) return false;
    if (!closing) return splits({ ...found, rounds: base + found.rounds });
    return (pending && found.bound?.unconverged === false) || patience >= CLOSE_PATIENCE;
  };
  const budget = options.rounds ?? (limit === Infinity ? ROUNDS : Infinity);
  const settings = {
    threads: options.threads ?? 2,
    members: options.members ?? MEMBERS,
    deadline,
    control: run.control,
    stopped: () => run.stopped(),
    onRound: pauses,
  };
  const share = (part: number): number =>
    deadline === Infinity ? Infinity : milliseconds() + part * (deadline - milliseconds());
  let found: Findings = { choice: start, cost, bound: undefined, rounds: 0 };
  let base = 0;
  if (model.count === 0) found = { ...found, bound: noPrices(reduced) };
  else
    found = await search(model, start, cost, {
      ...settings,
      seed: options.seed ?? 0,
      rounds: budget,
    });
  // Every pause of the search is for the finisher, then for closing, then for parts; what they
  // leave open the search goes on with.
  for (let part = 1; (closing || splits(found)) && !over(found); part++) {
    const met = found.cost - (found.bound?.best ?? -Infinity) < 0.5;
    if (!closing) {
      const ends = milliseconds() > last || found.rounds >= budget;
      await parts.raise(found, ends ? deadline : share(PARTS_SHARE), reduction);
      if (ends) break;
      partsPatience *= 2;
      patience = 0;
    } else if (pending && !met) {
      pending = false;
      found = await endgame.finish(found, share(FINISH_SHARE));
      known = found.cost;
      patience = endgame.done ? CLOSE_PATIENCE : 0;
    }
    if (
      closing &&
      (met || model.count === 0 || found.rounds >= budget || patience >= CLOSE_PATIENCE)
    ) {
      closing = false;
      await endgame.close(found, share(endgame.done ? CLOSE_SHARE_DONE : CLOSE_SHARE));
      const { closed } = endgame;
      if (closed !== undefined && gapOf(closed.objective, closed.bound) <= gap) break;
    }
    if (model.count === 0 || found.rounds >= budget || over(found)) continue;
    base = found.rounds;
    const seed = (options.seed ?? 0) + part;
    const more = await search(model, found.choice, found.cost, {
      ...settings,
      seed,
      rounds: budget - base,
    });
    found = { ...more, bound: better(more.bound, found.bound), rounds: base + more.rounds };
  }
  return conclude(run, reduced, found, endgame, parts);
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
