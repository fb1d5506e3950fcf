/**
 * Takes, of the plan of least summed costs and the known plans, the one whose step is the shortest
 * under a trainer's software.
 */
import { fitProbability } from '../cost/error-bands.ts';
import { defined } from '../defined.ts';
import { type PlannedResult, planOfChoice } from '../plan/choice/result.ts';
import type { StepFigures } from '../plan/record/types.ts';
import type { Deadline } from '../plan/request/deadline.ts';
import { evaluate } from '../solver/check/verify.ts';
import type { StepFacts } from '../step/facts.ts';
import { expertsNotRun } from '../step/read/routed-part.ts';
import { stepOfPlan } from '../step/step-of-plan.ts';
import { secondsText } from '../units.ts';
import { DEFAULT_RISK } from './compare/best-plan.ts';
import type { RecipeResult } from './compare/compare.ts';

/** The step of a recipe of the mesh. */
interface RecipeStep {
  readonly name: string;
  readonly step: StepFigures;
}

/** The plan to take, its step, and those of what it was chosen from. */
export interface FastestStep {
  readonly result: PlannedResult;
  /** The name of the recipe, where the plan is one. */
  readonly name?: string;
  readonly step: StepFigures;
  /**
   * Figures of the plan whose calls take the least seconds one after another; absent where trainers
   * do not run it.
   */
  readonly base?: StepFigures;
  /** Figures of every recipe that the request admits and that fits. */
  readonly recipes: readonly RecipeStep[];
}

/**
 * @param serial the plan of least seconds one after another
 * @returns undefined where trainers run none of the plans
 */
export function fastestStep(
  serial: PlannedResult,
  known: readonly RecipeResult[],
  facts: StepFacts,
  deadline: Deadline,
): FastestStep | undefined {
  const { prepared, plan, choice, certificate } = serial;
  const { model, left, question } = prepared;
  const { memoryBytes: limitBytes = model.cluster.memoryBytes, risk = DEFAULT_RISK } =
    question.request;
  const isLikely = (step: StepFigures): boolean =>
    fitProbability(step.peakBytes, limitBytes) >= risk;
  const stepOf = (own: Int32Array): StepFigures | undefined =>
    expertsNotRun(model, own) === undefined ? stepOfPlan(model, own, facts) : undefined;
  const base = stepOf(choice);
  const recipes: RecipeStep[] = [];
  let best: BestStep | undefined = base === undefined ? undefined : { step: base };
  for (const recipe of known) {
    if (recipe.status !== 'priced' || recipe.peakBytes > question.budgetBytes) continue;
    if (deadline.isOver) break;
    const { cost, violations } = evaluate(left.problem, recipe.choice);
    if (violations.length > 0 || !Number.isFinite(Number(cost))) continue;
    const step = stepOf(recipe.choice);
    if (step === undefined) continue;
    recipes.push({ name: recipe.name, step });
    if (best === undefined || isBetter(step, best.step, isLikely)) best = { step, of: recipe };
  }
  if (best === undefined) return undefined;
  const found = { step: best.step, recipes, ...defined({ base }) };
  if (best.of === undefined) return { result: serial, ...found };
  const { name } = best.of;
  const than =
    base === undefined
      ? 'it does not run the plan of least seconds one after another'
      : 'that of the plan of least seconds one after another takes ' +
        secondsText(base.stepSeconds);
  const word =
    `${name}: chosen for its step of ${secondsText(best.step.stepSeconds)} under ` +
    `${facts.trainer}; ${than}`;
  const evidence = [...plan.proof.evidence, word];
  const result = planOfChoice(prepared, best.of.choice, plan, certificate, evidence);
  return { result, name, ...found };
}

/** The best step so far, and the recipe that has it. */
interface BestStep {
  readonly step: StepFigures;
  readonly of?: Extract<RecipeResult, { status: 'priced' }>;
}

/**
 * Steps that are likely to fit come first, the faster before the slower; of two others, the leaner.
 */
function isBetter(
  a: StepFigures,
  b: StepFigures,
  isLikely: (step: StepFigures) => boolean,
): boolean {
  if (isLikely(a) !== isLikely(b)) return isLikely(a);
  return isLikely(a) ? a.stepSeconds < b.stepSeconds : a.peakBytes < b.peakBytes;
}
