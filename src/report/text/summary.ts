/** Prints the first screen of a plan: model, request, answer, proof and recipes. */

import { checkKinds } from '../../arguments.ts';
import type { Graph } from '../../graph/types.ts';
import { itemAt } from '../../item-at.ts';
import { ofThemPadding } from '../../models/vocabulary.ts';
import { blurSeconds } from '../../plan/choice/write.ts';
import { EXPORTED } from '../../plan/record/answer.ts';
import type { Plan } from '../../plan/record/types.ts';
import { askedGap, isGapGiven, type PlanRequest } from '../../plan/request/request.ts';
import type { RecipeResult } from '../../recipes/compare/compare.ts';
import {
  bytesText,
  countedText,
  excessOver,
  lineText,
  percentText,
  secondsText,
  tableText,
} from '../../units.ts';
import { planFitText } from '../model/certainty.ts';
import { type FoundStep, knownSteps } from '../model/known-steps.ts';
import { gradientText } from '../model/memory-parts.ts';
import { parameterElements, parameterTable } from '../model/parameters.ts';
import { settingLines } from '../model/settings.ts';
import { stepLines } from './overlap.ts';

/**
 * The first screen of a plan: what was read and asked, the answer, its proof, and the recipes.
 *
 * @param known the request and the budget per device as the user gave them, where the plan is one
 *   part of the answer
 */
export function planSummary(
  graph: Graph,
  plan: Plan,
  recipes: readonly RecipeResult[],
  known?: {
    readonly request: PlanRequest;
    readonly budgetBytes: number;
    readonly secondOpinion?: string | undefined;
    /** How the step was found. */
    readonly found?: FoundStep;
  },
): string {
  checkKinds('planSummary', {
    graph: [graph, 'graph'],
    plan: [plan, 'writtenPlan'],
    recipes: [recipes, 'priced'],
    known: [known, ['request', 'budgetBytes'], 'undefined'],
  });
  const asked = known ?? { request: plan.request, budgetBytes: plan.memory.budgetBytes };
  const parameters = parameterElements(plan);
  const devices = plan.mesh.reduce((n, d) => n * d.size, 1);
  const mesh = plan.mesh
    .map(
      (d) => `${d.name}=${d.size} ${d.hosts === 1 ? 'inside a host' : `across ${d.hosts} hosts`}`,
    )
    .join(', ');
  const { objective, memory, proof } = plan;
  const ofPass = plan.request.accumulate === undefined ? '' : ' a pass';
  const lines = [
    `model      ${lineText(graph.name)}  ` +
      `${countedText(parameters, 'parameter')}${ofThemPadding(plan.paddedParameters)}  ` +
      `${countedText(graph.nodes.length + 1, 'node')}`,
    `mesh       ${countedText(devices, 'device')} of ${plan.cluster}: ${mesh}`,
    ...settingLines({
      graph,
      ...asked,
      gap: askedGap(plan.request),
      gapGiven: isGapGiven(plan.request),
    }),
    ...stepLines(plan, asked.found, recipes.length > 0),
    `serial     ${secondsText(objective.seconds)}${ofPass}   compute ` +
      `${secondsText(objective.computeSeconds)}   communication ` +
      `${secondsText(objective.communicationSeconds)}   (one after another; what is proven)`,
    ...executedLines(objective),
    ...memoryLines(plan),
    ...timelineLines(memory),
    `proof      ${proofText(plan)}`,
  ];
  const words =
    asked.secondOpinion === undefined ? proof.evidence : [...proof.evidence, asked.secondOpinion];
  for (const word of words) lines.push(`           ${word}`);
  lines.push(...greedyLines(plan));
  if (recipes.length > 0) lines.push('', recipeTable(recipes, plan, asked.found));
  lines.push('', parameterTable(plan));
  lines.push('', ...plan.assumptions.map((a) => `note  ${a}`));
  return lines.join('\n');
}

/** Memory as the trainer keeps it, where one runs the step, and as the exported program does. */
function memoryLines(plan: Plan): string[] {
  const { memory, step } = plan;
  const budget = bytesText(memory.budgetBytes);
  const fit = planFitText(plan);
  const fits = fit === undefined ? '' : `   ${fit}`;
  const parts =
    `parameters ${bytesText(memory.parameterBytes)}   ${gradientText(memory)}   optimizer ` +
    `${bytesText(memory.optimizerBytes)}   ${activationText(memory)}`;
  const own = bytesText(memory.peakBytes);
  if (step === undefined || step.trainer === EXPORTED)
    return [`memory     ${own} of ${budget} per device   ${parts}${fits}`];
  return [
    `memory     ${bytesText(step.peakBytes)} of ${budget} per device, run by ` +
      `${step.trainer}${fits}`,
    `           ${own} as exported   ${parts}`,
  ];
}

function greedyLines({ greedySeconds, objective }: Plan): string[] {
  if (greedySeconds === null) return [];
  return [
    `greedy     ${secondsText(greedySeconds)} when greedy propagation extends the ` +
      `plan's parameters and inputs node by node ` +
      `(${moreText(excessOver(objective.seconds, greedySeconds))})`,
  ];
}

/**
 * The communication seconds of the executed collectives, where the preset charges redistributions
 * by a formula.
 */
function executedLines({
  communicationSeconds,
  executedCommunicationSeconds: run,
}: Plan['objective']): string[] {
  if (run === undefined) return [];
  return [
    `executed   communication ${secondsText(run)} for the collectives that run; the preset's ` +
      `formula charges ${secondsText(communicationSeconds)}`,
  ];
}

function activationText({ activationBytes }: Plan['memory']): string {
  return activationBytes === null
    ? 'activations not modelled'
    : `activations ${bytesText(activationBytes)} at the peak`;
}

const LEVELS = '▁▂▃▄▅▆▇█';

/** The place of the memory peak, the largest tensors there, and the curve over the program. */
function timelineLines({ timeline, budgetBytes }: Plan['memory']): string[] {
  if (timeline === undefined) return [];
  const { peakBytes, node, phase, curve, largest } = timeline;
  const over =
    peakBytes > budgetBytes
      ? `, ${bytesText(peakBytes - budgetBytes)} over the budget, which limits states alone ` +
        '(--activations report)'
      : '';
  const every = Math.ceil(curve.length / 48);
  const bars: string[] = [];
  for (let k = 0; k < curve.length; k += every) {
    const bytes = curve.slice(k, k + every).reduce((most, p) => Math.max(most, p.bytes), 0);
    const level = Math.floor((bytes / Math.max(1, peakBytes)) * LEVELS.length);
    bars.push(itemAt(LEVELS, Math.min(LEVELS.length - 1, level)));
  }
  const [top] = largest;
  return [
    `peak       memory ${bytesText(peakBytes)} at ${lineText(node)} (${phase})${over}`,
    `           ${bars.join('')}` +
      (top === undefined ? '' : `   largest there: ${lineText(top.name)} ${bytesText(top.bytes)}`),
  ];
}

function proofText(plan: Plan): string {
  const { proof } = plan;
  const time = proof.solveSeconds === null ? '' : `, ${secondsText(proof.solveSeconds)}`;
  const recheck =
    `re-costed ${secondsText(proof.recheckedSeconds)} from the plan ` +
    `alone${roundingText(plan)}`;
  if (proof.status === 'optimal') return `optimal (gap 0) by ${proof.solver}${time}; ${recheck}`;
  return (
    `${proof.status}: no plan is below ${secondsText(proof.bound)} (gap ` +
    `${percentText(proof.gap)}) by ${proof.solver}${time}; ${recheck}`
  );
}

/**
 * By how much a plan that is called optimal could be beaten: rounding of prices, and what the bound
 * may stay below.
 */
function roundingText(plan: Plan): string {
  const seconds = blurSeconds(plan);
  return seconds === undefined
    ? ''
    : `, rounding at most ${seconds < 1e-12 ? '0.001 ns' : secondsText(seconds)}`;
}

/**
 * How much more something takes than the plan. With pins a recipe may take less, and says so;
 * rounding is no difference.
 */
function moreText(more: number): string {
  if (Math.abs(more) < 1e-9) return '+0 %';
  return more > 0 ? `+${percentText(more)}` : percentText(more);
}

/**
 * Recipes with their step relative to the plan's, or, where no step of theirs is known, with their
 * summed costs; what does not fit says why.
 */
export function recipeTable(
  recipes: readonly RecipeResult[],
  plan: Plan,
  found: FoundStep = {},
): string {
  const steps = plan.step === undefined ? undefined : knownSteps(found);
  const own = plan.step?.stepSeconds ?? 0;
  const peaks = new Map(found.fastest?.recipes.map(({ name, step }) => [name, step.peakBytes]));
  const rows = recipes.map((r) => {
    if (r.status === 'refused') return [r.name, '-', '', r.reason];
    const over = r.peakBytes > plan.memory.budgetBytes ? ', does not fit' : '';
    const peak = `${bytesText(peaks.get(r.name) ?? r.peakBytes)} per device${over}`;
    if (steps === undefined) {
      const more = moreText(excessOver(plan.objective.seconds, r.seconds));
      return [r.name, secondsText(r.seconds), more, peak];
    }
    const step = steps.find(({ name }) => name === r.name);
    if (step === undefined) return [r.name, '-', '', peak];
    const least = step.isAtLeast ? '>= ' : '';
    const more = moreText(excessOver(own, step.stepSeconds));
    return [r.name, `${least}${secondsText(step.stepSeconds)}`, `${least}${more}`, peak];
  });
  return tableText(
    [['recipe', steps === undefined ? 'serial' : 'step time', 'vs. plan', ''], ...rows],
    [1, 2],
  );
}
