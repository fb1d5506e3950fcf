/**
 * Prices of the rows by exponentiated gradient: a row that is used beyond its capacity becomes more
 * expensive by a factor, one below its capacity cheaper. Steps are relative to the capacity, so no
 * scale has to be guessed; rows join lazily, the most exceeded one of every window of time. One
 * message sweep per step: prices and messages converge together.
 */
import { type Dual, usageOf } from './trws.ts';

/** Windows of rows; each may add its most exceeded row per step. */
const WINDOWS = 24;
/** First step size, and the number of steps after which it has halved. */
const STEP = 0.5;
const HALF_LIFE = 30;
/** Largest change of the logarithm of a price in one step. */
const LARGEST = 0.7;
/** Share of the old direction in the new one. */
const MEMORY = 0.6;
/** A price begins at this share of bound / capacity. */
const FIRST = 1e-4;

/**
 * The start of an ascent: prices and messages of an earlier one, and the steps that it counts as
 * done.
 */
export interface AscentStart {
  readonly lambda: Float64Array;
  readonly toFirst: Float64Array;
  readonly toSecond: Float64Array;
  readonly steps: number;
}

export class PriceAscent {
  readonly dual: Dual;
  best = -Infinity;
  steps = 0;
  /** Prices that gave the bound `best`. */
  readonly kept: Float64Array;
  /** Messages that gave the bound `best`. */
  readonly bestFirst: Float64Array;
  readonly bestSecond: Float64Array;
  private readonly active: Uint8Array;
  private readonly direction: Float64Array;
  private readonly windows: number;

  /** With `everyRow` all exceeded rows join at once: for models that have few. */
  constructor(dual: Dual, start?: AscentStart, everyRow = false) {
    this.dual = dual;
    this.windows = everyRow ? Math.max(1, dual.model.rows) : WINDOWS;
    const { rows } = dual.model;
    this.kept = new Float64Array(rows);
    this.bestFirst = new Float64Array(dual.toFirst.length);
    this.bestSecond = new Float64Array(dual.toSecond.length);
    this.active = new Uint8Array(rows);
    this.direction = new Float64Array(rows);
    if (start === undefined) return;
    this.steps = start.steps;
    dual.lambda.set(start.lambda);
    dual.toFirst.set(start.toFirst);
    dual.toSecond.set(start.toSecond);
    dual.reprice();
    for (let t = 0; t < rows; t++) this.active[t] = start.lambda[t] > 0 ? 1 : 0;
  }

  /** One change of the prices and one sweep; returns the bound. */
  step(): number {
    const { dual } = this;
    const { rows, capacity } = dual.model;
    this.steps++;
    // Without a sweep there is no least value of any variable to go by.
    if (this.steps > 5 && rows > 0 && this.best > -Infinity) {
      const usage = usageOf(dual.model, dual.argmin());
      this.activate(usage);
      const scale = Math.max(1, Math.abs(this.best));
      const size = STEP / (1 + this.steps / HALF_LIFE);
      for (let t = 0; t < rows; t++) {
        if (this.active[t] === 0) continue;
        const room = Math.max(1, capacity[t]);
        const direction =
          MEMORY * this.direction[t] + ((1 - MEMORY) * (usage[t] - capacity[t])) / room;
        this.direction[t] = direction;
        const change = Math.exp(Math.max(-LARGEST, Math.min(LARGEST, size * direction)));
        const old = dual.lambda[t];
        dual.lambda[t] = (direction > 0 ? Math.max(old, (FIRST * scale) / room) : old) * change;
      }
      dual.reprice();
    }
    const bound = dual.sweep();
    if (bound > this.best) {
      this.best = bound;
      this.kept.set(dual.lambda);
      this.bestFirst.set(dual.toFirst);
      this.bestSecond.set(dual.toSecond);
    }
    return bound;
  }

  private activate(usage: Float64Array): void {
    const { rows, capacity } = this.dual.model;
    const windows = this.windows;
    for (let w = 0; w < windows; w++) {
      let worst = -1;
      let excess = 0;
      for (
        let t = Math.floor((w * rows) / windows);
        t < Math.floor(((w + 1) * rows) / windows);
        t++
      ) {
        const over = (usage[t] - capacity[t]) / Math.max(1, capacity[t]);
        if (over > excess) {
          excess = over;
          worst = t;
        }
      }
      if (worst >= 0) this.active[worst] = 1;
    }
  }
}
