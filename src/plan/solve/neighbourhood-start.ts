/**
 * Finds a better choice to prove from, by large-neighbourhood search within counted rounds, for a
 * problem with memory rows, known choices and a lower bound.
 *
 * One large tensor in a row leaves a gap between bound and best choice that no price closes: the
 * bound mixes a choice with the tensor whole and one with it split. Exact elimination closes it
 * once the best choice is so close to the bound that reduced-cost fixing leaves few values.
 */
import { defined } from '../../defined.ts';
import { NoChoiceInTime } from '../../solver/solve.ts';
import type { Problem, SolveOptions } from '../../solver/types.ts';
import type { Deadline } from '../request/deadline.ts';
import { gapOnTheWay, NEIGHBOURHOOD_ROUNDS, workOn } from '../request/efforts.ts';
import type { PlanRequest } from '../request/request.ts';

/** Cells of the problem's tables at full size, which the search keeps: 8 bytes each, twice. */
const MOST_CELLS = 2 ** 24;

/** Choices and a bound that are known of a problem. */
interface Known {
  readonly starts: readonly Int32Array[];
  readonly bound?: number | undefined;
}

/**
 * The best choice that a neighbourhood search finds; undefined where it finds none, where the
 * deadline is over, and where the problem is too large for it. Works on one thread and counts its
 * rounds: without a time limit the answer is the same everywhere.
 */
export async function neighbourhoodStart(
  problem: Problem,
  { starts, bound }: Known,
  request: PlanRequest,
  deadline: Deadline,
  onProgress?: SolveOptions['onProgress'],
): Promise<Int32Array | undefined> {
  const { domains, edges } = problem;
  const cells = edges.first.reduce((sum, v, e) => sum + domains[v] * domains[edges.second[e]], 0);
  if (cells > MOST_CELLS || deadline.isOver) return undefined;
  try {
    // Loaded where a budget binds: other plans need none of it.
    const { solveAnytime } = await import('../../contest/anytime.ts');
    const solution = await solveAnytime(problem, {
      certify: false,
      close: false,
      threads: 1,
      rounds: NEIGHBOURHOOD_ROUNDS,
      gap: gapOnTheWay(request),
      ...defined({ lowerBound: bound }),
      workLimit: workOn(problem),
      starts,
      seed: request.seed,
      ...deadline.solveOptions,
      ...defined({ onProgress }),
    });
    return solution.status === 'infeasible' ? undefined : solution.choice;
  } catch (error) {
    if (!(error instanceof NoChoiceInTime)) throw error;
    return undefined;
  }
}
