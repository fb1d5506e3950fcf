/**
 * The restart schedule of a large neighbourhood search: small blocks until they gain little, then
 * large-block descents until they gain nothing, then both once more with the best choices of all
 * members injected, which unites the strengths of all. Then the member restarts, because a descent
 * ends in the valley in which it began. Prices stay as they were at the start: prices of a bound
 * that is still rising lead elsewhere than converged ones, and often to better places. Where the
 * bound is tight, its converged prices decide nearly all, and descents gain nothing: such a
 * schedule has small blocks only, at the prices of the latest bound, then small blocks with
 * injected choices. A schedule answers the report of its member after every round with the orders
 * for the next one. No clock decides.
 */
import type { BoundReport, Orders, Report } from './member.ts';

type Stage = 'blocks' | 'descents' | 'union';

/** A choice of the model and what it costs. */
export interface Priced {
  readonly choice: Int32Array;
  readonly cost: number;
}

/** The facts that a schedule knows before a round. */
export interface Outlook {
  readonly bound: BoundReport;
  /** The cheapest choice of all. */
  readonly best: Priced;
  /** The best choice and those of all schedules, past and present. */
  readonly elites: readonly Int32Array[];
  /** The choice at which a schedule may restart. */
  readonly start: Priced;
  /**
   * The bound lies close to the best choice: what is left is decided by converged prices and by
   * blocks.
   */
  readonly tight: boolean;
}

/** Blocks that gain less than this share of the cost in a round have done their part. */
const NEAR = 0.003;
/** A round with a smaller relative gain than this has gained nothing. */
const GAIN = 1e-5;
/**
 * Rounds without a gain after which a stage is over: at least so many, and this share of all rounds
 * of the schedule.
 */
const PATIENCE: Record<Stage, number> = { blocks: 3, descents: 10, union: 8 };
const PATIENCE_SHARE = 0.4;
/** Rounds without a gain after which a schedule of blocks alone restarts. */
const PATIENCE_ALONE = 12;
const GAIN_ALONE = 1e-4;
/**
 * The same on tight models, where gains are measured by the scale of the shared state; its union is
 * blocks with injected choices.
 */
const PATIENCE_TIGHT = { blocks: 8, union: 4 };
const GAIN_TIGHT = 5e-4;
/**
 * The scale of a search is so many times the distance to the bound, and at most the cost. A cost
 * may hold a large part that every choice pays; noise and tolerances that are shares of the whole
 * cost then exceed all that can still be gained.
 */
const DISTANCES = 4;
/** Cells of a round of blocks and of descents in the time of one cell of a sweep's round. */
const BLOCK_SPEED = 2;
const DESCENT_SPEED = 1.5;

export class Schedule {
  private readonly descends: boolean;
  private readonly leads: boolean;
  private stage: Stage = 'blocks';
  private generation = 0;
  private rounds = 0;
  private quiet = 0;
  private bestFound: Priced | undefined;
  private prices: BoundReport | undefined;
  private tight = false;
  private scale = 1;
  /** How the last schedule of this member ended. */
  private hasEnded: Priced | undefined;

  /**
   * With `descends` the stages are as above; else the schedule stays with blocks, which in small
   * models can hold everything. There a schedule that `leads` works on the best choice of all and
   * never restarts.
   */
  constructor(descends: boolean, leads: boolean) {
    this.descends = descends;
    this.leads = leads;
  }

  /** The best choice of the present schedule; undefined before the first round. */
  get found(): Priced | undefined {
    return this.bestFound;
  }

  /** The best choice of the schedule before this one. */
  get ended(): Priced | undefined {
    return this.hasEnded;
  }

  /** The work of the member in a round of `work` cells. */
  orders(work: number, { bound, best, elites, start, tight }: Outlook): Orders {
    this.tight = this.descends && tight;
    if (this.descends && !tight) this.prices ??= bound;
    else this.prices = bound;
    this.bestFound ??= start;
    if (this.leads && !this.descends && best.cost < this.bestFound.cost) this.bestFound = best;
    const { lambda, marginal, injected, present } = this.prices;
    const { choice, cost } = this.bestFound;
    const others =
      this.stage === 'blocks' && this.descends ? [] : elites.filter((other) => other !== choice);
    const limit = 1.02 * Math.max(0, best.cost - present);
    const scale = Math.max(1, Math.min(Math.abs(cost), DISTANCES * (cost - present)));
    this.scale = scale;
    const shared = {
      lambda,
      marginal,
      limit,
      choice,
      cost,
      injected: [...injected, ...others],
      scale,
    };
    // A union is one round of descents, then one of blocks.
    const descends = this.stage === 'descents' || (this.stage === 'union' && this.rounds % 2 === 0);
    const generation = this.generation;
    if (descends && !this.tight)
      return { kind: 'descend', work: DESCENT_SPEED * work, shared, generation };
    return { kind: 'search', work: BLOCK_SPEED * work, shared, generation };
  }

  /**
   * Takes in what the member found on the last orders, and moves on to the next stage where that is
   * due.
   */
  hear({ choice, cost }: Report): void {
    const before = this.bestFound;
    if (before === undefined)
      throw new Error('internal: a schedule receives a report before it has given orders');
    const gained = choice === undefined ? 0 : before.cost - cost;
    const gain = gained / Math.max(1, Math.abs(before.cost));
    if (choice !== undefined && cost < before.cost) this.bestFound = { choice, cost };
    this.rounds++;
    if (!this.descends) {
      this.quiet = gain > GAIN_ALONE ? 0 : this.quiet + 1;
      if (!this.leads && this.quiet >= PATIENCE_ALONE) this.anew();
      return;
    }
    if (this.tight) {
      this.quiet = gained > GAIN_TIGHT * this.scale ? 0 : this.quiet + 1;
      const united = this.stage === 'union';
      if (this.quiet < (united ? PATIENCE_TIGHT.union : PATIENCE_TIGHT.blocks)) return;
      this.quiet = 0;
      if (united) this.anew();
      else this.stage = 'union';
      return;
    }
    this.quiet = gain > (this.stage === 'blocks' ? NEAR : GAIN) ? 0 : this.quiet + 1;
    const share = this.stage === 'blocks' ? 0 : PATIENCE_SHARE * this.rounds;
    if (this.quiet < Math.max(PATIENCE[this.stage], share)) return;
    this.quiet = 0;
    if (this.stage === 'blocks') this.stage = 'descents';
    else if (this.stage === 'descents') this.stage = 'union';
    else this.anew();
  }

  private anew(): void {
    this.hasEnded = this.bestFound;
    this.generation++;
    this.stage = 'blocks';
    this.rounds = 0;
    this.quiet = 0;
    this.bestFound = undefined;
    this.prices = undefined;
  }
}
