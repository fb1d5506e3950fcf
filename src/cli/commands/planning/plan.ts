/**
 * `plan`: takes a model, a mesh, a cluster and options, prints the first screen of the plan and
 * writes the plan folder.
 */

import { hasExperts } from '../../../cost/error-bands.ts';
import { defined, nonEmpty } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import { forTrainer, trainerFacts } from '../../../fidelity/trainer-step.ts';
import type { SizeValues } from '../../../graph/text/size-value.ts';
import type { Graph } from '../../../graph/types.ts';
import { itemAt } from '../../../item-at.ts';
import { parseMesh } from '../../../mesh/devices/mesh.ts';
import { tensorRanks, type VocabularyPadding } from '../../../models/vocabulary.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import type { Infeasible } from '../../../plan/choice/result.ts';
import type { Prepared } from '../../../plan/prepare/prepared.ts';
import { planAtEnds, plannedSizes } from '../../../plan/questions/size-range.ts';
import type { Plan } from '../../../plan/record/types.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import { askedGap, type PlanRequest } from '../../../plan/request/request.ts';
import { prepareToAnswer } from '../../../recipes/answer.ts';
import { type Answered, EXPORTED } from '../../../recipes/chosen-step.ts';
import {
  checkRecipes,
  whyRecipesAreCheaper,
} from '../../../recipes/compare/recipes-beside-plan.ts';
import { SolverLog } from '../../../report/analysis/incumbents.ts';
import { annotatedProgram } from '../../../report/analysis/program.ts';
import { planAnswer } from '../../../report/model/certainty.ts';
import { firstScreen } from '../../../report/model/first-screen.ts';
import { meshWarnings } from '../../../report/model/mesh-warnings.ts';
import { screenText } from '../../../report/text/first-screen.ts';
import { infeasibleText } from '../../../report/text/infeasible.ts';
import { overlapText } from '../../../report/text/overlap.ts';
import { endsText } from '../../../report/text/size-range.ts';
import { SolverSteps, solverStepsText } from '../../../report/text/solver-steps.ts';
import { planSummary } from '../../../report/text/summary.ts';
import { shardPrepared } from '../../../shard.ts';
import type { Problem, Progress } from '../../../solver/types.ts';
import { stackLayers } from '../../../step/layers.ts';
import type { PlanPipeline } from '../../../sweep/pipeline/plan.ts';
import { stagesNotRun } from '../../../sweep/pipeline/staged-plan.ts';
import { countedText, percentText, secondsText } from '../../../units.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { loadModel } from '../../input/load.ts';
import type { BuildOptions } from '../../input/load-config.ts';
import { PIPELINE_FILE } from '../../input/pipeline-file.ts';
import { PLAN_FILES, planFiles, PROBLEMS } from '../../input/plan-folder.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { paintScreen } from '../../output/paint.ts';
import { PROGRESS_FILE, progressText } from '../../output/plan-progress.ts';
import { tryFile, tryFolder, writeFolder, writeText } from '../../output/write-file.ts';
import type { RunControl } from '../../thread/run-control.ts';
import type { PlanOptions } from './flags.ts';
import { PlanCache, type PlanFolderFiles, wroteText } from './plan-cache.ts';
import { checkFrontierFlags, FRONTIER_FILE, frontierCommand } from './plan-frontier.ts';
import { chosenMesh, type TriedMesh, triedText } from './plan-mesh.ts';
import { StepTimes } from './plan-overrun.ts';
import {
  askedPipeline,
  isCaptured,
  pipelineText,
  requestOfStages,
  withStagesOfMesh,
} from './plan-pipeline.ts';
import { requestOf } from './plan-request.ts';

export async function planCommand(
  model: string,
  options: PlanOptions,
  io: CliIo,
  control: RunControl,
): Promise<number> {
  const given = withStagesOfMesh(options);
  // The time limit includes the time to read the model.
  const deadline = control.deadline(given.timeLimit);
  if (given.frontier !== undefined) checkFrontierFlags(given);
  checkTrainer(given);
  tryOutputs(given);
  const { mesh, tried } = await chosenMesh(model, given, deadline, io);
  const { pp } = given;
  if (pp !== undefined && isCaptured(model))
    return capturedStages(model, { ...given, mesh, pp }, io, deadline);
  return planOnMesh(model, { ...given, mesh }, { io, control, deadline, ...defined({ tried }) });
}

/** The pipeline stages of a captured graph or a traced program. */
async function capturedStages(
  model: string,
  options: PlanOptions & { readonly mesh: string; readonly pp: number },
  io: CliIo,
  deadline: Deadline,
): Promise<number> {
  const { stagesCommand, checkStagesFlags, trainingGraph } = await import('./plan-stages.ts');
  checkStagesFlags(options);
  const request = requestOf({ ...options, cluster: clusterText(options.cluster, options) });
  const loaded = await loadModel(model, { ...options, ...ofMesh(request.mesh) });
  const { table } = loaded;
  return stagesCommand({ ...trainingGraph(loaded), table, request, options, io, deadline });
}

async function planOnMesh(
  model: string,
  options: PlanOptions & { readonly mesh: string },
  {
    io,
    control,
    deadline,
    tried,
  }: Pick<PlanTask, 'io' | 'deadline' | 'tried'> & { readonly control: RunControl },
): Promise<number> {
  const run = { deadline, answers: control.answers };
  const given = requestOf({ ...options, cluster: clusterText(options.cluster, options) });
  const asked = askedPipeline(options, given);
  const built = asked === undefined ? options : { ...options, batch: asked.microbatch };
  const loaded = await loadModel(model, { ...built, ...ofMesh(given.mesh) });
  const { graph, table } = loaded;
  const isNamed = loaded.format === 'hf-config' && options.frontier === undefined;
  const named = forTrainer(padded(given, loaded.padding), graph, isNamed);
  const request = asked === undefined ? named : forStages(named, asked, graph);
  const cache = PlanCache.open(graph, request, options, io);
  const known = cache?.replay(options.output);
  if (known !== undefined) return known;
  try {
    if (asked === undefined && options.frontier !== undefined)
      return await frontierCommand(graph, table, request, options, io, {
        writePlan: (folder, { prepared, plan, certificate }) =>
          writeFolder(
            folder,
            planFiles(plan, prepared.question.program, certificate, table),
            'plan',
          ),
        onProgress: progressPrinter(io, options.quiet === true),
        ...run,
      });
    const code = await planGraph({
      table,
      options,
      ...defined({ step: asked === undefined ? loaded.step : undefined, tried }),
      io: cache?.io ?? io,
      ...run,
      ...defined({ onFiles: cache?.wrote }),
      ...(asked === undefined
        ? plainTask(loaded, request, options)
        : await stagesTask(loaded, request, asked)),
    });
    cache?.store(code, deadline, options.timeLimit !== undefined);
    return code;
  } catch (error) {
    // A line number means a line of the model's text.
    if (error instanceof ShardwrightError && error.details.position !== undefined)
      throw error.with({ file: model });
    throw error;
  }
}

/** The settings of a model that is built for the devices of a mesh. */
export function ofMesh(mesh: string): Pick<BuildOptions, 'tensor' | 'devices'> {
  return { tensor: tensorRanks(mesh), devices: parseMesh(mesh).size };
}

/** @throws E_USAGE for a trainer of a plan whose step is not priced by its software */
function checkTrainer({ for: trainer, frontier }: PlanOptions): void {
  if (trainer !== undefined && frontier !== undefined)
    throw new ShardwrightError('E_USAGE', `--for ${trainer} does not go with --frontier`, {
      hint: 'ask compare --for, which prices the layouts of a trainer.',
    });
}

/** Tries what will be written before anything is computed. @throws E_IO */
function tryOutputs({ frontier, output, emitIlp }: PlanOptions): void {
  const names =
    frontier === undefined ? [...PLAN_FILES, PROGRESS_FILE, PIPELINE_FILE] : [FRONTIER_FILE];
  if (output !== undefined) tryFolder(output, names, 'plan');
  if (emitIlp !== undefined) tryFile(emitIlp, 'integer program');
}

type Loaded = Awaited<ReturnType<typeof loadModel>>;
type AskedTask = Pick<PlanTask, 'graph' | 'request' | 'range' | 'stages'>;

function plainTask(
  { graph, open, sizes }: Loaded,
  request: PlanRequest,
  options: PlanOptions,
): AskedTask {
  return {
    graph,
    request,
    ...(options.range === true ? { range: { open, sizes: plannedSizes(open, sizes) } } : {}),
  };
}

/** The request for the exported program where the trainer that was assumed makes no such stages. */
function forStages(
  request: PlanRequest,
  asked: NonNullable<ReturnType<typeof askedPipeline>>,
  graph: Graph,
): PlanRequest {
  const { trainer, trainerAssumed, ...rest } = request;
  const isRun =
    trainerAssumed !== true ||
    trainer === undefined ||
    stagesNotRun(trainer, asked, stackLayers(graph)) === undefined;
  return isRun ? request : rest;
}

/** The plan of one microbatch, which is then cut into pipeline stages. */
async function stagesTask(
  { graph, table }: Loaded,
  request: PlanRequest,
  asked: NonNullable<ReturnType<typeof askedPipeline>>,
): Promise<AskedTask> {
  const { checkPipeline, pipelineOfPlan } = await import('../../../sweep/pipeline/plan.ts');
  checkPipeline(graph, asked);
  const facts = trainerFacts(request);
  return {
    graph,
    request: requestOfStages(request, asked),
    stages: {
      cut: (prepared, choice) => pipelineOfPlan(prepared, choice, { ...asked, facts }, table),
      asked: { request, budgetBytes: asked.budgetBytes },
    },
  };
}

/** A program to plan, how it is asked for, and who hears of it. */
interface PlanTask {
  readonly graph: Graph;
  /** The step of a model by name, in words. */
  readonly step?: string;
  /** The meshes that were tried, where none was named. */
  readonly tried?: readonly TriedMesh[];
  readonly table: OperatorTable;
  readonly request: PlanRequest;
  readonly options: Pick<
    PlanOptions,
    'recipes' | 'program' | 'verbose' | 'output' | 'emitIlp' | 'json' | 'quiet' | 'explainSolver'
  >;
  readonly io: CliIo;
  readonly deadline: Deadline;
  /** Is called once the work that may still be refused is done. */
  readonly answers: () => void;
  /** Hears of the files that are written, and of the line that says so. */
  readonly onFiles?: (files: PlanFolderFiles, line: string) => void;
  /**
   * The program with its sizes open, and what they are fixed at: the plan is priced at the ends of
   * their ranges too.
   */
  readonly range?: { readonly open: Graph; readonly sizes: SizeValues };
  /**
   * Cuts the plan, which is that of one microbatch, into pipeline stages; and what was asked of a
   * device of one.
   */
  readonly stages?: {
    readonly cut: Stages;
    readonly asked: { readonly request: PlanRequest; readonly budgetBytes: number };
  };
}

/** A plan that was found, with everything that is printed of it. */
interface Found extends Answered {
  readonly ends?: Awaited<ReturnType<typeof planAtEnds>>;
  readonly pipeline?: PlanPipeline;
  readonly steps?: SolverSteps;
}

/** Plans, prints, writes the folder; the exit code says whether the gap was met. */
async function planGraph(task: PlanTask): Promise<number> {
  const { graph, table, request, options, io } = task;
  if (request.overlap === true)
    (await import('../../../simulate/overlap/plan.ts')).checkOverlap(request);
  const steps = options.explainSolver === true ? new SolverSteps() : undefined;
  const deadline = steps === undefined ? task.deadline : task.deadline.telling(steps.listen);
  const times = new StepTimes(deadline);
  times.end('reading');
  const { prepared, ...ends } = prepareToAnswer(
    graph,
    request,
    table,
    deadline,
    options.output !== undefined,
  );
  times.end('preparing');
  const ahead =
    options.output === undefined ? undefined : times.aheadText(request.timeLimitSeconds);
  if (ahead !== undefined) io.stderr(`${ahead}\n`);
  task.answers();
  if (options.emitIlp !== undefined) await emitIlp(prepared.left.problem, options.emitIlp);
  const log = new SolverLog(prepared);
  const print = progressPrinter(io, options.quiet === true);
  const answered = await shardPrepared(prepared, {
    ...ends,
    recipes: options.recipes,
    isMicrobatch: task.stages !== undefined,
    onProgress: (event) => (log.listen(event), print(event)),
  });
  times.end('search and re-costing');
  if (answered.status === 'infeasible')
    return reportInfeasible(answered, prepared, io, options.json === true);
  const { serial, plan, choice } = answered;
  checkRecipes(prepared.question.given, plan, answered.recipes);
  const found: Found = {
    ...answered,
    ...(await atRangeEnds(task, plan, ends.deadline)),
    ...(task.stages === undefined ? {} : { pipeline: task.stages.cut(serial.prepared, choice) }),
    ...defined({ steps }),
  };
  printPlan(task, prepared, found, deadline);
  times.end('printing');
  // The answer is printed before the folder is written, so that a full disk does not lose it.
  if (options.output !== undefined) {
    const unchecked = times.uncheckedText(request.timeLimitSeconds, options.output);
    if (unchecked !== undefined) io.stderr(`${unchecked}\n`);
    writePlanFolder(task, options.output, found, { log, checked: unchecked === undefined });
    times.end(unchecked === undefined ? 'checking and writing' : 'writing');
  }
  const overrun = times.overrunText(request.timeLimitSeconds);
  if (overrun !== undefined) io.stderr(`${overrun}\n`);
  return exitCode(task, found, deadline);
}

async function atRangeEnds(
  { range, request, table }: PlanTask,
  plan: Plan,
  deadline: Deadline,
): Promise<Pick<Found, 'ends'>> {
  if (range === undefined || deadline.isOver) return {};
  return { ends: await planAtEnds(plan, range.open, range.sizes, request, { table, deadline }) };
}

function printPlan(task: PlanTask, prepared: Prepared, found: Found, deadline: Deadline): void {
  const { request, options, io } = task;
  const { plan, serial, recipes, overlap, ends, pipeline, steps } = found;
  const { graph, cluster } = serial.prepared.model;
  const warnings = meshWarnings(plan, cluster, graph);
  for (const warning of warnings) io.stderr(`warning: ${warning}\n`);
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
  const found = { ...defined({ step, fastest }) };
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

/** The plan with the step of its stages, if a trainer runs them, and the budget of a device. */
function inStages(
  plan: Plan,
  pipeline: PlanPipeline | undefined,
  stages: PlanTask['stages'],
): Plan {
  if (pipeline?.step === undefined || stages === undefined) return plan;
  const { memoryBytes: _, ...request } = plan.request;
  const { memoryBytes } = stages.asked.request;
  return {
    ...plan,
    request: { ...request, ...defined({ memoryBytes }) },
    memory: { ...plan.memory, budgetBytes: stages.asked.budgetBytes },
    step: pipeline.step,
  };
}

/** Tells whether the plan is that of the exported program of a mixture of experts. */
function isOwnMixture({ step, parameters }: Plan): boolean {
  const isExported = step === undefined || step.trainer === EXPORTED;
  return isExported && hasExperts(parameters.map(({ name }) => name));
}

const OWN_MIXTURE =
  'the exported PyTorch program, which sorts the tokens of all devices together by their ' +
  'experts; those of a trainer sort their own, and compare prices them';

/** Rows of a first screen that the stages of a pipeline answer. */
const OF_STAGES: ReadonlySet<string> = new Set(['step time', 'memory']);

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

function writePlanFolder(
  { table, options, io, onFiles }: PlanTask,
  folder: string,
  { plan, serial, pipeline }: Found,
  { log, checked }: { readonly log: SolverLog; readonly checked: boolean },
): void {
  const { program } = serial.prepared.question;
  const files = planFiles(plan, program, serial.certificate, table, { stages: pipeline, checked });
  const all = [
    ...files,
    [PROGRESS_FILE, progressText(itemAt(files, 0)[1], log.incumbents(plan))],
    // Of an earlier plan in the folder.
    ...(checked ? [] : [[PROBLEMS, undefined] as const]),
    ...(pipeline === undefined ? [[PIPELINE_FILE, undefined] as const] : []),
  ] as const;
  writeFolder(folder, all, 'plan');
  const names = files.map(([name]) => name);
  const line = options.json === true ? '' : wroteText(folder, names);
  if (line !== '') io.stdout(line);
  onFiles?.(all, line);
}

/**
 * A plan that was chosen for its overlapped time may cost more one call after another. The gap that
 * the user asked for is that of the plan that the search began with.
 */
function exitCode(
  { options, io }: PlanTask,
  { serial, pipeline }: Found,
  deadline: Deadline,
): number {
  const { proof } = serial.plan;
  const good = askedGap(serial.plan.request);
  const met = proof.gap <= good || proof.status === 'optimal';
  if (!met && deadline.isInterrupted)
    io.stderr(
      `interrupted: the best plan so far takes ${secondsText(proof.recheckedSeconds)}, none ` +
        `takes less than ${secondsText(proof.bound)}, gap ${percentText(proof.gap)}\n`,
    );
  else if (!met && options.json !== true)
    io.stderr(`stopped at gap ${percentText(proof.gap)}, asked for ${percentText(good)} (--gap)\n`);
  if (pipeline?.fits === false) return EXIT.infeasible;
  return met ? EXIT.ok : EXIT.gap;
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

type Stages = (prepared: Prepared, choice: Int32Array) => PlanPipeline;

/** The request with what was padded before planning. */
export function padded(request: PlanRequest, padding: VocabularyPadding | undefined): PlanRequest {
  return padding === undefined ? request : { ...request, padVocabulary: padding };
}

async function emitIlp(problem: Problem, path: string): Promise<void> {
  const { encode, lpText } = await import('../../../solver/milp/encode.ts');
  writeText(path, lpText(encode(problem)), 'integer program');
}

export function reportInfeasible(
  result: Infeasible,
  { model, question: { request } }: Pick<Prepared, 'model' | 'question'>,
  io: CliIo,
  json: boolean,
): number {
  const { message, hint } = infeasibleText(result, request);
  const error = { code: 'E_INFEASIBLE', message, hint };
  if (json) io.stdout(`${JSON.stringify({ error, ...result, model: model.graph.name })}\n`);
  else io.stderr(`E_INFEASIBLE ${message}\n  hint: ${hint}\n`);
  return EXIT.infeasible;
}

/** One status line, rewritten on a terminal, at most one plain line per 5 s otherwise. */
export function progressPrinter(io: CliIo, quiet: boolean): (event: Progress) => void {
  // Work of under a second needs no progress.
  let last = io.isTerminal ? 0.95 : 0;
  return (event) => {
    if (quiet || event.seconds - last < (io.isTerminal ? 0.05 : 5)) return;
    last = event.seconds;
    const gap = Number.isFinite(event.gap) ? `gap ${percentText(event.gap)}` : 'no bound yet';
    io.progress(`${event.phase}  ${gap}  ${secondsText(event.seconds)}`);
  };
}
