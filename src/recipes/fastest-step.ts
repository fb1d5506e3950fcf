/**
 * Takes, of the plan of least summed costs and the known plans, the one whose step is the shortest
 * under a trainer's software.
 */
import { fitProbability } from '../cost/error-bands.ts';
import { type PlannedResult, planOfChoice } from '../plan/choice/result.ts';
import type { StepFigures } from '../plan/record/types.ts';
import type { Deadline } from '../plan/request/deadline.ts';
import { evaluate } from '../solver/check/verify.ts';
import type { StepFacts } from '../step/facts.ts';
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
  /** Figures of the plan whose calls take the least seconds one after another. */
  readonly base: StepFigures;
  /** Figures of every recipe that the request admits and that fits. */
  readonly recipes: readonly RecipeStep[];
}

/** @param serial the plan of least seconds one after another */
export function fastestStep(
  serial: PlannedResult,
  known: readonly RecipeResult[],
  facts: StepFacts,
  deadline: Deadline,
): FastestStep {
  const { prepared, plan, choice, certificate } = serial;
  const { model, left, question } = prepared;
  const { memoryBytes: limitBytes = model.cluster.memoryBytes, risk = DEFAULT_RISK } =
    question.request;
  const isLikely = (step: StepFigures): boolean =>
    fitProbability(step.peakBytes, limitBytes) >= risk;
  const base = stepOfPlan(model, choice, facts);
  const recipes: RecipeStep[] = [];
  let best: { readonly step: StepFigures; readonly of?: RecipeResult } = { step: base };
  for (const recipe of known) {
    if (recipe.status !== 'priced' || recipe.peakBytes > question.budgetBytes) continue;
    if (deadline.isOver) break;
    const { cost, violations } = evaluate(left.problem, recipe.choice);
    if (violations.length > 0 || !Number.isFinite(Number(cost))) continue;
    const step = stepOfPlan(model, recipe.choice, facts);
    recipes.push({ name: recipe.name, step });
    if (isBetter(step, best.step, isLikely)) best = { step, of: recipe };
  }
  if (best.of?.status !== 'priced') return { result: serial, step: base, base, recipes };
  const { name } = best.of;
  const word =
    `${name}: chosen for its step of ${secondsText(best.step.stepSeconds)} under ` +
    `${facts.trainer}; that of the plan of least seconds one after another takes ` +
    secondsText(base.stepSeconds);
  const evidence = [...plan.proof.evidence, word];
  const result = planOfChoice(prepared, best.of.choice, plan, certificate, evidence);
  return { result, name, step: best.step, base, recipes };
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
