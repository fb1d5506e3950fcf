/**
 * Plans under a budget of peak memory. In: a prepared request, the solution of least seconds. Out:
 * the plan whose peak is within the budget, or why there is none.
 */
import { interrupted, ShardwrightError } from '../../errors.ts';
import { printGraph } from '../../graph/text/write.ts';
import { evaluate } from '../../solver/check/verify.ts';
import { FOLD_VARIABLES } from '../../solver/search/prepared.ts';
import { relaxedChoice } from '../../solver/search/tight-relaxation.ts';
import type { Problem, Progress, Solution, SolveOptions } from '../../solver/types.ts';
import { bytesText } from '../../units.ts';
import { leastMemory, memoryOf } from '../memory/least-memory.ts';
import { neighbourhoodStart } from '../memory/neighbourhood-start.ts';
import { PeakProblems } from '../memory/peak-problems.ts';
import { PeakMemoryPlanner } from '../memory/row-generation.ts';
import { prepare, type Prepared } from '../prepare.ts';
import type { PlanCertificate } from '../record/certificate.ts';
import { planMemoryTimeline, timelinePeakBytes } from '../record/memory-timeline.ts';
import type { Deadline } from '../request/deadline.ts';
import {
  gapUnderMemory,
  holdsPeak,
  isGapGiven,
  peakBinds,
  type PlanRequest,
  recomputesUnderBudget,
} from '../request/request.ts';
import { gapOnTheWay, WORK_GROWTH, workOn, workOnProof } from '../request/work-limits.ts';
import { feasible, type Infeasible, planned, type ShardResult } from './result.ts';
import { solveOrRefuse, solveUnlessLate } from './solve.ts';

type FittingPlan = NonNullable<Awaited<ReturnType<PeakMemoryPlanner['run']>>['plan']>;

/** What a search begins with, and whom it tells. */
interface SearchOptions {
  readonly starts?: readonly Int32Array[];
  /** A compact choice whose peak is within the budget. */
  readonly fits?: Int32Array | undefined;
  /** Those of the request, if nothing may be recomputed. */
  readonly problems?: PeakProblems;
  readonly onProgress?: (event: Progress) => void;
}

/**
 * Activations of this share of the budget at the peak are more than plans leave free that are
 * chosen for their states alone. So are those of as many layers' states: where a plan leaves free
 * what a layer's states take, that layer could take the cheaper placements.
 */
const HEAVY_ACTIVATIONS = 1 / 8;
const HEAVY_LAYERS = 2;

/** Whether the budget is likely to bind at the peak. */
interface FarOver {
  /** A plan without limits that says that it does; absent where the question is open. */
  readonly free?: Solution;
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
  prepared: Pick<Prepared, 'request' | 'budgetBytes' | 'compact' | 'model' | 'table'>,
  problem: Problem,
  deadline: Deadline,
): Promise<FarOver> {
  const { request, budgetBytes, compact } = prepared;
  const isOwn = request.solver === 'auto' || request.solver === 'exact';
  if (
    !isOwn ||
    !holdsPeak(request) ||
    recomputesUnderBudget(request) ||
    request.objective === 'parameter-memory'
  )
    return {};
  const largest = (problem.rows?.[0]?.amounts ?? []).reduce(
    (sum, amounts) => sum + amounts.reduce((a, b) => Math.max(a, b), 0),
    0,
  );
  if (largest <= budgetBytes || problem.domains.length < FOLD_VARIABLES) return {};
  const problems = new PeakProblems(prepared, false);
  const { whole, shared } = problems;
  if (shared.fold === undefined) return { problems };
  const started = performance.now();
  const asked = {
    engine: 'exact',
    certify: false,
    gap: gapOnTheWay(request),
    workLimit: workOn(problem),
    seed: request.seed,
    prepared: shared,
    ...deadline.solveOptions,
  } as const;
  const found =
    relaxedChoice(shared, () => deadline.isOver) ??
    (await solveUnlessLate(whole.problem, asked))?.choice;
  if (found === undefined || found.length === 0) return { problems };
  const choice = whole.strategies(found);
  const stateBytes = memoryOf(problem, choice);
  if (stateBytes <= budgetBytes) return { problems };
  const activationBytes = peakBytesOf(prepared, compact.expand(choice)) - stateBytes;
  const layers = new Set(shared.fold.layer).size;
  if (
    activationBytes <
    Math.min(HEAVY_ACTIVATIONS * budgetBytes, (HEAVY_LAYERS * stateBytes) / layers)
  )
    return { problems };
  const seconds = (performance.now() - started) / 1000;
  return {
    problems,
    free: feasible({
      choice,
      objective: shared.cost(found),
      bound: -Infinity,
      solver: 'message-passing',
      seconds,
    }),
  };
}

interface FirstUnderBudget {
  readonly solution: Solution;
  /**
   * A compact choice, perhaps a slower one, whose peak is within the budget; absent where none is
   * known.
   */
  readonly fits?: Int32Array | undefined;
}

/**
 * Least seconds with the states within the budget, where peak memory must be, too. Proof of the
 * least is worth its time only where that plan fits: else it is but a start and a bound.
 */
export async function firstUnderBudget(
  prepared: Pick<Prepared, 'request' | 'budgetBytes' | 'compact' | 'model' | 'problem' | 'table'>,
  problem: Problem,
  asked: SolveOptions,
  deadline: Deadline,
): Promise<FirstUnderBudget> {
  const { request, budgetBytes, compact } = prepared;
  if (request.solver !== 'auto' && request.solver !== 'exact')
    return { solution: await solveOrRefuse(prepared, problem, asked, deadline) };
  const quick = await solveUnlessLate(problem, {
    ...asked,
    gap: gapOnTheWay(request),
    workLimit: workOn(problem),
  });
  if (quick?.status === 'infeasible') return { solution: quick };
  if (quick !== undefined) {
    if (
      quick.gap <= request.gap ||
      peakBytesOf(prepared, compact.expand(quick.choice)) > budgetBytes
    )
      return { solution: quick };
  }
  const known = [...(quick === undefined ? [] : [quick.choice]), ...(asked.starts ?? [])];
  // Far above its bound the quick choice would leave the proof too many values. Two stages are what
  // others do: they get no more.
  const isFar =
    request.checkpoint !== 'two-stage' &&
    (quick === undefined || quick.gap > gapUnderMemory(request));
  const better = isFar
    ? await neighbourhoodStart(
        problem,
        { starts: known, bound: quick?.bound },
        request,
        deadline,
        asked.onProgress,
      )
    : undefined;
  const starts = better === undefined ? known : [better, ...known];
  // Where nobody knew that the peak might bind, the proof takes what it takes for a request that
  // limits the states alone.
  const work = peakBinds(request)
    ? { workLimit: (isFar ? WORK_GROWTH : 1) * workOnProof(problem, request) }
    : {};
  const proof = { ...asked, ...deadline.solveOptions, starts, searchesWide: isFar, ...work };
  return { solution: await solveOrRefuse(prepared, problem, proof, deadline), fits: quick?.choice };
}

/**
 * The plan of least seconds does not fit: peak memory becomes a constraint, and recomputation a
 * choice if asked.
 */
export async function withinBudget(
  given: Prepared,
  free: Solution,
  problem: Problem,
  certificate: PlanCertificate,
  deadline: Deadline,
  { starts, fits, problems, onProgress }: SearchOptions,
): Promise<ShardResult> {
  const prepared = withoutRecomputation(given);
  const { request, budgetBytes, compact, table } = prepared;
  const started = performance.now();
  // A graph with its bodies in line, in which nodes are recomputed, is no program, and has no
  // trips.
  const recompute = recomputesUnderBudget(request) && prepared.model.opened === undefined;
  // Recomputed nodes stand in the graph from here on: the request of the plan does not ask for them
  // again.
  const settled: PlanRequest = {
    ...request,
    activations: 'constraint',
    checkpoint: 'none',
    ...(recompute ? { recomputation: 'chosen' } : {}),
  };
  const firstStage = async (share: number): Promise<Int32Array | undefined> => {
    if (share === 1) return compact.expand(free.choice);
    if (deadline.isOver) return undefined;
    const rows =
      problem.rows?.map((row) => ({ ...row, bound: Math.floor(row.bound * share) })) ?? [];
    const asked = {
      engine: 'exact',
      certify: false,
      gap: gapOnTheWay(request),
      workLimit: workOn(problem),
      seed: request.seed,
      ...deadline.solveOptions,
    } as const;
    // A first stage that was not found is one that is left out.
    const solution = await solveUnlessLate({ ...problem, rows }, asked);
    return solution === undefined || solution.status === 'infeasible'
      ? undefined
      : compact.expand(solution.choice);
  };
  const planner = new PeakMemoryPlanner(prepared, (graph) => prepare(graph, settled, table), {
    recompute,
    mode: request.checkpoint === 'two-stage' ? 'two-stage' : 'joint',
    deadline,
    ...(problems === undefined || recompute ? {} : { problems }),
    ...(onProgress === undefined ? {} : { onProgress }),
  });
  const found = await planner.run(firstStage);
  const known = fittingStart(prepared, starts, found.plan?.seconds);
  const quick = fittingStart(
    prepared,
    fits === undefined ? [] : [compact.expand(fits)],
    (known ?? found.plan)?.seconds,
  );
  const plan = quick ?? known ?? found.plan;
  if (plan === undefined) {
    if (found.boundSeconds === Infinity) {
      const { neededBytes = 0, enoughBytes } = await leastBudget(prepared, deadline);
      const needed = Math.max(neededBytes, found.neededBytes ?? 0);
      return {
        status: 'infeasible',
        conflict: ['activation memory'],
        budgetBytes,
        ...(needed > budgetBytes ? { neededBytes: needed } : {}),
        ...(enoughBytes === undefined ? {} : { enoughBytes }),
      };
    }
    if (deadline.isInterrupted) throw interrupted();
    if (found.isOutOfTime)
      throw new ShardwrightError(
        'E_TIME_LIMIT',
        `no plan within ${bytesText(budgetBytes)} was found in time`,
        {
          hint: 'raise --time-limit.',
        },
      );
    throw new ShardwrightError(
      'E_LIMIT',
      `no plan within ${bytesText(budgetBytes)} was found, and none was proven impossible`,
      {
        hint: recompute
          ? 'raise --memory a little.'
          : 'raise --memory, or allow recomputation with --checkpoint auto.',
      },
    );
  }
  const { prepared: after, choice, seconds, recomputed } = plan;
  const units = after.model.unitsPerSecond;
  const bound = Math.min(
    seconds,
    Math.max(found.boundSeconds, free.bound / prepared.model.unitsPerSecond),
  );
  const evidence = [
    `${found.rounds} problems solved for the peak ` +
      `memory${found.certified ? '; the bound was replayed' : ''}`,
    `a gap of ${(100 * gapUnderMemory(request)).toPrecision(2)} % is good ` +
      `enough${isGapGiven(request) ? '' : ' under a peak memory budget, the default'} (--gap)`,
  ];
  if (known !== undefined && plan === known)
    evidence.push('a recipe that fits is the best plan found');
  if (deadline.isInterrupted) evidence.push('the search was interrupted');
  if (found.twoStage !== undefined)
    evidence.push(
      `sharding first and checkpointing after takes ${found.twoStage.seconds.toPrecision(4)} ` +
        's within the same budget',
    );
  const solution = feasible({
    choice,
    objective: seconds * units,
    bound: bound * units,
    gap: (seconds - bound) / seconds,
    solver: recompute ? 'joint' : 'memory rows',
    evidence,
    seconds: free.seconds + (performance.now() - started) / 1000,
  });
  const noted = {
    ...after,
    assumptions: [
      ...after.assumptions,
      KEPT_AS_MADE,
      ...(recomputed.length > 0 ? [RECOMPUTED_LIKE_FIRST] : []),
    ],
  };
  return planned(noted, solution, planMemoryTimeline(after.model, choice, table), {
    ...certificate,
    ...(found.proof === undefined ? {} : { within: found.proof }),
    ...(recomputed.length > 0 ? { program: printGraph(prepared.program) } : {}),
  });
}

/** The same without the word of an earlier search, whose recomputed nodes are given by now. */
function withoutRecomputation(prepared: Prepared): Prepared {
  const { recomputation: _, ...request } = prepared.request;
  return { ...prepared, request };
}

/**
 * The cheapest choice of those known beforehand that fits at its peak and takes less than so many
 * seconds.
 */
function fittingStart(
  prepared: Prepared,
  starts: readonly Int32Array[] = [],
  belowSeconds = Infinity,
): FittingPlan | undefined {
  const { model, problem, budgetBytes } = prepared;
  let best: FittingPlan | undefined;
  for (const choice of starts) {
    const { cost, violations } = evaluate(problem, choice);
    const seconds = Number(cost) / model.unitsPerSecond;
    if (violations.length > 0 || seconds >= (best?.seconds ?? belowSeconds)) continue;
    const peakBytes = peakBytesOf(prepared, choice);
    if (peakBytes <= budgetBytes) best = { prepared, choice, seconds, peakBytes, recomputed: [] };
  }
  return best;
}

/**
 * What states alone need is a budget that works where the budget limits states, and a lower bound
 * where it limits the peak; there the fastest plan with as few states has a peak that is enough.
 *
 * @param stateBytes the least that states need, where it is known
 */
export async function leastBudget(
  prepared: Pick<Prepared, 'request' | 'compact' | 'model' | 'table'>,
  deadline: Deadline,
  stateBytes?: number,
): Promise<Pick<Infeasible, 'smallestBudgetBytes' | 'neededBytes' | 'enoughBytes'>> {
  const { request, compact } = prepared;
  const bytes = stateBytes ?? (await leastMemory(compact.problem, deadline.solveOptions));
  if (bytes === undefined) return {};
  if (!holdsPeak(request)) return { smallestBudgetBytes: bytes };
  const rows = compact.problem.rows?.map((row) => ({
    ...row,
    bound: Math.max(bytes, Math.floor(row.bound)),
  }));
  const lean = { ...compact.problem, ...(rows === undefined ? {} : { rows }) };
  const asked = {
    engine: 'exact',
    certify: false,
    gap: gapOnTheWay(request),
    workLimit: workOn(lean),
    seed: request.seed,
    ...deadline.solveOptions,
  } as const;
  const found = await solveUnlessLate(lean, asked);
  if (found === undefined || found.status === 'infeasible') return { neededBytes: bytes };
  return { neededBytes: bytes, enoughBytes: peakBytesOf(prepared, compact.expand(found.choice)) };
}

function peakBytesOf(
  { model, table }: Pick<Prepared, 'model' | 'table'>,
  choice: Int32Array,
): number {
  return timelinePeakBytes(planMemoryTimeline(model, choice, table));
}

/** Assumptions of such plans, as they are printed. */
export const KEPT_AS_MADE =
  "The bound under the memory budget assumes that tensors keep their producer's placement " +
  'until last use.';
export const RECOMPUTED_LIKE_FIRST =
  'Recomputed nodes keep the placements of their first run; the bound covers such plans.';
