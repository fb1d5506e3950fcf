/**
 * `plan`: takes a model, a mesh, a cluster and options, prints the first screen of the plan and
 * writes the plan folder.
 */

import { existsSync } from 'node:fs';

import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import { forTrainer, trainerFacts } from '../../../fidelity/trainer-step.ts';
import { planAtEnds, plannedSizes } from '../../../plan/questions/size-range.ts';
import type { Plan } from '../../../plan/record/types.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import { askedGap, type PlanRequest } from '../../../plan/request/request.ts';
import { prepareToAnswer } from '../../../recipes/answer.ts';
import { checkRecipes } from '../../../recipes/compare/recipes-beside-plan.ts';
import { SolverLog } from '../../../report/analysis/incumbents.ts';
import { SolverSteps } from '../../../report/text/solver-steps.ts';
import { shardPrepared } from '../../../shard.ts';
import { percentText, secondsText } from '../../../units.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { loadModel } from '../../input/load.ts';
import { ofMesh } from '../../input/load-config.ts';
import { planFiles } from '../../input/plan-folder.ts';
import { reportInfeasible } from '../../output/infeasible.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { progressPrinter } from '../../output/progress.ts';
import { writeFolder } from '../../output/write-file.ts';
import type { RunControl } from '../../thread/run-control.ts';
import type { PlanOptions } from './flags.ts';
import { PlanCache } from './plan-cache.ts';
import { checkFrontierFlags, frontierCommand } from './plan-frontier.ts';
import { chosenMesh } from './plan-mesh.ts';
import { StepTimes } from './plan-overrun.ts';
import {
  askedPipeline,
  forStages,
  requestOfStages,
  trainingGraph,
  withStagesOfMesh,
} from './plan-pipeline.ts';
import { printPlan } from './plan-print.ts';
import { padded, requestOf } from './plan-request.ts';
import type { Found, PlanTask } from './plan-task.ts';
import { emitIlp, tryOutputs, writePlanFolder } from './plan-write.ts';

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
  const { mesh, tried, passes } = await chosenMesh(model, given, deadline, io);
  const { pp } = given;
  if (pp !== undefined && isCaptured(model))
    return capturedStages(model, { ...given, mesh, pp }, io, deadline);
  const asked = { ...given, ...passes, mesh };
  return planOnMesh(model, asked, { io, control, deadline, ...defined({ tried }) });
}

/** The pipeline stages of a captured graph or a traced program. */
async function capturedStages(
  model: string,
  options: PlanOptions & { readonly mesh: string; readonly pp: number },
  io: CliIo,
  deadline: Deadline,
): Promise<number> {
  const { stagesCommand, checkStagesFlags } = await import('./plan-stages.ts');
  checkStagesFlags(options);
  const request = requestOf({ ...options, cluster: clusterText(options.cluster, options) });
  const loaded = await loadModel(model, { ...options, ...ofMesh(request.mesh) });
  const { table } = loaded;
  return stagesCommand({ ...trainingGraph(loaded), table, request, options, io, deadline });
}

/** Tells whether a model is a captured graph or a program, which is cut by its dataflow. */
function isCaptured(model: string): boolean {
  return existsSync(model) && !/\.json(\.gz)?$/.test(model);
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

/** @throws E_USAGE for a trainer of a plan whose step is not priced by its software */
function checkTrainer({ for: trainer, frontier }: PlanOptions): void {
  if (trainer !== undefined && frontier !== undefined)
    throw new ShardwrightError('E_USAGE', `--for ${trainer} does not go with --frontier`, {
      hint: 'ask compare --for, which prices the layouts of a trainer.',
    });
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
