/** A guess, made without a proof, that the budget binds at the peak of memory. */
import { FOLD_VARIABLES } from '../../solver/search/prepared.ts';
import { relaxedChoice } from '../../solver/search/tight-relaxation.ts';
import { feasible, NO_CERTIFICATE } from '../choice/result.ts';
import { choicePeakBytes } from '../choice/timeline.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { Deadline } from '../request/deadline.ts';
import { gapOnTheWay, workOn } from '../request/efforts.ts';
import { holdsPeak, type PlanRequest, recomputesUnderBudget } from '../request/request.ts';
import { memoryOf } from '../solve/least-memory.ts';
import { solveUnlessLate } from '../solve/solve-or-refuse.ts';
import { PeakProblems } from './rows/peak-problems.ts';
import type { OverBudget } from './types.ts';

/**
 * Activations of this share of the budget at the peak are more than plans leave free that are
 * chosen for their states alone. So are those of as many layers' states: where a plan leaves free
 * what a layer's states take, that layer could take the cheaper placements.
 */
const HEAVY_ACTIVATIONS = 1 / 8;
const HEAVY_LAYERS = 2;

/** True if the budget is likely to bind at the peak. */
interface FarOver {
  /** The start of a search under the peak; absent where the question is open. */
  readonly over?: OverBudget;
  /** The problems of the search to come, if any were asked. */
  readonly problems?: PeakProblems;
}

/**
 * About the plan of least seconds without any limit, where it says that the budget binds at the
 * peak: its states alone exceed the budget, and activations come on top. Then least seconds with
 * the states within the budget need not be sought: no such plan fits. It bounds nothing and says
 * only where memory peaks. Undefined where the question is open, and where no layers repeat: short
 * programs answer it at once.
 */
export async function farOverBudget(
  prepared: Pick<Prepared, 'question' | 'left' | 'model'>,
  deadline: Deadline,
): Promise<FarOver> {
  const { request, budgetBytes } = prepared.question;
  const { compact } = prepared.left;
  const { problem } = compact;
  if (!isAsked(request)) return {};
  const largest = (problem.rows?.[0]?.amounts ?? []).reduce(
    (sum, amounts) => sum + amounts.reduce((a, b) => Math.max(a, b), 0),
    0,
  );
  if (largest <= budgetBytes || problem.domains.length < FOLD_VARIABLES) return {};
  const problems = new PeakProblems(prepared, false);
  const { whole, shared } = problems;
  if (shared.fold === undefined) return { problems };
  const started = performance.now();
  const found = await leastSeconds(prepared, problems, deadline);
  if (found === undefined || found.length === 0) return { problems };
  const choice = whole.strategies(found);
  const stateBytes = memoryOf(problem, choice);
  if (stateBytes <= budgetBytes) return { problems };
  const activationBytes = choicePeakBytes(prepared.model, compact.expand(choice)) - stateBytes;
  const layers = new Set(shared.fold.layer).size;
  if (
    activationBytes <
    Math.min(HEAVY_ACTIVATIONS * budgetBytes, (HEAVY_LAYERS * stateBytes) / layers)
  )
    return { problems };
  const seconds = (performance.now() - started) / 1000;
  return {
    problems,
    over: {
      free: feasible({
        choice,
        objective: shared.cost(found),
        bound: -Infinity,
        solver: 'message-passing',
        seconds,
      }),
      problem,
      certificate: NO_CERTIFICATE,
      problems,
    },
  };
}

/** Tells whether a request limits the peak, and seconds come first under it. */
function isAsked(request: PlanRequest): boolean {
  const isOwn = request.solver === 'auto' || request.solver === 'exact';
  return (
    isOwn &&
    holdsPeak(request) &&
    !recomputesUnderBudget(request) &&
    request.objective !== 'parameter-memory'
  );
}

/** The choice of least seconds without any limit, as far as the work goes. */
async function leastSeconds(
  { question: { request }, left }: Pick<Prepared, 'question' | 'left'>,
  { whole, shared }: PeakProblems,
  deadline: Deadline,
): Promise<Int32Array | undefined> {
  const relaxed = relaxedChoice(shared, () => deadline.isOver);
  if (relaxed !== undefined) return relaxed;
  const solution = await solveUnlessLate(whole.problem, {
    engine: 'exact',
    certify: false,
    gap: gapOnTheWay(request),
    workLimit: workOn(left.compact.problem),
    seed: request.seed,
    prepared: shared,
    ...deadline.solveOptions,
  });
  return solution?.choice;
}
