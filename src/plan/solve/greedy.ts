/**
 * Uses greedy propagation in the search: as choices to start from, as the other of two choices, or
 * as the plan of `--solver propagate`.
 */
import { evaluate } from '../../solver/check/verify.ts';
import { leastTotal } from '../../solver/problem/cost.ts';
import type { Problem, Solution } from '../../solver/types.ts';
import { defaultStart, propagate } from '../choice/propagate.ts';
import {
  askedTimeline,
  feasible,
  keepsBudget,
  type LeastCostResult,
  NO_CERTIFICATE,
  planned,
} from '../choice/result.ts';
import { greedyFrom } from '../choice/write.ts';
import type { Prepared } from '../prepare/prepared.ts';
import type { Deadline } from '../request/deadline.ts';

/**
 * Choices to begin with: a solve that may be cut short also gets what greedy propagation finds at
 * once.
 */
export function startsOf(
  {
    model,
    left: { problem },
    question: { request },
  }: Pick<Prepared, 'model' | 'left' | 'question'>,
  deadline: Deadline,
  given?: readonly Int32Array[],
): readonly Int32Array[] | undefined {
  if (request.timeLimitSeconds === undefined && !deadline.isOver) return given;
  const greedy = propagate(model, problem, defaultStart(model, problem));
  return greedy === undefined ? given : [...(given ?? []), greedy];
}

/**
 * A solve that was cut short may hold placements whose greedy propagation is cheaper than its own
 * choice.
 */
export function noWorseThanGreedy(
  {
    model,
    left: { problem },
    question: { request },
  }: Pick<Prepared, 'model' | 'left' | 'question'>,
  solution: Solution,
): Solution {
  const cut = solution.status === 'feasible' && request.objective !== 'parameter-memory';
  const greedy = cut ? greedyFrom(model, problem, solution.choice) : undefined;
  if (greedy === undefined || greedy.cost >= solution.objective) return solution;
  const { choice, cost } = greedy;
  const evidence = [
    ...(solution.evidence ?? []),
    'the placements found were propagated greedily, which was cheaper',
  ];
  return {
    ...solution,
    choice,
    objective: cost,
    gap: (cost - solution.bound) / Math.max(1, cost),
    evidence,
  };
}

/**
 * The choice of greedy propagation for a problem whose solve was cut short before any choice;
 * undefined where it breaks a row.
 */
export function greedily(
  { model, left: { problem: whole, compact } }: Pick<Prepared, 'model' | 'left'>,
  problem: Problem,
): Solution | undefined {
  const found = propagate(model, whole, defaultStart(model, whole));
  const choice = found === undefined ? undefined : compact.contract(found);
  if (choice === undefined) return undefined;
  const { cost, violations } = evaluate(problem, choice);
  if (violations.length > 0) return undefined;
  const evidence = ['the search ended without a choice; this one is greedy'];
  return feasible({
    choice,
    objective: Number(cost),
    bound: leastTotal(problem),
    solver: 'propagate',
    evidence,
    seconds: 0,
  });
}

/**
 * `--solver propagate`: greedy from the default placements, with the bound that its terms alone
 * give.
 */
export function greedyPlan(prepared: Prepared): LeastCostResult {
  const {
    model,
    left: { problem },
    question: { budgetBytes },
  } = prepared;
  const started = performance.now();
  const choice = propagate(model, problem, defaultStart(model, problem));
  if (choice === undefined)
    return {
      status: 'infeasible',
      conflict: ['propagation found no strategy for some node'],
      budgetBytes,
    };
  const { cost, violations } = evaluate(problem, choice);
  if (violations.length > 0)
    return {
      status: 'infeasible',
      conflict: violations.map((v) => (v.code === 'row' ? v.row : v.code)),
      budgetBytes,
    };
  const seconds = (performance.now() - started) / 1000;
  const solution = feasible({
    choice,
    objective: Number(cost),
    bound: leastTotal(problem),
    solver: 'propagate',
    seconds,
  });
  const candidate = { prepared, solution, memory: askedTimeline(prepared, choice) };
  if (!keepsBudget(candidate))
    return {
      status: 'infeasible',
      conflict: ['propagation does not fit the peak memory'],
      budgetBytes,
    };
  return planned(candidate, NO_CERTIFICATE);
}
