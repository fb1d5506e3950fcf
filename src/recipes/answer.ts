/**
 * The answer to a planning request: recipes are priced on its problem and start the search, and of
 * the plans that are known the one of the shortest simulated step is taken.
 */
import type { Infeasible, PlannedResult } from '../plan/choice/result.ts';
import type { Prepared } from '../plan/prepare/prepared.ts';
import type { Deadline } from '../plan/request/deadline.ts';
import type { PlanRequest } from '../plan/request/request.ts';
import type { SearchOptions } from '../plan/request/run.ts';
import { shardPrepared } from '../plan/shard.ts';
import type { OverlappedStep } from '../simulate/overlap/known-plan.ts';
import type { OverlapPlan } from '../simulate/overlap/plan.ts';
import { NoChoiceInTime } from '../solver/solve.ts';
import { priceRecipes, type RecipeResult } from './compare/compare.ts';

export interface AnswerOptions extends Pick<SearchOptions, 'onProgress' | 'workLimit'> {
  /** When all of it is to end. */
  readonly deadline: Deadline;
  /** When the search is to end, which leaves time to write the plan; default: `deadline`. */
  readonly search?: Deadline;
  /** True if recipes are priced. Default true. */
  readonly recipes?: boolean;
  /** True if the plan is one of a microbatch, whose step is not simulated alone. Default false. */
  readonly isMicrobatch?: boolean;
}

/** What was found. */
export interface Answered {
  readonly status: 'planned';
  /** The plan of least seconds with every cost one after another. */
  readonly serial: PlannedResult;
  /** The plan to take. */
  readonly taken: PlannedResult;
  readonly recipes: readonly RecipeResult[];
  /** The step of the plan to take, communication overlapped; absent where it was not looked for. */
  readonly step?: OverlappedStep;
  /** What a search for overlap found, where the request asks for one. */
  readonly overlap?: OverlapPlan;
}

/** The same, or why there is no plan. */
export type Answer = Answered | { readonly status: 'infeasible'; readonly serial: Infeasible };

/** Part of the time left that the recipes may take together. */
const RECIPES = 1 / 2;

/** @throws E_TIME_LIMIT, E_LIMIT as `shard`, E_USAGE for an overlap that is not looked for */
export async function answer(prepared: Prepared, options: AnswerOptions): Promise<Answer> {
  const { request } = prepared.question;
  const { deadline, search = deadline, onProgress, workLimit } = options;
  const recipes =
    options.recipes === false ? [] : await priceRecipes(prepared, search.part(RECIPES));
  const known = recipes.flatMap((r) =>
    r.status === 'priced' ? [{ name: r.name, choice: r.choice }] : [],
  );
  const starts = known.map(({ choice }) => choice);
  const serial = await shardPrepared(prepared, {
    starts,
    deadline: search,
    ...(onProgress === undefined ? {} : { onProgress }),
    ...(workLimit === undefined ? {} : { workLimit }),
  });
  if (serial.status === 'infeasible') return { status: 'infeasible', serial };
  const found = { status: 'planned', serial, recipes } as const;
  if (request.overlap === true) {
    const overlap = deadline.isOver ? undefined : await withOverlap(serial, { deadline, starts });
    const taken = overlap?.result ?? serial;
    return { ...found, taken, ...(overlap === undefined ? {} : { overlap }) };
  }
  const isAsked = options.isMicrobatch !== true && asksForStep(request);
  if (!isAsked || known.length === 0 || deadline.isOver) return { ...found, taken: serial };
  const { overlappedStep } = await import('../simulate/overlap/known-plan.ts');
  const step = await overlappedStep(serial, known, deadline);
  return { ...found, taken: step.result, step };
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
