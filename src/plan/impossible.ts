/**
 * Why there is no plan, and which budget would do: the only place that asks how many bytes would be
 * enough.
 */
import type { Impossible, Infeasible } from './choice/result.ts';
import { choicePeakBytes } from './choice/timeline.ts';
import type { Prepared } from './prepare/prepared.ts';
import type { Deadline } from './request/deadline.ts';
import { holdsPeak } from './request/request.ts';
import { gapOnTheWay, workOn } from './request/work-limits.ts';
import { leastMemory, leastMemoryBound } from './solve/least-memory.ts';
import { solveUnlessLate } from './solve/solve-or-refuse.ts';

/** What needs no search: pins that contradict each other, and a budget below the least states. */
export function refusedAtOnce({ question, left }: Prepared): Impossible | undefined {
  if (left.contradictions.length > 0)
    return { status: 'impossible', conflict: left.contradictions };
  if (question.request.solver === 'propagate') return undefined;
  return leastMemoryBound(left.compact.problem) > question.budgetBytes
    ? { status: 'impossible', conflict: ['memory'], memory: { of: 'states' } }
    : undefined;
}

/** The answer that there is no plan, with the budget that would do where memory is in the way. */
export async function explainImpossible(
  prepared: Prepared,
  { conflict, memory }: Impossible,
  deadline: Deadline,
): Promise<Infeasible> {
  const { budgetBytes } = prepared.question;
  const answer = { status: 'infeasible', conflict, budgetBytes } as const;
  if (memory === undefined) return answer;
  if (memory.of === 'states')
    return { ...answer, ...(await leastBudget(prepared, deadline, memory.leastBytes)) };
  const { neededBytes = 0, enoughBytes } = await leastBudget(prepared, deadline);
  const needed = Math.max(neededBytes, memory.leastBytes ?? 0);
  return {
    ...answer,
    ...(needed > budgetBytes ? { neededBytes: needed } : {}),
    ...(enoughBytes === undefined ? {} : { enoughBytes }),
  };
}

/**
 * The memory of the states alone is a budget that works where the budget limits states, and a lower
 * bound where it limits the peak; there the fastest plan with as few states has a sufficient peak.
 *
 * @param stateBytes the least memory of the states, where it is known
 */
async function leastBudget(
  prepared: Pick<Prepared, 'question' | 'left' | 'model'>,
  deadline: Deadline,
  stateBytes?: number,
): Promise<Pick<Infeasible, 'smallestBudgetBytes' | 'neededBytes' | 'enoughBytes'>> {
  const { request } = prepared.question;
  const { compact } = prepared.left;
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
  return {
    neededBytes: bytes,
    enoughBytes: choicePeakBytes(prepared.model, compact.expand(found.choice)),
  };
}
