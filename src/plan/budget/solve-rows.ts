/**
 * Solves one problem with memory rows of a search under a peak memory budget, within counted work,
 * and gives a choice, a bound and, if asked for, its proof. Where the gap stays open, neighbourhood
 * search looks for a better choice, and the proof runs again from there with more work.
 */
import { defined } from '../../defined.ts';
import type { PreparedProblem } from '../../solver/search/prepared.ts';
import { NoChoiceInTime, solve } from '../../solver/solve.ts';
import type { Problem, Solution, SolveOptions } from '../../solver/types.ts';
import type { Deadline } from '../request/deadline.ts';
import { gapUnderMemory, type PlanRequest } from '../request/request.ts';
import { gapOnTheWay, workOn } from '../request/work-limits.ts';
import { neighbourhoodStart } from '../solve/neighbourhood-start.ts';

/**
 * Share of the usual work that the second proof may take: exact elimination of what a good choice
 * leaves takes most of it.
 */
const MORE_WORK = 16;

/** How a problem is to be solved. */
export interface RowsOptions {
  readonly starts: readonly Int32Array[];
  readonly certify: boolean;
  /** Share of the usual work. */
  readonly workShare: number;
  /** Expensive steps are left out where the gap is one with which the request could live. */
  readonly endsEarly: boolean;
  /** True if a problem that stays above the gap of the request is searched further. */
  readonly improves: boolean;
  readonly shared?: PreparedProblem;
}

/** Solves problems of one request. */
export class RowsSolver {
  private readonly request: PlanRequest;
  private readonly deadline: Deadline;
  private readonly onProgress: SolveOptions['onProgress'];

  constructor(request: PlanRequest, deadline: Deadline, onProgress: SolveOptions['onProgress']) {
    this.request = request;
    this.deadline = deadline;
    this.onProgress = onProgress;
  }

  /** Undefined when the work was done before any choice was found. */
  async solve(problem: Problem, options: RowsOptions): Promise<Solution | undefined> {
    const found = await this.prove(problem, options);
    if (!options.improves || this.deadline.isOver || found?.status === 'infeasible') return found;
    if (found !== undefined && found.gap <= gapUnderMemory(this.request)) return found;
    const starts = found === undefined ? options.starts : [...options.starts, found.choice];
    const better = await neighbourhoodStart(
      problem,
      { starts, bound: found?.bound },
      this.request,
      this.deadline,
      this.onProgress,
    );
    if (better === undefined || this.deadline.isOver) return found;
    const again = await this.prove(
      problem,
      { ...options, starts: [better, ...starts], workShare: MORE_WORK * options.workShare },
      true,
    );
    return again === undefined || (found !== undefined && again.gap > found.gap) ? found : again;
  }

  private async prove(
    problem: Problem,
    { starts, certify, workShare, endsEarly, shared }: RowsOptions,
    searchesWide = false,
  ): Promise<Solution | undefined> {
    try {
      return await solve(problem, {
        engine: 'exact',
        certify,
        gap: gapOnTheWay(this.request),
        ...(endsEarly ? { enough: gapUnderMemory(this.request) } : {}),
        workLimit: workShare * workOn(problem),
        starts,
        searchesWide,
        seed: this.request.seed,
        ...this.deadline.solveOptions,
        ...defined({ onProgress: this.onProgress, prepared: shared }),
      });
    } catch (error) {
      if (!(error instanceof NoChoiceInTime)) throw error;
      return undefined;
    }
  }
}
