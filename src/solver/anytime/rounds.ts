/**
 * The rounds of the anytime search: lane 0 raises the bound (and searches once that stalls), the others search, by blocks
 * and, once those have brought the cost near, by descents. Two teams: the leaders work on the best choice of all, the rivals
 * on their own, and start anew when that gains nothing any more, because a descent ends in the valley in which it began.
 * Everything is counted in cells and rounds; the clock only says when to stop.
 */
import { crew } from './crew.ts';
import type { BoundReport, Orders, Report } from './lane.ts';
import type { Model } from './model.ts';

/** Lanes of a search, whatever the number of threads. */
const LANES = 4;
/** Work of a lane in the first round and in a full one, in cells. */
const FIRST_WORK = 3e6;
const FULL_WORK = 24e6;
/** Lanes from this one on are the rivals; of each team one lane descends, the leaders' every other round. */
const RIVALS = 2;
const LEADING_DESCENT = 1;
const RIVAL_DESCENT = 2;
/** Descents begin as soon as a round of blocks gains less than this share of the cost. */
const NEAR = 0.02;
/** A block of a stream can hold all of a smaller model than this, and descents add nothing. */
const DESCENT_VARIABLES = 1000;
/** Rounds with smaller relative gains than this after which the rivals start anew. */
const RIVAL_PATIENCE = 12;
const RIVAL_GAIN = 1e-4;
/** Once stalled, the bound is taken up again every so many rounds. */
const REVISIT = 8;

export interface Findings {
  readonly choice: Int32Array;
  readonly cost: number;
  /** Best bound of the model (floating point), with the prices and messages behind it. */
  readonly bound: BoundReport | undefined;
  readonly rounds: number;
}

export interface RoundOptions {
  readonly seed: number;
  readonly threads: number;
  readonly deadline: number;
  readonly control: Int32Array;
  readonly rounds: number;
  /** Called after every round; returning true ends the search. */
  readonly onRound: (findings: Findings) => boolean;
}

/** Two lanes that share a best choice: the leaders know the best of all, the rivals only what they found themselves. */
interface Team {
  choice: Int32Array;
  cost: number;
  /** Blocks gain little per round: time to descend. */
  near: boolean;
  /** Rounds without a gain. */
  quiet: number;
  generation: number;
}

/** Searches from a feasible choice until the options say stop. */
export async function search(model: Model, choice: Int32Array, cost: number, options: RoundOptions): Promise<Findings> {
  const { deadline, control } = options;
  const seeds = Array.from({ length: LANES }, (_, k) => Math.imul(options.seed * LANES + k + 1, 0x9e3779b1));
  const team = crew(model, seeds, options.threads, { deadline, control });
  let best: Findings = { choice, cost, bound: undefined, rounds: 0 };
  const teams = [0, 1].map((): Team => ({ choice, cost, near: false, quiet: 0, generation: 0 }));
  // What a rival may start from anew: the latest rounding of the bound, else the first choice.
  let start = { choice, cost };
  let others: Int32Array[] = [];
  const large = model.count > DESCENT_VARIABLES;
  const stopped = (): boolean => Atomics.load(control, 0) !== 0 || Date.now() > deadline;
  try {
    while (best.rounds < options.rounds && !stopped()) {
      const { rounds, bound } = best;
      const work = Math.min(FULL_WORK, FIRST_WORK * 2 ** Math.min(rounds, 20));
      const raise = bound === undefined || !bound.stalled || rounds % REVISIT === 0;
      const common = {
        lambda: bound?.lambda ?? new Float64Array(model.rows),
        marginal: bound?.marginal ?? new Float64Array(model.unary.length),
        limit: bound === undefined ? Infinity : 1.02 * Math.max(0, best.cost - bound.present),
      };
      // Search under raw prices runs into traps that it does not leave again.
      const raw = bound === undefined || bound.raw;
      const orders = Array.from({ length: LANES }, (_, k): Orders => {
        if (k === 0 && raise) return { kind: 'bound', work, objective: best.cost };
        if (raw) return { kind: 'rest' };
        const own = teams[k < RIVALS ? 0 : 1];
        const news = {
          ...common,
          choice: own.choice,
          cost: own.cost,
          guests: [...bound.guests, ...others.filter((c) => c !== own.choice)],
        };
        const descends = large && own.near && (k === RIVAL_DESCENT || (k === LEADING_DESCENT && rounds % 2 === 0));
        return { kind: descends ? 'descend' : 'search', work, news, generation: own.generation };
      });
      const reports = await team.round(orders);
      others = reports.flatMap((report) => report.choice ?? []);
      const [{ kind, choice: rounded, cost: price }] = reports;
      if (kind === 'bound' && rounded !== undefined) start = { choice: rounded, cost: price };
      for (const report of reports)
        if (report.choice !== undefined && report.cost < best.cost)
          best = { ...best, choice: report.choice, cost: report.cost };
      if (raw) for (const own of teams) Object.assign(own, { choice: best.choice, cost: best.cost });
      else {
        advance(teams[0], best);
        advance(teams[1], cheapest(reports.slice(RIVALS)) ?? teams[1]);
        if (teams[1].quiet >= RIVAL_PATIENCE)
          teams[1] = { ...start, near: false, quiet: 0, generation: teams[1].generation + 1 };
      }
      best = { ...best, bound: reports[0].bound ?? best.bound, rounds: rounds + 1 };
      if (options.onRound(best)) break;
    }
    return best;
  } finally {
    await team.close();
  }
}

/** A team after a round in which it, or for the leaders anyone, found a choice. */
function advance(team: Team, found: { readonly choice: Int32Array; readonly cost: number }): void {
  if (found.cost > (1 - NEAR) * team.cost) team.near = true;
  team.quiet = found.cost < (1 - RIVAL_GAIN) * team.cost ? 0 : team.quiet + 1;
  if (found.cost >= team.cost) return;
  team.choice = found.choice;
  team.cost = found.cost;
}

function cheapest(reports: readonly Report[]): { readonly choice: Int32Array; readonly cost: number } | undefined {
  let best: { readonly choice: Int32Array; readonly cost: number } | undefined;
  for (const { choice, cost } of reports)
    if (choice !== undefined && (best === undefined || cost < best.cost)) best = { choice, cost };
  return best;
}
