/**
 * Takes a plan with its price and memory and gives the lines that answer the request, for every
 * format.
 */

import { itemAt } from '../../item-at.ts';
import { meshSize } from '../../mesh/devices/mesh.ts';
import type { Plan } from '../../plan/record/types.ts';
import {
  bytesText,
  countedText,
  countText,
  percentText,
  secondsText,
  slowerText,
} from '../../units.ts';
import type { ComparedRecipe } from '../analysis/alternatives/recipes.ts';
import type { Roofline } from '../analysis/layers.ts';
import { type Pipeline, stageText } from '../analysis/pipeline.ts';
import type { Streams } from '../analysis/streams.ts';
import { planBandText, planFitText, stagesBandText } from './certainty.ts';
import { noStepText } from './known-steps.ts';
import { gradientText } from './memory-parts.ts';

/** The input of the answer. */
interface AnswerInput {
  readonly plan: Plan;
  /** False where nothing held the plan to its graph and request: what it proves is its claim. */
  readonly isChecked: boolean;
  readonly known: readonly ComparedRecipe[] | null;
  readonly streams: Streams | null;
  readonly roofline: Roofline | null;
  /** Tokens of one step; null where the program does not tell. */
  readonly tokens: number | null;
  /** Stages of a plan that has some: the plan is then that of one microbatch. */
  readonly pipeline: Pipeline | null;
  /** How data and weights are laid out, a sentence each; null where that cannot be told. */
  readonly placementWords: readonly string[] | null;
}

/** The answer, a line for each question, the same in every format. */
export function answerOf(
  input: AnswerInput,
): readonly { readonly label: string; readonly text: string }[] {
  const { pipeline } = input;
  if (pipeline !== null) return pipelineAnswer(input, pipeline);
  return [
    ...whatToDo(input),
    { label: 'Step time', text: stepLine(input) },
    { label: 'Range', text: planBandText(input.plan) },
    { label: 'Memory', text: memoryAnswer(input.plan) },
    { label: 'One after another', text: serialLine(input) },
    { label: 'Devices', text: deviceLine(input.plan) },
    { label: 'Proof', text: proofLine(input) },
    { label: 'Against', text: againstLine(input) },
  ];
}

/** The label of the placements in words. */
export const WHAT_TO_DO = 'What to do';

function whatToDo({ placementWords }: AnswerInput): ReturnType<typeof answerOf> {
  return placementWords === null ? [] : [{ label: WHAT_TO_DO, text: placementWords.join('; ') }];
}

/** The lines of a plan with stages. */
function pipelineAnswer(input: AnswerInput, pipeline: Pipeline): ReturnType<typeof answerOf> {
  const { plan } = input;
  const { devices, hosts } = pipeline;
  const inner = meshSize(plan.mesh);
  const where = hosts === 1 ? 'inside a host' : `across ${hosts} hosts`;
  return [
    ...whatToDo(input),
    { label: 'Memory', text: fullestStageLine(pipeline) },
    { label: 'Step time', text: pipelineTimeLine(input, pipeline) },
    { label: 'Range', text: stagesBandText(plan, pipeline.seconds) },
    {
      label: 'Devices',
      text:
        `${countText(devices * inner)}: pp=${devices} ${where}, each of them ` +
        `${deviceLine(plan)}`,
    },
    {
      label: 'Proof',
      text:
        `placements of one microbatch: ${proofLine(input)}. The stages are cut for these ` +
        'placements by dynamic programming, the schedule is played event by event',
    },
    { label: 'Against', text: `on one microbatch: ${againstLine(input)}` },
  ];
}

function fullestStageLine({ stages, budgetBytes, fits }: Pipeline): string {
  const fullest = stages.reduce(
    (most, s, k) => (s.peakBytes > itemAt(stages, most).peakBytes ? k : most),
    0,
  );
  const stage = itemAt(stages, fullest);
  const { peakBytes, stateBytes, activationBytes, inFlight, device } = stage;
  return (
    `${fits ? 'fits' : 'does not fit'}: device ${device} (stage ${fullest}: ` +
    `${stageText(stage)}) takes ${bytesText(peakBytes)} of ` +
    `${bytesText(budgetBytes)}: states ${bytesText(stateBytes)}, activations of ` +
    `${countedText(inFlight, 'microbatch', 'microbatches')} ${bytesText(activationBytes)}`
  );
}

function pipelineTimeLine({ streams, tokens }: AnswerInput, pipeline: Pipeline): string {
  const { seconds, bubbleSeconds, schedule, microbatches, virtual, devices } = pipeline;
  const chunks = virtual > 1 ? ` by ${virtual} chunks` : '';
  const rate =
    tokens === null ? '' : `, ${countText(Math.round((tokens * microbatches) / seconds))} tokens/s`;
  // The convention is that of one microbatch on one stage's mesh; the same FLOPs are spread over
  // all stages here.
  const mfu =
    streams === null
      ? ''
      : ', MFU ' +
        `${percentText((streams.mfu * streams.seconds * microbatches) / (seconds * devices))} ` +
        `(${streams.mfuConvention.replace(/^MFU: /, '')})`;
  return (
    `${secondsText(seconds)} for ` +
    `${countedText(microbatches, 'microbatch', 'microbatches')} by ${schedule}${chunks}, ` +
    `${secondsText(bubbleSeconds)} of it bubble (${percentText(bubbleSeconds / seconds)}); ` +
    `compute and communication of a stage one after another${rate}${mfu}`
  );
}

/** Memory as the trainer keeps it, where one runs the step, and as the exported program does. */
function memoryAnswer(plan: Plan): string {
  const fit = planFitText(plan);
  const fits = fit === undefined ? '' : `; ${fit}`;
  const { step, memory } = plan;
  if (step?.parts === undefined) return `${memoryLine(plan)}${fits}`;
  return (
    `${bytesText(step.peakBytes)} of ${bytesText(memory.budgetBytes)} per device, run by ` +
    `${step.trainer}${fits}. As exported: ${memoryLine(plan)}`
  );
}

function memoryLine({ memory }: Plan): string {
  const { peakBytes, budgetBytes, timeline } = memory;
  const parts =
    `parameters ${bytesText(memory.parameterBytes)}, ${gradientText(memory)}, optimizer ` +
    `${bytesText(memory.optimizerBytes)}`;
  const of = `${bytesText(peakBytes)} of ${bytesText(budgetBytes)} per device`;
  const fits = peakBytes <= budgetBytes;
  if (timeline === undefined)
    return `${fits ? 'fits' : 'does not fit'}: ${of} (${parts}; activations not modelled)`;
  const at =
    `${bytesText(timeline.peakBytes)} at ${timeline.node} (${timeline.phase}), ` +
    `${bytesText(timeline.activationBytes)} of it activations`;
  if (peakBytes === timeline.peakBytes)
    return (
      `${fits ? 'fits' : 'does not fit'}: ${of}, reached at ${timeline.node} ` +
      `(${timeline.phase}) (${parts}; activations ${bytesText(timeline.activationBytes)})`
    );
  if (timeline.peakBytes <= budgetBytes)
    return `fits: states ${of} (${parts}); peak memory at most ${at}`;
  const over = bytesText(timeline.peakBytes - budgetBytes);
  return (
    `${fits ? 'the states fit' : 'does not fit'}: ${of} (${parts}); peak memory does not: ` +
    `${at}, ${over} over the budget, which limits states alone (--activations report)`
  );
}

/** The whole step by the clock: as its trainer runs it, or as the exported program is played. */
function stepLine({ plan, streams, tokens, known }: AnswerInput): string {
  const { step } = plan;
  const { accumulate = 1 } = plan.request;
  const rate = (seconds: number): string =>
    tokens === null ? '' : `, ${countText(Math.round((accumulate * tokens) / seconds))} tokens/s`;
  if (step?.parts !== undefined) {
    const { forwardSeconds, backwardSeconds, onceSeconds } = step.parts;
    return (
      `${secondsText(step.stepSeconds)}, run by ${step.trainer}: forward ` +
      `${secondsText(forwardSeconds)}, backward ${secondsText(backwardSeconds)}, once a step ` +
      `${secondsText(onceSeconds)}${rate(step.stepSeconds)}`
    );
  }
  if (streams === null)
    return step === undefined
      ? noStepText(plan, known !== null && known.length > 0)
      : secondsText(step.stepSeconds);
  if (accumulate > 1 && step !== undefined)
    return (
      `${secondsText(step.stepSeconds)} simulated, ${accumulate} passes over microbatches, ` +
      `${secondsText(streams.seconds)} the last, which reduces gradients and of which ` +
      `${secondsText(streams.exposedCommunicationSeconds)} are exposed communication` +
      rate(step.stepSeconds)
    );
  return (
    `${secondsText(streams.seconds)} simulated, communication overlapped, run as exported: ` +
    `${secondsText(streams.exposedCommunicationSeconds)} of communication exposed` +
    `${rate(streams.seconds)}, MFU ${percentText(streams.mfu)} ` +
    `(${streams.mfuConvention.replace(/^MFU: /, '')})`
  );
}

/** Every cost one after another: what is proven. */
function serialLine({ plan, streams, roofline }: AnswerInput): string {
  const { seconds, computeSeconds, communicationSeconds } = plan.objective;
  const share = (part: number): string => (seconds > 0 ? percentText(part / seconds) : '0 %');
  const bound = roofline === null ? '' : `; ${waitText(roofline, seconds)}`;
  // The simulation starts every kernel, also of views and copies that the plan's own sum has for
  // nothing.
  const starts =
    streams === null
      ? ''
      : `; simulated with all kernel starts ${secondsText(streams.serialSeconds)}`;
  return (
    `${secondsText(seconds)}: compute ${secondsText(computeSeconds)} ` +
    `(${share(computeSeconds)}), communication ${secondsText(communicationSeconds)} ` +
    `(${share(communicationSeconds)}), no overlap${bound}${starts}`
  );
}

/** The resource that the largest part of the step waits for, kernel by kernel. */
function waitText({ groups }: Roofline, seconds: number): string {
  const sum = (
    part: 'matrixSeconds' | 'memorySeconds' | 'launchSeconds' | 'communicationSeconds',
  ): number => groups.reduce((total, g) => total + g[part], 0);
  const parts = [
    { what: 'bound by compute', seconds: sum('matrixSeconds') },
    { what: 'bound by memory bandwidth', seconds: sum('memorySeconds') },
    { what: 'bound by the start of kernels', seconds: sum('launchSeconds') },
    { what: 'bound by communication', seconds: sum('communicationSeconds') },
  ];
  const most = parts.reduce((a, b) => (b.seconds > a.seconds ? b : a));
  return `${most.what} (${percentText(seconds > 0 ? most.seconds / seconds : 0)} of the step)`;
}

/** The place of the mesh dims in the cluster. */
function deviceLine(plan: Plan): string {
  const devices = meshSize(plan.mesh);
  const where = plan.mesh.map(
    (d) => `${d.name}=${d.size} ${d.hosts === 1 ? 'inside a host' : `across ${d.hosts} hosts`}`,
  );
  return `${countedText(devices, 'device')} of ${plan.cluster}: ${where.join(', ')}`;
}

function proofLine({ plan: { proof }, isChecked }: AnswerInput): string {
  if (!isChecked)
    return (
      `not checked; the plan states ${proof.status}, a lower bound of ` +
      `${secondsText(proof.bound)} and a gap of ${percentText(proof.gap)}`
    );
  const status =
    proof.status === 'optimal'
      ? 'optimal, nothing is cheaper'
      : `${proof.status}: no plan has a smaller sum of compute and communication than ` +
        `${secondsText(proof.bound)} (gap ${percentText(proof.gap)})`;
  return (
    `${status}; solved by ${proof.solver}, re-costed from the plan alone at ` +
    `${secondsText(proof.recheckedSeconds)}`
  );
}

/** The fastest recipe that fits: by its step where the plan has one, else by all costs. */
function againstLine({ plan, known }: AnswerInput): string {
  const { step, objective, greedySeconds } = plan;
  const base = step?.stepSeconds ?? objective.seconds;
  const parts: string[] = [];
  const priced = (known ?? []).flatMap(({ name, overBytes, stepSeconds, seconds }) => {
    const own = step === undefined ? seconds : stepSeconds;
    return own === null || overBytes !== undefined ? [] : [{ name, seconds: own }];
  });
  const [best] = [...priced].sort((a, b) => a.seconds - b.seconds);
  if (best !== undefined)
    parts.push(
      `best recipe ${best.name} ${secondsText(best.seconds)} (${slowerText(best.seconds, base)})`,
    );
  else parts.push(known === null ? 'recipes were not priced' : 'no recipe fits');
  parts.push(
    greedySeconds === null
      ? 'greedy propagation finds no plan'
      : `greedy propagation ${secondsText(greedySeconds)} one after another ` +
          `(${slowerText(greedySeconds, objective.seconds)})`,
  );
  return parts.join('; ');
}
