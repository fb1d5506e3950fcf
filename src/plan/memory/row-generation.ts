import { internalError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { narrowPoints } from '../../passes/checkpoint/policies.ts';
import { runsAgain } from '../../passes/checkpoint/repeatable.ts';
import { metaBytes } from '../../ops/record/record.ts';
import { NoChoiceInTime, solve } from '../../solver/solve.ts';
import type { LinearRow, Problem, Solution } from '../../solver/types.ts';
import type { CompactProblem } from '../../solver/problem/restrict.ts';
import { Deadline } from '../request/deadline.ts';
import { Follower, type FittingPlan } from './evaluate-choice.ts';
import { fatesOf, jointProblem, type Fates, type JointProblem } from './remat-problem.ts';
import { livenessOf, type Liveness } from './liveness.ts';
import { amountsAt, type Fate, type MomentAmounts } from './peak-rows.ts';
import { Cuts } from './heuristic-cuts.ts';
import type { Prepared } from '../prepare.ts';
import { gapWithin, isGapGiven } from '../request/request.ts';
import { fixedStrategies, restrictRows, whole, withRowAsCost } from './restrict-remat.ts';
import { Transients } from './transients.ts';
import type { FirstStage, WithinMemory, WithinOptions } from './types.ts';
import { AGAIN_WHEN_ASKED, gapOnTheWay, WORK_GROWTH, workOn } from '../request/work-limits.ts';

/**
 * Plans whose memory over time stays within the budget, with or without recomputation. The peak of a plan is known only
 * when the plan is, so moments enter the problem as they are found: solve, follow the memory of the answer, add the moment
 * of its peak as a row, solve again. What one decision alone cannot hold within the budget is taken out beforehand. Where
 * the rows hold and the true peak still is over (copies on the way, which no single variable knows), large copies are left
 * out of the search, and else that row's bound is lowered by the excess; bounds on the seconds always come from rows at the
 * full budget and from all that may fit, so they stay true.
 *
 * Every problem on the way may take so much work and no more, counted in steps, not seconds, so that the same request has the
 * same answer everywhere. Where somebody gave a gap and that leaves it open, bound and search are asked again with more of it,
 * twice at most.
 */

/** Shares of the budget that the states may take in the first of two stages, tried in this order. */
const STATE_SHARES = [1, 0.5, 0.25, 0.125];
/** Largest program, in nodes, for which the joint search also asks for two stages with less than the whole budget. */
const TIGHT_NODES = 4000;
/** Rounds of solving and following. */
const ROUNDS = 12;
/** Results below this share of the budget are kept. */
const SMALL_SHARE = 2 ** -14;
/** What a bound is lowered by beside the excess, per round, as a share of the budget. */
const ROUND_SHARE = 2 ** -12;
/** Rows at a time: the price search of one row is far quicker than of several. */
const MOST_ROWS = 2;
/** Copies of this share of the budget are left out where they stand in the way; smaller excesses tighten a row. */
const LARGE_COPY = 1 / 32;
/** An excess of this share of the budget that no row knows is a chain of second runs: tighter rows do not help. */
const CHAIN_EXCESS = 1 / 8;
/** Narrow points between two that are kept for certain, tried in this order. */
const ANCHORS_EVERY = [1, 2, 4, 8, 16, 32];
/** Times that anchors are moved onto what the node at the peak reads. */
const ANCHOR_MOVES = 1;
const KEPT: readonly Fate[] = ['keep'];

/** What a search may choose among. */
interface Scope {
  /** What of the joint problem may be chosen. */
  readonly restrict: (joint: JointProblem) => CompactProblem;
  /** Whether copies on the way may be left out of the search to make room. */
  readonly mayLimit: boolean;
  /** Nodes whose results are kept for certain. */
  readonly anchors?: Uint8Array;
}

/** A plan that fits, and the choice of the whole joint problem that it came from. */
interface Fitted {
  readonly plan: FittingPlan;
  /** Absent where only a part of the joint problem was asked. */
  readonly choice?: Int32Array;
}

type Proven = Pick<WithinMemory, 'boundSeconds' | 'certified' | 'proof'>;

/**
 * @param prepared the request, prepared for the graph without recomputation
 * @param reprepare prepares the same request for a graph with second runs
 */
export function planWithin(
  prepared: Prepared,
  firstStage: FirstStage,
  reprepare: (graph: Graph) => Prepared,
  options: WithinOptions,
): Promise<WithinMemory> {
  return new MemorySearch(prepared, reprepare, options).run(firstStage);
}

/**
 * The problem that the bound under a budget over time is proven on, for whoever checks the proof.
 *
 * @param moments nodes at whose moments memory is a row
 */
export function boundProblemWithin(prepared: Prepared, moments: readonly number[], recompute: boolean): Problem {
  const reprepare = (): Prepared => {
    throw internalError('a bound has no second runs');
  };
  return new MemorySearch(prepared, reprepare, { recompute, mode: 'joint' }).boundProblem(moments);
}

class MemorySearch {
  private readonly live: Liveness;
  private readonly fates: Fates;
  private readonly chosen: Uint8Array;
  private readonly amounts = new Map<number, readonly MomentAmounts[]>();
  private readonly transients: Transients;
  private readonly follower: Follower;
  private readonly deadline: Deadline;
  /** What one decision may hold at a moment beside the states of any plan. */
  private readonly mostHeldBytes: number;
  private rounds = 0;
  /** Share of the usual work that a problem may take. */
  private workShare = 1;
  /** Whether a problem was left open because its work was done. */
  private isCutShort = false;
  /** Moment that no choice of the last `fit` holds within the budget; -1 where every one can be held alone. */
  private unmet = -1;
  private readonly gap: number;

  constructor(
    private readonly prepared: Prepared,
    reprepare: (graph: Graph) => Prepared,
    private readonly options: WithinOptions,
  ) {
    const { model, table } = prepared;
    const { graph, flow } = model;
    this.live = livenessOf(model, table);
    this.gap = gapWithin(prepared.request);
    this.follower = new Follower(prepared, reprepare, this.live);
    this.deadline = options.deadline ?? new Deadline(prepared.request.timeLimitSeconds);
    this.transients = new Transients(model, this.live);
    this.mostHeldBytes = prepared.budgetBytes - this.transients.leastStates();
    this.chosen = new Uint8Array(graph.nodes.length);
    const canRunAgain = (n: number): boolean =>
      graph.nodes[n].meta.save !== 'save' && runsAgain(graph.nodes[n].target, table.get(graph.nodes[n].target));
    this.fates = options.recompute
      ? fatesOf(
          model,
          this.live,
          (value) => metaBytes(flow.values[value].meta),
          prepared.budgetBytes * SMALL_SHARE,
          canRunAgain,
        )
      : new Map();
    for (const n of this.fates.keys()) this.chosen[n] = 1;
  }

  async run(firstStage: FirstStage): Promise<WithinMemory> {
    const { prepared, options } = this;
    // Every decision, those too large for this budget too: what is asked is how large a budget must be.
    const joint = jointProblem(prepared.model, prepared.compact, this.fates, 'as placed', this.live);
    const free = await firstStage(1);
    if (free === undefined) throw internalError('no first stage for the whole budget');
    const first = this.follower.plain(free).moment;
    const moments = [first];
    // What plain two stages find is an answer of the joint problem too. Tight ones are a search of their own: joint asks for
    // them where the plain ones find nothing or its own answer is not proven good enough, so that on programs of up to
    // `TIGHT_NODES` nodes it is never worse than sharding first.
    const joins = options.mode === 'joint';
    let stage = options.recompute
      ? await this.twoStage(firstStage, first, joins ? STATE_SHARES.slice(0, 1) : STATE_SHARES)
      : undefined;
    let found = joins ? await this.search(moments, first, stage?.choice) : undefined;
    let proven = await this.bound(moments, found?.plan.seconds);
    const best = (): FittingPlan | undefined => quicker(found, stage)?.plan;
    const small = prepared.model.graph.nodes.length <= TIGHT_NODES;
    if (joins && options.recompute && small && (stage === undefined || !this.isGood(best(), proven)))
      stage = quicker(stage, await this.twoStage(firstStage, first, STATE_SHARES.slice(1), best()?.seconds));
    const most = joins && isGapGiven(prepared.request) ? AGAIN_WHEN_ASKED : 0;
    const isOpen = (): boolean => this.isCutShort && !this.isGood(best(), proven) && !this.deadline.isOver;
    for (let k = 1; k <= most && isOpen(); k++) {
      this.workShare = WORK_GROWTH ** k;
      this.isCutShort = false;
      const sharper = await this.bound(moments, best()?.seconds);
      if (sharper.boundSeconds > proven.boundSeconds) proven = sharper;
      if (!this.isGood(best(), proven))
        found = quicker(found, await this.search(moments, first, (found ?? stage)?.choice));
    }
    const plan = best();
    return {
      plan,
      twoStage: stage?.plan,
      ...proven,
      boundSeconds: Math.min(proven.boundSeconds, plan?.seconds ?? Infinity),
      rounds: this.rounds,
      isOutOfTime: this.deadline.isOver,
      ...(plan === undefined ? await this.least(joint, moments) : {}),
    };
  }

  /** Whether a plan is within the gap asked for of the bound. */
  private isGood(plan: FittingPlan | undefined, { boundSeconds }: Proven): boolean {
    return plan === undefined ? boundSeconds === Infinity : plan.seconds * (1 - this.gap) <= boundSeconds;
  }

  /** Placements and second runs at once. */
  private async search(moments: number[], first: number, start: Int32Array | undefined): Promise<Fitted | undefined> {
    const restrict = ({ problem }: JointProblem): CompactProblem => whole(problem);
    const found = await this.fit({ restrict, mayLimit: true }, moments, start === undefined ? [] : [start]);
    // Where much runs again, long chains of second runs hold more than rows know: points of the program that are kept for
    // certain bound them. Denser points hold more themselves.
    for (const every of found === undefined && this.options.recompute ? ANCHORS_EVERY : []) {
      let anchors = this.anchorsEvery(every);
      if (anchors === undefined) break;
      for (let k = 0; k <= ANCHOR_MOVES && anchors !== undefined && !this.deadline.isOver; k++) {
        const anchored = await this.fit({ restrict, mayLimit: true, anchors }, [first], []);
        // Its choice is one of the problem with anchors.
        if (anchored !== undefined) return { plan: anchored.plan };
        anchors = this.unmet < 0 ? undefined : this.movedToReadsOf(this.unmet, anchors);
      }
    }
    return found;
  }

  /** Sharding first, under less and less of the budget for the states, then checkpointing in those placements. */
  private async twoStage(
    firstStage: FirstStage,
    moment: number,
    shares: readonly number[],
    /** Plans of as many seconds are there already: placements that take them without second runs need not be looked at. */
    knownSeconds = Infinity,
  ): Promise<Fitted | undefined> {
    for (const share of shares) {
      if (this.deadline.isOver) break;
      const full = await firstStage(share);
      const placed = full === undefined ? undefined : this.prepared.compact.contract(full);
      if (full === undefined || placed === undefined) continue;
      if (this.follower.plain(full).plan.seconds >= knownSeconds) continue;
      const found = await this.fit(
        { restrict: (joint) => fixedStrategies(joint, placed), mayLimit: false },
        [moment],
        [],
      );
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /**
   * Solves and follows until the true peak is within the budget. Adds the moments that it needs to `moments`.
   */
  private async fit(
    { restrict, mayLimit, anchors }: Scope,
    moments: number[],
    starts: readonly Int32Array[],
  ): Promise<Fitted | undefined> {
    const { budgetBytes } = this.prepared;
    const cuts = new Cuts();
    this.unmet = -1;
    let offered = starts;
    let joint = this.jointWithin(cuts.copyBytes, 'as placed', anchors);
    let restricted = restrict(joint);
    let least = new Map<number, number>();
    for (let round = 0; round < ROUNDS && !this.deadline.isOver; round++) {
      this.rounds++;
      if (cuts.limitChanged) {
        joint = this.jointWithin(cuts.copyBytes, 'as placed', anchors);
        restricted = restrict(joint);
        least = new Map();
      }
      const rows = moments.map((m) =>
        joint.row(this.amountsOf(m, anchors), this.rowName(m), budgetBytes - cuts.slackAt(m)),
      );
      const solution = await this.solveRows(restricted, rows, moments, least, offered);
      offered = [];
      if (solution === undefined) {
        if (!cuts.retreat()) return undefined;
        continue;
      }
      const choice = restricted.expand(solution.choice);
      const { plan, moment: at, copyBytes } = this.follower.joint(joint, choice);
      if (plan.peakBytes <= budgetBytes) return { plan, choice };
      const excess = plan.peakBytes - budgetBytes;
      const usedAt = (m: number): number => {
        const row = joint.row(this.amountsOf(m, anchors), '', budgetBytes);
        return row.variables.reduce((sum, v, k) => sum + row.amounts[k][choice[v]], 0);
      };
      const used = usedAt(at);
      const isNew = !moments.includes(at) && moments.length < MOST_ROWS;
      const chain = anchors === undefined && mayLimit && plan.again.length > 0 && excess > budgetBytes * CHAIN_EXCESS;
      if (chain && used <= budgetBytes) return undefined;
      if (isNew) moments.push(at);
      if (isNew && used > budgetBytes) cuts.added();
      else if (chain) return undefined;
      else if (!mayLimit || copyBytes < budgetBytes * LARGE_COPY || !cuts.limit(copyBytes)) {
        // The row of the peak, or the one that uses most of the budget, answers for what no row counts. What the choice left
        // free of it goes first, or else the next answer would be the same. A little more every round, so that small
        // excesses do not take many.
        const m = moments.includes(at) ? at : moments[0];
        const freeBytes = Math.max(0, budgetBytes - cuts.slackAt(m) - usedAt(m));
        cuts.slack(m, freeBytes + excess + 1 + round * budgetBytes * ROUND_SHARE);
      }
    }
    return undefined;
  }

  /** A choice that keeps the rows; undefined when there is none. */
  private async solveRows(
    restricted: CompactProblem,
    rows: readonly LinearRow[],
    moments: readonly number[],
    least: Map<number, number>,
    starts: readonly Int32Array[],
  ): Promise<Solution | undefined> {
    const own = restrictRows(rows, restricted);
    // Asked first, because the solver explains at length why a row cannot be kept.
    for (let k = 0; k < own.length; k++) {
      const known = least.get(moments[k]) ?? (await this.leastOf(restricted.problem, own[k]));
      least.set(moments[k], known);
      if (known > own[k].bound) {
        if (known > this.prepared.budgetBytes) this.unmet = moments[k];
        return undefined;
      }
    }
    const solution = await this.solve({ ...restricted.problem, rows: own }, starts, false);
    return solution?.status === 'infeasible' ? undefined : solution;
  }

  /** The joint problem of decisions that may fit, with copies on the way of at most so many bytes. */
  private jointWithin(
    copyBytes: number,
    charge: 'as placed' | 'sure' = 'as placed',
    anchors?: Uint8Array,
  ): JointProblem {
    const { model, compact } = this.prepared;
    const fates = anchors === undefined ? this.fates : new Map([...this.fates].map(([n, list]) => [n, anchors[n] === 1 ? KEPT : list])); // prettier-ignore
    const possible = this.transients.within(compact, { heldBytes: this.mostHeldBytes, copyBytes });
    return jointProblem(model, possible, fates, charge, this.live);
  }

  /** Every so many narrow points of the forward pass, from the last; undefined where there are not as many. */
  private anchorsEvery(every: number): Uint8Array | undefined {
    const { graph, flow } = this.prepared.model;
    const points = narrowPoints(graph, this.prepared.table).reverse();
    if (points.length <= every) return undefined;
    const anchors = new Uint8Array(graph.nodes.length);
    points.forEach((name, i) => {
      const n = flow.byName.get(name) ?? -1;
      if (i % every === 0 && this.fates.get(n)?.includes('keep') === true) anchors[n] = 1;
    });
    return anchors;
  }

  /**
   * The anchors, each before what a node reads of the forward pass moved onto that: a second run of what is read there would
   * stand beside all that it is made from, and what is kept before it can run again later. Undefined where nothing moves.
   */
  private movedToReadsOf(moment: number, anchors: Uint8Array): Uint8Array | undefined {
    const { flow } = this.prepared.model;
    const moved = anchors.slice();
    for (const value of flow.inputs[moment]) {
      const { node } = flow.values[this.live.root[value]];
      if (anchors[node] === 1 || this.fates.get(node)?.includes('keep') !== true) continue;
      const before = anchors.lastIndexOf(1, node);
      if (before >= 0) moved[before] = 0;
      moved[node] = 1;
    }
    return moved.some((is, n) => is !== anchors[n]) ? moved : undefined;
  }

  /** The bound from rows at the full budget, with the least that second runs cost in any placement. */
  private async bound(moments: readonly number[], seconds: number | undefined): Promise<Proven> {
    const { prepared } = this;
    if (this.deadline.isOver) return { boundSeconds: 0, certified: false };
    const problem = this.boundProblem(moments);
    for (const row of seconds === undefined ? (problem.rows ?? []) : [])
      if ((await this.leastOf(problem, row)) > row.bound) return { boundSeconds: Infinity, certified: false };
    const solution = await this.solve(problem, [], true);
    if (solution === undefined) return { boundSeconds: 0, certified: false };
    if (solution.status === 'infeasible') return { boundSeconds: Infinity, certified: false };
    const bound = solution.bound / prepared.model.unitsPerSecond;
    const { certificate } = solution;
    const names = moments.map((m) => prepared.model.graph.nodes[m].name);
    return {
      boundSeconds: Math.min(bound, seconds ?? Infinity),
      certified: certificate !== undefined,
      ...(certificate === undefined ? {} : { proof: { moments: names, certificate } }),
    };
  }

  /** Rows at the full budget, and all that may fit: what no plan within the budget is below. */
  boundProblem(moments: readonly number[]): Problem {
    const sure = this.jointWithin(Infinity, 'sure');
    const { budgetBytes } = this.prepared;
    const rows = moments.map((m) => sure.row(this.amountsOf(m), this.rowName(m), budgetBytes));
    return { ...sure.problem, rows };
  }

  /** No plan holds less than this at every one of these moments, whatever it keeps. */
  private async least(joint: JointProblem, moments: readonly number[]): Promise<{ readonly neededBytes?: number }> {
    let neededBytes = 0;
    // What one node alone holds may be what does not fit, at a moment that no search came to.
    const heaviest = this.transients.heaviestNode(this.prepared.compact);
    for (const moment of new Set(heaviest < 0 ? moments : [...moments, heaviest])) {
      if (this.deadline.isOver) break;
      const bytes = await this.leastOf(joint.problem, joint.row(this.amountsOf(moment), 'least', Infinity));
      if (bytes < Infinity) neededBytes = Math.max(neededBytes, bytes);
    }
    return neededBytes > this.prepared.budgetBytes ? { neededBytes } : {};
  }

  /** The least amount of a row over all choices; Infinity when there is none. */
  private async leastOf(problem: Problem, row: LinearRow): Promise<number> {
    const solution = await this.solve(withRowAsCost(problem, row), [], true);
    if (solution === undefined) return 0;
    return solution.status === 'infeasible' ? Infinity : solution.bound;
  }

  /** Undefined when the time was over before any choice was found. */
  private async solve(
    problem: Problem,
    starts: readonly Int32Array[],
    certify: boolean,
  ): Promise<Solution | undefined> {
    const { request } = this.prepared;
    const { signal, onProgress } = this.options;
    const gap = gapOnTheWay(request);
    const solving = solve(problem, {
      engine: 'exact',
      certify,
      gap,
      workLimit: this.workShare * workOn(problem),
      seed: request.seed,
      starts,
      ...this.deadline.solveOptions,
      ...(signal !== undefined ? { signal } : {}),
      ...(onProgress !== undefined ? { onProgress } : {}),
    });
    try {
      const solution = await solving;
      if (solution.gap > gap) this.isCutShort = true;
      return solution;
    } catch (error) {
      if (!(error instanceof NoChoiceInTime)) throw error;
      this.isCutShort = true;
      return undefined;
    }
  }

  private amountsOf(moment: number, anchors?: Uint8Array): readonly MomentAmounts[] {
    const { model } = this.prepared;
    if (anchors !== undefined) return amountsAt(model, this.live, moment, this.chosen, anchors);
    let known = this.amounts.get(moment);
    if (known === undefined) {
      known = amountsAt(model, this.live, moment, this.options.recompute ? this.chosen : undefined);
      this.amounts.set(moment, known);
    }
    return known;
  }

  private rowName(moment: number): string {
    return `memory at ${this.prepared.model.graph.nodes[moment].name}`;
  }
}

/** The plan of fewer seconds; the first of equals. */
function quicker(a: Fitted | undefined, b: Fitted | undefined): Fitted | undefined {
  return a === undefined || (b !== undefined && b.plan.seconds < a.plan.seconds) ? b : a;
}
