/**
 * Why there is no plan, and which budget would do: the only file that asks how many bytes would be
 * enough.
 */
import type { Impossible, Infeasible } from './choice/result.ts';
import { choicePeakBytes } from './choice/timeline.ts';
import type { Prepared } from './prepare/prepared.ts';
import type { Deadline } from './request/deadline.ts';
import { gapOnTheWay, workOn } from './request/efforts.ts';
import { holdsPeak } from './request/request.ts';
import { leastMemory, leastMemoryBound } from './solve/least-memory.ts';
import { solveUnlessLate } from './solve/solve-or-refuse.ts';

/** Refusals that need no search: contradicting pins, and a budget below the least states. */
export function refusedAtOnce({ question, left }: Prepared): Impossible | undefined {
  if (left.contradictions.length > 0)
    return { status: 'impossible', conflict: left.contradictions };
  if (question.request.solver === 'propagate') return undefined;
  return leastMemoryBound(left.compact.problem) > question.budgetBytes
    ? { status: 'impossible', conflict: ['memory'], memory: { of: 'states' } }
    : undefined;
}

/** Budgets without and with a plan. */
type Budgets = Pick<Infeasible, 'smallestBudgetBytes' | 'neededBytes' | 'enoughBytes'>;

/** Why there is no plan, and the budgets between which the least one with a plan lies. */
interface Explanation {
  readonly why: Pick<Infeasible, 'status' | 'conflict' | 'budgetBytes'>;
  readonly budgets: Budgets;
  /** Memory is in the way, and the program is small enough for `leastBudget`. */
  readonly canNarrow: boolean;
}

/** Says why there is no plan, and which budget would do where memory is in the way. */
export async function explainImpossible(
  prepared: Prepared,
  { conflict, memory }: Impossible,
  deadline: Deadline,
): Promise<Explanation> {
  const { budgetBytes, request } = prepared.question;
  const why = { status: 'infeasible', conflict, budgetBytes } as const;
  if (memory === undefined) return { why, budgets: {}, canNarrow: false };
  const ofStates = memory.of === 'states' ? memory.leastBytes : undefined;
  const known = await knownBudgets(prepared, deadline, ofStates);
  if (!holdsPeak(request)) return { why, budgets: known, canNarrow: false };
  const needed = Math.max(known.neededBytes ?? 0, memory.leastBytes ?? 0);
  const budgets = { ...known, ...(needed > 0 ? { neededBytes: needed } : {}) };
  return { why, budgets, canNarrow: prepared.left.compact.problem.domains.length <= FEW };
}

/** The answer that there is no plan. A lower bound below the budget of the request says nothing. */
export function infeasible(
  { why }: Explanation,
  { neededBytes = 0, ...enough }: Budgets,
): Infeasible {
  return { ...why, ...enough, ...(neededBytes > why.budgetBytes ? { neededBytes } : {}) };
}

/**
 * Bounds on the states under which a plan is looked for, as multiples of the least: the leanest
 * states can come with the largest activations.
 */
const STATE_BOUNDS = [1, 2, 4, 8];

/**
 * The memory of the states alone is a budget that works where the budget limits states, and a lower
 * bound where it limits the peak; there fast plans with few states have a sufficient peak.
 *
 * @param stateBytes the least memory of the states, where it is known
 */
async function knownBudgets(
  prepared: Pick<Prepared, 'question' | 'left' | 'model'>,
  deadline: Deadline,
  stateBytes?: number,
): Promise<Budgets> {
  const { request } = prepared.question;
  const { compact } = prepared.left;
  const bytes = stateBytes ?? (await leastMemory(compact.problem, deadline.solveOptions));
  if (bytes === undefined) return {};
  if (!holdsPeak(request)) return { smallestBudgetBytes: bytes };
  let enoughBytes = Infinity;
  let before: string | undefined;
  for (const times of STATE_BOUNDS) {
    const rows = (compact.problem.rows ?? []).map((row) => ({
      ...row,
      bound: Math.max(times * bytes, Math.floor(row.bound)),
    }));
    // The same problem has the same answer again.
    const bounds = rows.map(({ bound }) => bound).join();
    if (bounds === before) break;
    before = bounds;
    const under = { ...compact.problem, rows };
    const found = await solveUnlessLate(under, {
      engine: 'exact',
      certify: false,
      gap: gapOnTheWay(request),
      workLimit: workOn(under),
      seed: request.seed,
      ...deadline.solveOptions,
    });
    if (found === undefined || found.status === 'infeasible') break;
    const peakBytes = choicePeakBytes(prepared.model, compact.expand(found.choice));
    if (peakBytes >= enoughBytes) break;
    enoughBytes = peakBytes;
  }
  return { neededBytes: bytes, ...(enoughBytes === Infinity ? {} : { enoughBytes }) };
}

/**
 * The peak of a plan within a budget; `none` where it is proven that there is no such plan, `open`
 * where neither is known.
 */
export type PeakWithin = number | 'none' | 'open';

/** Budgets that are asked in search of the least, at most: each is planned in full. */
const MOST_ASKED = 14;
/** The least budget is found to about one part in so many, and to a KiB. */
const FINENESS = 2 ** 10;
/**
 * Most variables of a problem for which the least budget is looked for: each budget is planned in
 * full, and close to the least one of a larger problem that can take minutes.
 */
const FEW = 256;

/**
 * Narrows the range from the budgets that are proven to have no plan to the least that has one. The
 * lower end is asked first, because it is often reached; then the middle. Where nothing is known
 * above, budgets double. A budget that stays open counts as one without a plan: the request that
 * the hint leads to would find none either. The search ends where the range is narrower than the
 * digits that are printed. The answer is a budget that was asked.
 *
 * @yields a budget to plan under; it is answered with the peak of the plan
 */
export function* leastBudget(
  { neededBytes = 0, enoughBytes = Infinity }: Budgets,
  deadline: Deadline,
): Generator<number, Budgets, PeakWithin> {
  const grain = 2 ** Math.max(10, Math.floor(Math.log2(Math.max(1, neededBytes) / FINENESS)));
  let [needed, peak, enough] = [neededBytes, enoughBytes, Infinity];
  let left = MOST_ASKED;
  function* hasPlan(bytes: number): Generator<number, boolean, PeakWithin> {
    const found = yield bytes;
    // What stays open was searched to its limit, and took longer than an answer.
    left -= found === 'open' ? 2 : 1;
    if (found === 'none') needed = Math.max(needed, bytes + 1);
    if (typeof found !== 'number') return false;
    [peak, enough] = [Math.min(peak, found), Math.min(enough, bytes)];
    return true;
  }
  let low = Math.max(1, Math.ceil(needed / grain));
  for (let grains = low; left > 1 && low * grain < peak && !deadline.isOver;) {
    if (peak < Infinity && peak - needed < peak / FINENESS) break;
    if (!(yield* hasPlan(grains * grain))) low = grains + 1;
    grains = peak === Infinity ? 2 * low : Math.floor((low + Math.ceil(peak / grain)) / 2);
  }
  // The peak of a plan is a budget that nobody has asked yet, and with it the search may fail.
  if (peak < enough && !deadline.isOver) yield* hasPlan(peak);
  const found = Math.min(enough, enoughBytes);
  return {
    ...(needed > 0 ? { neededBytes: needed } : {}),
    ...(found === Infinity ? {} : { enoughBytes: found }),
  };
}
