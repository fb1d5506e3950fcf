/**
 * The answer to a planning request, for the library, the command and the page alike: recipes are
 * priced on its problem and start the search, and of the plans that are known the one of the
 * shortest simulated step is taken.
 */
import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { type Infeasible, type PlannedResult, planOfChoice } from '../plan/choice/result.ts';
import { leastCostPlanOf } from '../plan/least-cost-plan.ts';
import { prepare } from '../plan/prepare/prepare.ts';
import type { Prepared } from '../plan/prepare/prepared.ts';
import type { Deadline } from '../plan/request/deadline.ts';
import type { PlanRequest } from '../plan/request/request.ts';
import { type SearchOptions, startRun } from '../plan/request/run.ts';
import type { OverlapPlan } from '../simulate/overlap/plan.ts';
import { evaluate } from '../solver/check/verify.ts';
import { NoChoiceInTime } from '../solver/solve.ts';
import type { StepFacts } from '../step/facts.ts';
import { type Answered, chosenByStep } from './chosen-step.ts';
import { priceRecipes } from './compare/compare.ts';
import { keepingCopies } from './kept-copies.ts';
import { recipeChoice, recipeOnMesh } from './recipe-choice.ts';

/** Until when and from where an answer is looked for. */
export interface AnswerOptions extends Omit<SearchOptions, 'signal'> {
  /** When the search is to end, which leaves time to write the plan; default: `deadline`. */
  readonly search?: Deadline;
  /** True if recipes are priced. Default true. */
  readonly recipes?: boolean;
  /**
   * The software of the trainer that runs the step, by which the plan is chosen and its step is
   * priced. Absent: the step of the exported program is simulated.
   */
  readonly facts?: StepFacts;
  /** True if the plan is one of a microbatch, whose step is not simulated alone. Default false. */
  readonly isMicrobatch?: boolean;
}

/** The same, or why there is no plan. */
export type Answer = Answered | Infeasible;

/** Part of the time left that the recipes may take together. */
const RECIPES = 1 / 2;
/**
 * Share of what preparing took that is kept for re-costing the plan, which asks for the prices of
 * its placements again.
 */
const RE_COSTING = 1 / 8;

/**
 * The same for writing the folder of the plan: for that it is prepared and re-costed once more, as
 * a reader of the folder does.
 */
const WRITING = 1 + RE_COSTING;

/** A request prepared, and how its time is divided. */
interface PreparedAnswer {
  readonly prepared: Prepared;
  /** The end of simulation and of bounds on the step: time is kept for writing the plan. */
  readonly deadline: Deadline;
  /** The end of the search: time is kept for re-costing the plan, too. */
  readonly search: Deadline;
}

/**
 * Prepares a request, and keeps time for what follows the search.
 *
 * @param writes true if a plan folder is written after the answer, within the same limit
 */
export function prepareToAnswer(
  graph: Graph,
  request: PlanRequest,
  table: OperatorTable,
  whole: Deadline,
  writes = false,
): PreparedAnswer {
  const before = whole.leftSeconds;
  const prepared = prepare(graph, request, table, whole);
  const preparedSeconds = before === Infinity ? 0 : before - whole.leftSeconds;
  const deadline = writes ? whole.reserving(WRITING * preparedSeconds) : whole;
  return { prepared, deadline, search: deadline.reserving(RE_COSTING * preparedSeconds) };
}

/**
 * The plan to take of a prepared request, with its bound and certificate, or why there is none.
 *
 * @throws E_TIME_LIMIT, E_LIMIT where neither a plan was found nor its absence proven, and E_USAGE
 *   for an overlap that is not looked for
 */
export async function answer(prepared: Prepared, options: AnswerOptions = {}): Promise<Answer> {
  const { request } = prepared.question;
  if (request.recipe !== undefined) checkRecipe(prepared, request.recipe);
  const { search, recipes: asksForRecipes, isMicrobatch, starts: given = [], ...more } = options;
  const { deadline } = startRun(request, more);
  const recipes =
    asksForRecipes === false
      ? []
      : await priceRecipes(prepared, (search ?? deadline).part(RECIPES));
  const known = recipes.flatMap((r) =>
    r.status === 'priced' ? [{ name: r.name, choice: r.choice }] : [],
  );
  const starts = [...given, ...known.map(({ choice }) => choice)];
  const serial = await leastCostPlanOf(prepared, {
    findsBudget: true,
    ...more,
    starts,
    deadline: search ?? deadline,
  });
  if (serial.status === 'infeasible') return serial;
  const found = { serial, recipes } as const;
  if (request.recipe !== undefined) {
    const own = await ofRecipe(serial, request.recipe, deadline);
    if (own.status === 'infeasible' || isMicrobatch === true || deadline.isOver)
      return own.status === 'infeasible' ? own : { ...own, ...found };
    const kept = { ...found, ...(await chosenByStep(own, [], deadline, options.facts)) };
    return overByStep(kept) ?? kept;
  }
  if (request.overlap === true) {
    const overlap = deadline.isOver ? undefined : await withOverlap(serial, { deadline, starts });
    return {
      ...(overlap?.result ?? serial),
      ...found,
      ...defined({ overlap }),
    };
  }
  if (isMicrobatch === true) return { ...serial, ...found };
  const { facts } = options;
  const limits = { ...more, deadline: search ?? deadline };
  return ofShortestStep(found, { deadline, limits, ...defined({ facts }) });
}

/** Until when steps are looked at, and how copies that stay are searched for. */
interface StepOptions {
  readonly deadline: Deadline;
  readonly limits: SearchOptions;
  /** The software of the trainer; absent: the step of the exported program is simulated. */
  readonly facts?: StepFacts;
}

/**
 * The plan of the shortest step among that of least seconds and the recipes, with copies that stay
 * where that makes it shorter; the plan of least seconds where no step is asked for.
 */
export async function ofShortestStep(
  found: Pick<Answered, 'serial' | 'recipes'>,
  { deadline, limits, facts }: StepOptions,
): Promise<Answer> {
  const { serial, recipes } = found;
  const { request } = serial.prepared.question;
  if (!asksForStep(request) || deadline.isOver) return { ...serial, ...found };
  const hasKnown = recipes.some(({ status }) => status === 'priced');
  if (facts === undefined && !hasKnown) return { ...serial, ...found };
  const chosen = { ...found, ...(await chosenByStep(serial, recipes, deadline, facts)) };
  // Copies are kept within the peak of the plan, which is not followed here.
  if (request.activations === 'trainer') return overByStep(chosen) ?? chosen;
  return (await keepingCopies(chosen, limits, deadline, facts)) ?? chosen;
}

/**
 * Why a plan is none where the budget limits the step of a trainer, since the plan itself counts no
 * activations (`activations: 'trainer'`); undefined where it fits.
 */
function overByStep({ prepared, plan: { step } }: Answered): Infeasible | undefined {
  const { budgetBytes, request } = prepared.question;
  if (request.activations !== 'trainer' || step === undefined) return undefined;
  if (step.peakBytes <= budgetBytes) return undefined;
  return {
    status: 'infeasible',
    conflict: [`the step of ${step.trainer}`],
    enoughBytes: step.peakBytes,
    budgetBytes,
  };
}

/** @throws E_USAGE for a recipe that the mesh does not have, or beside a search for another plan */
function checkRecipe(prepared: Prepared, recipe: string): void {
  const { overlap, solver, objective } = prepared.question.request;
  const other =
    overlap === true
      ? 'overlap'
      : solver === 'propagate'
        ? 'solver propagate'
        : objective === 'parameter-memory'
          ? 'objective parameter-memory'
          : undefined;
  if (other !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `--recipe ${recipe} is a plan, and --${other} looks for another`,
      { hint: 'give one of the two.' },
    );
  recipeOnMesh(prepared, recipe);
}

/**
 * The plan of a recipe on the problem of the best plan, whose bound and certificate it keeps: its
 * gap is what the recipe gives away.
 *
 * @returns what it needs, where it does not fit the budget
 * @throws E_PLAN where the pins of the request do not admit it, and what `recipeChoice` throws
 */
async function ofRecipe(
  { prepared, plan, certificate }: PlannedResult,
  name: string,
  deadline: Deadline,
): Promise<PlannedResult | Infeasible> {
  const { budgetBytes } = prepared.question;
  const { choice, fits, peakBytes, notes } = await recipeChoice(prepared, name, deadline);
  if (!fits)
    return {
      status: 'infeasible',
      conflict: [`the recipe ${name}`],
      enoughBytes: peakBytes,
      budgetBytes,
    };
  if (evaluate(prepared.left.problem, choice).violations.length > 0)
    throw new ShardwrightError('E_PLAN', `what is pinned does not admit the recipe '${name}'`, {
      hint:
        'leave out --pin, --inputs and --outputs; give --ignore-shardings for a file with its ' +
        'own.',
    });
  const words = notes.map((note) => `${name}: ${note}`);
  return planOfChoice(prepared, choice, plan, certificate, [...plan.proof.evidence, ...words]);
}

/**
 * Tells whether the plan is the known one of the shortest simulated step: nothing else is asked
 * for.
 */
function asksForStep({ objective, solver }: PlanRequest): boolean {
  return objective === 'time' && solver !== 'propagate';
}

/** Undefined where the time was over before a bound was found. */
async function withOverlap(
  serial: PlannedResult,
  options: { readonly deadline: Deadline; readonly starts: readonly Int32Array[] },
): Promise<OverlapPlan | undefined> {
  const { overlapPlan } = await import('../simulate/overlap/plan.ts');
  try {
    return await overlapPlan(serial, options);
  } catch (error) {
    if (error instanceof NoChoiceInTime) return undefined;
    throw error;
  }
}
