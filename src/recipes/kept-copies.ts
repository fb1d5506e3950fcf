/**
 * Keeps copies of a plan from the forward to the backward pass where that makes its step faster:
 * what both passes gather or reduce is then moved once, and held in between. A trainer knows it as
 * FSDP2's `reshard_after_forward=False`, whose gathered weights move and weigh as those of ZeRO-2.
 */
import { fitProbability } from '../cost/error-bands.ts';
import { ShardwrightError } from '../errors.ts';
import { DTYPE_BYTES } from '../graph/types.ts';
import { costsAround, incidentEdges } from '../plan/choice/costs-around.ts';
import { decode } from '../plan/choice/decode.ts';
import { choicePeakBytes } from '../plan/choice/timeline.ts';
import { choiceOfPlan } from '../plan/choice/transfer.ts';
import { leastCostPlanOf } from '../plan/least-cost-plan.ts';
import { isKeptCopy, type Model } from '../plan/model/model.ts';
import { prepare } from '../plan/prepare/prepare.ts';
import type { Prepared } from '../plan/prepare/prepared.ts';
import type { Plan } from '../plan/record/types.ts';
import type { Deadline } from '../plan/request/deadline.ts';
import type { PlanRequest } from '../plan/request/request.ts';
import type { SearchOptions } from '../plan/request/run.ts';
import { product } from '../product.ts';
import { evaluate } from '../solver/check/verify.ts';
import type { StepFacts } from '../step/facts.ts';
import { stepOfPlan } from '../step/step-of-plan.ts';
import { type Answered, chosenByStep } from './chosen-step.ts';
import { DEFAULT_RISK } from './compare/best-plan.ts';
import type { RecipeResult } from './compare/compare.ts';

/** Copies are kept where that saves at least this share of the step: it takes another search. */
const WORTH = 0.001;

/**
 * The answer with copies that stay from the forward to the backward pass, whose bound and proof are
 * those of all plans that may keep copies. Undefined where the request says how long they live, and
 * where they make no known plan faster than the one that was chosen.
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
  const best = await inTime(() => fastestKept(chosen, stepSeconds, deadline, facts));
  if (best === undefined) return undefined;
  const { prepared, own } = best;
  const starts = [own.choice, choiceOfPlan(chosen.serial.plan, prepared.model)];
  const serial = await inTime(() => leastCostPlanOf(prepared, { ...search, starts }));
  if (serial?.status !== 'planned') return undefined;
  const { fastest, step, ...answered } = await chosenByStep(serial, [own], deadline, facts);
  // The chosen plan may be that of least seconds, which may keep too much to fit as surely.
  const found = answered.plan.step;
  if (found === undefined || found.stepSeconds >= stepSeconds) return undefined;
  if (!isAsSure(chosen, found.peakBytes)) return undefined;
  const before = { recipes: chosen.fastest?.recipes ?? [], known: chosen.step?.known ?? [] };
  return {
    serial,
    recipes,
    ...answered,
    ...(fastest && { fastest: { ...fastest, recipes: [...before.recipes, ...fastest.recipes] } }),
    ...(step && { step: { ...step, known: [...before.known, ...step.known] } }),
  };
}

/** Tells whether the request leaves open how long copies live. */
function mayKeepCopies({ prepared: { question } }: Answered): boolean {
  const { copies, sharing, recipe } = question.request;
  return copies === undefined && sharing && recipe === undefined;
}

/** A known plan: it gathers and reduces in each pass. */
interface KnownPlan {
  readonly name: string;
  readonly placed: Pick<Plan, 'nodes' | 'outputs'>;
  /** Its step if all that the backward pass repeats were saved: where to look first. */
  readonly hopedSeconds: number;
}

/** The plan that was chosen and the recipes that the request admits, the most promising first. */
function knownPlans({ plan, recipes, serial, fastest, step }: Answered): KnownPlan[] {
  const { model } = serial.prepared;
  const steps = new Map([
    ...(fastest?.recipes.map((r) => [r.name, r.step.stepSeconds] as const) ?? []),
    ...(step?.known.flatMap((k) => (k.isAdmitted ? [[k.name, k.stepSeconds] as const] : [])) ?? []),
  ]);
  const own = fastest?.name ?? step?.name;
  const of = (name: string, placed: KnownPlan['placed'], seconds: number): KnownPlan => ({
    name,
    placed,
    hopedSeconds: seconds - (model.accumulate ?? 1) * repeatedSeconds(placed),
  });
  const known = recipes.flatMap((r): KnownPlan[] => {
    const seconds = steps.get(r.name);
    if (seconds === undefined || r.status !== 'priced' || r.name === own) return [];
    if (r.choice.length !== model.variables.length) return [];
    return [of(r.name, decode(model, r.choice), seconds)];
  });
  return [
    of(own ?? 'the plan of least seconds', plan, plan.step?.stepSeconds ?? Infinity),
    ...known,
  ].sort((a, b) => a.hopedSeconds - b.hopedSeconds);
}

/** Seconds of moves that the backward pass makes again, one after another. */
function repeatedSeconds({ nodes }: KnownPlan['placed']): number {
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

/** A plan whose copies may stay, and the request that it is a choice of. */
interface KeptPlan {
  readonly prepared: Prepared;
  readonly own: Extract<RecipeResult, { readonly status: 'priced' }>;
}

/** The known plan that is fastest with copies kept, where it is faster than the chosen one. */
async function fastestKept(
  chosen: Answered,
  stepSeconds: number,
  deadline: Deadline,
  facts: StepFacts | undefined,
): Promise<KeptPlan | undefined> {
  const stepOf = await stepper(facts);
  let best: { readonly seconds: number; readonly plan?: KeptPlan } = {
    seconds: stepSeconds * (1 - WORTH),
  };
  let prepared: Prepared | undefined;
  for (const { name, placed, hopedSeconds } of knownPlans(chosen)) {
    if (hopedSeconds >= best.seconds || deadline.isOver) break;
    prepared ??= withKeptCopies(chosen.serial.prepared, deadline);
    const of = prepared;
    const choice = mostKept(of, placed, (c) => isAsSure(chosen, stepOf(of, c, 'bytes')));
    if (choice === undefined) continue;
    const seconds = stepOf(prepared, choice, 'seconds');
    if (seconds >= best.seconds) continue;
    best = { seconds, plan: { prepared, own: pricedAs(`${name}, copies kept`, prepared, choice) } };
  }
  return best.plan;
}

function withKeptCopies({ question, model }: Prepared, deadline: Deadline): Prepared {
  const request: PlanRequest = { ...question.request, copies: 'step' };
  return prepare(question.program, request, model.table, deadline);
}

function pricedAs(name: string, prepared: Prepared, choice: Int32Array): KeptPlan['own'] {
  const { model, left } = prepared;
  return {
    status: 'priced',
    name,
    choice,
    seconds: Number(evaluate(left.problem, choice).cost) / model.unitsPerSecond,
    peakBytes: choicePeakBytes(model, choice),
  };
}

/** Seconds of the step of a choice, or bytes of its peak. */
type Stepper = (prepared: Prepared, choice: Int32Array, what: 'seconds' | 'bytes') => number;

/** The step under a trainer's software, or as the exported program is simulated. */
async function stepper(facts: StepFacts | undefined): Promise<Stepper> {
  if (facts !== undefined)
    return ({ model }, choice, what) => {
      const { stepSeconds, peakBytes } = stepOfPlan(model, choice, facts);
      return what === 'seconds' ? stepSeconds : peakBytes;
    };
  const { CandidatePool } = await import('../simulate/overlap/candidates.ts');
  return (prepared, choice, what) =>
    what === 'bytes'
      ? choicePeakBytes(prepared.model, choice)
      : (prepared.question.request.accumulate ?? 1) *
        new CandidatePool(prepared, {}, choice).best.simulatedSeconds;
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

/**
 * The same placements with as many copies kept as the budget allows, those first that save most for
 * their bytes; undefined where none is worth it or the placements are none of the problem.
 */
function mostKept(
  { model, left, question }: Prepared,
  placed: KnownPlan['placed'],
  isAllowed: (choice: Int32Array) => boolean,
): Int32Array | undefined {
  const before = choiceOfPlan(placed, model);
  const worth = keptCopies(model, before);
  const withFirst = (count: number): Int32Array => {
    const choice = before.slice();
    for (const { variable, value } of worth.slice(0, count)) choice[variable] = value;
    return choice;
  };
  const fits = (count: number): boolean => {
    const choice = withFirst(count);
    return choicePeakBytes(model, choice) <= question.budgetBytes && isAllowed(choice);
  };
  let [most, over] = [0, worth.length + 1];
  if (fits(worth.length)) most = worth.length;
  while (over - most > 1) {
    const count = Math.floor((most + over) / 2);
    if (fits(count)) most = count;
    else over = count;
  }
  if (most === 0) return undefined;
  const choice = withFirst(most);
  const { violations, cost } = evaluate(left.problem, choice);
  return violations.length === 0 && Number.isFinite(Number(cost)) ? choice : undefined;
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
