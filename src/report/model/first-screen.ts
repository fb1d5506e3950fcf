/**
 * Makes the first screen of a plan, the same for the terminal, the report and the page: what to do
 * in words, its step and memory, what it beats, and what is proven.
 */

import { meshSize } from '../../mesh/devices/mesh.ts';
import type { Model } from '../../plan/model/model.ts';
import { EXPORTED, planFits, planPeakBytes } from '../../plan/record/answer.ts';
import type { Plan } from '../../plan/record/types.ts';
import { askedGap, isGapGiven, type PlanRequest } from '../../plan/request/request.ts';
import type { RecipeResult } from '../../recipes/compare/compare.ts';
import type { KnownStep } from '../../simulate/overlap/known-plan.ts';
import {
  bytesText,
  countedText,
  differenceText,
  excessOver,
  lineText,
  percentText,
  probabilityText,
  ROUNDING,
  secondsText,
} from '../../units.ts';
import { planBandText } from './certainty.ts';
import { type FoundStep, knownSteps, noStepText } from './known-steps.ts';
import { placementWords } from './placement-words.ts';
import { settingRows } from './settings.ts';

/** One question of the first screen with its answer: a sentence, without its full stop, each. */
export interface ScreenRow {
  readonly label: string;
  readonly texts: readonly string[];
}

/** The input of a first screen. */
interface ScreenInput {
  readonly plan: Plan;
  /** The planning model and the plan as a choice of it. */
  readonly model: Model;
  readonly choice: Int32Array;
  /** Known plans that were priced on the same problem. */
  readonly recipes: readonly RecipeResult[];
  /** How the step was found. */
  readonly found: FoundStep;
  /** The request and the budget per device as the user gave them. */
  readonly settings: { readonly request: PlanRequest; readonly budgetBytes: number };
}

/** The rows of the first screen, in their order. */
export function firstScreen(input: ScreenInput): ScreenRow[] {
  const { plan } = input;
  return [
    { label: 'plan', texts: [whatText(plan)] },
    { label: 'do', texts: placementWords(input) },
    { label: 'step time', texts: stepTexts(input) },
    { label: 'memory', texts: [memoryText(plan)] },
    { label: 'beats', texts: [beatsText(input)] },
    { label: 'proof', texts: [proofText(plan)] },
    ...settingRows({
      graph: input.model.graph,
      ...input.settings,
      gap: askedGap(plan.request),
      gapGiven: isGapGiven(plan.request),
    }).map(({ label, words }) => ({ label, texts: [words.join('; ')] })),
  ];
}

/** The model, and where the dims of the mesh lie in the cluster. */
function whatText(plan: Plan): string {
  const dims = plan.mesh.map(
    (d) => `${d.name}=${d.size} ${d.hosts === 1 ? 'inside a host' : `across ${d.hosts} hosts`}`,
  );
  const devices = countedText(meshSize(plan.mesh), 'device');
  return `${lineText(plan.model)} on ${devices} of ${plan.cluster}: ${dims.join(', ')}`;
}

function stepTexts({ plan, found, recipes }: ScreenInput): string[] {
  const { step } = plan;
  if (step === undefined) return [noStepText(plan, recipes.length > 0)];
  const seconds = secondsText(step.stepSeconds);
  const range = [...passesTexts(plan), planBandText(plan)];
  if (step.trainer !== EXPORTED)
    return [`${seconds} a training step, run by ${step.trainer}${againText(step)}`, ...range];
  const bound = found.step?.boundSeconds ?? null;
  const gap = found.step?.gap ?? null;
  const proven =
    bound === null || gap === null
      ? ''
      : `; no plan is below ${secondsText(bound)} (gap ${percentText(gap)})`;
  return [`${seconds} simulated, communication overlapped${proven}`, ...range];
}

function againText({ recomputes }: NonNullable<Plan['step']>): string {
  if (recomputes === undefined) return '';
  return `, which recomputes ${recomputes === 'full' ? 'layers in full' : recomputes}`;
}

/** The passes that a step consists of, where it is not one. */
export function passesTexts({ request: { accumulate } }: Plan): string[] {
  return accumulate === undefined
    ? []
    : [`${accumulate} passes over microbatches, gradients reduced once`];
}

function memoryText(plan: Plan): string {
  const bytes = planPeakBytes(plan) ?? plan.memory.peakBytes;
  const fits = planFits(plan);
  const of = `${bytesText(bytes)} of ${bytesText(plan.memory.budgetBytes)} a device`;
  if (fits === undefined) return `${of} for states; activations not modelled`;
  return `${of} at the peak; fits with ${probabilityText(fits)}`;
}

/** Known plans with the figure that the plan is ranked by. */
interface Ranked {
  readonly seconds: number;
  readonly others: readonly KnownStep[];
  /** The name of the figure, if it is not the time of a step. */
  readonly what: string;
}

function rankedBy({ plan, recipes, found }: ScreenInput): Ranked {
  const steps = knownSteps(found);
  const own = found.fastest?.name ?? found.step?.name;
  if (steps !== undefined && plan.step !== undefined) {
    const others = steps.filter(({ name, isAdmitted }) => isAdmitted && name !== own);
    return { seconds: plan.step.stepSeconds, others, what: '' };
  }
  const others = recipes.flatMap((r) =>
    r.status === 'priced' && r.peakBytes <= plan.memory.budgetBytes
      ? [{ name: r.name, stepSeconds: r.seconds, isAtLeast: false, isAdmitted: true }]
      : [],
  );
  return { seconds: plan.objective.seconds, others, what: ' one after another' };
}

/** The fastest known plan that fits. */
function beatsText(input: ScreenInput): string {
  const { plan, recipes, found } = input;
  if (plan.request.recipe !== undefined)
    return `it is ${plan.request.recipe}, as asked; without --recipe the best plan is found`;
  const { seconds, others: fitting, what } = rankedBy(input);
  const [first, ...others] = [...fitting].sort((a, b) => a.stepSeconds - b.stepSeconds);
  const own = found.fastest?.name ?? found.step?.name;
  const is = own === undefined ? '' : `it is ${own}, the fastest known plan; `;
  if (first === undefined)
    return is + (recipes.length === 0 ? 'known plans were not priced' : 'no other known plan fits');
  const more = excessOver(seconds, first.stepSeconds);
  const percent = Math.abs(more) < ROUNDING ? 'the same' : differenceText(more);
  const of = others.length === 0 ? '' : `, the best of ${fitting.length} known plans that fit`;
  const takes = first.isAtLeast ? 'takes at least' : 'takes';
  return `${is}${first.name} ${takes} ${secondsText(first.stepSeconds)}${what} (${percent})${of}`;
}

function proofText({ proof, objective }: Plan): string {
  const seconds = secondsText(objective.seconds);
  if (proof.status === 'optimal')
    return (
      `optimal (gap 0): no plan has a smaller sum of compute and communication than ` +
      `${seconds}; re-costed, bound checked`
    );
  return (
    `${proof.status}: no plan has a smaller sum of compute and communication than ` +
    `${secondsText(proof.bound)}; this one has ${seconds} ` +
    `(gap ${percentText(proof.gap)}), re-costed`
  );
}
