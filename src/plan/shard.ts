/**
 * The door of planning. In: a graph, a request. Out: the best plan found with its bound and certificate, or why there is
 * none.
 */
import { peakOf } from '../cost/memory/timeline.ts';
import { internalError, ShardwrightError, interrupted } from '../errors.ts';
import { printGraph } from '../graph/text/write.ts';
import type { Graph } from '../graph/types.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { evaluate } from '../solver/check/verify.ts';
import { NoChoiceInTime, solve } from '../solver/solve.ts';
import { TooLargeForLibrary } from '../solver/milp/verdict.ts';
import type { Problem, Progress, ProveOptions, ProvenSolution, Solution, StepCertificate } from '../solver/types.ts';
import { bytesText } from '../units.ts';
import { conflictOf } from './restrict/conflict.ts';
import { Deadline } from './request/deadline.ts';
import { withMemoryBound, type PlanCertificate } from './record/certificate.ts';
import { leastMemory, leastMemoryBound, provenLeastMemory } from './memory/least-memory.ts';
import { planMemoryTimeline, type PlanMemoryTimeline } from './record/memory-timeline.ts';
import { prepare, type Prepared } from './prepare.ts';
import { defaultStart, propagate } from './model/greedy.ts';
import { gapOf, leastTotal } from '../solver/problem/cost.ts';
import { activationsOf, gapUnderMemory, isGapGiven, type PlanRequest } from './request/request.ts';
import { brokenTies, TIE_BREAK } from './tie-break.ts';
import type { Plan } from './record/types.ts';
import { PeakMemoryPlanner } from './memory/row-generation.ts';
import { gapOnTheWay, workOn, workOnProof } from './request/work-limits.ts';
import { greedyFrom, writePlan } from './record/write.ts';

/** Operators, known choices and limits of a search. */
export interface ShardOptions {
  readonly table: OperatorTable;
  /** Choices known beforehand, such as recipes: they bound the search and can only make it faster. */
  readonly starts?: readonly Int32Array[];
  /** When the search is to end, shared by several solves; default: the request's time limit from the call on. */
  readonly deadline?: Deadline;
  /** Most work of the solver, see `SolveOptions.workLimit`: for whoever solves many problems and takes a gap. */
  readonly workLimit?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (event: Progress) => void;
}

/** No plan exists: which demands contradict each other, and the smallest budget that admits a plan. */
export interface Infeasible {
  readonly status: 'infeasible';
  readonly conflict: readonly string[];
  /** Bytes per device; absent when memory is not what is in the way. */
  readonly smallestBudgetBytes?: number;
  /** Bytes per device below which no plan exists, activations included; a lower bound, not always reached. */
  readonly neededBytes?: number;
  readonly budgetBytes: number;
}

/** A plan with what it was made from; or what contradicts, and the smallest budget in bytes that works. */
export type ShardResult =
  | {
      readonly status: 'planned';
      readonly plan: Plan;
      /** The graph that was planned: the given one with views of weights taken again in the backward pass. */
      readonly graph: Graph;
      readonly choice: Int32Array;
      /** What the choice is a choice of: the given request, or, with recomputed nodes in the graph, that of the new graph. */
      readonly prepared: Prepared;
      /** `Solution.secondOpinion`: the plan does not have it. */
      readonly secondOpinion?: string;
      /** What proves the bound of the plan, for `checkPlan`. */
      readonly certificate: PlanCertificate;
    }
  | Infeasible;

/** Solves a prepared request and writes the plan. */
export async function shardPrepared(
  prepared: Prepared,
  options: Omit<ShardOptions, 'table'> = {},
): Promise<ShardResult> {
  const { request, budgetBytes, contradictions } = prepared;
  if (contradictions.length > 0) return { status: 'infeasible', conflict: contradictions, budgetBytes };
  if (request.solver === 'propagate') return propagated(prepared);
  const { expand, contract } = prepared.compact;
  const deadline = options.deadline ?? new Deadline(request.timeLimitSeconds, { signal: options.signal });
  // A budget below the sum of the least placements needs no search: what is left to say is the smallest one that works.
  if (leastMemoryBound(prepared.compact.problem) > budgetBytes) {
    const least = await leastMemory(prepared.compact.problem, deadline.solveOptions);
    return {
      status: 'infeasible',
      conflict: ['memory'],
      budgetBytes,
      ...leastBudget(request, least),
    };
  }
  const { problem, leastBytes } = await lexicographic(prepared, deadline);
  const starts = startsOf(prepared, deadline, options.starts)?.flatMap((choice) => contract(choice) ?? []);
  const asked: ProveOptions = {
    engine: request.solver,
    gap: request.gap,
    seed: request.seed,
    prepared: prepared.restrictedSolver.prepared,
    ...deadline.solveOptions,
    ...(options.workLimit === undefined ? {} : { workLimit: options.workLimit }),
    ...(starts !== undefined ? { starts } : {}),
    ...(options.onProgress !== undefined ? { onProgress: options.onProgress } : {}),
  };
  const solution = constrainsPeakMemory(request)
    ? await firstUnderBudget(prepared, problem, asked, deadline)
    : await solveOrRefuse(prepared, problem, asked, deadline);
  if (solution.status === 'infeasible') {
    return {
      status: 'infeasible',
      conflict: conflictOf(prepared.model, solution),
      budgetBytes,
      ...leastBudget(request, solution.smallestBudget),
    };
  }
  const certificate: PlanCertificate = {
    ...NO_CERTIFICATE,
    ...(solution.certificate === undefined ? {} : { free: solution.certificate }),
    ...(leastBytes === undefined ? {} : { leastBytes }),
  };
  const cheapest = noWorseThanGreedy(prepared, withCause({ ...solution, choice: expand(solution.choice) }, deadline));
  if (cheapest.status === 'optimal' && !constrainsPeakMemory(request))
    return preferred(prepared, cheapest, certificate, problem.rows);
  const { choice } = cheapest;
  const memory =
    activationsOf(request) === 'off' ? undefined : planMemoryTimeline(prepared.model, choice, prepared.table);
  if (constrainsPeakMemory(request) && memory !== undefined && peakOf(memory.intervals).peakBytes > budgetBytes)
    return withinBudget(prepared, solution, problem, certificate, options, deadline);
  return planned(prepared, cheapest, memory, certificate);
}

/** The plan of an optimum, or of the choice of equal cost that is preferred to it. */
function preferred(
  prepared: Prepared,
  solution: Solution,
  certificate: PlanCertificate,
  rows: Problem['rows'],
): Extract<ShardResult, { readonly status: 'planned' }> {
  const { model, problem, request, table } = prepared;
  const bounded = problem.rows?.map((row, r) => ({ ...row, bound: rows?.[r].bound ?? row.bound })) ?? [];
  const found = brokenTies(model, { ...problem, rows: bounded }, solution.choice, solution.objective);
  const choice = found ?? solution.choice;
  const noted = choice.every((a, v) => a === solution.choice[v])
    ? prepared
    : { ...prepared, assumptions: [...prepared.assumptions, TIE_BREAK] };
  const memory = activationsOf(request) === 'off' ? undefined : planMemoryTimeline(model, choice, table);
  return planned(noted, { ...solution, choice }, memory, certificate);
}

/** What states alone need is a budget that works where the budget constrains states, and a lower bound where it constrains peak memory. */
function leastBudget(
  request: PlanRequest,
  stateBytes: number | undefined,
): Pick<Infeasible, 'smallestBudgetBytes' | 'neededBytes'> {
  if (stateBytes === undefined) return {};
  return constrainsPeakMemory(request) ? { neededBytes: stateBytes } : { smallestBudgetBytes: stateBytes };
}

/** An answer that a signal cut short says so. */
function withCause(solution: Solution, deadline: Deadline): Solution {
  if (solution.status !== 'feasible' || !deadline.isInterrupted) return solution;
  return { ...solution, evidence: [...(solution.evidence ?? []), 'the search was interrupted'] };
}

/** Choices to begin with: a solve that may be cut short also gets what greedy propagation finds at once. */
function startsOf(
  { model, problem, request }: Prepared,
  deadline: Deadline,
  given?: readonly Int32Array[],
): readonly Int32Array[] | undefined {
  if (request.timeLimitSeconds === undefined && !deadline.isOver) return given;
  const greedy = propagate(model, problem, defaultStart(model, problem));
  return greedy === undefined ? given : [...(given ?? []), greedy];
}

/** A solve that was cut short may hold placements whose greedy propagation is cheaper than its own choice. */
function noWorseThanGreedy({ model, problem, request }: Prepared, solution: Solution): Solution {
  const cut = solution.status === 'feasible' && request.objective === 'time';
  const greedy = cut ? greedyFrom(model, problem, solution.choice) : undefined;
  if (greedy === undefined || greedy.cost >= solution.objective) return solution;
  const { choice, cost } = greedy;
  const evidence = [...(solution.evidence ?? []), 'the placements found were propagated greedily, which was cheaper'];
  return { ...solution, choice, objective: cost, gap: (cost - solution.bound) / Math.max(1, cost), evidence };
}

/** Whether peak memory is constrained by the budget. */
export function constrainsPeakMemory(request: PlanRequest): boolean {
  return activationsOf(request) === 'constraint';
}

/** The relative gap that is good enough for a request; the command's exit code goes by it. */
export function askedGap(request: PlanRequest): number {
  return constrainsPeakMemory(request) ? gapUnderMemory(request) : request.gap;
}

/**
 * Least seconds with the states within the budget, where peak memory must be, too. Proof of the least is worth its time
 * only where that plan fits: else it is but a start and a bound.
 */
async function firstUnderBudget(
  prepared: Prepared,
  problem: Problem,
  asked: ProveOptions,
  deadline: Deadline,
): Promise<ProvenSolution> {
  const { request, budgetBytes, compact, model, table } = prepared;
  if (request.solver !== 'auto' && request.solver !== 'exact') return solveOrRefuse(prepared, problem, asked, deadline);
  const quick = await solveUnlessLate(problem, { ...asked, gap: gapOnTheWay(request), workLimit: workOn(problem) });
  if (quick?.status === 'infeasible') return quick;
  if (quick !== undefined) {
    const { intervals } = planMemoryTimeline(model, compact.expand(quick.choice), table);
    if (quick.gap <= request.gap || peakOf(intervals).peakBytes > budgetBytes) return quick;
  }
  const starts = [...(asked.starts ?? []), ...(quick === undefined ? [] : [quick.choice])];
  const proof = { ...asked, ...deadline.solveOptions, starts, workLimit: workOnProof(problem, request) };
  return solveOrRefuse(prepared, problem, proof, deadline);
}

/** Undefined when no choice was found in time. */
async function solveUnlessLate(problem: Problem, options: ProveOptions): Promise<ProvenSolution | undefined> {
  return solve(problem, options).catch((error: unknown) => {
    if (error instanceof NoChoiceInTime) return undefined;
    throw error;
  });
}

function planned(
  prepared: Prepared,
  solution: Solution,
  memory: PlanMemoryTimeline | undefined,
  certificate: PlanCertificate,
): Extract<ShardResult, { readonly status: 'planned' }> {
  const plan = writePlan(prepared, solution, memory);
  const { choice, secondOpinion } = solution;
  return { status: 'planned', plan, graph: prepared.model.graph, choice, prepared, certificate, ...(secondOpinion === undefined ? {} : { secondOpinion }) }; // prettier-ignore
}

/**
 * The plan of another choice of the same problem. Its bound is the one that was proven for the problem, so its gap is what the
 * choice gives away.
 *
 * @throws E_INTERNAL for a choice that the problem does not admit
 */
export function planOfChoice(
  prepared: Prepared,
  choice: Int32Array,
  { proof }: Plan,
  certificate: PlanCertificate,
  evidence: readonly string[],
): Extract<ShardResult, { readonly status: 'planned' }> {
  const { model, problem, request, table } = prepared;
  const { cost, violations } = evaluate(problem, choice);
  if (violations.length > 0) throw internalError('a choice to plan is none of the problem');
  const objective = Number(cost);
  const bound = Math.min(objective, proof.bound * model.unitsPerSecond);
  const solution: Solution = {
    status: 'feasible',
    choice,
    objective,
    bound,
    gap: gapOf(objective, bound),
    solver: proof.solver,
    evidence,
    seconds: proof.solveSeconds ?? 0,
    statistics: {},
    ties: 'engine',
  };
  const memory = activationsOf(request) === 'off' ? undefined : planMemoryTimeline(model, choice, table);
  return planned(prepared, solution, memory, certificate);
}

/** The plan of least seconds does not fit: peak memory becomes a constraint, and recomputation a choice if asked. */
async function withinBudget(
  prepared: Prepared,
  free: Solution,
  problem: Problem,
  certificate: PlanCertificate,
  options: Omit<ShardOptions, 'table'>,
  deadline: Deadline,
): Promise<ShardResult> {
  const { request, budgetBytes, compact, table } = prepared;
  const started = performance.now();
  const recompute = request.checkpoint === 'auto' || request.checkpoint === 'two-stage';
  // Recomputed nodes stand in the graph from here on: the request of the plan does not ask for them again.
  const settled: PlanRequest = { ...request, activations: 'constraint', checkpoint: 'none' };
  const firstStage = async (share: number): Promise<Int32Array | undefined> => {
    if (share === 1) return compact.expand(free.choice);
    if (deadline.isOver) return undefined;
    const rows = problem.rows?.map((row) => ({ ...row, bound: Math.floor(row.bound * share) })) ?? [];
    const asked = { engine: 'exact', certify: false, gap: gapOnTheWay(request), workLimit: workOn(problem), seed: request.seed, ...deadline.solveOptions } as const; // prettier-ignore
    // A first stage that was not found is one that is left out.
    const solution = await solveUnlessLate({ ...problem, rows }, asked);
    return solution === undefined || solution.status === 'infeasible' ? undefined : compact.expand(solution.choice);
  };
  const planner = new PeakMemoryPlanner(prepared, (graph) => prepare(graph, settled, table), {
    recompute,
    mode: request.checkpoint === 'two-stage' ? 'two-stage' : 'joint',
    deadline,
    ...(options.onProgress !== undefined ? { onProgress: options.onProgress } : {}),
  });
  const found = await planner.run(firstStage);
  if (found.plan === undefined) {
    if (found.boundSeconds === Infinity)
      return {
        status: 'infeasible',
        conflict: ['activation memory'],
        budgetBytes,
        ...(found.neededBytes === undefined ? {} : { neededBytes: found.neededBytes }),
      };
    if (deadline.isInterrupted) throw interrupted();
    if (found.isOutOfTime)
      throw new ShardwrightError('E_TIME_LIMIT', `no plan within ${bytesText(budgetBytes)} was found in time`, {
        hint: 'raise --time-limit.',
      });
    throw new ShardwrightError(
      'E_LIMIT',
      `no plan within ${bytesText(budgetBytes)} was found, and none was proven impossible`,
      {
        hint: recompute ? 'raise --memory a little.' : 'raise --memory, or allow recomputation with --checkpoint auto.',
      },
    );
  }
  const { prepared: after, choice, seconds, recomputed } = found.plan;
  const units = after.model.unitsPerSecond;
  const bound = Math.min(seconds, Math.max(found.boundSeconds, free.bound / prepared.model.unitsPerSecond));
  const evidence = [
    `${found.rounds} problems solved for the peak memory${found.certified ? '; the bound was replayed' : ''}`,
    `a gap of ${(100 * gapUnderMemory(request)).toPrecision(2)} % is good enough${isGapGiven(request) ? '' : ' under a peak memory budget, the default'} (--gap)`,
  ];
  if (deadline.isInterrupted) evidence.push('the search was interrupted');
  if (found.twoStage !== undefined)
    evidence.push(
      `sharding first and checkpointing after takes ${found.twoStage.seconds.toPrecision(4)} s within the same budget`,
    );
  const solution: Solution = {
    status: 'feasible',
    choice,
    objective: seconds * units,
    bound: bound * units,
    gap: (seconds - bound) / seconds,
    solver: recompute ? 'joint' : 'memory rows',
    evidence,
    seconds: free.seconds + (performance.now() - started) / 1000,
    statistics: {},
    ties: 'engine',
  };
  const noted = {
    ...after,
    assumptions: [...after.assumptions, KEPT_AS_MADE, ...(recomputed.length > 0 ? [RECOMPUTED_LIKE_FIRST] : [])],
  };
  return planned(noted, solution, planMemoryTimeline(after.model, choice, table), {
    ...certificate,
    ...(found.proof === undefined ? {} : { within: { ...found.proof, recompute } }),
    ...(recomputed.length > 0 ? { program: printGraph(prepared.program) } : {}),
  });
}

export const KEPT_AS_MADE =
  "The bound under the memory budget assumes that tensors keep their producer's placement until last use.";
export const RECOMPUTED_LIKE_FIRST =
  'Recomputed nodes keep the placements of their first run; the bound covers such plans.';

/** `shard(graph, request)`: prepare, solve, decode, re-cost. */
export async function shard(graph: Graph, request: PlanRequest, options: ShardOptions): Promise<ShardResult> {
  const deadline = options.deadline ?? new Deadline(request.timeLimitSeconds, { signal: options.signal });
  return shardPrepared(prepare(graph, request, options.table, deadline), { ...options, deadline });
}

/**
 * With the objective `parameter-memory` the least memory of parameters is found first and becomes the bound of the memory
 * row; time is then minimised among the plans that reach it.
 */
async function lexicographic(
  prepared: Prepared,
  deadline: Deadline,
): Promise<{ readonly problem: Problem; readonly leastBytes?: StepCertificate }> {
  const { problem } = prepared.compact;
  if (prepared.request.objective === 'time') return { problem };
  const least = await provenLeastMemory(problem, deadline.solveOptions);
  if (least === undefined) return { problem };
  if (least === 'open') throw tooLate(deadline, 'the least memory of parameters was not proven in time');
  const { bytes, certificate } = least;
  return {
    problem: withMemoryBound(problem, bytes),
    ...(certificate === undefined ? {} : { leastBytes: certificate }),
  };
}

/** Solves; what the solver cannot do in the time or size given becomes an error for the user. */
async function solveOrRefuse(
  prepared: Prepared,
  problem: Problem,
  options: ProveOptions,
  deadline: Deadline,
): Promise<ProvenSolution> {
  try {
    return await solve(problem, options);
  } catch (error) {
    if (error instanceof NoChoiceInTime) {
      const greedy = greedily(prepared, problem);
      if (greedy !== undefined) return greedy;
      throw tooLate(deadline, error.message);
    }
    if (error instanceof TooLargeForLibrary)
      throw new ShardwrightError('E_LIMIT', error.message, { hint: 'use --solver auto, or a smaller mesh.' });
    throw error;
  }
}

function tooLate(deadline: Deadline, message: string): ShardwrightError {
  return deadline.isInterrupted ? interrupted() : new ShardwrightError('E_TIME_LIMIT', message, { hint: 'raise --time-limit or --memory.' }); // prettier-ignore
}

/** What greedy propagation finds of a problem whose solve was cut short before any choice; undefined where that breaks a row. */
function greedily({ model, problem: whole, compact }: Prepared, problem: Problem): ProvenSolution | undefined {
  const found = propagate(model, whole, defaultStart(model, whole));
  const choice = found === undefined ? undefined : compact.contract(found);
  if (choice === undefined) return undefined;
  const { cost, violations } = evaluate(problem, choice);
  if (violations.length > 0) return undefined;
  const objective = Number(cost);
  const bound = leastTotal(problem);
  return {
    status: 'feasible',
    choice,
    objective,
    bound,
    gap: gapOf(objective, bound),
    solver: 'propagate',
    evidence: ['the search ended without a choice; this one is greedy'],
    seconds: 0,
    statistics: {},
    ties: 'engine',
  };
}

/** `--solver propagate`: greedy from the default placements, with the bound that its terms alone give. */
function propagated(prepared: Prepared): ShardResult {
  const { model, problem, budgetBytes } = prepared;
  const started = performance.now();
  const choice = propagate(model, problem, defaultStart(model, problem));
  if (choice === undefined)
    return { status: 'infeasible', conflict: ['propagation found no strategy for some node'], budgetBytes };
  const { cost, violations } = evaluate(problem, choice);
  if (violations.length > 0)
    return { status: 'infeasible', conflict: violations.map((v) => (v.code === 'row' ? v.row : v.code)), budgetBytes };
  const objective = Number(cost);
  const bound = leastTotal(problem);
  const solution: Solution = {
    status: 'feasible',
    choice,
    objective,
    bound,
    gap: gapOf(objective, bound),
    solver: 'propagate',
    seconds: (performance.now() - started) / 1000,
    statistics: {},
    ties: 'engine',
  };
  const memory =
    activationsOf(prepared.request) === 'off' ? undefined : planMemoryTimeline(model, choice, prepared.table);
  if (
    activationsOf(prepared.request) === 'constraint' &&
    memory !== undefined &&
    peakOf(memory.intervals).peakBytes > budgetBytes
  )
    return { status: 'infeasible', conflict: ['propagation does not fit the peak memory'], budgetBytes };
  return planned(prepared, solution, memory, NO_CERTIFICATE);
}

const NO_CERTIFICATE: PlanCertificate = { version: 1 };
