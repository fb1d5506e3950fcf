/**
 * The plan of least cost of a graph. `src/shard.ts` asks for it, and then chooses between it and
 * the known recipes by the seconds of a training step.
 *
 * It is found in steps. Each takes one record and returns one, and none calls an earlier step, with
 * one exception: where the budget binds and prices had been left out, the search begins once more
 * with all of them (`heldWithin`).
 *
 * 1. `prepare` turns the request into an integer program: strategies, prices, what pins leave.
 *    `farOverBudget` may see at once that the budget binds; step 4 then comes next.
 * 2. `leastSeconds` solves it. Its one row of memory sums the states of a device (weights,
 *    gradients, moments of the optimizer), which are the same at every point of the program.
 * 3. `candidatesOf` follows the memory of that plan over the step; where plans tie, that of the one
 *    with layers placed alike comes first. The first whose peak, activations included, is within
 *    the budget is the answer: a limit on the peak could not make it faster.
 * 4. If the peak is above the budget, the budget binds, and `holdBudget` searches again. It adds
 *    the memory at the point of the peak as a row, solves, follows the new plan, and goes on until
 *    a plan fits. If the request allows it, results may also be recomputed in the backward pass
 *    instead of kept. The bound comes from exact rows alone, so it holds for every plan within the
 *    budget.
 * 5. `explainImpossible` says which pins contradict each other, or how many bytes would do;
 *    `leastBudget` names the budgets to plan under in search of the least.
 */
import { checkKinds } from '../arguments.ts';
import { ShardwrightError } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { farOverBudget } from './budget/far-over.ts';
import { holdBudget } from './budget/hold-budget.ts';
import type { OverBudget } from './budget/types.ts';
import { type Impossible, keepsBudget, type LeastCostResult, planned } from './choice/result.ts';
import { candidatesOf } from './choose.ts';
import {
  explainImpossible,
  infeasible,
  leastBudget,
  type PeakWithin,
  refusedAtOnce,
} from './impossible.ts';
import { holdingPeak, prepare, withBudget } from './prepare/prepare.ts';
import type { Prepared } from './prepare/prepared.ts';
import { completeRequest, tableOf } from './request/check-call.ts';
import type { GivenRequest } from './request/request.ts';
import { type Run, type SearchOptions, startRun } from './request/run.ts';
import { greedyPlan } from './solve/greedy.ts';
import { leastSeconds } from './solve/least-seconds.ts';

/** Operators, known choices and limits of a search. */
export interface LeastCostOptions extends SearchOptions {
  /** Default the built-in operators. */
  readonly table?: OperatorTable;
}

/**
 * The best plan of a graph on a mesh, with its bound and certificate, or why there is none.
 *
 * @throws E_TIME_LIMIT, E_LIMIT where neither a plan was found nor its absence proven, and what
 *   `prepare` throws
 */
export async function leastCostPlan(
  graph: Graph,
  request: GivenRequest,
  options: LeastCostOptions = {},
): Promise<LeastCostResult> {
  checkKinds('leastCostPlan', { graph: [graph, 'graph'] });
  const { table, ...search } = options;
  const asked = completeRequest(request);
  const run = startRun(asked, search);
  const operators = tableOf('leastCostPlan', table);
  return leastCostPlanOf(prepare(graph, asked, operators, run.deadline), run);
}

/** The same for a request that is prepared. */
export async function leastCostPlanOf(
  prepared: Prepared,
  options: SearchOptions = {},
): Promise<LeastCostResult> {
  const run = startRun(prepared.question.request, options);
  const found = await search(prepared, run);
  if (found.status !== 'impossible') return found;
  const explained = await explainImpossible(found.prepared, found, run.deadline);
  if (run.findsBudget !== true || !explained.canNarrow)
    return infeasible(explained, explained.budgets);
  const budgets = leastBudget(explained.budgets, run.deadline);
  let asked = budgets.next();
  while (asked.done !== true)
    asked = budgets.next(await peakWithin(withBudget(prepared, asked.value), run));
  return infeasible(explained, asked.value);
}

/** There is no plan; `prepared` is the request as it was last searched. */
type Refused = Impossible & { readonly prepared: Prepared };

async function search(prepared: Prepared, run: Run): Promise<LeastCostResult | Refused> {
  // Pins against pins, and a budget below the least states, need no search.
  const refused = refusedAtOnce(prepared);
  if (refused !== undefined) return { ...refused, prepared };
  if (prepared.question.request.solver === 'propagate') return greedyPlan(prepared);
  // A shortcut: a quick look at the fastest plan of all may show that the budget binds. Then no
  // proof is needed of what is fastest without a limit on the peak.
  const far = await farOverBudget(prepared, run.deadline);
  if (far.over !== undefined) {
    const held = await heldWithin(prepared, far.over, run);
    // Otherwise the steps below go on: they find why there is no plan, or a bound of the plan.
    if (held.status === 'planned' && held.plan.proof.bound > 0) return held;
  }
  const first = await leastSeconds(prepared, run);
  if (first.status === 'impossible') return { ...first, prepared };
  for (const candidate of candidatesOf(prepared, first, run.deadline))
    if (keepsBudget(candidate)) return planned(candidate, first.certificate);
  return heldWithin(prepared, { ...first, problems: far.problems }, run);
}

/**
 * The budget binds at the peak, and the request says so from here on. `prepare` may have left out
 * prices that no fastest plan can pay (those above a ceiling); a plan with a lower peak may have to
 * pay them, so they return. What was found without them is a choice of another model, and the road
 * begins again with all prices, once.
 */
async function heldWithin(
  prepared: Prepared,
  over: OverBudget,
  run: Run,
): Promise<LeastCostResult | Refused> {
  const binding = holdingPeak(prepared);
  const pricesReturned = binding.model !== prepared.model;
  if (pricesReturned) return search(binding, { ...run, starts: [] });
  const held = await holdBudget(binding, over, run);
  return held.status === 'impossible' ? { ...held, prepared: binding } : held;
}

/** The peak of a plan within the budget, or whether it is proven that there is none. */
async function peakWithin(prepared: Prepared, run: Run): Promise<PeakWithin> {
  try {
    const found = await search(prepared, run);
    return found.status === 'planned' ? found.plan.memory.peakBytes : 'none';
  } catch (error) {
    const code = error instanceof ShardwrightError ? error.code : '';
    if (['E_LIMIT', 'E_TIME_LIMIT', 'E_INTERRUPTED'].includes(code)) return 'open';
    throw error;
  }
}
