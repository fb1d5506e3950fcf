/**
 * Runs the rounds of the anytime search: every member follows its schedule (`schedule.ts`), and the
 * first one also raises the bound: alone at first, because search under unconverged prices runs
 * into traps, and every few rounds once they have converged. Everything is counted in cells and
 * rounds; the clock only says when to stop.
 */
import { monotonicMilliseconds as milliseconds } from '../../platform/platform.ts';
import type { Model } from '../model/model.ts';
import type { BoundReport, Orders, Report } from './member.ts';
import { type Outlook, type Priced, Schedule } from './schedule.ts';
import { startThreads } from './threads.ts';

/** Members of a search where the caller does not say; whatever the number of threads. */
export const MEMBERS = 2;
/** Work of a member in the first round and in a full one, in cells. */
const FIRST_WORK = 3e6;
const FULL_WORK = 24e6;
/** A block can hold all of a smaller model than this, and descents add nothing. */
const DESCENT_VARIABLES = 1000;
/**
 * Once it rises less fast, the bound gets one round of its member in so many: more often while its
 * latest gain is more than a share of its distance to the best choice, less often once it gains
 * nothing.
 */
const SHARE = 4;
const SHARE_NEAR = 2;
const NEAR = 0.05;
const REVISIT = 16;
/**
 * A bound this close to the best choice (relative) makes a model tight: the bound then comes first
 * until its latest gain is less than a share of its distance to the best choice, because its
 * converged prices round to better choices than the search finds.
 */
const TIGHT = 0.01;
const SETTLED = 0.01;
/** Best choices of ended schedules that later ones are united with. */
const MOST_ELITES = 6;

export interface Findings {
  readonly choice: Int32Array;
  readonly cost: number;
  /** Best bound of the model (floating point), with the prices and messages behind it. */
  readonly bound: BoundReport | undefined;
  readonly rounds: number;
}

interface RoundOptions {
  readonly seed: number;
  /** Lines of work between rounds; the answer depends on it. Default `MEMBERS`. */
  readonly members?: number;
  /** Cells that a member looks at in a full round. Default 24 million. */
  readonly work?: number;
  readonly threads: number;
  readonly deadline: number;
  readonly control: Int32Array;
  readonly rounds: number;
  /** Called after every round; returning true ends the search. */
  readonly onRound: (findings: Findings) => boolean;
}

/** Searches from a feasible choice until the options say stop. */
export async function search(
  model: Model,
  choice: Int32Array,
  cost: number,
  options: RoundOptions,
): Promise<Findings> {
  const { deadline, control } = options;
  const members = Math.max(1, options.members ?? MEMBERS);
  const seeds = Array.from({ length: members }, (_, k) =>
    Math.imul(options.seed * members + k + 1, 0x9e3779b1),
  );
  const team = startThreads(model, seeds, options.threads, { deadline, control });
  const large = model.count > DESCENT_VARIABLES;
  const schedules = seeds.map((_, k) => new Schedule(large, k % 2 === 0));
  const stopped = (): boolean => Atomics.load(control, 0) !== 0 || milliseconds() > deadline;
  let best: Findings = { choice, cost, bound: undefined, rounds: 0 };
  // The start of schedules: the latest rounding of the bound, else the first choice.
  let start: Priced = { choice, cost };
  try {
    while (best.rounds < options.rounds && !stopped()) {
      const { rounds, bound } = best;
      const work = Math.min(options.work ?? FULL_WORK, FIRST_WORK * 2 ** Math.min(rounds, 20));
      const outlook =
        bound === undefined || bound.unconverged
          ? undefined
          : {
              bound,
              best,
              elites: elitesOf(best, schedules),
              start,
              tight: large && isTight(bound, best),
            };
      const raises = outlook === undefined || isDue(outlook, rounds, large);
      const orders = schedules.map((schedule, k): Orders => {
        if (k === 0 && raises) return { kind: 'bound', work, objective: best.cost };
        return outlook === undefined ? { kind: 'rest' } : schedule.orders(work, outlook);
      });
      const reports = await team.round(orders);
      reports.forEach((report, k) => {
        if (report.kind === 'search' || report.kind === 'descend') schedules[k].hear(report);
        else if (report.choice !== undefined) start = { choice: report.choice, cost: report.cost };
      });
      best = { ...cheaper(best, reports), bound: reports[0].bound ?? bound, rounds: rounds + 1 };
      if (options.onRound(best)) break;
    }
    return best;
  } finally {
    await team.close();
  }
}

/** Tells whether the first member works on the bound in this round. */
function isDue({ bound, best, tight }: Outlook, rounds: number, large: boolean): boolean {
  if (bound.rising || (!large && !bound.stalled)) return true;
  if (tight && !bound.stalled && bound.recent > SETTLED * (best.cost - bound.best)) return true;
  const share = bound.recent > NEAR * (best.cost - bound.best) ? SHARE_NEAR : SHARE;
  return rounds % (bound.stalled ? REVISIT : share) === 0;
}

function isTight(bound: BoundReport, best: Priced): boolean {
  return best.cost - bound.best < TIGHT * Math.abs(best.cost);
}

/** The best choice and what the schedules found, now and before, the present ones first. */
function elitesOf(best: Priced, schedules: readonly Schedule[]): Int32Array[] {
  const all = [
    best,
    ...schedules.map((schedule) => schedule.found),
    ...schedules.map((schedule) => schedule.ended),
  ];
  return [...new Set(all.flatMap((priced) => priced?.choice ?? []))].slice(0, MOST_ELITES);
}

function cheaper(best: Findings, reports: readonly Report[]): Findings {
  let found = best;
  for (const { choice, cost } of reports)
    if (choice !== undefined && cost < found.cost) found = { ...found, choice, cost };
  return found;
}
