/**
 * The rounds of the anytime search: lane 0 raises the bound (and searches once that stalls), the others search, two of them
 * by descents once blocks have brought the cost near; after
 * every round all know the best choice, the prices and the marginals. Everything is counted in cells and rounds; the
 * clock only says when to stop.
 */
import { crew } from './crew.ts';
import type { BoundReport, Orders } from './lane.ts';
import type { Model } from './model.ts';

/** Lanes of a search, whatever the number of threads. */
const LANES = 4;
/** Work of a lane in the first round and in a full one, in cells. */
const FIRST_WORK = 3e6;
const FULL_WORK = 24e6;
/** Lanes that descend, as soon as a round of blocks gains less than this share of the cost. */
const DESCENDING: readonly number[] = [1, 2];
const NEAR = 0.02;
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

/** Searches from a feasible choice until the options say stop. */
export async function search(model: Model, choice: Int32Array, cost: number, options: RoundOptions): Promise<Findings> {
  const { deadline, control } = options;
  const seeds = Array.from({ length: LANES }, (_, k) => Math.imul(options.seed * LANES + k + 1, 0x9e3779b1));
  const team = crew(model, seeds, options.threads, { deadline, control });
  let best: Findings = { choice, cost, bound: undefined, rounds: 0 };
  let others: Int32Array[] = [];
  let near = false;
  const stopped = (): boolean => Atomics.load(control, 0) !== 0 || Date.now() > deadline;
  try {
    while (best.rounds < options.rounds && !stopped()) {
      const { rounds, bound } = best;
      const work = Math.min(FULL_WORK, FIRST_WORK * 2 ** Math.min(rounds, 20));
      const raise = bound === undefined || !bound.stalled || rounds % REVISIT === 0;
      const news = {
        choice: best.choice,
        cost: best.cost,
        guests: [...(bound?.guests ?? []), ...others],
        lambda: bound?.lambda ?? new Float64Array(model.rows),
        marginal: bound?.marginal ?? new Float64Array(model.unary.length),
        limit: bound === undefined ? Infinity : 1.02 * Math.max(0, best.cost - bound.present),
      };
      // Search under raw prices runs into traps that it does not leave again.
      const raw = bound === undefined || bound.raw;
      const orders = Array.from({ length: LANES }, (_, k): Orders => {
        if (k === 0 && raise) return { kind: 'bound', work, objective: best.cost };
        if (raw) return { kind: 'rest' };
        return { kind: near && DESCENDING.includes(k) ? 'descend' : 'search', work, news };
      });
      const reports = await team.round(orders);
      others = [];
      const before = best.cost;
      for (const report of reports) {
        if (report.choice === undefined) continue;
        if (report.cost < best.cost) best = { ...best, choice: report.choice, cost: report.cost };
        else if (report.cost > best.cost) others.push(report.choice);
      }
      if (!raw && best.cost > (1 - NEAR) * before) near = true;
      const raised = reports[0].bound;
      best = { ...best, bound: raised ?? best.bound, rounds: rounds + 1 };
      if (options.onRound(best)) break;
    }
    return best;
  } finally {
    await team.close();
  }
}
