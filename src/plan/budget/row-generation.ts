/**
 * Row generation (lazy constraints) for plans whose peak memory stays within the budget, with or
 * without recomputation.
 *
 * The peak of a plan is known only when the plan is. So the planner solves, evaluates the memory of
 * the answer, adds the program point of its peak as a row, and solves again. It removes beforehand
 * what one decision alone cannot keep within the budget. If all rows hold but the measured peak
 * exceeds the budget (copies in flight, which no single variable knows), the planner first forbids
 * large copies, then tightens that row by the excess. Where the gap stays open, such rows count
 * shared storages (`shared-storages.ts`). Bounds come from rows at the full budget and all
 * decisions that may fit, so they stay valid.
 *
 * Every problem has a work limit, counted in steps, not seconds, so that the same request has the
 * same answer everywhere. Where the request gives a gap and the limit leaves it open, bound and
 * search run again with more work, twice at most.
 */
import { defined } from '../../defined.ts';
import { rowAsCost } from '../../solver/problem/recost.ts';
import {
  type CompactProblem,
  compactProblem,
  restrictRows,
} from '../../solver/problem/restrict.ts';
import { choiceOfLeastRow } from '../../solver/search/least-row.ts';
import { PreparedProblem } from '../../solver/search/prepared.ts';
import type { LinearRow, Problem, Solution } from '../../solver/types.ts';
import type { Prepared } from '../prepare/prepared.ts';
import { Deadline } from '../request/deadline.ts';
import { gapUnderMemory, isGapGiven } from '../request/request.ts';
import { ASKED_EXTENSIONS, gapOnTheWay, WORK_GROWTH } from '../request/work-limits.ts';
import { type EvaluatedChoice, type FittingPlan, PeakEvaluator } from './attempt.ts';
import { HeuristicTightening } from './heuristic-tightening.ts';
import { leanStates, type UnderStates } from './lean-states.ts';
import type { RematProblem } from './recompute/remat-problem.ts';
import { fixedStrategies } from './recompute/restrict-remat.ts';
import { PeakProblems } from './rows/peak-problems.ts';
import { RowsSolver } from './solve-rows.ts';
import type { Effort, MemoryPlanOptions, MemoryPlanResult } from './types.ts';

/**
 * Shares of the budget that the states may take in the first of two stages, tried in this order.
 */
const STATE_SHARES = [1, 0.5, 0.25, 0.125];
/**
 * Largest program, in nodes, for which the joint search also asks for two stages with less than the
 * whole budget.
 */
const TIGHT_NODES = 4000;
/** Rounds of solving and following. */
const ROUNDS = 12;
/**
 * The amount by which a bound is lowered in each round in addition to the excess, as a share of the
 * budget.
 */
const ROUND_SHARE = 2 ** -12;
/** Rows at a time: the price search of one row is far quicker than of several. */
const MOST_ROWS = 2;
/**
 * Copies of this share of the budget are left out where they exceed the budget; smaller excesses
 * tighten a row.
 */
const LARGE_COPY = 1 / 32;
/**
 * An excess of this share of the budget that no row knows is a chain of recomputed nodes: tighter
 * rows do not help.
 */
const CHAIN_EXCESS = 1 / 8;
/** Narrow points between two anchors, which are saved for certain, tried in this order. */
const ANCHORS_EVERY = [1, 2, 4, 8, 16, 32];
/** Times that anchors are moved onto what the node at the peak reads. */
const ANCHOR_MOVES = 1;

/** The decisions among which a search may choose. */
interface Scope {
  /** The part of the rematerialization problem that may be chosen. */
  readonly restrict: (remat: RematProblem) => CompactProblem;
  /** True if copies in flight may be left out of the search to free memory. */
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

/** A problem under a limit on copies, and what each row takes at least. */
interface Built {
  readonly copyBytes: number;
  readonly remat: RematProblem;
  readonly restricted: CompactProblem;
  /** Preparation that the solves of one problem under other rows share. */
  readonly shared: PreparedProblem;
  readonly least: Map<number, number>;
  /** By program point what some choice takes of its row; Infinity where none was found. */
  readonly taken: Map<number, number>;
}

/** No plan fits; the program point that no choice fits into the budget, where one was met. */
interface Unfit {
  readonly unmet: number | undefined;
}

type Proven = Pick<MemoryPlanResult, 'boundSeconds' | 'certified' | 'proof'>;

/** What a search has found so far. */
interface SearchState {
  /** Program point of the first row; and those of all rows. */
  readonly first: number;
  readonly points: number[];
  /** True if placements and recomputation are chosen together. */
  readonly joins: boolean;
  effort: Effort;
  /** Sharding first, then checkpointing. */
  stage: Fitted | undefined;
  /** Both at once. */
  found: Fitted | undefined;
  proven: Proven;
}

function bestOf({ found, stage }: SearchState): FittingPlan | undefined {
  return quicker(found, stage)?.plan;
}

/** Solves a prepared request under its budget for the peak. */
export class PeakMemoryPlanner {
  private readonly problems: PeakProblems;
  private readonly evaluator: PeakEvaluator;
  private readonly deadline: Deadline;
  private readonly gap: number;
  private readonly solver: RowsSolver;
  /**
   * The last answer of the search to the very problem that the bound is about: nothing recomputed,
   * nothing tightened.
   */
  private whole:
    { readonly rows: number; readonly effort: Effort; readonly solution: Solution } | undefined;
  /** Rows that a choice over the budget kept. */
  private readonly undercounted = new Set<number>();

  /**
   * @param prepared the request, prepared for the graph without recomputation
   * @param states the plan of least seconds whose states fit
   */
  constructor(
    private readonly prepared: Prepared,
    private readonly states: UnderStates,
    private readonly options: MemoryPlanOptions,
  ) {
    this.problems = options.problems ?? new PeakProblems(prepared, options.recompute);
    this.evaluator = new PeakEvaluator(prepared, this.problems.live);
    this.deadline = options.deadline ?? new Deadline(prepared.question.request.timeLimitSeconds);
    this.gap = gapUnderMemory(prepared.question.request);
    this.solver = new RowsSolver(prepared.question.request, this.deadline, options.onProgress);
  }

  async run(): Promise<MemoryPlanResult> {
    const { question, model } = this.prepared;
    const joins = this.options.mode === 'joint';
    const state = await this.firstAnswers(joins);
    // The gaps of bound and plan add up.
    if (this.isOpen(state)) await this.again(state, 1, false);
    if (
      joins &&
      this.options.recompute &&
      model.graph.nodes.length <= TIGHT_NODES &&
      (state.stage === undefined || !this.isGood(bestOf(state), state.proven))
    ) {
      const seconds = bestOf(state)?.seconds;
      const tight = STATE_SHARES.slice(1);
      const stage = await this.twoStage(state.first, tight, state.effort, seconds);
      state.stage = quicker(state.stage, stage);
    }
    if (joins && this.isOpen(state)) await this.again(state, 1, true);
    const extensions = joins && isGapGiven(question.request) ? ASKED_EXTENSIONS : 0;
    for (let k = 1; k <= extensions && this.isOpen(state); k++)
      await this.again(state, WORK_GROWTH ** k, true);
    const plan = bestOf(state);
    return {
      plan,
      twoStage: state.stage?.plan,
      ...state.proven,
      boundSeconds: Math.min(state.proven.boundSeconds, plan?.seconds ?? Infinity),
      rounds: state.effort.rounds,
      isOutOfTime: this.deadline.isOver,
      ...(plan === undefined ? await this.least(state.points, state.effort) : {}),
    };
  }

  /** The two plain stages, the joint search from their answer, and the bound. */
  private async firstAnswers(joins: boolean): Promise<SearchState> {
    const { prepared, options } = this;
    const first = this.evaluator.plain(prepared.left.compact.expand(this.states.choice)).point;
    const points = [first];
    // With recomputation the answer within the gap that comes first may keep more than one that is
    // looked for further.
    const effort: Effort = {
      workShare: 1,
      endsEarly: !options.recompute,
      improves: false,
      rounds: 0,
      open: 0,
    };
    // The answer of the two plain stages is an answer of the rematerialization problem too. Tight
    // ones are a search of their own: the joint search asks for them where the plain ones find
    // nothing or its own answer is not proven good enough, so that on programs of up to
    // `TIGHT_NODES` nodes it is never worse than sharding first.
    const stage = options.recompute
      ? await this.twoStage(first, joins ? STATE_SHARES.slice(0, 1) : STATE_SHARES, effort)
      : undefined;
    const found = joins ? await this.search(points, first, stage?.choice, effort) : undefined;
    const proven = await this.bound(points, found?.plan.seconds, effort);
    return { first, points, joins, effort, stage, found, proven };
  }

  /** Tells whether more work may help. */
  private isOpen(state: SearchState): boolean {
    return (
      !this.isGood(bestOf(state), state.proven) &&
      !this.deadline.isOver &&
      (state.effort.open > 0 || [...this.undercounted].some((m) => this.problems.sharesStorages(m)))
    );
  }

  /** Sharpens the bound, and searches once more where the plan is not good enough. */
  private async again(state: SearchState, workShare: number, improves: boolean): Promise<void> {
    const { rounds } = state.effort;
    const effort: Effort = { workShare, endsEarly: false, improves, rounds, open: 0 };
    state.effort = effort;
    for (const point of this.undercounted) this.problems.countStorages(point);
    const { points, first, found, stage } = state;
    const known = improves ? [found, stage].flatMap((fitted) => fitted?.choice ?? []) : [];
    const sharper = await this.bound(points, bestOf(state)?.seconds, effort, known);
    if (sharper.boundSeconds > state.proven.boundSeconds) state.proven = sharper;
    if (!state.joins || this.isGood(bestOf(state), state.proven)) return;
    const start = (found ?? stage)?.choice;
    state.found = quicker(found, await this.search(points, first, start, effort));
  }

  /** Tells whether a plan is within the gap asked for of the bound. */
  private isGood(plan: FittingPlan | undefined, { boundSeconds }: Proven): boolean {
    return plan === undefined
      ? boundSeconds === Infinity
      : plan.seconds * (1 - this.gap) <= boundSeconds;
  }

  /** Placements and recomputation at once. Adds the points that it needs to `points`. */
  private async search(
    points: number[],
    first: number,
    start: Int32Array | undefined,
    effort: Effort,
  ): Promise<Fitted | undefined> {
    const scope: Scope = { restrict: ({ problem }) => compactProblem(problem, []), mayLimit: true };
    const found = await this.fit(scope, points, start === undefined ? [] : [start], effort);
    if ('plan' in found) return found;
    // Long chains of recomputed nodes hold more than rows know. Anchors, saved checkpoints at every
    // k-th narrow point of the program, bound the chains. Denser anchors hold more themselves.
    for (const every of this.options.recompute ? ANCHORS_EVERY : []) {
      let anchors = this.problems.anchorsEvery(every);
      if (anchors === undefined) break;
      for (let k = 0; k <= ANCHOR_MOVES && anchors !== undefined && !this.deadline.isOver; k++) {
        const anchored = await this.fit({ ...scope, anchors }, [first], [], effort);
        // Its choice is one of the problem with anchors.
        if ('plan' in anchored) return { plan: anchored.plan };
        anchors =
          anchored.unmet === undefined
            ? undefined
            : this.problems.movedToReadsOf(anchored.unmet, anchors);
      }
    }
    return undefined;
  }

  /**
   * Sharding first, under less and less of the budget for the states, then checkpointing in those
   * placements.
   */
  private async twoStage(
    point: number,
    shares: readonly number[],
    effort: Effort,
    /**
     * Plans of as many seconds are there already: placements that take them without recomputation
     * need not be tried.
     */
    knownSeconds = Infinity,
  ): Promise<Fitted | undefined> {
    const { question, left } = this.prepared;
    for (const share of shares) {
      if (this.deadline.isOver) break;
      // A first stage that was not found is one that is left out.
      const placed = await leanStates(this.states, share, question.request, this.deadline);
      if (placed === undefined) continue;
      const { plan } = this.evaluator.plain(left.compact.expand(placed));
      if (plan.seconds >= knownSeconds) continue;
      const scope: Scope = { restrict: (remat) => fixedStrategies(remat, placed), mayLimit: false };
      const found = await this.fit(scope, [point], [], effort);
      if ('plan' in found) return found;
    }
    return undefined;
  }

  /**
   * Solves and follows until the true peak is within the budget. Adds the points that it needs to
   * `points`.
   */
  private async fit(
    { restrict, mayLimit, anchors }: Scope,
    points: number[],
    starts: readonly Int32Array[],
    effort: Effort,
  ): Promise<Fitted | Unfit> {
    const { problems } = this;
    const {
      question: { budgetBytes },
    } = this.prepared;
    const tightening = new HeuristicTightening();
    let built = this.built(tightening.copyBytes, restrict, anchors);
    let unmet: number | undefined;
    for (let round = 0; round < ROUNDS && !this.deadline.isOver; round++) {
      effort.rounds++;
      if (built.copyBytes !== tightening.copyBytes)
        built = this.built(tightening.copyBytes, restrict, anchors);
      const { remat, restricted, shared, least } = built;
      const rows = points.map((m) =>
        problems.row(remat, m, budgetBytes - tightening.slackAt(m), anchors),
      );
      const problem = { ...restricted.problem, rows: restrictRows(rows, restricted) };
      const tooTight = await this.tooTight(problem, points, built, effort);
      if (tooTight !== undefined && (least.get(tooTight) ?? 0) > budgetBytes) unmet = tooTight;
      const isWhole =
        mayLimit && anchors === undefined && !this.options.recompute && tightening.isLoose;
      const solution =
        tooTight === undefined
          ? await this.solve(
              problem,
              round === 0 ? starts.map(remat.complete) : [],
              effort,
              isWhole,
              shared,
            )
          : undefined;
      if (isWhole && solution !== undefined) this.whole = { rows: points.length, effort, solution };
      if (solution === undefined || solution.status === 'infeasible') {
        if (!tightening.undo()) return { unmet };
        continue;
      }
      const choice = restricted.expand(solution.choice);
      const evaluated = this.evaluator.evaluate(remat, choice);
      if (evaluated.plan.peakBytes <= budgetBytes) return { plan: evaluated.plan, choice };
      const usedAt = (m: number): number => {
        const row = problems.row(remat, m, budgetBytes, anchors);
        return row.variables.reduce((sum, v, k) => sum + row.amounts[k][choice[v]], 0);
      };
      if (!this.tighten(tightening, evaluated, usedAt, points, round, mayLimit, anchors))
        return { unmet };
    }
    return { unmet };
  }

  /** The problem under a limit on copies. */
  private built(copyBytes: number, restrict: Scope['restrict'], anchors?: Uint8Array): Built {
    const { problems } = this;
    const isWhole = copyBytes === Infinity && anchors === undefined;
    const remat = isWhole ? problems.whole : problems.limited(copyBytes, anchors);
    const restricted = restrict(remat);
    const known = [this.prepared.solver.prepared, problems.shared];
    const shared =
      known.find((p) => p.isOf(restricted.problem)) ?? new PreparedProblem(restricted.problem);
    return { copyBytes, remat, restricted, shared, least: new Map(), taken: new Map() };
  }

  /**
   * Forbids what a choice over the budget shows: its peak becomes a row, its copies too large, or a
   * row tighter; false where neither helps.
   */
  private tighten(
    tightening: HeuristicTightening,
    { plan, point: at, copyBytes }: EvaluatedChoice,
    usedAt: (point: number) => number,
    points: number[],
    round: number,
    mayLimit: boolean,
    anchors: Uint8Array | undefined,
  ): boolean {
    const {
      question: { budgetBytes },
    } = this.prepared;
    const excess = plan.peakBytes - budgetBytes;
    const isOver = usedAt(at) > budgetBytes;
    const isNew = !points.includes(at) && points.length < MOST_ROWS;
    const isChain =
      anchors === undefined &&
      mayLimit &&
      plan.recomputed.length > 0 &&
      excess > budgetBytes * CHAIN_EXCESS;
    if (isChain && !isOver) return false;
    if (isNew) points.push(at);
    if (!isOver && points.includes(at)) this.undercounted.add(at);
    if (isNew && isOver) tightening.added();
    else if (isChain) return false;
    else if (!mayLimit || copyBytes < budgetBytes * LARGE_COPY || !tightening.limit(copyBytes)) {
      // The row of the peak, or the one that uses most of the budget, answers for what no row
      // counts. What the choice left free of it goes first, or else the next answer would be the
      // same. A little more every round, so that small excesses do not take many.
      const m = points.includes(at) ? at : points[0];
      const freeBytes = Math.max(0, budgetBytes - tightening.slackAt(m) - usedAt(m));
      tightening.tighten(m, freeBytes + excess + 1 + round * budgetBytes * ROUND_SHARE);
    }
    return true;
  }

  /**
   * The first point whose row no choice keeps, asked before all, because the solver explains at
   * length why a row cannot be kept.
   */
  private async tooTight(
    problem: Problem & { readonly rows: readonly LinearRow[] },
    points: readonly number[],
    { shared, least, taken }: Built,
    effort: Effort,
  ): Promise<number | undefined> {
    for (const [k, row] of problem.rows.entries()) {
      let some = taken.get(points[k]);
      if (some === undefined) {
        some = choiceOfLeastRow(shared, row, () => this.deadline.isOver)?.amount ?? Infinity;
        taken.set(points[k], some);
      }
      if (some <= row.bound) continue;
      const known = least.get(points[k]) ?? (await this.leastOf(problem, row, effort));
      least.set(points[k], known);
      if (known > row.bound) return points[k];
    }
    return undefined;
  }

  /**
   * The bound from rows at the full budget, with the least that recomputed nodes cost in any
   * placement.
   */
  private async bound(
    points: readonly number[],
    seconds: number | undefined,
    effort: Effort,
    starts: readonly Int32Array[] = [],
  ): Promise<Proven> {
    const { unitsPerSecond } = this.prepared.model;
    const open: Proven = { boundSeconds: 0, certified: false };
    if (this.deadline.isOver) return open;
    const problem = this.problems.ofBound(points);
    const none: Proven = { boundSeconds: Infinity, certified: false };
    for (const row of seconds === undefined ? (problem.rows ?? []) : [])
      if ((await this.leastOf(problem, row, effort)) > row.bound) return none;
    const { whole } = this;
    const isSolved = whole !== undefined && whole.rows === points.length && whole.effort === effort;
    const solution = isSolved
      ? whole.solution
      : await this.solve(problem, starts.map(this.problems.whole.complete), effort, true);
    if (solution === undefined) return open;
    if (solution.status === 'infeasible') return none;
    const { bound, certificate } = solution;
    const boundSeconds = Math.min(bound / unitsPerSecond, seconds ?? Infinity);
    if (certificate === undefined) return { boundSeconds, certified: false };
    return {
      boundSeconds,
      certified: true,
      proof: { ...this.problems.named(points), certificate },
    };
  }

  /** No plan holds less than this at every one of these points, whatever it keeps. */
  private async least(
    points: readonly number[],
    effort: Effort,
  ): Promise<{ readonly neededBytes?: number }> {
    const { problems } = this;
    const remat = problems.all();
    let neededBytes = 0;
    // The bytes of one node alone may exceed the budget, at a point that no search came to.
    const heaviest = problems.heaviestNode();
    for (const point of new Set(heaviest < 0 ? points : [...points, heaviest])) {
      if (this.deadline.isOver) break;
      const bytes = await this.leastOf(remat.problem, problems.row(remat, point, Infinity), effort);
      if (bytes < Infinity) neededBytes = Math.max(neededBytes, bytes);
    }
    return neededBytes > this.prepared.question.budgetBytes ? { neededBytes } : {};
  }

  /** The least amount of a row over all choices; Infinity when there is none. */
  private async leastOf(problem: Problem, row: LinearRow, effort: Effort): Promise<number> {
    // The user sees this number, so the solve ends at the least gap.
    const solution = await this.solve(rowAsCost(problem, row), [], effort, true, undefined, false);
    if (solution === undefined) return 0;
    return solution.status === 'infeasible' ? Infinity : solution.bound;
  }

  /** Undefined when the time was over before any choice was found. */
  private async solve(
    problem: Problem,
    starts: readonly Int32Array[],
    effort: Effort,
    certify = false,
    shared?: PreparedProblem,
    endsEarly = effort.endsEarly,
  ): Promise<Solution | undefined> {
    const { workShare, improves } = effort;
    const options = {
      starts,
      certify,
      workShare,
      endsEarly,
      improves,
      ...defined({ shared }),
    };
    const solution = await this.solver.solve(problem, options);
    if (solution === undefined || solution.gap > gapOnTheWay(this.prepared.question.request))
      effort.open++;
    return solution;
  }
}

/** The plan of fewer seconds; the first of equals. */
function quicker(a: Fitted | undefined, b: Fitted | undefined): Fitted | undefined {
  return a === undefined || (b !== undefined && b.plan.seconds < a.plan.seconds) ? b : a;
}
