/**
 * Takes the plan of the shortest step among the plans that are known: under a trainer's software,
 * or as the exported program is simulated.
 */
import { fitProbability } from '../cost/error-bands.ts';
import { ShardwrightError } from '../errors.ts';
import type { PlannedResult } from '../plan/choice/result.ts';
import { EXPORTED } from '../plan/record/answer.ts';
import type { Plan, StepFigures } from '../plan/record/types.ts';
import type { Deadline } from '../plan/request/deadline.ts';
import type { OverlappedStep } from '../simulate/overlap/known-plan.ts';
import type { OverlapPlan } from '../simulate/overlap/plan.ts';
import type { StepFacts } from '../step/facts.ts';
import { expertsNotRun } from '../step/read/routed-part.ts';
import { DEFAULT_RISK } from './compare/best-plan.ts';
import type { RecipeResult } from './compare/compare.ts';
import { type FastestStep, fastestStep } from './fastest-step.ts';

/** The plan to take, and how it was found. */
export interface Answered extends PlannedResult {
  /** The plan of least seconds with every cost one after another. */
  readonly serial: PlannedResult;
  readonly recipes: readonly RecipeResult[];
  /**
   * The step of the plan to take, communication overlapped, as it is simulated for the exported
   * program; absent where it was not looked for.
   */
  readonly step?: OverlappedStep;
  /** The same under a trainer's software. */
  readonly fastest?: Omit<FastestStep, 'result'>;
  /** The result of a search for overlap, where the request asks for one. */
  readonly overlap?: OverlapPlan;
}

/** A plan with its step, and what it was chosen from. */
type ChosenPlan = PlannedResult & Pick<Answered, 'step' | 'fastest'>;

/**
 * The known plan of the shortest step, or the plan of least seconds where none is shorter.
 *
 * @param facts the software of the trainer that runs the step; absent: the exported program is
 *   simulated
 * @throws E_PLAN where the trainer runs none of them
 */
export async function chosenByStep(
  serial: PlannedResult,
  recipes: readonly RecipeResult[],
  deadline: Deadline,
  facts: StepFacts | undefined,
): Promise<ChosenPlan> {
  if (facts !== undefined) {
    const fastest = fastestStep(serial, recipes, facts, deadline);
    if (fastest === undefined) throw notRun(serial, facts);
    return withTrainer(fastest);
  }
  const known = recipes.flatMap((r) =>
    r.status === 'priced' ? [{ name: r.name, choice: r.choice }] : [],
  );
  const { overlappedStep } = await import('../simulate/overlap/known-plan.ts');
  const step = await overlappedStep(serial, asSure(serial, known, recipes), deadline);
  return { ...simulated(step), step };
}

/** Trainers run none of the plans that were found. */
function notRun(
  { prepared: { model }, choice }: PlannedResult,
  { trainer }: StepFacts,
): ShardwrightError {
  const why = expertsNotRun(model, choice) ?? 'experts';
  return new ShardwrightError('E_PLAN', `${trainer} runs no plan that was found: ${why}`, {
    hint:
      'name a mesh whose dims all cut tokens, with experts over ep (--mesh dp=2,ep=8), or ask ' +
      'for the exported program with --for shardwright.',
  });
}

/** The known plans that fit as surely as is asked, or as the plan of least seconds does. */
function asSure<Known extends { readonly name: string }>(
  { prepared: { model, question }, plan }: PlannedResult,
  known: readonly Known[],
  recipes: readonly RecipeResult[],
): Known[] {
  const { memoryBytes = model.cluster.memoryBytes, risk = DEFAULT_RISK } = question.request;
  const peak = plan.memory.timeline?.peakBytes;
  if (peak === undefined) return [...known];
  const least = Math.min(risk, fitProbability(peak, memoryBytes));
  return known.filter(({ name }) =>
    recipes.some(
      (r) =>
        r.name === name &&
        r.status === 'priced' &&
        fitProbability(r.peakBytes, memoryBytes) >= least,
    ),
  );
}

function withTrainer({
  result,
  ...fastest
}: FastestStep): PlannedResult & Pick<Answered, 'fastest'> {
  return { ...result, plan: { ...result.plan, step: fastest.step }, fastest };
}

/** The plan with the step of the exported program. */
function simulated({ result, simulatedSeconds }: OverlappedStep): PlannedResult {
  const { plan } = result;
  return { ...result, plan: { ...plan, step: simulatedStep(plan, simulatedSeconds) } };
}

/** The step of a plan whose exported program was simulated. */
export function simulatedStep({ memory }: Plan, stepSeconds: number): StepFigures {
  return {
    trainer: EXPORTED,
    stepSeconds,
    peakBytes: memory.timeline?.peakBytes ?? memory.peakBytes,
  };
}
