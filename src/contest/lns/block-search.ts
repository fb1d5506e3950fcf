/**
 * Local search over feasible choices: a block of variables is minimised exactly given all others
 * (`block.ts`), memory enters as prices, and what would still exceed a row is priced up inside the
 * block until it fits or nothing is gained.
 */
import { costOf, usageOf } from '../bound/trws.ts';
import type { Model } from '../model/model.ts';
import type { Random } from '../model/random.ts';
import { Block } from './block.ts';
import { segmentAt } from './repair.ts';
import { RowPenalties } from './row-penalties.ts';

/** How a block is minimised. */
export interface BlockMove {
  /** Largest table of an elimination, in cells. */
  readonly cap: number;
  /** Most candidate values of a variable besides those of the injected choices. */
  readonly candidates: number;
  /**
   * Choices whose values are candidates, too (elite choices, rounded bounds, the same place in
   * another layer).
   */
  readonly injected: readonly Int32Array[];
  /** Share of the row prices that the block pays. */
  readonly factor: number;
  /** Highest true cost that is accepted. */
  readonly ceiling: number;
  /** Largest random cost that is added to every candidate; 0 for an honest minimum. */
  readonly noise: number;
  /** Number of variables, from the first on, that should not be frozen. */
  readonly spared: number;
  /** How much more expensive (at the block's prices) the result may be. */
  readonly tolerance: number;
  /** Random factor on who is frozen when tables grow too large; default 1. */
  readonly luck?: () => number;
  /** Most minimisations, with prices inside the block raised and lowered until its result fits. */
  readonly attempts: number;
}

/**
 * Share of the price at which the block would gain nothing that an exceeded row is charged at
 * first.
 */
const FIRST_PENALTY = 0.5;

export class BlockSearch {
  readonly model: Model;
  readonly x: Int32Array;
  readonly usage: Float64Array;
  cost: number;
  /** Price part of every value: prices times amounts. */
  readonly price: Float64Array;
  /**
   * The apparent cost of a value beyond the best one of its variable (marginals of the bound), to
   * choose candidates.
   */
  readonly hint: Float64Array;
  /** Values with a larger hint are not candidates (no choice that is worth anything holds them). */
  limit = Infinity;
  readonly random: Random;
  private readonly block: Block;
  private readonly local: Int32Array;
  private readonly back: Int32Array;
  private readonly row: Float64Array;
  private readonly mark: Uint8Array;
  private readonly difference: Float64Array;
  private vars: number[] = [];
  /** Candidate values of the block's variables, at the places of `Block.start`. */
  private values = new Int32Array(4096);
  private readonly changed: number[] = [];
  private readonly changedTo: number[] = [];
  private low = 0;
  private high = 0;
  steps = 0;

  constructor(model: Model, choice: Int32Array, random: Random, stopped?: () => boolean) {
    this.block = new Block(model.count, stopped);
    this.model = model;
    this.random = random;
    this.x = choice.slice();
    this.usage = usageOf(model, choice).slice();
    this.cost = costOf(model, choice);
    this.price = new Float64Array(model.unary.length);
    this.hint = new Float64Array(model.unary.length);
    this.local = new Int32Array(model.count).fill(-1);
    this.back = new Int32Array(model.edge.length);
    for (let i = 0; i < model.count; i++) {
      for (let k = model.incident[i]; k < model.incident[i + 1]; k++) {
        const e = model.edge[k];
        this.back[k] = model.first[e] === i ? model.transposed[e] : model.table[e];
      }
    }
    let widest = 1;
    for (const size of model.sizes) widest = Math.max(widest, size);
    this.row = new Float64Array(widest);
    this.mark = new Uint8Array(widest);
    this.difference = new Float64Array(model.rows + 1);
  }

  /**
   * Cells that were looked at so far: the clock of everything that must not depend on a real one.
   */
  get work(): number {
    return this.block.work + this.looked;
  }

  /** Replaces the present choice. */
  moveTo(choice: ArrayLike<number>): void {
    this.x.set(choice);
    this.usage.set(usageOf(this.model, choice));
    this.cost = costOf(this.model, choice);
  }

  feasible(): boolean {
    const { capacity, rows } = this.model;
    for (let t = 0; t < rows; t++) if (this.usage[t] > capacity[t]) return false;
    return true;
  }

  /**
   * Costs of all values of variable i given the neighbours outside the block, plus `factor` times
   * the price, into #row.
   */
  private outside(i: number, factor: number): void {
    const { sizes, start, unary, incident, other, cells } = this.model;
    const size = sizes[i];
    const row = this.row;
    const at = start[i];
    this.looked += size * (1 + incident[i + 1] - incident[i]);
    for (let a = 0; a < size; a++) row[a] = unary[at + a] + factor * this.price[at + a];
    for (let k = incident[i]; k < incident[i + 1]; k++) {
      const j = other[k];
      if (this.local[j] >= 0) continue;
      const from = this.back[k] + this.x[j] * size;
      for (let a = 0; a < size; a++) row[a] += cells[from + a];
    }
  }

  /**
   * Minimises the block given the rest at prices `factor` x lambda. Returns true if the choice
   * changed: only to a feasible one that is no more expensive at those prices and whose true cost
   * stays at or below `ceiling`.
   */
  improve(vars: readonly number[], move: BlockMove): boolean {
    this.steps++;
    const { factor, ceiling } = move;
    const block = this.block;
    this.vars = [...vars];
    this.prepare(move);
    if (block.free === 0) {
      this.release();
      return false;
    }
    if (move.noise > 0)
      for (let c = 0; c < block.start[block.count]; c++)
        block.costs[c] += move.noise * this.random.next();
    const before = this.presentCost();
    let accepted = false;
    this.penalties.clear();
    for (let attempt = 0; attempt < move.attempts; attempt++) {
      if (Number.isNaN(block.minimise())) break;
      this.collect();
      const none = this.changed.length === 0;
      // Prices that were added inside the block count for the choice of the block, not for its
      // worth.
      const { priced, cost } = this.worth(factor);
      const poor = none || priced > move.tolerance || this.cost + cost > ceiling;
      if (poor && attempt === 0) break;
      const row = none ? -1 : this.worstRow();
      if (row >= 0) {
        const gain = poor ? 0 : Math.max(-priced, 1e-9 * Math.abs(before));
        this.penalize(row, this.penalties.raise(row, (FIRST_PENALTY * gain) / this.excess));
      } else if (!poor) {
        this.apply(cost);
        accepted = true;
        break;
      } else {
        this.clear();
        if (!this.penalties.lower((r, difference) => this.penalize(r, difference))) break;
      }
    }
    this.release();
    return accepted;
  }

  private release(): void {
    for (const i of this.vars) this.local[i] = -1;
  }

  private prepare(move: BlockMove): void {
    const block = this.block;
    const { sizes, incident, other, view, cells } = this.model;
    const vars = this.vars;
    vars.forEach((i, k) => (this.local[i] = k));
    block.begin();
    for (const i of vars) {
      const size = sizes[i];
      this.outside(i, move.factor);
      if (size <= move.candidates && this.limit === Infinity) {
        const at = block.add(size, this.x[i]);
        this.reserve(at + size);
        for (let a = 0; a < size; a++) {
          this.values[at + a] = a;
          block.costs[at + a] = this.row[a];
        }
      } else this.choose(i, move);
    }
    for (let p = 0; p < vars.length; p++) {
      const i = vars[p];
      for (let k = incident[i]; k < incident[i + 1]; k++) {
        const q = this.local[other[k]];
        if (q <= p) continue;
        const j = vars[q];
        const at = block.join(p, q);
        const to = block.cells();
        const [fromP, fromQ] = [block.start[p], block.start[q]];
        const [m, n] = [block.sizes[p], block.sizes[q]];
        this.looked += m * n;
        const width = sizes[j];
        if (m === sizes[i] && n === width) {
          for (let c = 0, s = view[k]; c < m * n; c++) to[at + c] = cells[s + c];
          continue;
        }
        for (let a = 0, o = at; a < m; a++) {
          const s = view[k] + this.values[fromP + a] * width;
          for (let b = 0; b < n; b++) to[o++] = cells[s + this.values[fromQ + b]];
        }
      }
    }
    block.arrange(move.cap, move.spared, move.luck);
  }

  private reserve(length: number): void {
    if (length <= this.values.length) return;
    const bigger = new Int32Array(2 * length);
    bigger.set(this.values);
    this.values = bigger;
  }

  /**
   * The present value, those of the injected choices, and the best ones under the present
   * neighbours and by the hints.
   */
  private choose(i: number, { candidates, injected }: BlockMove): void {
    const { sizes, incident, other, cells } = this.model;
    const size = sizes[i];
    const block = this.block;
    const row = this.row;
    const hints = this.model.start[i];
    const { limit, hint } = this;
    let alive = 0;
    for (let a = 0; a < size; a++) if (hint[hints + a] <= limit) alive++;
    const full = candidates > 1 && alive > candidates ? row.slice(0, size) : row;
    if (full !== row)
      for (let k = incident[i]; k < incident[i + 1]; k++) {
        const j = other[k];
        if (this.local[j] < 0) continue;
        const from = this.back[k] + this.x[j] * size;
        for (let a = 0; a < size; a++) full[a] += cells[from + a];
      }
    const mark = this.mark;
    mark.fill(0, 0, size);
    mark[this.x[i]] = 1;
    for (const injectedChoice of injected) mark[injectedChoice[i]] = 1;
    if (alive <= candidates) {
      for (let a = 0; a < size; a++) if (hint[hints + a] <= limit) mark[a] = 1;
    } else {
      for (let c = 1; c < candidates; c++) {
        const kind = c % 5;
        let pick = kind === 4 ? this.random.below(size) : -1;
        if (kind === 1 || kind === 3) {
          for (let a = 0; a < size; a++)
            if (mark[a] === 0 && hint[hints + a] <= limit && (pick < 0 || full[a] < full[pick]))
              pick = a;
        } else if (kind !== 4) {
          for (let a = 0; a < size; a++)
            if (mark[a] === 0 && (pick < 0 || hint[hints + a] < hint[hints + pick])) pick = a;
        }
        if (pick >= 0 && hint[hints + pick] <= limit) mark[pick] = 1;
      }
    }
    let count = 0;
    let present = 0;
    for (let a = 0; a < size; a++) {
      if (a === this.x[i]) present = count;
      count += mark[a];
    }
    const at = block.add(count, present);
    this.reserve(at + count);
    for (let a = 0, c = at; a < size; a++) {
      if (mark[a] === 0) continue;
      this.values[c] = a;
      block.costs[c++] = row[a];
    }
  }

  private presentCost(): number {
    const block = this.block;
    let sum = 0;
    for (let k = 0; k < block.count; k++) sum += block.costs[block.start[k] + block.present[k]];
    const { incident, other, view, cells, sizes } = this.model;
    this.vars.forEach((i, p) => {
      for (let k = incident[i]; k < incident[i + 1]; k++) {
        const j = other[k];
        if (this.local[j] > p) sum += cells[view[k] + this.x[i] * sizes[j] + this.x[j]];
      }
    });
    return sum;
  }

  private collect(): void {
    const block = this.block;
    this.changed.length = 0;
    this.changedTo.length = 0;
    for (let k = 0; k < block.count; k++) {
      if (block.chosen[k] === block.present[k]) continue;
      this.changed.push(this.vars[k]);
      this.changedTo.push(this.values[block.start[k] + block.chosen[k]]);
    }
  }

  /** Change of the true cost and of the priced cost if the collected changes are made. */
  private worth(factor: number): { cost: number; priced: number } {
    const { start, unary, incident, edge, first, table, cells, sizes, second } = this.model;
    let cost = 0;
    let prices = 0;
    const seen = new Map<number, number>();
    this.changed.forEach((i, k) => seen.set(i, this.changedTo[k]));
    this.changed.forEach((i, k) => {
      const [from, to] = [start[i] + this.x[i], start[i] + this.changedTo[k]];
      cost += unary[to] - unary[from];
      prices += this.price[to] - this.price[from];
      for (let n = incident[i]; n < incident[i + 1]; n++) {
        const e = edge[n];
        const [u, v] = [first[e], second[e]];
        const mate = u === i ? v : u;
        const newMate = seen.get(mate);
        if (newMate !== undefined && mate < i) continue;
        const width = sizes[v];
        const old = cells[table[e] + this.x[u] * width + this.x[v]];
        const xu = u === i ? this.changedTo[k] : (newMate ?? this.x[u]);
        const xv = v === i ? this.changedTo[k] : (newMate ?? this.x[v]);
        cost += cells[table[e] + xu * width + xv] - old;
      }
    });
    return { cost, priced: cost + factor * prices };
  }

  /**
   * Usage differences of the collected changes into #difference (summed up); the most exceeded row,
   * or -1.
   */
  private worstRow(): number {
    const { segment, lo, hi, amount, amounts, capacity, rows } = this.model;
    const difference = this.difference;
    let low = rows;
    let high = 0;
    this.changed.forEach((i, k) => {
      for (let s = segment[i]; s < segment[i + 1]; s++) {
        const d = amounts[amount[s] + this.changedTo[k]] - amounts[amount[s] + this.x[i]];
        if (d === 0) continue;
        difference[lo[s]] += d;
        difference[hi[s]] -= d;
        if (lo[s] < low) low = lo[s];
        if (hi[s] > high) high = hi[s];
      }
    });
    let worst = -1;
    let excess = 0;
    let sum = 0;
    for (let t = low; t < high; t++) {
      sum += difference[t];
      difference[t] = sum;
      if (sum > 0) {
        const over = (this.usage[t] + sum - capacity[t]) / capacity[t];
        if (over > excess) {
          excess = over;
          worst = t;
        }
      }
    }
    if (high > low) this.looked += high - low;
    if (high > low) difference[high] = 0;
    this.low = low;
    this.high = high;
    if (worst >= 0) {
      this.excess = this.usage[worst] + difference[worst] - capacity[worst];
      this.clear();
    }
    return worst;
  }

  private excess = 0;
  private looked = 0;
  private readonly penalties = new RowPenalties();

  private clear(): void {
    if (this.high > this.low) this.difference.fill(0, this.low, this.high + 1);
  }

  /** Adds `price` per unit of the row to the costs of the block. */
  private penalize(row: number, price: number): void {
    const { amount, amounts } = this.model;
    const block = this.block;
    this.vars.forEach((i, k) => {
      const s = segmentAt(this.model, i, row);
      if (s < 0) return;
      for (let c = block.start[k]; c < block.start[k + 1]; c++)
        block.costs[c] += price * amounts[amount[s] + this.values[c]];
    });
  }

  private apply(cost: number): void {
    for (let t = this.low; t < this.high; t++) this.usage[t] += this.difference[t];
    this.clear();
    this.changed.forEach((i, k) => (this.x[i] = this.changedTo[k]));
    this.cost += cost;
  }
}
