/**
 * Keeps copies of a plan from the forward to the backward pass where that makes its step faster:
 * what both passes gather or reduce is then moved once, and held in between. A trainer knows it as
 * FSDP2's `reshard_after_forward=False`, whose gathered weights move and weigh as those of ZeRO-2.
 */
import { fitProbability } from '../cost/error-bands.ts';
import { ShardwrightError } from '../errors.ts';
import { DTYPE_BYTES } from '../graph/types.ts';
import { costsAround, incidentEdges } from '../plan/choice/costs-around.ts';
import type { PlannedResult } from '../plan/choice/result.ts';
import { choicePeakBytes } from '../plan/choice/timeline.ts';
import { choiceOfPlan } from '../plan/choice/transfer.ts';
import { isKeptCopy, type Model } from '../plan/model/model.ts';
import { prepare } from '../plan/prepare/prepare.ts';
import type { Prepared } from '../plan/prepare/prepared.ts';
import type { Plan, StepFigures } from '../plan/record/types.ts';
import type { Deadline } from '../plan/request/deadline.ts';
import type { PlanRequest } from '../plan/request/request.ts';
import type { SearchOptions } from '../plan/request/run.ts';
import { shardPrepared } from '../plan/shard.ts';
import { product } from '../product.ts';
import { evaluate } from '../solver/check/verify.ts';
import type { StepFacts } from '../step/facts.ts';
import { stepOfPlan } from '../step/step-of-plan.ts';
import { type Answered, chosenByStep } from './chosen-step.ts';
import { DEFAULT_RISK } from './compare/best-plan.ts';
import type { RecipeResult } from './compare/compare.ts';

/** Copies are kept where that saves at least this share of the step. */
const WORTH = 0.005;

/**
 * The answer with copies that stay from the forward to the backward pass, whose bound and proof are
 * those of all plans that may keep copies. Undefined where the request says how long they live, and
 * where they make the step no shorter.
 */
export async function keepingCopies(
  chosen: Answered,
  search: SearchOptions,
  deadline: Deadline,
  facts: StepFacts | undefined,
): Promise<Answered | undefined> {
  const { plan, recipes } = chosen;
  const stepSeconds = plan.step?.stepSeconds;
  if (!mayKeepCopies(chosen) || stepSeconds === undefined || deadline.isOver) return undefined;
  const enoughSeconds = stepSeconds * (1 - WORTH);
  if (stepSeconds - repeatedSeconds(plan) > enoughSeconds) return undefined;
  const kept = withCopiesKept(chosen, deadline);
  if (kept === undefined) return undefined;
  const { prepared, choice } = kept;
  const step = await stepOfChoice(kept, facts);
  if (step.stepSeconds > enoughSeconds || !isAsSure(chosen, step.peakBytes)) return undefined;
  const starts = [choice, choiceOfPlan(chosen.serial.plan, prepared.model)];
  const serial = await inTime(() => shardPrepared(prepared, { ...search, starts }));
  if (serial?.status !== 'planned') return undefined;
  const own: RecipeResult = {
    status: 'priced',
    name: `${nameOf(chosen)}, copies kept`,
    choice,
    seconds: Number(evaluate(prepared.left.problem, choice).cost) / prepared.model.unitsPerSecond,
    peakBytes: choicePeakBytes(prepared.model, choice),
  };
  const {
    fastest,
    step: simulated,
    ...answered
  } = await chosenByStep(serial, [own], deadline, facts);
  const before = { recipes: chosen.fastest?.recipes ?? [], known: chosen.step?.known ?? [] };
  return {
    serial,
    recipes,
    ...answered,
    ...(fastest && { fastest: { ...fastest, recipes: [...before.recipes, ...fastest.recipes] } }),
    ...(simulated && { step: { ...simulated, known: [...before.known, ...simulated.known] } }),
  };
}

/** What the plan is called whose copies are kept. */
function nameOf({ fastest, step }: Answered): string {
  return fastest?.name ?? step?.name ?? 'the plan of least seconds';
}

/** The step of a choice: under a trainer's software, or as the exported program is simulated. */
async function stepOfChoice(
  { prepared, choice }: KeptCopies,
  facts: StepFacts | undefined,
): Promise<Pick<StepFigures, 'stepSeconds' | 'peakBytes'>> {
  if (facts !== undefined) return stepOfPlan(prepared.model, choice, facts);
  const { CandidatePool } = await import('../simulate/overlap/candidates.ts');
  const { best } = new CandidatePool(prepared, {}, choice);
  return {
    stepSeconds: best.simulatedSeconds,
    peakBytes: choicePeakBytes(prepared.model, choice),
  };
}

/** Tells whether a peak fits as surely as is asked, or as the plan that was chosen. */
function isAsSure({ prepared, plan }: Answered, peakBytes: number): boolean {
  const { model, question } = prepared;
  const { memoryBytes = model.cluster.memoryBytes, risk = DEFAULT_RISK } = question.request;
  const own = plan.step?.peakBytes ?? plan.memory.peakBytes;
  return fitProbability(peakBytes, memoryBytes) >= Math.min(risk, fitProbability(own, memoryBytes));
}

/** Undefined where the time was over before there was an answer. */
async function inTime<T>(search: () => Promise<T>): Promise<T | undefined> {
  try {
    return await search();
  } catch (error) {
    const code = error instanceof ShardwrightError ? error.code : '';
    if (code === 'E_TIME_LIMIT' || code === 'E_LIMIT') return undefined;
    throw error;
  }
}

/** A plan whose copies may stay, and the request that it is a choice of. */
interface KeptCopies {
  readonly prepared: Prepared;
  readonly choice: Int32Array;
}

/** Tells whether the request leaves open how long copies live. */
function mayKeepCopies({ prepared: { question } }: PlannedResult): boolean {
  const { copies, sharing, recipe } = question.request;
  return copies === undefined && sharing && recipe === undefined;
}

/**
 * Seconds of moves that the backward pass makes again: no plan with the same placements can save
 * more.
 */
export function repeatedSeconds({ nodes }: Pick<Plan, 'nodes'>): number {
  const forward = new Set<string>();
  let seconds = 0;
  for (const { phase, redistributions } of nodes)
    for (const { value, to, copy, seconds: own, times = 1 } of redistributions) {
      if (copy === 'reused') continue;
      const key = `${value} ${to}`;
      if (phase === 'forward') forward.add(key);
      else if (forward.has(key)) seconds += own * times;
    }
  return seconds;
}

/**
 * The same placements with as many copies kept as the budget allows, those first that save most for
 * their bytes; undefined where none is worth it.
 */
function withCopiesKept(result: PlannedResult, deadline: Deadline): KeptCopies | undefined {
  const { question, model: base } = result.prepared;
  const request: PlanRequest = { ...question.request, copies: 'step' };
  const prepared = prepare(question.program, request, base.table, deadline);
  const { model } = prepared;
  const before = choiceOfPlan(result.plan, model);
  const worth = keptCopies(model, before);
  const budgetBytes = Math.max(question.budgetBytes, result.plan.memory.peakBytes);
  const withFirst = (count: number): Int32Array => {
    const choice = before.slice();
    for (const { variable, value } of worth.slice(0, count)) choice[variable] = value;
    return choice;
  };
  let [fits, over] = [0, worth.length + 1];
  if (choicePeakBytes(model, withFirst(worth.length)) <= budgetBytes) fits = worth.length;
  else
    while (over - fits > 1) {
      const count = Math.floor((fits + over) / 2);
      if (choicePeakBytes(model, withFirst(count)) <= budgetBytes) fits = count;
      else over = count;
    }
  return fits === 0 ? undefined : { prepared, choice: withFirst(fits) };
}

/** A copy that is cheaper kept, and the value of its variable that keeps it. */
interface WorthKeeping {
  readonly variable: number;
  readonly value: number;
  readonly savedByByte: number;
}

/** The copies that are cheaper kept, the one first that saves most for a byte. */
function keptCopies(model: Model, choice: Int32Array): WorthKeeping[] {
  const { flow, space, problem } = model;
  const edges = incidentEdges(problem);
  const found = model.copies.flatMap((copy): WorthKeeping[] => {
    const { variable, value, life, owned } = copy;
    if (life === undefined) return [];
    const costs = costsAround(problem, edges[variable], choice, variable);
    const own = choice[variable];
    let best = own;
    for (let z = 0; z < costs.length; z++)
      if (owned[z] === owned[own] && isKeptCopy(copy, z) && costs[z] < costs[best]) best = z;
    if (best === own) return [];
    const { dtype, shape } = flow.values[value].meta;
    const bytes = product(space.localShape(copy.copy[best], shape)) * DTYPE_BYTES[dtype];
    return [{ variable, value: best, savedByByte: (costs[own] - costs[best]) / bytes }];
  });
  return found.sort((a, b) => b.savedByByte - a.savedByByte || a.variable - b.variable);
}
