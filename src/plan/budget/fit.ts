/**
 * Row generation (lazy constraints) for plans whose peak memory stays within the budget, with or
 * without recomputation.
 *
 * The peak of a plan is known only when the plan is. So each round solves, evaluates the memory of
 * the answer, adds the program point of its peak as a row, and solves again. It removes beforehand
 * what one decision alone cannot keep within the budget. If all rows hold but the measured peak
 * exceeds the budget (copies in flight, which no single variable knows), it first forbids large
 * copies, then tightens that row by the excess.
 */
import { defined } from '../../defined.ts';
import {
  type CompactProblem,
  compactProblem,
  restrictRows,
} from '../../solver/problem/restrict.ts';
import { choiceOfLeastRow } from '../../solver/search/least-row.ts';
import { PreparedProblem } from '../../solver/search/prepared.ts';
import type { LinearRow, Problem, Solution } from '../../solver/types.ts';
import type { Effort } from '../request/efforts.ts';
import type { EvaluatedChoice } from './attempt.ts';
import { HeuristicTightening } from './heuristic-tightening.ts';
import type { RematProblem } from './recompute/remat-problem.ts';
import { fixedStrategies } from './recompute/restrict-remat.ts';
import { leastOfRow, solveRows } from './solve-rows.ts';
import type { BudgetSearch, Fitted, WholeAnswer } from './types.ts';

/** Rounds of solving and following: half of them are tightenings that are undone. */
const ROUNDS = 12;
/**
 * The amount by which a bound is lowered in each round in addition to the excess, as a share of the
 * budget: small excesses would take many rounds otherwise.
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

/** The decisions among which a plan is sought, and how hard. */
interface FitQuestion {
  /** Program points of the rows to begin with. */
  readonly points: readonly number[];
  readonly effort: Effort;
  /**
   * Compact choice of the placements, where recomputation alone is chosen; copies in flight are
   * part of them.
   */
  readonly placed?: Int32Array;
  /** Nodes whose results are kept for certain. */
  readonly anchors?: Uint8Array;
  /** Known choices. */
  readonly starts?: readonly Int32Array[];
}

interface Fit {
  /** Absent where no plan was found. */
  readonly fitted?: Fitted;
  /** The program points that were rows at last. */
  readonly points: readonly number[];
  /** The program point that no choice fits into the budget, where one was met. */
  readonly unmet?: number;
  readonly whole?: WholeAnswer;
}

/** Solves and follows until the true peak is within the budget. */
export async function fit(search: BudgetSearch, question: FitQuestion): Promise<Fit> {
  return new FittingRounds(search, question).run();
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

type WithRows = Problem & { readonly rows: readonly LinearRow[] };

class FittingRounds {
  private readonly points: number[];
  private readonly tightening = new HeuristicTightening();
  private readonly budgetBytes: number;
  private built: Built;
  private unmet: number | undefined;
  private whole: WholeAnswer | undefined;

  constructor(
    private readonly search: BudgetSearch,
    private readonly question: FitQuestion,
  ) {
    this.points = [...question.points];
    this.budgetBytes = search.prepared.question.budgetBytes;
    this.built = this.build();
  }

  async run(): Promise<Fit> {
    const { search, tightening } = this;
    for (let round = 0; round < ROUNDS && !search.run.deadline.isOver; round++) {
      search.seen.rounds++;
      if (this.built.copyBytes !== tightening.copyBytes) this.built = this.build();
      const { remat, restricted } = this.built;
      const solution = await this.solve(round);
      if (solution === undefined || solution.status === 'infeasible') {
        if (tightening.undo()) continue;
        break;
      }
      const choice = restricted.expand(solution.choice);
      const evaluated = search.evaluator.evaluate(remat, choice);
      if (evaluated.plan.peakBytes <= this.budgetBytes)
        return this.answer({ plan: evaluated.plan, choice });
      if (!this.tighten(evaluated, choice, round)) break;
    }
    return this.answer();
  }

  private answer(fitted?: Fitted): Fit {
    const { points, unmet, whole } = this;
    return { points, ...defined({ fitted, unmet, whole }) };
  }

  /** The problem under the present limit on copies. */
  private build(): Built {
    const { problems, prepared } = this.search;
    const { placed, anchors } = this.question;
    const { copyBytes } = this.tightening;
    const isWhole = copyBytes === Infinity && anchors === undefined;
    const remat = isWhole ? problems.whole : problems.limited(copyBytes, anchors);
    const restricted =
      placed === undefined ? compactProblem(remat.problem, []) : fixedStrategies(remat, placed);
    const known = [prepared.solver.prepared, problems.shared];
    const shared =
      known.find((p) => p.isOf(restricted.problem)) ?? new PreparedProblem(restricted.problem);
    return { copyBytes, remat, restricted, shared, least: new Map(), taken: new Map() };
  }

  /** Undefined where no choice keeps some row, and where none was found. */
  private async solve(round: number): Promise<Solution | undefined> {
    const { search, tightening, points, question } = this;
    const { remat, restricted, shared, least } = this.built;
    const { effort, placed, anchors, starts = [] } = question;
    const rows = points.map((m) =>
      search.problems.row(remat, m, this.budgetBytes - tightening.slackAt(m), anchors),
    );
    const problem = { ...restricted.problem, rows: restrictRows(rows, restricted) };
    const tooTight = await this.tooTight(problem);
    if (tooTight !== undefined) {
      if ((least.get(tooTight) ?? 0) > this.budgetBytes) this.unmet = tooTight;
      return undefined;
    }
    const isWhole =
      placed === undefined && anchors === undefined && !search.recompute && tightening.isLoose;
    const solution = await solveRows(search, {
      problem,
      effort,
      starts: round === 0 ? starts.map(remat.complete) : [],
      certify: isWhole,
      shared,
    });
    if (isWhole && solution !== undefined) this.whole = { points: [...points], solution };
    return solution;
  }

  /**
   * The first point whose row no choice keeps, asked before all, because the solver explains at
   * length why a row cannot be kept.
   */
  private async tooTight(problem: WithRows): Promise<number | undefined> {
    const { search, points } = this;
    const { shared, least, taken } = this.built;
    const { effort } = this.question;
    for (const [k, row] of problem.rows.entries()) {
      let some = taken.get(points[k]);
      if (some === undefined) {
        const found = choiceOfLeastRow(shared, row, () => search.run.deadline.isOver);
        some = found?.amount ?? Infinity;
        taken.set(points[k], some);
      }
      if (some <= row.bound) continue;
      const known = least.get(points[k]) ?? (await leastOfRow(search, { problem, effort }, row));
      least.set(points[k], known);
      if (known > row.bound) return points[k];
    }
    return undefined;
  }

  /**
   * Forbids what a choice over the budget shows: its peak becomes a row, its copies too large, or a
   * row tighter; false where neither helps.
   */
  private tighten(
    { plan, point: at, copyBytes }: EvaluatedChoice,
    choice: Int32Array,
    round: number,
  ): boolean {
    const { budgetBytes, tightening, points } = this;
    const { placed, anchors } = this.question;
    const mayLimit = placed === undefined;
    const excess = plan.peakBytes - budgetBytes;
    const isOver = this.usedAt(at, choice) > budgetBytes;
    const isNew = !points.includes(at) && points.length < MOST_ROWS;
    const isChain =
      anchors === undefined &&
      mayLimit &&
      plan.recomputed.length > 0 &&
      excess > budgetBytes * CHAIN_EXCESS;
    if (isChain && !isOver) return false;
    if (isNew) points.push(at);
    if (!isOver && points.includes(at)) this.search.seen.undercounted.add(at);
    if (isNew && isOver) tightening.added();
    else if (isChain) return false;
    else if (!mayLimit || copyBytes < budgetBytes * LARGE_COPY || !tightening.limit(copyBytes)) {
      // The row of the peak, or the one that uses most of the budget, answers for what no row
      // counts. What the choice left free of it goes first, or else the next answer would be the
      // same.
      const m = points.includes(at) ? at : points[0];
      const used = this.usedAt(m, choice);
      const freeBytes = Math.max(0, budgetBytes - tightening.slackAt(m) - used);
      tightening.tighten(m, freeBytes + excess + 1 + round * budgetBytes * ROUND_SHARE);
    }
    return true;
  }

  /** The bytes that a choice takes in the row of a point. */
  private usedAt(point: number, choice: Int32Array): number {
    const { remat } = this.built;
    const row = this.search.problems.row(remat, point, this.budgetBytes, this.question.anchors);
    return row.variables.reduce((sum, v, k) => sum + row.amounts[k][choice[v]], 0);
  }
}
