/**
 * A member of the portfolio is one sequential line of work on the model: a bound (member 0 only),
 * or a search by blocks and large-block descents. Members meet at rounds; what a member does in a
 * round depends on its orders and its past alone, so that an answer depends neither on the clock
 * nor on how many threads carry the members.
 */
import { sharedBytes } from '../../platform/platform.ts';
import { forestKnapsack } from '../bound/forest-knapsack.ts';
import { PriceAscent } from '../bound/row-prices.ts';
import { costOf, Dual, usageOf } from '../bound/trws.ts';
import { LargeBlockDescent } from '../lns/large-block.ts';
import { AdaptiveSearch, type SharedState } from '../lns/operators.ts';
import { leastUsage, repair } from '../lns/repair.ts';
import type { Model } from '../model/model.ts';

/** The work of a member in one round. */
export type Orders =
  | { readonly kind: 'rest' }
  | { readonly kind: 'bound'; readonly work: number; readonly objective: number }
  | {
      readonly kind: 'search' | 'descend';
      readonly work: number;
      readonly shared: SharedState;
      readonly generation: number;
    };

/** The report of a member after a round. */
export interface Report {
  readonly kind: Orders['kind'];
  /** The best feasible choice of the member; absent if it has none. */
  readonly choice?: Int32Array;
  readonly cost: number;
  readonly steps: number;
  /**
   * Bound members: the best bound so far, its prices and messages, and what the present ones
   * suggest.
   */
  readonly bound?: BoundReport;
}

export interface BoundReport {
  readonly best: number;
  /** Bound to which `marginal` belongs. */
  readonly present: number;
  readonly lambda: Float64Array;
  readonly marginal: Float64Array;
  readonly injected: readonly Int32Array[];
  readonly toFirst: Float64Array;
  readonly toSecond: Float64Array;
  /** The prices still change too much to search with. */
  readonly unconverged: boolean;
  /** The bound still rises fast: worth more than a search. */
  readonly rising: boolean;
  /** The gain of the last `RISING_SWEEPS` sweeps. */
  readonly recent: number;
  /** The bound gained too little for too long. */
  readonly stalled: boolean;
}

/** Rounds without a relative gain of `GAIN` after which the bound counts as stalled. */
const STALL_ROUNDS = 3;
const GAIN = 1e-6;
/** Prices are unconverged until this many sweeps gain less than `CONVERGED_GAIN` of the bound. */
const CONVERGED_SWEEPS = 20;
/** Cells that a sweep visits in the time that an elimination takes for one. */
const SWEEP_SPEED = 4;
/** Most sweeps of a round: tiny models are not worth more. */
const MOST_SWEEPS = 400;
const CONVERGED_GAIN = 0.0025;
/** The bound rises fast until this many sweeps gain less than `RISING_GAIN` of it. */
const RISING_SWEEPS = 60;
const RISING_GAIN = 2e-3;
/** Rounded bounds that are kept to be injected. */
const MOST_DECODED = 4;
/** Moves batches that a repair of a rounded choice may take. */
const REPAIRS = 200;
/** Rounds of the bound from one repair to the next while the prices are unconverged, and after. */
const REPAIR_UNCONVERGED = 4;
const REPAIR = 2;
/**
 * Models of more rows than this are not rounded by a knapsack of one row: the others would say more
 * than it.
 */
const KNAPSACK_ROWS = 4;
/** Steps before the knapsack of a first choice: its prices need not be good. */
const FIRST_STEPS = 100;

export class Member {
  private readonly model: Model;
  private readonly seed: number;
  private readonly stopped: () => boolean;
  private search: AdaptiveSearch | undefined;
  private descent: LargeBlockDescent | undefined;
  /** A new generation forgets what the member had found and starts from the shared state. */
  private generation = 0;
  private ascent: PriceAscent | undefined;
  private stall = 0;
  private cells = 0;
  private rounds = 0;
  private unconverged = true;
  private readonly history: number[] = [];
  private readonly decoded: Int32Array[] = [];

  constructor(model: Model, seed: number, stopped: () => boolean) {
    this.model = model;
    this.seed = seed;
    this.stopped = stopped;
    const { first, second, sizes } = model;
    for (let e = 0; e < first.length; e++) this.cells += sizes[first[e]] * sizes[second[e]];
  }

  round(orders: Orders): Report {
    if ('generation' in orders && orders.generation !== this.generation) {
      this.generation = orders.generation;
      this.search = undefined;
      this.descent = undefined;
    }
    switch (orders.kind) {
      case 'rest':
        return { kind: 'rest', cost: Infinity, steps: 0 };
      case 'bound':
        return this.bound(orders.work, orders.objective);
      case 'search':
        return this.look(orders.work, orders.shared);
      case 'descend':
        return this.descend(orders.work, orders.shared);
    }
  }

  private look(work: number, shared: SharedState): Report {
    this.search ??= new AdaptiveSearch(this.model, this.seed + this.generation, shared.choice);
    this.search.receive(shared);
    this.search.run(work, this.stopped);
    return {
      kind: 'search',
      choice: this.search.best,
      cost: this.search.cost,
      steps: this.search.steps,
    };
  }

  private descend(work: number, shared: SharedState): Report {
    this.descent ??= new LargeBlockDescent(
      this.model,
      this.seed + this.generation,
      shared,
      this.stopped,
    );
    this.descent.receive(shared);
    this.descent.run(work);
    return {
      kind: 'descend',
      choice: this.descent.best,
      cost: this.descent.cost,
      steps: this.descent.steps,
    };
  }

  private bound(work: number, objective: number): Report {
    const model = this.model;
    this.ascent ??= new PriceAscent(new Dual(model));
    const ascent = this.ascent;
    const { dual } = ascent;
    const before = ascent.best;
    const perSweep =
      this.cells + model.unary.length + 4 * (model.rows + model.amounts.length + model.lo.length);
    const sweeps = Math.min(
      MOST_SWEEPS,
      Math.max(2, Math.ceil((SWEEP_SPEED * work) / (1 + perSweep))),
    );
    let previous = -Infinity;
    let present = -Infinity;
    for (let k = 0; k < sweeps; k++) {
      previous = present;
      present = ascent.step();
      this.history.push(ascent.best);
      if (this.stopped() || ascent.best >= objective) break;
    }
    this.stall = ascent.best - before > GAIN * Math.abs(ascent.best) ? 0 : this.stall + 1;
    const converges = this.unconverged && this.gainsLess(CONVERGED_SWEEPS, CONVERGED_GAIN);
    if (converges) this.unconverged = false;
    const decoded = dual.decode();
    this.decoded.unshift(decoded.slice());
    this.decoded.length = Math.min(this.decoded.length, MOST_DECODED);
    const injected = [...this.decoded, dual.argmin()];
    let choice: Int32Array | undefined;
    let cost = Infinity;
    const due = this.rounds++ % (this.unconverged ? REPAIR_UNCONVERGED : REPAIR) === 0;
    if (due && costOf(model, decoded) < Infinity && repair(model, decoded, REPAIRS, this.stopped)) {
      choice = decoded;
      cost = costOf(model, decoded);
    }
    // Once at the first prices, once at those that the search goes by.
    const packed = this.rounds === 1 || converges ? packedChoice(dual, this.stopped) : undefined;
    if (packed !== undefined && costOf(model, packed) < cost) {
      choice = packed;
      cost = costOf(model, packed);
    }
    return {
      kind: 'bound',
      ...(choice === undefined || cost === Infinity ? {} : { choice }),
      cost,
      steps: ascent.steps,
      bound: {
        best: ascent.best,
        present: Math.min(previous, present),
        lambda: ascent.kept.slice(),
        marginal: dual.marginal.slice(),
        injected,
        toFirst: ascent.bestFirst.slice(),
        toSecond: ascent.bestSecond.slice(),
        unconverged: this.unconverged,
        rising: !this.gainsLess(RISING_SWEEPS, RISING_GAIN),
        recent: ascent.best - (this.history.at(-1 - RISING_SWEEPS) ?? -Infinity),
        stalled: this.stall >= STALL_ROUNDS,
      },
    };
  }

  /** Tells whether the last `sweeps` sweeps gained less than a share of the bound. */
  private gainsLess(sweeps: number, share: number): boolean {
    const past = this.history.at(-1 - sweeps);
    const best = this.history.at(-1);
    return past !== undefined && best !== undefined && best - past < share * Math.abs(best);
  }
}

/**
 * A feasible choice to begin with: the cheapest known one; else that of least usage, or its repair;
 * else, under few rows, a knapsack at the prices of a short ascent. Undefined where there is none
 * of these.
 */
export function firstChoice(
  model: Model,
  known: readonly Int32Array[] = [],
): Int32Array | undefined {
  let best: Int32Array | undefined;
  for (const choice of known)
    if (
      keepsRows(model, choice) &&
      costOf(model, choice) < (best === undefined ? Infinity : costOf(model, best))
    )
      best = choice;
  if (best !== undefined) return best;
  const least = leastUsage(model);
  if (costOf(model, least) < Infinity) {
    if (keepsRows(model, least)) return least;
    if (repair(model, least, REPAIRS) && costOf(model, least) < Infinity) return least;
  }
  if (model.rows > KNAPSACK_ROWS) return undefined;
  const ascent = new PriceAscent(new Dual(model));
  for (let k = 0; k < FIRST_STEPS; k++) ascent.step();
  return packedChoice(ascent.dual);
}

function keepsRows(model: Model, choice: Int32Array): boolean {
  return usageOf(model, choice).every((u, t) => u <= model.capacity[t]);
}

/**
 * The bound rounded by a knapsack, repaired where it exceeds other rows; undefined where it is not
 * allowed.
 */
function packedChoice(dual: Dual, stopped?: () => boolean): Int32Array | undefined {
  const { model } = dual;
  const choice = model.rows > KNAPSACK_ROWS ? undefined : forestKnapsack(dual);
  if (
    choice === undefined ||
    (!keepsRows(model, choice) && !repair(model, choice, REPAIRS, stopped))
  )
    return undefined;
  return costOf(model, choice) < Infinity ? choice : undefined;
}

/** The same model in shared memory, so that threads need no copies. */
export function inSharedMemory(model: Model): Model {
  const copy: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(model) as [string, unknown][]) {
    if (value instanceof Float64Array) {
      const to = new Float64Array(sharedBytes(value.byteLength));
      to.set(value);
      copy[key] = to;
    } else if (value instanceof Int32Array) {
      const to = new Int32Array(sharedBytes(value.byteLength));
      to.set(value);
      copy[key] = to;
    } else copy[key] = value;
  }
  return copy as unknown as Model;
}
