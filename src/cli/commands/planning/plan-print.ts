/** Prints a plan: its first screen, what other flags ask for, or one JSON value. */

import { hasExperts } from '../../../cost/error-bands.ts';
import { defined, nonEmpty } from '../../../defined.ts';
import { printGraph } from '../../../graph/text/write.ts';
import { strictProgram } from '../../../lower/strict-program.ts';
import type { Prepared } from '../../../plan/prepare/prepared.ts';
import { EXPORTED, planAnswer } from '../../../plan/record/answer.ts';
import type { Plan } from '../../../plan/record/types.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import type { PlanRequest } from '../../../plan/request/request.ts';
import { whyRecipesAreCheaper } from '../../../recipes/compare/recipes-beside-plan.ts';
import { annotatedProgram } from '../../../report/analysis/program.ts';
import { firstScreen } from '../../../report/model/first-screen.ts';
import { meshWarnings } from '../../../report/model/mesh-warnings.ts';
import { screenText } from '../../../report/text/first-screen.ts';
import { overlapText } from '../../../report/text/overlap.ts';
import { endsText } from '../../../report/text/size-range.ts';
import { solverStepsText } from '../../../report/text/solver-steps.ts';
import { planSummary } from '../../../report/text/summary.ts';
import { countedText } from '../../../units.ts';
import { answer } from '../../output/io.ts';
import { paintScreen } from '../../output/paint.ts';
import { triedText } from './plan-mesh.ts';
import { inStages, OF_STAGES, pipelineText } from './plan-pipeline.ts';
import type { Found, PlanTask } from './plan-task.ts';

export function printPlan(
  task: PlanTask,
  prepared: Prepared,
  found: Found,
  deadline: Deadline,
): void {
  const { request, options, io } = task;
  const { plan, serial, recipes, overlap, ends, pipeline, steps } = found;
  const { graph, cluster } = serial.prepared.model;
  // All stages together have the memory of as many devices: what was asked is that of one.
  const { memoryBytes: ofAll, ...own } = plan.request;
  const memoryBytes = task.stages === undefined ? ofAll : task.stages.asked.request.memoryBytes;
  const asked = { ...own, ...defined({ memoryBytes }) };
  const warnings = meshWarnings({ ...plan, request: asked }, cluster, graph);
  for (const warning of warnings) io.stderr(`warning: ${warning}\n`);
  if (options.emit !== undefined) {
    const typed = strictProgram(serial.prepared.question.program, plan, { table: task.table });
    answer(io, options, { program: printGraph(typed) }, () => printGraph(typed).trimEnd());
    return;
  }
  if (options.json === true) {
    io.stdout(`${JSON.stringify(planJson(task, found, warnings))}\n`);
    return;
  }
  if (options.program === true) io.stdout(`${annotatedProgram(graph, plan)}\n\n`);
  printScreen(task, found);
  const why = whyRecipesAreCheaper(prepared.question.given, plan, recipes);
  if (why !== undefined) io.stdout(`note  ${why}\n`);
  if (overlap !== undefined) io.stdout(`\n${overlapText(overlap)}\n`);
  else if (request.overlap === true) io.stdout(`\noverlap    not looked for: ${deadline.cause}\n`);
  if (ends !== undefined) io.stdout(`\n${endsText(ends)}\n`);
  if (pipeline !== undefined) io.stdout(`\n${pipelineText(pipeline)}\n`);
  if (steps !== undefined) io.stdout(`\n${solverStepsText(steps.steps)}\n`);
}

/** The plan with the keys that all answers have, and what else was asked for. */
function planJson(
  { tried, stages }: PlanTask,
  { plan, recipes, step, overlap, ends, pipeline, steps }: Found,
  warnings: readonly string[],
): object {
  return {
    ...plan,
    ...planAnswer(inStages(plan, pipeline, stages)),
    ...nonEmpty({ warnings }),
    ...defined({ ends, pipeline, meshes: tried }),
    ...(overlap === undefined ? {} : { overlap: withoutResult(overlap) }),
    ...(step === undefined ? {} : { simulated: withoutResult(step) }),
    ...defined({ solverSteps: steps?.steps }),
    recipes: recipes.flatMap((recipe) =>
      recipe.status === 'priced'
        ? [{ name: recipe.name, seconds: recipe.seconds, peakBytes: recipe.peakBytes }]
        : [],
    ),
  };
}

/** The first screen, and below it what `-v` asks for. */
function printScreen(
  { request, options, io, stages, step: asked, tried }: PlanTask,
  { plan, prepared, choice, serial, recipes, step, fastest, pipeline }: Found,
): void {
  const { model } = prepared;
  const settings = stages?.asked ?? asGiven(plan, request);
  const isMicrobatch = pipeline !== undefined;
  const found = { isMicrobatch, ...defined({ step, fastest }) };
  const shown = inStages(plan, pipeline, stages);
  const screen = firstScreen({ plan: shown, model, choice, recipes, found, settings });
  const questions = [
    ...(asked === undefined ? [] : [{ label: 'question', texts: [asked] }]),
    ...(tried === undefined ? [] : [{ label: 'tried', texts: [triedText(tried)] }]),
    ...(isOwnMixture(plan) && asked !== undefined ? [{ label: 'for', texts: [OWN_MIXTURE] }] : []),
  ];
  const more =
    options.verbose === true ? [] : [{ label: 'more', texts: [moreText(plan, recipes.length)] }];
  // Those of stages are printed with them: the plan is that of one microbatch.
  const isTold = pipeline === undefined || pipeline.step !== undefined;
  const rows = isTold ? screen : screen.filter(({ label }) => !OF_STAGES.has(label));
  io.stdout(`${screenText([...questions, ...rows, ...more])}\n`, paintScreen);
  if (options.verbose !== true) return;
  const { secondOpinion } = serial;
  const details = { ...settings, found, ...defined({ secondOpinion }) };
  io.stdout(`\n${planSummary(serial.prepared.model.graph, plan, recipes, details)}\n`);
}

/** Tells whether the plan is that of the exported program of a mixture of experts. */
function isOwnMixture({ step, parameters }: Plan): boolean {
  const isExported = step === undefined || step.trainer === EXPORTED;
  return isExported && hasExperts(parameters.map(({ name }) => name));
}

const OWN_MIXTURE =
  'the exported PyTorch program, which sorts the tokens of all devices together by their ' +
  'experts; those of a trainer sort their own: --for megatron or another prices its step';

/** The text that `-v` adds. */
function moreText(plan: Plan, recipes: number): string {
  const parts = [
    'parts of costs and memory',
    ...(recipes === 0 ? [] : [countedText(recipes, 'known plan')]),
    'all placements',
    countedText(plan.assumptions.length, 'note'),
  ];
  return `-v prints ${parts.join(', ')}`;
}

function withoutResult<T extends { readonly result: unknown }>({
  result: _,
  ...record
}: T): Omit<T, 'result'> {
  return record;
}

/**
 * The request as the user gave it: a checkpoint policy is part of the plan's program, and no longer
 * of its request.
 */
function asGiven(
  plan: Plan,
  { checkpoint, activations }: PlanRequest,
): { readonly request: PlanRequest; readonly budgetBytes: number } {
  const { checkpoint: _, activations: __, ...made } = plan.request;
  const request = {
    ...made,
    ...defined({ checkpoint, activations }),
  };
  return { request, budgetBytes: plan.memory.budgetBytes };
}
