/**
 * The door of planning. In: a graph, a request. Out: the best plan found with its bound and
 * certificate, or why there is none.
 */
import type { Graph } from '../graph/types.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import type { Problem, Progress, Solution, SolveOptions } from '../solver/types.ts';
import { leastMemoryBound } from './memory/least-memory.ts';
import { prepare, type Prepared } from './prepare.ts';
import type { PlanCertificate } from './record/certificate.ts';
import { timelinePeakBytes } from './record/memory-timeline.ts';
import { Deadline } from './request/deadline.ts';
import { holdsPeak, peakBinds, type PlanRequest } from './request/request.ts';
import { conflictOf } from './restrict/conflict.ts';
import { noWorseThanGreedy, propagated, startsOf } from './search/greedy.ts';
import { askedTimeline, NO_CERTIFICATE, planned, type ShardResult } from './search/result.ts';
import { lexicographic, solveOrRefuse } from './search/solve.ts';
import { brokenTies, TIE_BREAK } from './search/tie-break.ts';
import {
  farOverBudget,
  firstUnderBudget,
  leastBudget,
  withinBudget,
} from './search/under-budget.ts';

/** Operators, known choices and limits of a search. */
export interface ShardOptions {
  readonly table: OperatorTable;
  /**
   * Choices known beforehand, such as recipes: they bound the search and can only make it faster.
   */
  readonly starts?: readonly Int32Array[];
  /**
   * When the search is to end, shared by several solves; default: the request's time limit from the
   * call on.
   */
  readonly deadline?: Deadline;
  /**
   * Most work of the solver, see `SolveOptions.workLimit`: for whoever solves many problems and
   * takes a gap.
   */
  readonly workLimit?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (event: Progress) => void;
}

/** `shard(graph, request)`: prepare, solve, decode, re-cost. */
export async function shard(
  graph: Graph,
  request: PlanRequest,
  options: ShardOptions,
): Promise<ShardResult> {
  const deadline =
    options.deadline ?? new Deadline(request.timeLimitSeconds, { signal: options.signal });
  return shardPrepared(prepare(graph, request, options.table, deadline), { ...options, deadline });
}

/** Solves a prepared request and writes the plan. */
export async function shardPrepared(
  prepared: Prepared,
  options: Omit<ShardOptions, 'table'> = {},
): Promise<ShardResult> {
  const { request, budgetBytes, contradictions } = prepared;
  if (contradictions.length > 0)
    return { status: 'infeasible', conflict: contradictions, budgetBytes };
  if (request.solver === 'propagate') return propagated(prepared);
  const { expand, contract } = prepared.compact;
  const deadline =
    options.deadline ?? new Deadline(request.timeLimitSeconds, { signal: options.signal });
  // A budget below the sum of the least placements needs no search: what is left to say is the
  // smallest one that works.
  if (leastMemoryBound(prepared.compact.problem) > budgetBytes) {
    return {
      status: 'infeasible',
      conflict: ['memory'],
      budgetBytes,
      ...(await leastBudget(prepared, deadline)),
    };
  }
  const { problem, leastBytes } = await lexicographic(prepared, deadline);
  const starts = startsOf(prepared, deadline, options.starts)?.flatMap(
    (choice) => contract(choice) ?? [],
  );
  const asked: SolveOptions = {
    engine: request.solver,
    gap: request.gap,
    seed: request.seed,
    prepared: prepared.restrictedSolver.prepared,
    ...deadline.solveOptions,
    ...(options.workLimit === undefined ? {} : { workLimit: options.workLimit }),
    ...(starts !== undefined ? { starts } : {}),
    ...(options.onProgress !== undefined ? { onProgress: options.onProgress } : {}),
  };
  const holds = holdsPeak(request);
  const { free: over, problems } = await farOverBudget(prepared, problem, deadline);
  const known = problems === undefined ? options : { ...options, problems };
  if (over !== undefined) {
    const within = await heldWithin(prepared, over, problem, NO_CERTIFICATE, deadline, known);
    // Why nothing fits, and a bound where the search found none, are those of the states.
    if (within.status === 'planned' && within.plan.proof.bound > 0) return within;
  }
  const { solution, fits } = holds
    ? await firstUnderBudget(prepared, problem, asked, deadline)
    : { solution: await solveOrRefuse(prepared, problem, asked, deadline), fits: undefined };
  if (solution.status === 'infeasible') {
    return {
      status: 'infeasible',
      conflict: conflictOf(prepared.model, solution),
      budgetBytes,
      ...(solution.smallestBudget === undefined
        ? {}
        : await leastBudget(prepared, deadline, solution.smallestBudget)),
    };
  }
  const certificate: PlanCertificate = {
    ...NO_CERTIFICATE,
    ...(solution.certificate === undefined ? {} : { free: solution.certificate }),
    ...(leastBytes === undefined ? {} : { leastBytes }),
  };
  const cheapest = noWorseThanGreedy(
    prepared,
    withCause({ ...solution, choice: expand(solution.choice) }, deadline),
  );
  const isOptimum = cheapest.status === 'optimal' && !peakBinds(request);
  for (const answer of isOptimum
    ? [preferred(prepared, cheapest, problem.rows), cheapest]
    : [cheapest]) {
    const memory = askedTimeline(prepared, answer.choice);
    if (holds && memory !== undefined && timelinePeakBytes(memory) > budgetBytes) continue;
    return planned(
      answer === cheapest ? prepared : withNote(prepared, TIE_BREAK),
      answer,
      memory,
      certificate,
    );
  }
  return heldWithin(prepared, solution, problem, certificate, deadline, { ...known, fits });
}

/**
 * The plan that keeps the peak, from one that does not. The request of the plan says from here on
 * that the peak binds, so that whoever opens it makes the same problem.
 */
async function heldWithin(
  prepared: Prepared,
  solution: Solution,
  problem: Problem,
  certificate: PlanCertificate,
  deadline: Deadline,
  options: Omit<ShardOptions, 'table'> &
    Pick<Parameters<typeof withinBudget>[5], 'fits' | 'problems'>,
): Promise<ShardResult> {
  if (peakBinds(prepared.request))
    return withinBudget(prepared, solution, problem, certificate, deadline, options);
  const bound = { ...prepared.request, activations: 'constraint' } as const;
  if (prepared.model.ceilingSeconds === undefined)
    return withinBudget(
      { ...prepared, request: bound },
      solution,
      problem,
      certificate,
      deadline,
      options,
    );
  const { starts: _, fits: __, problems: ___, ...others } = options;
  return shardPrepared(prepare(prepared.program, bound, prepared.table, deadline), {
    ...others,
    deadline,
  });
}

function withNote(prepared: Prepared, note: string): Prepared {
  return { ...prepared, assumptions: [...prepared.assumptions, note] };
}

/** An optimum, or the choice of equal cost that is preferred to it. */
function preferred(
  { model, problem }: Prepared,
  solution: Solution,
  rows: Problem['rows'],
): Solution {
  const bounded =
    problem.rows?.map((row, r) => ({ ...row, bound: rows?.[r].bound ?? row.bound })) ?? [];
  const found = brokenTies(
    model,
    { ...problem, rows: bounded },
    solution.choice,
    solution.objective,
  );
  const isSame = found === undefined || found.every((a, v) => a === solution.choice[v]);
  return isSame ? solution : { ...solution, choice: found };
}

/** An answer that a signal cut short says so. */
function withCause(solution: Solution, deadline: Deadline): Solution {
  if (solution.status !== 'feasible' || !deadline.isInterrupted) return solution;
  return { ...solution, evidence: [...(solution.evidence ?? []), 'the search was interrupted'] };
}
