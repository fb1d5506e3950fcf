/**
 * Searches by branch and bound: presolve, eliminate the easy variables, raise the bound (TRW-S),
 * fix by reduced cost, eliminate the core; branch only where the core is still too large. Every
 * node is the same function of a network; rows take part as prices (Lagrange multipliers) first and
 * as Pareto labels at the end. A host evaluates the choices. The answer is the best choice, a lower
 * bound, and the proof log behind it.
 */
import { ascend, type AscentLimits } from '../dual/ascent.ts';
import type { MultiplierHost } from '../dual/multipliers.ts';
import { evaluatePositions } from '../dual/rounding.ts';
import { Trws } from '../dual/trws.ts';
import type { Network } from '../network/network.ts';
import { type Log, STEP } from '../network/proof-log.ts';
import { addPrices, amountsAt, dropRows } from '../network/rows.ts';
import { gapOf } from '../problem/cost.ts';
import { branchVariable, fuseTriangles } from '../reduce/fuse.ts';
import type { StepName } from '../types.ts';
import { closeCore } from './close-core.ts';
import { ASCENT, PARETO, SEARCH } from './limits.ts';
import { type FoldedHost, startFromFolded } from './primal/folded-start.ts';
import { Fusion } from './primal/fusion-moves.ts';
import { type GapHost, searchWithinGap } from './primal/gap-restricted.ts';
import { presolve, PresolveMemo, type ReducedNetwork } from './reduced-network.ts';
import { type Priced, priceRows } from './row-prices.ts';
import type { Incumbent, SearchHost } from './search-host.ts';
import { either, type StepState, valuesOf } from './steps.ts';
import type { Workspace } from './workspace.ts';

const REDUCED = either('reduced', 'no choice is left');

/** A network that is being explored, and what its rounds have come to. */
interface SearchNode {
  readonly net: Network;
  readonly depth: number;
  readonly small: boolean;
  round: number;
  messages: Trws;
  bound: number;
  /** True while the blocks of the network may still repeat. */
  repeats: boolean;
  /** Values left after the last round. */
  values: number;
}

export class Search {
  private readonly host: SearchHost;
  private readonly workspace: Workspace;
  best: Incumbent | undefined;
  nodes = 0;
  /**
   * The steps behind the last bound of `solve`, and whether they are about the problem with its
   * rows.
   */
  proof: { readonly log: Log; readonly rows: boolean } | undefined;
  private rootBound = -Infinity;
  private slack = 0;
  /** Cells of all networks below the root. */
  private branched = 0;

  constructor(host: SearchHost, workspace: Workspace) {
    this.host = host;
    this.workspace = workspace;
  }

  /** Proposes a full choice as incumbent. */
  propose(choice: Int32Array): void {
    const objective = this.host.evaluate(choice, true);
    if (objective === Infinity || (this.best !== undefined && objective >= this.best.objective))
      return;
    this.best = { objective, choice };
    this.host.progress('incumbent', objective, this.rootBound);
  }

  /**
   * A bound at least this large ends the search: a better choice would cost less by the slack at
   * most.
   */
  private target(): number {
    if (this.best === undefined) return Infinity;
    const { objective } = this.best;
    return Math.ceil(objective - Math.max(this.slack, this.host.gap * Math.abs(objective)));
  }

  /**
   * Proves a lower bound on all choices of the network (its rows included) and finds the best ones
   * on the way: the returned number is at least the target unless the clock ran out. Infinity with
   * no incumbent means that there is no choice.
   *
   * @param priceFirst whether the price of the only row is looked for at once, because the row is
   * known to bind or a repeated network makes a price cheap to find, instead of first asking what
   * holds without rows
   * @param presolved what is known of the network with these rows under other bounds
   */
  solve(net: Network, priceFirst = false, presolved = new PresolveMemo()): number {
    this.slack = net.slack;
    if (net.rows.length === 0) {
      this.proof = { log: net.log, rows: false };
      if (!this.prepare(net)) return Infinity;
      return this.explore(net, new Trws(net), -Infinity, 0);
    }
    const relaxed =
      priceFirst && net.rows.length === 1
        ? -Infinity
        : this.withoutRows(net.clone(), (search, free) => search.solve(free));
    if (relaxed >= this.target() || this.host.stopped()) return relaxed;
    this.proof = { log: net.log, rows: true };
    const state = (found?: ReducedNetwork): StepState => ({
      net: found?.net ?? net,
      ...REDUCED(found !== undefined),
    });
    const { stopped } = this.host;
    const reduced = this.step(
      'presolve',
      net,
      () => presolved.reduced(net, this.workspace, stopped),
      state,
    );
    if (reduced === undefined) return Infinity;
    this.proof = { log: reduced.net.log, rows: true };
    return Math.max(relaxed, this.solveRows(reduced));
  }

  /**
   * `solve` for a network whose row prices (units of 2^-20) are known from elsewhere: no search for
   * them.
   */
  solvePriced(net: Network, prices: readonly bigint[]): number {
    this.slack = net.slack;
    this.proof = { log: net.log, rows: true };
    if (!this.prepare(net)) return Infinity;
    addPrices(net, prices);
    return this.explore(net, new Trws(net), -Infinity, 0);
  }

  /**
   * Bound (normally the optimum) of a network without its rows; its choices are proposed to the
   * full problem too.
   */
  private withoutRows(free: Network, ask: (search: Search, free: Network) => number): number {
    dropRows(free);
    const { enough: _, ...others } = this.host;
    const host: SearchHost = {
      ...others,
      evaluate: (choice) => {
        this.propose(choice);
        return this.host.evaluate(choice, false);
      },
    };
    const search = new Search(host, this.workspace);
    search.slack = this.slack;
    search.proof = { log: free.log, rows: false };
    const bound = this.step(
      'without rows',
      free,
      () => ask(search, free),
      (b) => ({ outcome: 'done', bound: b }),
    );
    this.nodes += search.nodes;
    this.proof = search.proof;
    return bound;
  }

  /** Reduction and easy eliminations; false when nothing is left. */
  private prepare(net: Network): boolean {
    return this.step(
      'presolve',
      net,
      () => presolve(net, this.workspace, this.host.stopped),
      REDUCED,
    );
  }

  private proposeAt(net: Network, at: Int32Array): void {
    const cost = evaluatePositions(net, at);
    if (cost === Infinity) return;
    // With prices a choice that keeps the rows costs no less than its positions do here.
    if (net.rows.length > 0 && this.best !== undefined && cost >= this.best.objective) return;
    // A choice that breaks a row here breaks it when it is completed, too.
    if (amountsAt(net, at).some((amount, r) => amount > net.rows[r].bound)) return;
    this.propose(net.complete(at));
  }

  /**
   * Sweeps until the rest of the gap no longer shrinks, the target is reached or the clock stops;
   * returns the best bound.
   */
  private ascend(net: Network, messages: Trws, limits: AscentLimits, isRoot = false): number {
    const { sweeps } = messages;
    const outcome = (bound: number): StepState => ({
      outcome: `${messages.sweeps - sweeps} sweeps`,
      bound,
    });
    return this.step('ascent', net, () => this.sweepUp(net, messages, limits, isRoot), outcome);
  }

  private sweepUp(net: Network, messages: Trws, limits: AscentLimits, isRoot: boolean): number {
    const before = messages.steps;
    const fusion =
      isRoot && net.rows.length === 0 && net.cells >= SEARCH.smallCells
        ? new Fusion(net, this.workspace)
        : undefined;
    const bound = ascend(messages, {
      ...limits,
      propose: (at) => {
        this.proposeAt(net, at);
        fusion?.add(at, (found) => this.proposeAt(net, found));
      },
      target: () => this.target(),
      enough: () => this.enoughBound(),
      stopped: this.host.stopped,
      ...(isRoot && net.rows.length === 0
        ? { onStall: (reached: number) => this.searchWithinGap(net, messages, reached) }
        : {}),
    });
    this.workspace.meter.spend({ messageSteps: messages.steps - before });
    return bound;
  }

  /**
   * Explores a reduced pairwise network; returns a bound that is at least the target unless the
   * clock stopped.
   *
   * @param converged whether the messages to start from are those of sweeps that gained nothing any
   *   more
   */
  private explore(
    net: Network,
    start: Trws,
    inherited: number,
    depth: number,
    converged = false,
  ): number {
    this.nodes++;
    if (depth > 0) this.branched += net.cells;
    const node: SearchNode = {
      net,
      depth,
      small: net.cells < SEARCH.smallCells,
      round: 0,
      messages: start,
      bound: inherited,
      repeats: depth === 0 && net.rows.length === 0,
      values: valuesOf(net),
    };
    for (; ; node.round++) {
      if (!net.gone.includes(0)) {
        this.proposeAt(net, new Int32Array(net.count));
        return Math.max(node.bound, net.constant);
      }
      const end = this.exploreRound(node, node.round > 0 || !converged);
      if (end !== undefined) return end;
    }
  }

  /**
   * One round of a node: sweeps, fixing, then another round of the smaller network, or its end. The
   * bound of the node, or undefined where another round follows.
   */
  private exploreRound(node: SearchNode, sweeps: boolean): number | undefined {
    const { net, depth, round } = node;
    const limits = this.sweepLimits(node);
    const reached = node.bound;
    if (sweeps)
      node.bound = Math.max(node.bound, this.ascend(net, node.messages, limits, depth === 0));
    if (depth === 0) {
      this.rootBound = node.bound;
      this.host.progress('bound', this.best?.objective ?? Infinity, node.bound);
      if (this.isEnough(node.bound)) return this.provenEnough(node);
    }
    // A bound at the target is no end yet: sweeps round, and only what the pruned network says can
    // be replayed.
    const guide = node.messages.decode();
    const guideValues = guide.map((p, i) => (p < 0 ? -1 : net.pool.mapOf(net.values[i])[p]));
    if (round === 0 && depth === 0 && net.rows.length > 0)
      this.searchWithinGap(net, node.messages, node.bound);
    const cutoff = this.target() - 1;
    if (!this.fixBelow(net, cutoff, node.messages)) return this.target();
    node.bound = Math.max(node.bound, net.constant);
    if (this.isOver()) return node.bound;
    if (!this.fixByExpensiveStart(node)) return this.target();
    const stuck = this.isStuck(node, reached);
    const before = node.values;
    node.values = valuesOf(net);
    // Sweeps of a smaller network cost less and say more.
    if (
      depth === 0 &&
      !node.small &&
      !stuck &&
      round < SEARCH.rounds &&
      node.values <= (1 - SEARCH.worthwhile) * before
    ) {
      node.messages = new Trws(net);
      return undefined;
    }
    if (this.closeCore(net, cutoff, depth)) return this.target();
    if (this.isOver() || stuck || this.isTooWide(node)) return node.bound;
    return this.fuseOrBranch(node, guideValues);
  }

  /** How long the sweeps of a round go on. Where blocks repeat, messages start from folded ones. */
  private sweepLimits(node: SearchNode): AscentLimits {
    const { net, depth, messages } = node;
    const limits = depth === 0 ? ASCENT.root : ASCENT.branch;
    if (!node.repeats) return limits;
    const start = (): Trws | undefined =>
      startFromFolded(net, messages, this.foldedHost(net), ASCENT.patient);
    const spread = this.step('fold', net, start, (found) => ({
      outcome: found ? 'spread' : 'nothing repeats',
    }));
    node.repeats = spread !== undefined;
    if (spread === undefined) return node.round === 0 && !node.small ? ASCENT.patient : limits;
    // Every sweep of the long network breaks the symmetry of one more block at each end, and
    // unequal blocks no longer share their memos.
    node.messages = spread;
    return ASCENT.settling;
  }

  /**
   * The bound of a root whose gap is small enough. It is replayed from the log: nothing costs less
   * than it.
   */
  private provenEnough({ net, bound, messages }: SearchNode): number {
    const proven = Math.min(bound, this.best?.objective ?? Infinity);
    if (this.host.certifies === true) this.workspace.fixing.fix(net, proven - 1, messages);
    return proven;
  }

  /** Fixes below the expensive start of a large root; false when nothing costs less. */
  private fixByExpensiveStart({ net, depth, round }: SearchNode): boolean {
    const isLargeRoot =
      depth === 0 && round === 0 && net.rows.length === 0 && net.cells > SEARCH.expensiveStartCells;
    if (!isLargeRoot || !this.tryExpensiveStart(net)) return true;
    const { fixing, reducer } = this.workspace;
    return fixing.fix(net, this.target() - 1) && reducer.reduce(net, true, () => this.isOver());
  }

  /**
   * Where sweeps of a wide network that fixing had made smaller closed next to nothing of the gap,
   * it is eliminated, or kept.
   */
  private isStuck({ net, depth, round, bound }: SearchNode, reached: number): boolean {
    return (
      round > 0 &&
      depth === 0 &&
      net.rows.length > 0 &&
      net.cells > SEARCH.wideCells &&
      bound - reached < SEARCH.leastGain * (this.target() - reached)
    );
  }

  /** Nobody limits the search, and branches of so wide a network would take hours. */
  private isTooWide({ net, depth, round }: SearchNode): boolean {
    return (
      depth === 0 &&
      this.host.isEndless === true &&
      round >= SEARCH.wideRounds &&
      net.cells > SEARCH.wideCells
    );
  }

  /** Fuses triangles for another round, or branches and returns the bound. */
  private fuseOrBranch(node: SearchNode, guideValues: Int32Array): number | undefined {
    const { net, depth, round, bound } = node;
    const fuse = (): boolean => fuseTriangles(net);
    if (round < SEARCH.rounds && this.step('fusing', net, fuse, either('fused', 'no triangle'))) {
      if (!this.workspace.reducer.reduce(net)) return this.target();
      node.messages = new Trws(net);
      return undefined;
    }
    const root = depth === 0 ? net.log.clone() : undefined;
    const branched = Math.max(bound, this.branch(net, guideValues, bound, depth));
    if (root === undefined || this.proof === undefined || !this.isOver()) return branched;
    // Branches cut short say nothing of the whole, and to replay them takes as long as they took.
    this.proof = { ...this.proof, log: root };
    return bound;
  }

  /**
   * Reduced-cost fixing and presolve, with the messages and once more without; false when nothing
   * costs less than the cutoff.
   */
  private fixBelow(net: Network, cutoff: number, messages: Trws): boolean {
    const { fixing, reducer } = this.workspace;
    const both = (m?: Trws): boolean =>
      fixing.fix(net, cutoff, m) && reducer.reduce(net, true, () => this.isOver());
    return this.step(
      'fixing',
      net,
      () => both(messages) && both(),
      either('some are left', 'nothing costs less'),
    );
  }

  /** Runs a step and tells what it came to. */
  private step<T>(
    name: StepName,
    net: Network,
    run: () => T,
    outcome: (result: T) => StepState,
    isWhole = false,
  ): T {
    const state = (result: T): StepState => ({
      net,
      cost: this.best?.objective ?? Infinity,
      ...outcome(result),
    });
    return this.workspace.steps[isWhole ? 'runWhole' : 'run'](name, run, state);
  }

  /**
   * A bound with which the caller could live. One that is to be replayed is printed, and worth its
   * sweeps.
   */
  private enoughBound(): number {
    const { enough, certifies } = this.host;
    if (enough === undefined || certifies === true || this.best === undefined) return Infinity;
    return this.best.objective - enough * Math.abs(this.best.objective);
  }

  /** Tells whether the gap is one with which the caller could live. */
  private isEnough(bound: number): boolean {
    const { enough } = this.host;
    return (
      enough !== undefined && this.best !== undefined && gapOf(this.best.objective, bound) <= enough
    );
  }

  /**
   * The clock stopped the search, or branches have taken what is reasonable where nobody limits
   * them.
   */
  private isOver(): boolean {
    return (
      this.host.stopped() || (this.host.isEndless === true && this.branched > SEARCH.branchedCells)
    );
  }

  /** Proposes the expensive start; whether it is better than the incumbent. */
  private tryExpensiveStart(net: Network): boolean {
    const before = this.target();
    const start = (): boolean => {
      const choice = this.host.expensiveStart?.();
      if (choice !== undefined) this.propose(choice);
      return this.target() < before;
    };
    return this.step('tied blocks', net, start, either('a better choice', 'none better'), true);
  }

  private searchWithinGap(net: Network, messages: Trws, bound: number): void {
    const { fixing, reducer, eliminator } = this.workspace;
    const before = this.best;
    const host: GapHost = {
      fixing,
      reducer,
      eliminator,
      target: () => this.target(),
      propose: (at) => this.proposeAt(net, at),
      stopped: this.host.stopped,
      labels: {
        most: PARETO.labels,
        work: () => Math.min(PARETO.work, this.host.workLeft?.() ?? Infinity),
        spent: (work) => this.workspace.meter.spend({ labels: work }),
        searchesWide: this.host.searchesWide === true,
      },
    };
    const search = (): boolean => {
      searchWithinGap(net, messages, bound, host);
      return this.best !== before;
    };
    this.step('gap search', net, search, either('a better choice', 'none better'));
  }

  /**
   * Exact elimination of a pruned network if it is narrow enough; true when the node is finished.
   */
  private closeCore(net: Network, cutoff: number, depth: number): boolean {
    const slack = cutoff === Infinity ? Infinity : cutoff - net.constant;
    const limits = {
      slack,
      stopped: this.host.stopped,
      workLeft: this.host.workLeft?.() ?? Infinity,
    };
    const name = net.rows.length > 0 ? 'pareto elimination' : 'elimination';
    const close = (): boolean =>
      closeCore(net, this.workspace, { ...limits, isRoot: depth === 0 }, (core, at) =>
        this.proposeAt(core, at),
      );
    return this.step(name, net, close, either('closed', 'too large'));
  }

  /** Splits the network in two and explores both parts, which are reported as one step. */
  private branch(net: Network, guide: Int32Array, bound: number, depth: number): number {
    const before = this.nodes;
    const outcome = (reached: number): StepState => ({
      outcome: `${this.nodes - before} nodes`,
      bound: reached,
    });
    return this.step(
      'branching',
      net,
      () => this.explorePartsOf(net, guide, bound, depth),
      outcome,
      true,
    );
  }

  /** Splits the domain of one variable into its guide value and the rest. */
  private explorePartsOf(net: Network, guide: Int32Array, bound: number, depth: number): number {
    const v = branchVariable(net);
    const values = net.pool.mapOf(net.values[v]);
    let preferred = values.indexOf(guide[v]);
    if (preferred < 0) preferred = 0;
    let result = Infinity;
    net.log.push(STEP.branch, v, 2);
    for (const first of [true, false]) {
      const child = net.clone();
      const keep = net.pool.map(
        Int32Array.from(values.keys()).filter((p) => (p === preferred) === first),
      );
      child.restrict(v, keep);
      let sub: number;
      if (this.isOver()) sub = bound;
      else if (!this.prepare(child)) sub = Infinity;
      else sub = this.explore(child, new Trws(child), bound, depth + 1);
      result = Math.min(result, sub);
      net.log.push(STEP.part, keep);
      net.log.absorb(child.log);
      net.log.push(STEP.end);
    }
    return result;
  }

  /** Price search on the rows, then pruning and Pareto elimination at the best prices. */
  private solveRows(reduced: ReducedNetwork): number {
    const { net } = reduced;
    const outcome = (found: Priced | number): StepState =>
      typeof found === 'number'
        ? { outcome: 'the rows do not bind', bound: found }
        : { outcome: `${net.rows.length} priced`, bound: found.best.bound };
    const priced = this.step('multipliers', net, () => this.priceRows(reduced), outcome);
    if (typeof priced === 'number') return priced;
    const { best, converged } = priced;
    this.proof = { log: best.net.log, rows: true };
    return this.explore(best.net, best.messages, best.bound, 0, converged);
  }

  private priceRows(reduced: ReducedNetwork): Priced | number {
    const { net } = reduced;
    return priceRows(reduced, {
      ...this.prices(),
      ascend: (priced, messages, limits) => this.ascend(priced, messages, limits),
      folded: this.foldedHost(net),
      withoutRows: (messages) =>
        this.withoutRows(net.clone(), (search, free) =>
          search.explore(free, messages(free), -Infinity, 0),
        ),
    });
  }

  /** The host that takes the results of work on a folded network. */
  private foldedHost(net: Network): FoldedHost {
    return {
      propose: (at) => this.proposeAt(net, at),
      stopped: this.host.stopped,
      gap: this.host.gap,
      spent: (steps) => this.workspace.meter.spend({ messageSteps: steps }),
      workspace: this.workspace,
    };
  }

  private prices(): MultiplierHost {
    return {
      stopped: this.host.stopped,
      target: () => this.target(),
      objective: () => this.best?.objective ?? Infinity,
      gap: this.host.gap,
    };
  }
}
