/**
 * The plan of least seconds whose states are within the budget, with the bound and the certificate
 * of that.
 */
import { defined } from '../../defined.ts';
import type { Certificate, Problem, Solution, SolveOptions } from '../../solver/types.ts';
import { type Impossible, NO_CERTIFICATE } from '../choice/result.ts';
import { choicePeakBytes } from '../choice/timeline.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { PlanCertificate } from '../record/certificate.ts';
import type { Deadline } from '../request/deadline.ts';
import { gapOnTheWay, workOn, workOnProof } from '../request/efforts.ts';
import { gapUnderMemory, gapWithoutPeak, holdsPeak, peakBinds } from '../request/request.ts';
import type { Run } from '../request/run.ts';
import { conflictOf } from '../restrict/conflict.ts';
import { noWorseThanGreedy, startsOf } from './greedy.ts';
import { neighbourhoodStart } from './neighbourhood-start.ts';
import { lexicographic, solveOrRefuse, solveUnlessLate } from './solve-or-refuse.ts';

/** The cheapest choice that was found, and what it is a choice of. */
export interface Solved {
  readonly status: 'solved';
  /** A choice of the prepared problem. */
  readonly best: Solution;
  /** As the solver found it: a choice of `problem`. */
  readonly free: Solution;
  /** The compact problem, with the least memory as its bound where that was asked for first. */
  readonly problem: Problem;
  readonly certificate: PlanCertificate;
  /** A choice of `problem`, perhaps a slower one, whose peak is within the budget, where known. */
  readonly fits?: Int32Array | undefined;
}

/** @throws E_TIME_LIMIT, E_LIMIT */
export async function leastSeconds(prepared: Prepared, run: Run): Promise<Solved | Impossible> {
  const { question, left, model, solver } = prepared;
  const { request } = question;
  const { deadline } = run;
  const { expand, contract } = left.compact;
  const { problem, leastBytes } = await lexicographic(prepared, deadline);
  const starts = startsOf(prepared, deadline, run.starts)?.flatMap((c) => contract(c) ?? []);
  const asked: SolveOptions = {
    ...(request.solver === 'propagate' ? {} : { engine: request.solver }),
    gap: gapWithoutPeak(request),
    seed: request.seed,
    prepared: solver.prepared,
    ...deadline.solveOptions,
    ...defined({ workLimit: run.workLimit, starts, onProgress: run.onProgress }),
  };
  const { solution, fits } = holdsPeak(request)
    ? await firstUnderBudget(prepared, problem, asked, deadline)
    : { solution: await solveOrRefuse(prepared, problem, asked, deadline), fits: undefined };
  if (solution.status === 'infeasible') {
    const { smallestBudget } = solution;
    return {
      status: 'impossible',
      conflict: conflictOf(model, solution),
      ...(smallestBudget === undefined
        ? {}
        : { memory: { of: 'states', leastBytes: smallestBudget } }),
    };
  }
  const whole = { ...solution, choice: expand(solution.choice) };
  return {
    status: 'solved',
    best: noWorseThanGreedy(prepared, withCause(whole, deadline)),
    free: solution,
    problem,
    certificate: certificateOf(solution, leastBytes),
    fits,
  };
}

function certificateOf(
  { certificate }: Solution,
  leastBytes: Certificate | undefined,
): PlanCertificate {
  return {
    ...NO_CERTIFICATE,
    ...defined({ free: certificate, leastBytes }),
  };
}

/** An answer that a signal cut short says so. */
function withCause(solution: Solution, deadline: Deadline): Solution {
  if (solution.status !== 'feasible' || !deadline.isInterrupted) return solution;
  return { ...solution, evidence: [...(solution.evidence ?? []), 'the search was interrupted'] };
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
async function firstUnderBudget(
  prepared: Pick<Prepared, 'question' | 'left' | 'model'>,
  problem: Problem,
  asked: SolveOptions,
  deadline: Deadline,
): Promise<FirstUnderBudget> {
  const { request, budgetBytes } = prepared.question;
  const { compact } = prepared.left;
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
      quick.gap <= gapWithoutPeak(request) ||
      choicePeakBytes(prepared.model, compact.expand(quick.choice)) > budgetBytes
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
  // Where it was not known that the peak might bind, the proof gets the work of a request that
  // limits the states alone.
  const work = peakBinds(request) ? { workLimit: workOnProof(problem, request, { isFar }) } : {};
  const proof = { ...asked, ...deadline.solveOptions, starts, searchesWide: isFar, ...work };
  return { solution: await solveOrRefuse(prepared, problem, proof, deadline), fits: quick?.choice };
}
