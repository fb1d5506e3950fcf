/**
 * Large-block descent: blocks that hold (nearly) the whole model. With the rows replaced by prices,
 * everything but a few per cent of frozen variables (`order.ts`) is minimised exactly in one
 * elimination, so that a relaxed choice sinks to the bottom of its valley in a few moves, whatever
 * the distance between the places that must change together. Where it comes to rest, the prices of
 * exceeded rows rise and those of slack rows fall, and a copy of it is repaired and settled under
 * the true rows.
 *
 * A descent depends on its seed and on what it receives, never on the clock.
 */
import { priceValues, usageOf } from '../bound/trws.ts';
import type { Model } from '../model/model.ts';
import { Random } from '../model/random.ts';
import { BlockSearch } from './block-search.ts';
import { Neighbourhood } from './neighbourhood.ts';
import type { SharedState } from './operators.ts';
import { repair } from './repair.ts';

const ALL = 1 << 20;
/** Largest tables, by how long nothing was gained. */
const CAPS = [1e4, 1e4, 1e5, 1e5, 1e6];
const CANDIDATES = [3, 6, 12, ALL];
/** Relative gain below which a move counts as none. */
const GAIN = 1e-6;
/**
 * Moves under the true rows without a gain after which a repaired choice counts as settled, and
 * most such moves.
 */
const SETTLED = 3;
const MOST_SETTLING = 12;
/** Largest table of those, and how often their prices may be changed. */
const SETTLING_CAP = 1e5;
const ATTEMPTS = 8;
/**
 * Batches of a repair; a repaired choice that is this much more expensive than the best one is
 * given up.
 */
const REPAIRS = 300;
const FAR = 1.02;
/**
 * Relative change of a price: the first one, its limits, and how it grows and shrinks with the sign
 * of the excess.
 */
const FIRST_STEP = 0.1;
const LEAST_STEP = 1e-3;
const LARGEST_STEP = 0.5;
/** Price that a row without one begins with, as a share of all prices. */
const FIRST_SHARE = 1e-3;
/** A priced row with more unused capacity than this is slack. */
const SLACK = 1e-3;
/** Most moves of a round: tiny models are not worth more. */
const MOST_STEPS = 100;
/**
 * Rests after which a descent that found nothing better starts from the best choice with the given
 * prices again.
 */
const PATIENCE = 8;

export class LargeBlockDescent {
  private readonly model: Model;
  private readonly random: Random;
  private readonly neighbourhood: Neighbourhood;
  /** The relaxed choice (rows without end), and the one under the true rows. */
  private readonly relaxed: BlockSearch;
  private readonly true: BlockSearch;
  private readonly stopped: () => boolean;
  /** Prices: those given times a factor of the descent's own, or its own where none is given. */
  private readonly lambda: Float64Array;
  private readonly given: Float64Array;
  private readonly factor: Float64Array;
  private readonly own: Float64Array;
  private readonly step: Float64Array;
  private readonly sign: Int8Array;
  private readonly prefix: Float64Array;
  private injected: readonly Int32Array[] = [];
  private quiet = 0;
  private rests = 0;
  best: Int32Array;
  cost: number;
  steps = 0;

  constructor(model: Model, seed: number, shared: SharedState, stopped: () => boolean) {
    this.model = model;
    this.stopped = stopped;
    this.random = new Random(seed);
    this.neighbourhood = new Neighbourhood(model, this.random);
    const endless: Model = {
      ...model,
      capacity: new Float64Array(model.rows).fill(Number.MAX_VALUE),
    };
    this.relaxed = new BlockSearch(endless, shared.choice, this.random, stopped);
    this.true = new BlockSearch(model, shared.choice, this.random, stopped);
    this.lambda = shared.lambda.slice();
    this.given = shared.lambda.slice();
    this.factor = new Float64Array(model.rows).fill(1);
    this.own = new Float64Array(model.rows);
    this.step = new Float64Array(model.rows).fill(FIRST_STEP);
    this.sign = new Int8Array(model.rows);
    this.prefix = new Float64Array(model.rows + 1);
    this.best = shared.choice;
    this.cost = shared.cost;
    this.reprice();
  }

  receive(shared: SharedState): void {
    this.injected = shared.injected;
    this.given.set(shared.lambda);
    this.reprice();
    for (const blocks of [this.relaxed, this.true]) {
      blocks.hint.set(shared.marginal);
      // Under changed prices the marginals only rank values.
      blocks.limit = Infinity;
    }
    if (shared.cost < this.cost) {
      this.best = shared.choice;
      this.cost = shared.cost;
    }
    // The relaxed choice may lie in a worse valley than a choice that others found under the true
    // rows.
    const model = this.model;
    if (this.priced(shared.cost, usageOf(model, shared.choice)) >= this.lagrangian()) return;
    this.relaxed.moveTo(shared.choice);
    this.quiet = 0;
  }

  get work(): number {
    return this.relaxed.work + this.true.work;
  }

  /**
   * Descends until `work` more cells have been looked at or it is stopped; the last move may exceed
   * that.
   */
  run(work: number): void {
    const until = this.work + work;
    const last = this.steps + MOST_STEPS;
    while (this.work < until && this.steps < last && !this.stopped()) this.move();
  }

  private move(): void {
    const random = this.random;
    const relaxed = this.relaxed;
    const before = this.lagrangian();
    const { vars, spared } = this.everything();
    relaxed.improve(vars, {
      cap: CAPS[this.quiet],
      candidates: CANDIDATES[random.below(CANDIDATES.length)],
      injected: [...this.injected, this.best],
      factor: 1,
      ceiling: Infinity,
      noise: 0,
      spared,
      tolerance: 0,
      luck: this.luck(),
      attempts: 1,
    });
    this.steps++;
    const after = this.lagrangian();
    if (before - after > GAIN * Math.abs(after)) {
      this.quiet = 0;
      return;
    }
    if (++this.quiet < CAPS.length) return;
    this.quiet = 0;
    this.settle();
    this.adapt();
  }

  private lagrangian(): number {
    return this.priced(this.relaxed.cost, this.relaxed.usage);
  }

  /** Cost plus prices, without the constant part of the prices. */
  private priced(cost: number, usage: Float64Array): number {
    let sum = cost;
    for (let t = 0; t < this.model.rows; t++)
      if (this.lambda[t] > 0) sum += this.lambda[t] * usage[t];
    return sum;
  }

  private luck(): () => number {
    const random = this.random;
    const spread = 4 * random.next();
    return () => Math.exp(spread * (random.next() - 0.5));
  }

  /** All variables; first those that are to take part in any case: a ball, a few hubs, or none. */
  private everything(): { vars: number[]; spared: number } {
    const { count, first, second } = this.model;
    const random = this.random;
    const kind = random.next();
    let head: number[] = [];
    if (kind < 0.3) {
      const fanOut = random.next() < 0.5 ? undefined : Infinity;
      head = this.neighbourhood.connected(
        random.below(count),
        20 + random.below(300),
        true,
        undefined,
        fanOut,
      );
    } else if (kind < 0.6 && first.length > 0) {
      const drawn = new Set<number>();
      for (let k = random.below(6); k >= 0; k--)
        drawn.add((random.next() < 0.5 ? first : second)[random.below(first.length)]);
      head = [...drawn];
    }
    const inHead = new Uint8Array(count);
    for (const i of head) inHead[i] = 1;
    const vars = head.slice();
    for (let i = 0; i < count; i++) if (inHead[i] === 0) vars.push(i);
    return { vars, spared: head.length };
  }

  /**
   * Repairs a copy of the relaxed choice and settles it under the true rows; keeps it if it is the
   * best one.
   */
  private settle(): void {
    const random = this.random;
    const copy = this.relaxed.x.slice();
    if (!repair(this.model, copy, REPAIRS, this.stopped)) return;
    const settled = this.true;
    settled.moveTo(copy);
    const from = settled.cost;
    for (
      let k = 0, quiet = 0;
      k < MOST_SETTLING && quiet < SETTLED && from <= FAR * this.cost;
      k++
    ) {
      if (this.stopped()) break;
      const before = settled.cost;
      const { vars, spared } = this.everything();
      settled.improve(vars, {
        cap: random.next() < 0.5 ? SETTLING_CAP / 10 : SETTLING_CAP,
        candidates: random.next() < 0.5 ? 6 : ALL,
        injected: [this.relaxed.x, this.best],
        factor: random.next() < 0.3 ? 0.7 : 1,
        ceiling: before,
        noise: 0,
        spared,
        tolerance: Infinity,
        luck: this.luck(),
        attempts: ATTEMPTS,
      });
      this.steps++;
      quiet = settled.cost < before ? 0 : quiet + 1;
    }
    if (settled.cost < this.cost) {
      this.cost = settled.cost;
      this.best = settled.x.slice();
      this.rests = 0;
    }
  }

  /**
   * Moves the prices against the excess of the relaxed choice, each row by a step of its own (as in
   * Rprop).
   */
  private adapt(): void {
    if (++this.rests >= PATIENCE) {
      this.rests = 0;
      this.factor.fill(1);
      this.own.fill(0);
      this.step.fill(FIRST_STEP);
      this.sign.fill(0);
      this.relaxed.moveTo(this.best);
      this.reprice();
      return;
    }
    const { rows, capacity } = this.model;
    const { usage } = this.relaxed;
    let sum = 0;
    for (const price of this.lambda) sum += price;
    // Of neighbouring exceeded rows the most exceeded one represents all.
    const exceeded = new Set<number>();
    for (let t = 0; t < rows; t++) {
      let worst = -1;
      let most = 0;
      for (; t < rows && usage[t] > capacity[t]; t++) {
        const excess = usage[t] / Math.max(1, capacity[t]);
        if (excess > most) {
          most = excess;
          worst = t;
        }
      }
      if (worst >= 0) exceeded.add(worst);
    }
    for (let t = 0; t < rows; t++) {
      const slack = this.lambda[t] > 0 && usage[t] < (1 - SLACK) * capacity[t];
      const sign = exceeded.has(t) ? 1 : slack ? -1 : 0;
      if (sign === 0) continue;
      if (this.sign[t] === -sign) this.step[t] = Math.max(LEAST_STEP, this.step[t] / 2);
      else if (this.sign[t] === sign) this.step[t] = Math.min(LARGEST_STEP, 1.3 * this.step[t]);
      this.sign[t] = sign;
      const change = Math.exp(sign > 0 ? this.step[t] : -this.step[t] / 2);
      if (this.given[t] > 0) this.factor[t] *= change;
      else this.own[t] = this.own[t] > 0 ? this.own[t] * change : FIRST_SHARE * sum;
    }
    this.reprice();
  }

  private reprice(): void {
    const { unary, rows } = this.model;
    for (let t = 0; t < rows; t++)
      this.lambda[t] = this.given[t] > 0 ? this.given[t] * this.factor[t] : this.own[t];
    for (const { price } of [this.relaxed, this.true]) {
      priceValues(this.model, this.lambda, this.prefix, price);
      for (let v = 0; v < price.length; v++) price[v] -= unary[v];
    }
  }
}
