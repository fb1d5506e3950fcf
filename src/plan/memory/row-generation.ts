/**
 * Row generation (lazy constraints) for plans whose peak memory stays within the budget, with or without recomputation.
 * In: a prepared request, a first plan. Out: the plan of least seconds that fits, a lower bound on the seconds, its proof.
 *
 * The peak of a plan is known only when the plan is. So the planner solves, evaluates the memory of the answer, adds the program
 * point of its peak as a row, and solves again. It removes beforehand what one decision alone cannot keep within the budget. If
 * all rows hold but the measured peak exceeds the budget (copies in flight, which no single variable knows), the planner first
 * forbids large transient copies, then tightens the row of that program point by the excess. Bounds on the seconds always come
 * from rows at the full budget and from all decisions that may fit, so they stay valid.
 *
 * Every problem has a work limit, counted in steps, not seconds, so that the same request has the same answer everywhere. Where
 * the request gives a gap and the limit leaves it open, bound and search run again with more work, twice at most.
 */
import { internalError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { narrowPoints } from '../../passes/checkpoint/policies.ts';
import { mayRecompute } from '../../passes/checkpoint/repeatable.ts';
import { metaBytes } from '../../ops/record/record.ts';
import { NoChoiceInTime, solve } from '../../solver/solve.ts';
import type { LinearRow, Problem, Solution } from '../../solver/types.ts';
import { rowAsCost } from '../../solver/problem/recost.ts';
import { compactProblem, restrictRows, type CompactProblem } from '../../solver/problem/restrict.ts';
import { Deadline } from '../request/deadline.ts';
import { PeakEvaluator, type FittingPlan } from './evaluate-choice.ts';
import { decisionsOf, rematProblem, type RematDecisions, type RematProblem } from './remat-problem.ts';
import { livenessOf, type Liveness } from './liveness.ts';
import { liveBytesAt, type RematDecision, type LiveBytes } from './peak-rows.ts';
import { HeuristicTightening } from './heuristic-tightening.ts';
import type { Prepared } from '../prepare.ts';
import { gapUnderMemory, isGapGiven } from '../request/request.ts';
import { fixedStrategies } from './restrict-remat.ts';
import { Transients } from './transients.ts';
import type { FirstStage, MemoryPlanResult, MemoryPlanOptions } from './types.ts';
import { ASKED_EXTENSIONS, gapOnTheWay, WORK_GROWTH, workOn } from '../request/work-limits.ts';

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
/** An excess of this share of the budget that no row knows is a chain of recomputed nodes: tighter rows do not help. */
const CHAIN_EXCESS = 1 / 8;
/** Narrow points between two anchors, which are saved for certain, tried in this order. */
const ANCHORS_EVERY = [1, 2, 4, 8, 16, 32];
/** Times that anchors are moved onto what the node at the peak reads. */
const ANCHOR_MOVES = 1;
const SAVED: readonly RematDecision[] = ['save'];

/** What a search may choose among. */
interface Scope {
  /** What of the rematerialization problem may be chosen. */
  readonly restrict: (remat: RematProblem) => CompactProblem;
  /** Whether copies in flight may be left out of the search to make room. */
  readonly mayLimit: boolean;
  /** Nodes whose results are kept for certain. */
  readonly anchors?: Uint8Array;
}

/** A plan that fits, and the choice of the whole rematerialization problem that it came from. */
interface Fitted {
  readonly plan: FittingPlan;
  /** Absent where only a part of the rematerialization problem was asked. */
  readonly choice?: Int32Array;
}

type Proven = Pick<MemoryPlanResult, 'boundSeconds' | 'certified' | 'proof'>;

/**
 * @param prepared the request, prepared for the graph without recomputation
 * @param reprepare prepares the same request for a graph with recomputed nodes
 */
export function planUnderMemory(
  prepared: Prepared,
  firstStage: FirstStage,
  reprepare: (graph: Graph) => Prepared,
  options: MemoryPlanOptions,
): Promise<MemoryPlanResult> {
  return new PeakMemoryPlanner(prepared, reprepare, options).run(firstStage);
}

/**
 * The problem that the bound under a budget for the peak is proven on, for whoever checks the proof.
 *
 * @param points nodes at which memory is a row
 */
export function peakBoundProblem(prepared: Prepared, points: readonly number[], recompute: boolean): Problem {
  const reprepare = (): Prepared => {
    throw internalError('a bound has no recomputed nodes');
  };
  return new PeakMemoryPlanner(prepared, reprepare, { recompute, mode: 'joint' }).boundProblem(points);
}

class PeakMemoryPlanner {
  private readonly live: Liveness;
  private readonly decisions: RematDecisions;
  private readonly chosen: Uint8Array;
  private readonly amounts = new Map<number, readonly LiveBytes[]>();
  private readonly transients: Transients;
  private readonly evaluator: PeakEvaluator;
  private readonly deadline: Deadline;
  /** What one decision may hold at a program point beside the states of any plan. */
  private readonly mostTransientBytes: number;
  private rounds = 0;
  /** Share of the usual work that a problem may take. */
  private workShare = 1;
  /** Whether a problem was left open because its work was done. */
  private isCutShort = false;
  /** Program point that no choice of the last `fit` fits into the budget; -1 where every one fits alone. */
  private unmet = -1;
  private readonly gap: number;

  constructor(
    private readonly prepared: Prepared,
    reprepare: (graph: Graph) => Prepared,
    private readonly options: MemoryPlanOptions,
  ) {
    const { model, table } = prepared;
    const { graph, flow } = model;
    this.live = livenessOf(model, table);
    this.gap = gapUnderMemory(prepared.request);
    this.evaluator = new PeakEvaluator(prepared, reprepare, this.live);
    this.deadline = options.deadline ?? new Deadline(prepared.request.timeLimitSeconds);
    this.transients = new Transients(model, this.live);
    this.mostTransientBytes = prepared.budgetBytes - this.transients.leastStates();
    this.chosen = new Uint8Array(graph.nodes.length);
    const canRecompute = (n: number): boolean =>
      graph.nodes[n].meta.save !== 'save' && mayRecompute(graph.nodes[n].target, table.get(graph.nodes[n].target));
    this.decisions = options.recompute
      ? decisionsOf(
          model,
          this.live,
          (value) => metaBytes(flow.values[value].meta),
          prepared.budgetBytes * SMALL_SHARE,
          canRecompute,
        )
      : new Map();
    for (const n of this.decisions.keys()) this.chosen[n] = 1;
  }

  async run(firstStage: FirstStage): Promise<MemoryPlanResult> {
    const { prepared, options } = this;
    // Every decision, those too large for this budget too: what is asked is how large a budget must be.
    const remat = rematProblem(prepared.model, prepared.compact, this.decisions, 'as placed', this.live);
    const free = await firstStage(1);
    if (free === undefined) throw internalError('no first stage for the whole budget');
    const first = this.evaluator.plain(free).point;
    const points = [first];
    // What plain two stages find is an answer of the rematerialization problem too. Tight ones are a search of their own: the joint search asks for
    // them where the plain ones find nothing or its own answer is not proven good enough, so that on programs of up to
    // `TIGHT_NODES` nodes it is never worse than sharding first.
    const joins = options.mode === 'joint';
    let stage = options.recompute
      ? await this.twoStage(firstStage, first, joins ? STATE_SHARES.slice(0, 1) : STATE_SHARES)
      : undefined;
    let found = joins ? await this.search(points, first, stage?.choice) : undefined;
    let proven = await this.bound(points, found?.plan.seconds);
    const best = (): FittingPlan | undefined => quicker(found, stage)?.plan;
    const small = prepared.model.graph.nodes.length <= TIGHT_NODES;
    if (joins && options.recompute && small && (stage === undefined || !this.isGood(best(), proven)))
      stage = quicker(stage, await this.twoStage(firstStage, first, STATE_SHARES.slice(1), best()?.seconds));
    const most = joins && isGapGiven(prepared.request) ? ASKED_EXTENSIONS : 0;
    const isOpen = (): boolean => this.isCutShort && !this.isGood(best(), proven) && !this.deadline.isOver;
    for (let k = 1; k <= most && isOpen(); k++) {
      this.workShare = WORK_GROWTH ** k;
      this.isCutShort = false;
      const sharper = await this.bound(points, best()?.seconds);
      if (sharper.boundSeconds > proven.boundSeconds) proven = sharper;
      if (!this.isGood(best(), proven))
        found = quicker(found, await this.search(points, first, (found ?? stage)?.choice));
    }
    const plan = best();
    return {
      plan,
      twoStage: stage?.plan,
      ...proven,
      boundSeconds: Math.min(proven.boundSeconds, plan?.seconds ?? Infinity),
      rounds: this.rounds,
      isOutOfTime: this.deadline.isOver,
      ...(plan === undefined ? await this.least(remat, points) : {}),
    };
  }

  /** Whether a plan is within the gap asked for of the bound. */
  private isGood(plan: FittingPlan | undefined, { boundSeconds }: Proven): boolean {
    return plan === undefined ? boundSeconds === Infinity : plan.seconds * (1 - this.gap) <= boundSeconds;
  }

  /** Placements and recomputation at once. */
  private async search(points: number[], first: number, start: Int32Array | undefined): Promise<Fitted | undefined> {
    const restrict = ({ problem }: RematProblem): CompactProblem => compactProblem(problem, []);
    const found = await this.fit({ restrict, mayLimit: true }, points, start === undefined ? [] : [start]);
    // Long chains of recomputed nodes hold more than rows know. Anchors, saved checkpoints at every k-th narrow point of the
    // program, bound the chains. Denser anchors hold more themselves.
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
    point: number,
    shares: readonly number[],
    /** Plans of as many seconds are there already: placements that take them without recomputation need not be tried. */
    knownSeconds = Infinity,
  ): Promise<Fitted | undefined> {
    for (const share of shares) {
      if (this.deadline.isOver) break;
      const full = await firstStage(share);
      const placed = full === undefined ? undefined : this.prepared.compact.contract(full);
      if (full === undefined || placed === undefined) continue;
      if (this.evaluator.plain(full).plan.seconds >= knownSeconds) continue;
      const found = await this.fit(
        { restrict: (remat) => fixedStrategies(remat, placed), mayLimit: false },
        [point],
        [],
      );
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /**
   * Solves and follows until the true peak is within the budget. Adds the points that it needs to `points`.
   */
  private async fit(
    { restrict, mayLimit, anchors }: Scope,
    points: number[],
    starts: readonly Int32Array[],
  ): Promise<Fitted | undefined> {
    const { budgetBytes } = this.prepared;
    const tightening = new HeuristicTightening();
    this.unmet = -1;
    let offered = starts;
    let remat = this.limitedProblem(tightening.copyBytes, 'as placed', anchors);
    let restricted = restrict(remat);
    let least = new Map<number, number>();
    for (let round = 0; round < ROUNDS && !this.deadline.isOver; round++) {
      this.rounds++;
      if (tightening.takeLimitChange()) {
        remat = this.limitedProblem(tightening.copyBytes, 'as placed', anchors);
        restricted = restrict(remat);
        least = new Map();
      }
      const rows = points.map((m) =>
        remat.row(this.amountsOf(m, anchors), this.rowName(m), budgetBytes - tightening.slackAt(m)),
      );
      const solution = await this.solveRows(restricted, rows, points, least, offered);
      offered = [];
      if (solution === undefined) {
        if (!tightening.undo()) return undefined;
        continue;
      }
      const choice = restricted.expand(solution.choice);
      const { plan, point: at, copyBytes } = this.evaluator.evaluate(remat, choice);
      if (plan.peakBytes <= budgetBytes) return { plan, choice };
      const excess = plan.peakBytes - budgetBytes;
      const usedAt = (m: number): number => {
        const row = remat.row(this.amountsOf(m, anchors), '', budgetBytes);
        return row.variables.reduce((sum, v, k) => sum + row.amounts[k][choice[v]], 0);
      };
      const used = usedAt(at);
      const isNew = !points.includes(at) && points.length < MOST_ROWS;
      const chain =
        anchors === undefined && mayLimit && plan.recomputed.length > 0 && excess > budgetBytes * CHAIN_EXCESS;
      if (chain && used <= budgetBytes) return undefined;
      if (isNew) points.push(at);
      if (isNew && used > budgetBytes) tightening.added();
      else if (chain) return undefined;
      else if (!mayLimit || copyBytes < budgetBytes * LARGE_COPY || !tightening.limit(copyBytes)) {
        // The row of the peak, or the one that uses most of the budget, answers for what no row counts. What the choice left
        // free of it goes first, or else the next answer would be the same. A little more every round, so that small
        // excesses do not take many.
        const m = points.includes(at) ? at : points[0];
        const freeBytes = Math.max(0, budgetBytes - tightening.slackAt(m) - usedAt(m));
        tightening.tighten(m, freeBytes + excess + 1 + round * budgetBytes * ROUND_SHARE);
      }
    }
    return undefined;
  }

  /** A choice that keeps the rows; undefined when there is none. */
  private async solveRows(
    restricted: CompactProblem,
    rows: readonly LinearRow[],
    points: readonly number[],
    least: Map<number, number>,
    starts: readonly Int32Array[],
  ): Promise<Solution | undefined> {
    const own = restrictRows(rows, restricted);
    // Asked first, because the solver explains at length why a row cannot be kept.
    for (let k = 0; k < own.length; k++) {
      const known = least.get(points[k]) ?? (await this.leastOf(restricted.problem, own[k]));
      least.set(points[k], known);
      if (known > own[k].bound) {
        if (known > this.prepared.budgetBytes) this.unmet = points[k];
        return undefined;
      }
    }
    const solution = await this.solve({ ...restricted.problem, rows: own }, starts, false);
    return solution?.status === 'infeasible' ? undefined : solution;
  }

  /** The rematerialization problem of decisions that may fit, with copies in flight of at most so many bytes. */
  private limitedProblem(
    copyBytes: number,
    charge: 'as placed' | 'sure' = 'as placed',
    anchors?: Uint8Array,
  ): RematProblem {
    const { model, compact } = this.prepared;
    const decisions = anchors === undefined ? this.decisions : new Map([...this.decisions].map(([n, list]) => [n, anchors[n] === 1 ? SAVED : list])); // prettier-ignore
    const possible = this.transients.restrict(compact, { transientBytes: this.mostTransientBytes, copyBytes });
    return rematProblem(model, possible, decisions, charge, this.live);
  }

  /** Every so many narrow points of the forward pass, from the last; undefined where there are not as many. */
  private anchorsEvery(every: number): Uint8Array | undefined {
    const { graph, flow } = this.prepared.model;
    const points = narrowPoints(graph, this.prepared.table).reverse();
    if (points.length <= every) return undefined;
    const anchors = new Uint8Array(graph.nodes.length);
    points.forEach((name, i) => {
      const n = flow.byName.get(name) ?? -1;
      if (i % every === 0 && this.decisions.get(n)?.includes('save') === true) anchors[n] = 1;
    });
    return anchors;
  }

  /**
   * The anchors, each before what a node reads of the forward pass moved onto that: a recomputed node of what is read there would
   * stand beside all that it is made from, and what is kept before it can be recomputed later. Undefined where nothing moves.
   */
  private movedToReadsOf(point: number, anchors: Uint8Array): Uint8Array | undefined {
    const { flow } = this.prepared.model;
    const moved = anchors.slice();
    for (const value of flow.inputs[point]) {
      const { node } = flow.values[this.live.root[value]];
      if (anchors[node] === 1 || this.decisions.get(node)?.includes('save') !== true) continue;
      const before = anchors.lastIndexOf(1, node);
      if (before >= 0) moved[before] = 0;
      moved[node] = 1;
    }
    return moved.some((is, n) => is !== anchors[n]) ? moved : undefined;
  }

  /** The bound from rows at the full budget, with the least that recomputed nodes cost in any placement. */
  private async bound(points: readonly number[], seconds: number | undefined): Promise<Proven> {
    const { prepared } = this;
    if (this.deadline.isOver) return { boundSeconds: 0, certified: false };
    const problem = this.boundProblem(points);
    for (const row of seconds === undefined ? (problem.rows ?? []) : [])
      if ((await this.leastOf(problem, row)) > row.bound) return { boundSeconds: Infinity, certified: false };
    const solution = await this.solve(problem, [], true);
    if (solution === undefined) return { boundSeconds: 0, certified: false };
    if (solution.status === 'infeasible') return { boundSeconds: Infinity, certified: false };
    const bound = solution.bound / prepared.model.unitsPerSecond;
    const { certificate } = solution;
    const names = points.map((m) => prepared.model.graph.nodes[m].name);
    return {
      boundSeconds: Math.min(bound, seconds ?? Infinity),
      certified: certificate !== undefined,
      ...(certificate === undefined ? {} : { proof: { moments: names, certificate } }),
    };
  }

  /** Rows at the full budget, and all that may fit: what no plan within the budget is below. */
  boundProblem(points: readonly number[]): Problem {
    const sure = this.limitedProblem(Infinity, 'sure');
    const { budgetBytes } = this.prepared;
    const rows = points.map((m) => sure.row(this.amountsOf(m), this.rowName(m), budgetBytes));
    return { ...sure.problem, rows };
  }

  /** No plan holds less than this at every one of these points, whatever it keeps. */
  private async least(remat: RematProblem, points: readonly number[]): Promise<{ readonly neededBytes?: number }> {
    let neededBytes = 0;
    // What one node alone holds may be what does not fit, at a point that no search came to.
    const heaviest = this.transients.heaviestNode(this.prepared.compact);
    for (const point of new Set(heaviest < 0 ? points : [...points, heaviest])) {
      if (this.deadline.isOver) break;
      const bytes = await this.leastOf(remat.problem, remat.row(this.amountsOf(point), 'least', Infinity));
      if (bytes < Infinity) neededBytes = Math.max(neededBytes, bytes);
    }
    return neededBytes > this.prepared.budgetBytes ? { neededBytes } : {};
  }

  /** The least amount of a row over all choices; Infinity when there is none. */
  private async leastOf(problem: Problem, row: LinearRow): Promise<number> {
    const solution = await this.solve(rowAsCost(problem, row), [], true);
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
    const { onProgress } = this.options;
    const gap = gapOnTheWay(request);
    const solving = solve(problem, {
      engine: 'exact',
      certify,
      gap,
      workLimit: this.workShare * workOn(problem),
      seed: request.seed,
      starts,
      ...this.deadline.solveOptions,
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

  private amountsOf(point: number, anchors?: Uint8Array): readonly LiveBytes[] {
    const { model } = this.prepared;
    if (anchors !== undefined) return liveBytesAt(model, this.live, point, this.chosen, anchors);
    let known = this.amounts.get(point);
    if (known === undefined) {
      known = liveBytesAt(model, this.live, point, this.options.recompute ? this.chosen : undefined);
      this.amounts.set(point, known);
    }
    return known;
  }

  private rowName(point: number): string {
    return `memory at ${this.prepared.model.graph.nodes[point].name}`;
  }
}

/** The plan of fewer seconds; the first of equals. */
function quicker(a: Fitted | undefined, b: Fitted | undefined): Fitted | undefined {
  return a === undefined || (b !== undefined && b.plan.seconds < a.plan.seconds) ? b : a;
}
