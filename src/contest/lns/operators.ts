/**
 * Adaptive large neighbourhood search (S. Ropke and D. Pisinger, Transportation Science 2006):
 * operators choose blocks and are drawn by their gain per unit of work. The search depends on its
 * seed and on what it receives between rounds, never on the clock.
 */
import { priceValues } from '../bound/trws.ts';
import type { Model } from '../model/model.ts';
import { Random } from '../model/random.ts';
import { BlockSearch } from './block-search.ts';
import { Neighbourhood, siblings } from './neighbourhood.ts';

type Kind = 'ball' | 'walk' | 'hub' | 'row' | 'merge' | 'layer';

interface Operator {
  readonly kind: Kind;
  readonly variables: number;
  readonly candidates: number;
  readonly cap: number;
  gain: number;
  work: number;
  uses: number;
}

const ALL = 1 << 20;
/** Candidates, variables and table of blocks that take a hundred times the work of the others. */
const DEEP = [
  [ALL, 25, 1e6],
  [ALL, 60, 1e6],
  [ALL, 150, 1e6],
  [ALL, 40, 4e6],
  [8, 150, 1e6],
  [16, 150, 1e6],
] as const;
/**
 * Models of at most this many values get those; larger ones are better served by more blocks, and
 * by descents.
 */
const DEEP_VALUES = 20_000;

function operators(deep: boolean): Operator[] {
  const list: Operator[] = [];
  const add = (kind: Kind, variables: number, candidates: number, cap: number): void =>
    void list.push({ kind, variables, candidates, cap, gain: 0, work: 0, uses: 0 });
  for (const kind of ['ball', 'walk'] as const) {
    for (const [candidates, variables, cap] of [
      [ALL, 15, 50_000],
      [ALL, 40, 10_000],
      [ALL, 40, 100_000],
      [ALL, 100, 10_000],
      [ALL, 250, 10_000],
      [ALL, 250, 100_000],
      [3, 250, 50_000],
      [6, 40, 50_000],
      [6, 100, 10_000],
      [6, 250, 50_000],
      [12, 40, 20_000],
      [12, 100, 50_000],
    ])
      add(kind, variables, candidates, cap);
  }
  if (deep)
    for (const kind of ['ball', 'walk'] as const)
      for (const [candidates, variables, cap] of DEEP) add(kind, variables, candidates, cap);
  for (const [candidates, variables, cap] of [
    [3, 200, 20_000],
    [3, 800, 20_000],
    [6, 200, 20_000],
    [6, 800, 50_000],
    [ALL, 200, 50_000],
    [ALL, 800, 10_000],
  ])
    add('hub', variables, candidates, cap);
  for (const [candidates, variables] of [
    [3, 150],
    [6, 60],
    [ALL, 30],
  ])
    add('row', variables, candidates, 20_000);
  for (const [candidates, variables] of [
    [1, 80],
    [1, 400],
    [1, 1000],
    [3, 150],
  ])
    add('merge', variables, candidates, 50_000);
  for (const [candidates, variables] of [
    [1, 60],
    [1, 300],
    [3, 100],
  ])
    add('layer', variables, candidates, 50_000);
  return list;
}

const FACTORS = [0, 0.3, 0.7, 1, 1, 1.3];
const CEILINGS = [0.001, 0.004, 0.004, 0.01];
/** Blocks without a new best after which the search goes back to it. */
const PATIENCE = 2000;
/** Most blocks of a round: tiny models are not worth more. */
const MOST_STEPS = 1500;
/** Share of blocks whose operator is drawn by success. */
const SUCCESS_SHARE = 0.4;
/** A search whose best is this much more expensive than the best of all restarts from that one. */
const BEHIND = 1.001;
/** Blocks of a kick, the noise that they get, and what they may cost, as shares of the scale. */
const KICKS = 6;
const NOISE = 2e-4;
const TOLERANCE = 6e-4;
/** Minimisations of a block until it fits the rows. */
const ATTEMPTS = 6;
/** Best choices of earlier walks that are kept to be injected. */
const MOST_ELITES = 6;

/** The state that a member receives between rounds. */
export interface SharedState {
  readonly choice: Int32Array;
  readonly cost: number;
  readonly injected: readonly Int32Array[];
  readonly lambda: Float64Array;
  readonly marginal: Float64Array;
  /** Values with a larger marginal are in no better choice. */
  readonly limit: number;
  /**
   * A large amount of cost: ceilings, noise and tolerances are shares of it
   * (`anytime/run/schedule.ts`).
   */
  readonly scale: number;
}

export class AdaptiveSearch {
  private readonly model: Model;
  private readonly random: Random;
  private readonly blocks: BlockSearch;
  private readonly neighbourhood: Neighbourhood;
  private readonly operators: Operator[];
  private readonly next: Int32Array;
  private readonly elites: Int32Array[] = [];
  private readonly prefix: Float64Array;
  private injected: readonly Int32Array[] = [];
  private rows: number[] = [];
  private ceiling = CEILINGS[0];
  private since = 0;
  private scale = 0;
  private kicks = 0;
  private leader: { readonly cost: number; readonly choice: Int32Array };
  private walk: { cost: number; choice: Int32Array };
  best: Int32Array;
  cost: number;

  constructor(model: Model, seed: number, choice: Int32Array) {
    this.model = model;
    this.operators = operators(model.unary.length <= DEEP_VALUES);
    this.random = new Random(seed);
    this.blocks = new BlockSearch(model, choice, this.random);
    this.neighbourhood = new Neighbourhood(model, this.random);
    this.next = siblings(model);
    this.prefix = new Float64Array(model.rows + 1);
    this.best = choice.slice();
    this.cost = this.blocks.cost;
    this.walk = { cost: this.cost, choice: this.best };
    this.leader = this.walk;
  }

  get steps(): number {
    return this.blocks.steps;
  }

  /** Operators by use, for the curious. */
  report(): string[] {
    const list = [...this.operators].sort((a, b) => b.uses - a.uses).slice(0, 12);
    return list.map(
      (o) =>
        `${o.kind} ${o.variables} x ${o.candidates} cap ${o.cap}: ${o.uses} uses, rate ` +
        `${((o.gain / (o.work + 1)) * 1e6).toFixed(1)}`,
    );
  }

  receive(shared: SharedState): void {
    const { price, hint } = this.blocks;
    const { unary, rows } = this.model;
    priceValues(this.model, shared.lambda, this.prefix, price);
    for (let v = 0; v < price.length; v++) price[v] -= unary[v];
    hint.set(shared.marginal);
    this.blocks.limit = shared.limit;
    this.scale = shared.scale;
    this.injected = [...shared.injected, shared.choice];
    this.leader = { cost: shared.cost, choice: shared.choice };
    this.rows = [];
    for (let t = 0; t < rows; t++) if (shared.lambda[t] > 0) this.rows.push(t);
    this.rows.sort((a, b) => shared.lambda[b] - shared.lambda[a] || a - b);
    this.rows.length = Math.min(this.rows.length, 64);
  }

  /** Searches until `work` more cells have been looked at or `stopped` says so. */
  run(work: number, stopped: () => boolean): void {
    const blocks = this.blocks;
    const until = blocks.work + work;
    const last = blocks.steps + MOST_STEPS;
    for (
      let tries = 0;
      blocks.work < until && blocks.steps < last && tries < 2 * MOST_STEPS;
      tries++
    ) {
      if ((blocks.steps & 7) === 0 && stopped()) return;
      this.step();
    }
  }

  private step(): void {
    const blocks = this.blocks;
    const random = this.random;
    const operator = this.pick();
    const { vars, injected } = this.choose(operator);
    const before = blocks.work;
    const factor = FACTORS[random.below(FACTORS.length)];
    const move = {
      cap: operator.cap,
      candidates: operator.candidates,
      injected,
      factor,
      ceiling: this.cost + this.ceiling * this.scale,
      spared: operator.kind === 'hub' || random.next() < 0.5 ? 1 : 0,
      noise: this.kicks > 0 ? NOISE * this.scale * random.next() : 0,
      tolerance: this.kicks > 0 ? TOLERANCE * this.scale : 0,
      attempts: ATTEMPTS,
    };
    if (this.kicks > 0) this.kicks--;
    if (vars.length > 0) blocks.improve(vars, move);
    operator.uses++;
    operator.work = operator.work * 0.97 + (blocks.work - before) + 20_000;
    operator.gain *= 0.97;
    if (blocks.cost < this.cost) {
      operator.gain += this.cost - blocks.cost;
      this.cost = blocks.cost;
      this.best = blocks.x.slice();
      this.since = 0;
    } else this.since++;
    if (blocks.cost < this.walk.cost) this.walk = { cost: blocks.cost, choice: blocks.x.slice() };
    if (this.since > PATIENCE) this.restart();
  }

  private restart(): void {
    this.since = 0;
    this.kicks = this.random.next() < 0.5 ? KICKS : 0;
    if (this.leader.cost * BEHIND < this.cost) {
      this.keepElite(this.best);
      this.cost = this.leader.cost;
      this.best = this.leader.choice;
      this.walk.cost = Infinity;
    }
    if (this.walk.cost < Infinity && this.walk.cost > this.cost) this.keepElite(this.walk.choice);
    this.ceiling = CEILINGS[this.random.below(CEILINGS.length)];
    this.blocks.moveTo(this.best);
    this.walk = { cost: Infinity, choice: this.best };
  }

  private keepElite(choice: Int32Array): void {
    this.elites.push(choice);
    if (this.elites.length > MOST_ELITES) this.elites.splice(this.random.below(MOST_ELITES), 1);
  }

  private pick(): Operator {
    const random = this.random;
    const list = this.operators;
    if (random.next() >= SUCCESS_SHARE) return list[random.below(list.length)];
    let best = list[0];
    let top = -1;
    for (const o of list) {
      const rate = ((o.gain + 1e-8 * this.scale) / (o.work + 1e6)) * (0.5 + random.next());
      if (rate > top) {
        top = rate;
        best = o;
      }
    }
    return best;
  }

  private choose(operator: Operator): { vars: number[]; injected: readonly Int32Array[] } {
    const random = this.random;
    const around = this.neighbourhood;
    const { count } = this.model;
    const most = Math.max(4, Math.floor(operator.variables * (0.5 + random.next())));
    const { x } = this.blocks;
    switch (operator.kind) {
      case 'ball':
        return { vars: around.connected(random.below(count), most, true), injected: [] };
      case 'walk':
        return { vars: around.connected(random.below(count), most, false), injected: [] };
      case 'hub':
        return { vars: around.hub(most), injected: [] };
      case 'row': {
        if (this.rows.length === 0) return { vars: [], injected: [] };
        // Rows with high prices more often.
        const row = this.rows[Math.floor(random.next() ** 2 * this.rows.length)];
        return { vars: around.atRow(row, most), injected: [] };
      }
      case 'layer': {
        const vars = around.connected(random.below(count), most, random.next() < 0.5);
        const injected: Int32Array[] = [];
        let from = x;
        for (let k = 0; k < 2; k++) {
          const shifted = x.slice();
          for (const i of vars) shifted[i] = from[this.next[i]];
          injected.push(shifted);
          from = this.ahead(from, vars);
        }
        return { vars, injected };
      }
      case 'merge': {
        const all = [...this.injected, ...this.elites, this.best];
        const injectedChoice = all[random.below(all.length)];
        const differs = (i: number): boolean => injectedChoice[i] !== x[i];
        let seed = random.below(count);
        let tries = 0;
        while (tries < count && !differs(seed)) {
          seed = (seed + 1) % count;
          tries++;
        }
        if (tries === count) return { vars: [], injected: [] };
        const injected =
          random.next() < 0.5 ? [injectedChoice] : [injectedChoice, all[random.below(all.length)]];
        return { vars: this.differing(seed, most, differs), injected };
      }
    }
  }

  /** The choice with the values of the given variables' siblings one layer on. */
  private ahead(from: Int32Array, vars: readonly number[]): Int32Array {
    const out = from.slice();
    for (const i of vars) out[this.next[i]] = from[this.next[this.next[i]]];
    return out;
  }

  /** Connected regions of differing variables, one after the other, until `most` are found. */
  private differing(seed: number, most: number, differs: (i: number) => boolean): number[] {
    const { count } = this.model;
    const out: number[] = [];
    const taken = new Set<number>();
    for (let tries = 0, i = seed; tries < 4 && out.length < most; tries++) {
      for (const j of this.neighbourhood.connected(
        i,
        most - out.length,
        true,
        (k) => differs(k) && !taken.has(k),
      )) {
        if (taken.has(j)) continue;
        taken.add(j);
        out.push(j);
      }
      i = this.random.below(count);
      for (let k = 0; k < 200 && (!differs(i) || taken.has(i)); k++) i = (i + 1) % count;
      if (!differs(i)) break;
    }
    return out;
  }
}
