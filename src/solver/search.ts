/**
 * The search: reduce, eliminate what is easy, raise the bound, prune against the incumbent, eliminate the core; branch only
 * where the core is still too wide. Every node is the same function of a network; rows take part as prices first and as
 * Pareto labels at the end.
 */
import { climb } from './ascent.ts';
import { Messages } from './bound.ts';
import { Eliminator } from './eliminate.ts';
import { foldOf, gatherMessages, spreadChoice, spreadMessages } from './fold.ts';
import { eliminateWithRows } from './labels.ts';
import type { Network } from './network.ts';
import type { Table } from './pool.ts';
import { costAt } from './primal.ts';
import { Pruner } from './prune.ts';
import { Reducer } from './reduce.ts';
import { type Log, STEP } from './proof.ts';
import { addPrices, amountsAt } from './rows.ts';

/** The best checked choice so far. */
export interface Incumbent {
  readonly objective: number;
  readonly choice: Int32Array;
}

export interface SearchHost {
  /** True cost of a full choice; Infinity when it is not a solution. Rows count only where `rows` is true. */
  readonly evaluate: (choice: Int32Array, rows: boolean) => number;
  readonly stopped: () => boolean;
  readonly progress: (phase: string, objective: number, bound: number) => void;
  /** Relative gap that is good enough. */
  readonly gap: number;
}

/** Engines and memos of one solve. */
export interface Engines {
  readonly reducer: Reducer;
  readonly eliminator: Eliminator;
  readonly pruner: Pruner;
  /** Message steps taken. */
  steps: number;
}

export function makeEngines(net: Network): Engines {
  return { reducer: new Reducer(), eliminator: new Eliminator(net.pool), pruner: new Pruner(), steps: 0 };
}

const EASY = { cells: 50_000, work: 10_000_000, totalWork: 1e9, arity: 2, slack: Infinity };
const CORE = { cells: 4_000_000, work: 1e8, totalWork: 4e8, arity: 64 };
const NODE = { cells: 200_000, work: 1e7, totalWork: 2e7, arity: 64 };
const LABELS = { labels: 400_000, work: 40_000_000 };
/** Rounds of fusing before a node branches. */
const MAX_ROUNDS = 12;
/** A branch node first tries with this many sweeps, the root with more. */
const ROOT_SWEEPS = 400;
const NODE_SWEEPS = 12;

export class Search {
  readonly #host: SearchHost;
  readonly #engines: Engines;
  best: Incumbent | undefined;
  nodes = 0;
  /** The steps behind the last bound of `solve`, and whether they are about the problem with its rows. */
  proof: { readonly log: Log; readonly rows: boolean } | undefined;
  #rootBound = -Infinity;

  constructor(host: SearchHost, engines: Engines) {
    this.#host = host;
    this.#engines = engines;
  }

  /** Offers a full choice as incumbent. */
  offer(choice: Int32Array): void {
    const objective = this.#host.evaluate(choice, true);
    if (objective === Infinity || (this.best !== undefined && objective >= this.best.objective)) return;
    this.best = { objective, choice };
    this.#host.progress('incumbent', objective, this.#rootBound);
  }

  /** A bound at least this large ends the search. */
  #target(): number {
    if (this.best === undefined) return Infinity;
    const { objective } = this.best;
    return Math.ceil(objective - this.#host.gap * Math.abs(objective));
  }

  /**
   * Proves a lower bound on all choices of the network (its rows included) and finds the best ones on the way: the returned
   * number is at least the target unless the clock ran out. Infinity with no incumbent means that there is no choice.
   */
  solve(net: Network): number {
    if (net.rows.length > 0) {
      const relaxed = this.#withoutRows(net);
      if (relaxed >= this.#target() || this.#host.stopped()) return relaxed;
      this.proof = { log: net.log, rows: true };
      if (!this.#prepare(net)) return Infinity;
      return Math.max(relaxed, this.#solveRows(net));
    }
    this.proof = { log: net.log, rows: false };
    if (!this.#prepare(net)) return Infinity;
    return this.#explore(net, new Messages(net), -Infinity, 0);
  }

  /** Bound (normally the optimum) of the problem without its rows; its choices are offered to the full problem too. */
  #withoutRows(net: Network): number {
    const free = net.clone();
    free.rows.length = 0;
    const host: SearchHost = {
      ...this.#host,
      evaluate: (choice) => {
        this.offer(choice);
        return this.#host.evaluate(choice, false);
      },
    };
    const search = new Search(host, this.#engines);
    const bound = search.solve(free);
    this.nodes += search.nodes;
    this.proof = search.proof;
    return bound;
  }

  /** Reduction and easy eliminations; false when nothing is left. */
  #prepare(net: Network): boolean {
    const { reducer, eliminator } = this.#engines;
    if (!reducer.reduce(net)) return false;
    const keep = net.rows.length > 0 ? rowVariables(net) : undefined;
    const limits = keep === undefined ? EASY : { ...EASY, keep };
    if (eliminator.run(net, limits) === 'infeasible') return false;
    return reducer.reduce(net);
  }

  #offerAt(net: Network, at: Int32Array): void {
    if (costAt(net, at) !== Infinity) this.offer(net.complete(at));
  }

  /**
   * Sweeps until the rest of the gap no longer shrinks, the target is reached or the clock stops; returns the best bound.
   */
  #ascend(net: Network, messages: Messages, sweeps: number): number {
    const before = messages.steps;
    const bound = climb(messages, {
      sweeps,
      offer: (at) => this.#offerAt(net, at),
      target: () => this.#target(),
      stopped: this.#host.stopped,
    });
    this.#engines.steps += messages.steps - before;
    return bound;
  }

  /** First messages and a first choice of a long network of equal blocks from a short one; else the given messages. */
  #shortcut(net: Network, messages: Messages): Messages {
    const fold = foldOf(net);
    if (fold === undefined) return messages;
    const { short } = fold;
    const start = gatherMessages(fold, messages, short);
    let best: Int32Array | undefined;
    let least = Infinity;
    climb(start, {
      sweeps: ROOT_SWEEPS,
      offer: (at) => {
        const cost = costAt(short, at);
        if (cost >= least) return;
        least = cost;
        best = at;
      },
      target: () => least,
      stopped: this.#host.stopped,
    });
    this.#engines.steps += start.steps;
    if (best !== undefined) this.#offerAt(net, spreadChoice(fold, best));
    return spreadMessages(fold, start, net);
  }

  /** Explores a reduced pairwise network; returns a bound that is at least the target unless the clock stopped. */
  #explore(net: Network, start: Messages, inherited: number, depth: number): number {
    this.nodes++;
    const { pruner, reducer } = this.#engines;
    let bound = inherited;
    let messages = start;
    for (let round = 0; ; round++) {
      if (!net.gone.includes(0)) {
        this.#offerAt(net, new Int32Array(net.count));
        return Math.max(bound, net.constant);
      }
      if (depth === 0 && round === 0) messages = this.#shortcut(net, messages);
      bound = Math.max(bound, this.#ascend(net, messages, depth === 0 ? ROOT_SWEEPS : NODE_SWEEPS));
      if (depth === 0) {
        this.#rootBound = bound;
        this.#host.progress('bound', this.best?.objective ?? Infinity, bound);
      }
      if (bound >= this.#target()) {
        pruner.shift(net, messages);
        return bound;
      }
      const guide = messages.decode();
      const guideValues = guide.map((p, i) => (p < 0 ? -1 : net.pool.mapOf(net.values[i])[p]));
      const cutoff = this.#target() - 1;
      if (!pruner.prune(net, cutoff, messages) || !reducer.reduce(net, true)) return this.#target();
      if (!pruner.prune(net, cutoff) || !reducer.reduce(net, true)) return this.#target();
      bound = Math.max(bound, net.constant);
      if (this.#host.stopped()) return bound;
      if (this.#closeCore(net, cutoff, depth)) return this.#target();
      if (this.#host.stopped()) return bound;
      if (round >= MAX_ROUNDS || !tighten(net)) return Math.max(bound, this.#branch(net, guideValues, bound, depth));
      if (!reducer.reduce(net)) return this.#target();
      messages = new Messages(net);
    }
  }

  /** Exact elimination of a pruned network if it is narrow enough; true when the node is finished. */
  #closeCore(net: Network, cutoff: number, depth: number): boolean {
    const { eliminator } = this.#engines;
    const slack = cutoff === Infinity ? Infinity : cutoff - net.constant;
    const stop = this.#host.stopped;
    if (net.rows.length > 0) {
      const share = depth === 0 ? 1 : 0.05;
      const result = eliminateWithRows(net, {
        labels: LABELS.labels,
        work: LABELS.work * share,
        slack,
        stop,
      });
      if (result.status === 'found') this.#offerAt(net, result.at);
      if (result.status !== 'wide') net.log.push(STEP.pareto);
      return result.status !== 'wide';
    }
    const core = net.clone();
    const status = eliminator.run(core, { ...(depth === 0 ? CORE : NODE), slack, stop });
    if (status === 'done') this.#offerAt(core, new Int32Array(core.count));
    if (status === 'done' || status === 'infeasible') net.log.absorb(core.log);
    return status === 'done' || status === 'infeasible';
  }

  /** Splits the domain of one variable into its guide value and the rest. */
  #branch(net: Network, guide: Int32Array, bound: number, depth: number): number {
    const v = branchVariable(net);
    const values = net.pool.mapOf(net.values[v]);
    let preferred = values.indexOf(guide[v]);
    if (preferred < 0) preferred = 0;
    let result = Infinity;
    net.log.push(STEP.branch, v, 2);
    for (const first of [true, false]) {
      const child = net.clone();
      const keep = net.pool.map(Int32Array.from(values.keys()).filter((p) => (p === preferred) === first));
      child.restrict(v, keep);
      let sub: number;
      if (this.#host.stopped()) sub = bound;
      else if (!this.#prepare(child)) sub = Infinity;
      else sub = this.#explore(child, new Messages(child), bound, depth + 1);
      result = Math.min(result, sub);
      net.log.push(STEP.part, keep);
      net.log.absorb(child.log);
      net.log.push(STEP.end);
    }
    return result;
  }

  /** Price search on the rows, then pruning and Pareto elimination at the best prices. */
  #solveRows(net: Network): number {
    const state = new Messages(net);
    const caps = net.rows.map((_, r) => largestPrice(net, r));
    const trial = (wanted: readonly bigint[], sweeps: number): Trial => {
      const prices = wanted.map((price, r) => (price > caps[r] ? caps[r] : price));
      const priced = net.clone();
      addPrices(priced, prices);
      const messages = new Messages(priced);
      messages.to.set(state.to);
      const bound = this.#ascend(priced, messages, sweeps);
      state.to.set(messages.to);
      const at = messages.decode();
      return { prices, net: priced, messages, bound, at, amounts: amountsAt(priced, at) };
    };
    const best = net.rows.length === 1 ? this.#priceOne(net, trial) : this.#priceMany(net, trial);
    this.proof = { log: best.net.log, rows: true };
    return this.#explore(best.net, best.messages, best.bound, 0);
  }

  /** One row: the price where the relaxed choice changes sides, by doubling and bisection. */
  #priceOne(net: Network, trial: (prices: readonly bigint[], sweeps: number) => Trial): Trial {
    const { bound: limit } = net.rows[0];
    let best = trial([0n], 60);
    if (best.amounts[0] <= limit) return best;
    const scale = Math.max(1, Math.abs(best.bound)) / Math.max(1, best.amounts[0]);
    let low = 0n;
    let high = BigInt(Math.max(1, Math.ceil(scale * 2 ** 20 * 2 ** -6)));
    for (let k = 0; k < 60 && !this.#host.stopped(); k++) {
      const t = trial([high], 20);
      if (t.bound > best.bound) best = t;
      if (t.amounts[0] <= limit) break;
      low = high;
      high *= 4n;
      if (high > 2n ** 50n) return best;
    }
    for (let k = 0; k < 24 && high - low > 1n && !this.#host.stopped(); k++) {
      const middle = (low + high) / 2n;
      const t = trial([middle], 20);
      if (t.bound > best.bound) best = t;
      if (t.amounts[0] <= limit) high = middle;
      else low = middle;
      if (this.best !== undefined && best.bound >= this.#target()) break;
      if (Number(high - low) < 1e-4 * Number(high)) break;
    }
    return best;
  }

  /** Several rows: projected subgradient with smoothed directions. */
  #priceMany(net: Network, trial: (prices: readonly bigint[], sweeps: number) => Trial): Trial {
    const rows = net.rows.length;
    let best = trial(
      net.rows.map(() => 0n),
      60,
    );
    const lambda = new Float64Array(rows);
    const kept = new Float64Array(rows);
    const direction = new Float64Array(rows);
    let eta = 1;
    let since = 0;
    let t = best;
    for (let k = 0; k < 120 && !this.#host.stopped(); k++) {
      if (best.bound >= this.#target()) break;
      let norm = 0;
      for (let r = 0; r < rows; r++) {
        const g = t.amounts[r] - net.rows[r].bound;
        direction[r] = 0.6 * direction[r] + 0.4 * g;
        if (lambda[r] > 0 || direction[r] > 0) norm += direction[r] ** 2;
      }
      if (norm === 0) break;
      const goal = Math.min(this.best?.objective ?? Infinity, best.bound + 0.3 * Math.abs(best.bound) + 1);
      const step = (eta * Math.max(1, goal - t.bound)) / norm;
      for (let r = 0; r < rows; r++) lambda[r] = Math.max(0, lambda[r] + step * direction[r]);
      t = trial(
        [...lambda].map((l) => BigInt(Math.round(l * 2 ** 20))),
        6,
      );
      if (t.bound > best.bound + 1e-5 * Math.abs(best.bound)) since = 0;
      else since++;
      if (t.bound > best.bound) {
        best = t;
        kept.set(lambda);
      }
      if (since >= 8) {
        eta *= 0.5;
        since = 0;
        lambda.set(kept);
        direction.fill(0);
        if (eta < 0.01) break;
      }
    }
    return best;
  }
}

/** The price beyond which the priced costs of a row could no longer be summed exactly (2^50 units, shared by all rows). */
function largestPrice(net: Network, r: number): bigint {
  const { amounts, bound } = net.rows[r];
  let most = Math.max(1, bound);
  for (let i = 0; i < net.count; i++) {
    if (amounts[i] >= 0) most += net.pool.vectorOf(amounts[i]).reduce((a, b) => Math.max(a, b), 0);
  }
  return BigInt(Math.floor(2 ** 70 / (most * net.rows.length)));
}

/** One evaluation of prices. */
interface Trial {
  readonly prices: readonly bigint[];
  readonly net: Network;
  readonly messages: Messages;
  readonly bound: number;
  readonly at: Int32Array;
  readonly amounts: readonly number[];
}

/** 1 for the variables that own an amount in some row. */
function rowVariables(net: Network): Uint8Array {
  const keep = new Uint8Array(net.count);
  for (const row of net.rows) for (let i = 0; i < net.count; i++) if (row.amounts[i] >= 0) keep[i] = 1;
  return keep;
}

/**
 * Fuses edges that lie in a triangle and have few finite pairs, each variable at most once; false when there is none.
 * Weak relaxations live in odd cycles: a fused variable decides two corners at once.
 */
function tighten(net: Network): boolean {
  const { pool } = net;
  const used = new Uint8Array(net.count);
  const candidates: { readonly id: number; readonly pairs: number }[] = [];
  for (let id = 0; id < net.factors.length; id++) {
    const f = net.factors[id];
    if (f === undefined) continue;
    const [u, v] = f.vars;
    const pairs = finitePairs(pool.mapOf(f.maps[0]), pool.mapOf(f.maps[1]), f.table);
    const larger = Math.max(net.size[u], net.size[v]);
    if (pairs > MAX_FUSED || pairs > 6 * larger || !inTriangle(net, u, v)) continue;
    candidates.push({ id, pairs });
  }
  candidates.sort((a, b) => a.pairs - b.pairs || a.id - b.id);
  let any = false;
  for (const { id } of candidates) {
    const f = net.factors[id];
    if (f === undefined) continue;
    const [u, v] = f.vars;
    if (u >= used.length || v >= used.length || used[u] === 1 || used[v] === 1) continue;
    used[u] = 1;
    used[v] = 1;
    net.fuse(id);
    any = true;
  }
  return any;
}

const MAX_FUSED = 600;

function finitePairs(a: Int32Array, b: Int32Array, table: Table): number {
  const [rows, columns] = table.dims;
  const x = new Int32Array(rows);
  const y = new Int32Array(columns);
  for (const c of a) if (c >= 0) x[c]++;
  for (const c of b) if (c >= 0) y[c]++;
  let pairs = 0;
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) if (table.cells[r * columns + c] !== Infinity) pairs += x[r] * y[c];
  }
  return pairs;
}

function inTriangle(net: Network, u: number, v: number): boolean {
  const near = new Set<number>();
  for (const id of net.incident[u]) for (const w of net.factors[id]?.vars ?? []) if (w !== u && w !== v) near.add(w);
  for (const id of net.incident[v]) for (const w of net.factors[id]?.vars ?? []) if (near.has(w)) return true;
  return false;
}

/** The variable with the most neighbours, then values: deciding it cuts the network best. */
function branchVariable(net: Network): number {
  let best = -1;
  let score = -1;
  for (let i = 0; i < net.count; i++) {
    if (net.gone[i] === 1 || net.size[i] < 2) continue;
    const s = net.incident[i].length * 1000 + net.size[i];
    if (s > score) {
      score = s;
      best = i;
    }
  }
  if (best < 0) throw new Error('internal: nothing to branch on');
  return best;
}
