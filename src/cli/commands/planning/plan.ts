/**
 * `plan`: takes a model, a mesh, a cluster and options, prints the first screen of the plan and
 * writes the plan folder.
 */

import { ShardwrightError } from '../../../errors.ts';
import type { SizeValues } from '../../../graph/text/size-value.ts';
import type { Graph } from '../../../graph/types.ts';
import { tensorRanks, type VocabularyPadding } from '../../../models/vocabulary.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { atSizes } from '../../../passes/sizes/fix-sizes.ts';
import type { Infeasible, ShardResult } from '../../../plan/choice/result.ts';
import { prepare } from '../../../plan/prepare/prepare.ts';
import type { Prepared } from '../../../plan/prepare/prepared.ts';
import { planAtEnds, plannedSizes } from '../../../plan/questions/size-range.ts';
import type { Plan } from '../../../plan/record/types.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import {
  askedGap,
  DEFAULT_REQUEST,
  holdsPeak,
  type PlanRequest,
  recomputesUnderBudget,
} from '../../../plan/request/request.ts';
import { shardPrepared } from '../../../plan/shard.ts';
import { priceRecipes } from '../../../recipes/compare/compare.ts';
import {
  checkRecipes,
  whyRecipesAreCheaper,
} from '../../../recipes/compare/recipes-beside-plan.ts';
import { SolverLog } from '../../../report/analysis/incumbents.ts';
import { annotatedProgram } from '../../../report/analysis/program.ts';
import { infeasibleText } from '../../../report/text/infeasible.ts';
import { endsText } from '../../../report/text/size-range.ts';
import { SolverSteps, solverStepsText } from '../../../report/text/solver-steps.ts';
import { planSummary } from '../../../report/text/summary.ts';
import type { OverlappedStep } from '../../../simulate/overlap/known-plan.ts';
import type { OverlapPlan } from '../../../simulate/overlap/plan.ts';
import { NoChoiceInTime } from '../../../solver/solve.ts';
import type { Problem, Progress } from '../../../solver/types.ts';
import type { PlanPipeline } from '../../../sweep/pipeline/plan.ts';
import { countedText, excessOver, percentText, secondsText, shareOf } from '../../../units.ts';
import { clusterText } from '../../input/cluster-file.ts';
import { type Given, requestOfFlags } from '../../input/flags/flag.ts';
import { PLAN_FLAGS } from '../../input/flags/planning-flags.ts';
import { loadModel } from '../../input/load.ts';
import { PIPELINE_FILE } from '../../input/pipeline-file.ts';
import { PLAN_FILES, planFiles } from '../../input/plan-folder.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { PROGRESS_FILE, progressText } from '../../output/plan-progress.ts';
import { tryFile, tryFolder, writeFolder, writeText } from '../../output/write-file.ts';
import type { RunControl } from '../../thread/run-control.ts';
import { PLAN_COMMAND, type PlanOptions } from './flags.ts';
import { PlanCache, type PlanFolderFiles, wroteText } from './plan-cache.ts';
import { checkFrontierFlags, FRONTIER_FILE, frontierCommand } from './plan-frontier.ts';
import { askedPipeline, pipelineText, requestOfStages } from './plan-pipeline.ts';

export async function planCommand(
  model: string,
  options: PlanOptions,
  io: CliIo,
  control: RunControl,
): Promise<number> {
  // Reading counts.
  const deadline = control.deadline(options.timeLimit);
  const run = { deadline, answers: control.answers };
  const given = requestOf({ ...options, cluster: clusterText(options.cluster, options) });
  if (options.frontier !== undefined) checkFrontierFlags(options);
  const names =
    options.frontier === undefined
      ? [...PLAN_FILES, PROGRESS_FILE, PIPELINE_FILE]
      : [FRONTIER_FILE];
  if (options.output !== undefined) tryFolder(options.output, names, 'plan');
  if (options.emitIlp !== undefined) tryFile(options.emitIlp, 'integer program');
  const asked = askedPipeline(model, options, given);
  const built =
    asked === undefined
      ? options
      : { ...options, training: true as const, batch: asked.microbatch };
  const { graph, table, open, sizes, padding } = await loadModel(model, {
    ...built,
    tensor: tensorRanks(given.mesh),
  });
  const request = padded(given, padding);
  const cache = PlanCache.open(graph, request, options, io);
  const known = cache?.replay(options.output);
  if (known !== undefined) return known;
  const answer = async (
    program: Graph,
    asked: PlanRequest,
    ...more: readonly [Parameters<typeof planGraph>[6]?, Parameters<typeof planGraph>[7]?]
  ): Promise<number> => {
    const listened = cache === undefined ? options : { ...options, onFiles: cache.wrote };
    const code = await planGraph(program, table, asked, listened, cache?.io ?? io, run, ...more);
    cache?.store(code, deadline, options.timeLimit !== undefined);
    return code;
  };
  try {
    if (asked !== undefined) {
      const { checkPipeline, pipelineOfPlan } = await import('../../../sweep/pipeline/plan.ts');
      checkPipeline(graph, asked);
      const stages: Stages = (prepared, choice) => pipelineOfPlan(prepared, choice, asked, table);
      return await answer(graph, requestOfStages(request, asked), undefined, {
        cut: stages,
        asked: { request, budgetBytes: asked.budgetBytes },
      });
    }
    if (options.frontier !== undefined)
      return await frontierCommand(atSizes(graph, new Map()), table, request, options, io, {
        writePlan: (folder, { prepared, plan, certificate }) =>
          writeFolder(
            folder,
            planFiles(plan, prepared.question.program, certificate, table),
            'plan',
          ),
        onProgress: progressPrinter(io, options.quiet === true),
        ...run,
      });
    const range = options.range === true ? { open, sizes: plannedSizes(open, sizes) } : undefined;
    return await answer(atSizes(graph, new Map()), request, range);
  } catch (error) {
    // A line number means a line of the model's text.
    if (error instanceof ShardwrightError && error.details.position !== undefined)
      throw error.with({ file: model });
    throw error;
  }
}

/** Part of the time left that the recipes may take together. */
const RECIPES = 1 / 2;
/**
 * Share of what preparing took that is kept for re-costing the plan, which asks for the prices of
 * its placements again.
 */
const RE_COSTING = 1 / 8;

export async function planGraph(
  graph: Graph,
  table: OperatorTable,
  request: PlanRequest,
  options: Pick<
    PlanOptions,
    'recipes' | 'program' | 'output' | 'emitIlp' | 'json' | 'quiet' | 'explainSolver'
  > & {
    /** Hears of the files that are written, and of the line that says so. */
    readonly onFiles?: (files: PlanFolderFiles, line: string) => void;
  },
  io: CliIo,
  { deadline: limit, answers }: { readonly deadline: Deadline; readonly answers: () => void },
  /**
   * The program with its sizes open, and what they are fixed at: the plan is priced at the ends of
   * their ranges too.
   */
  range?: { readonly open: Graph; readonly sizes: SizeValues },
  /**
   * Cuts the plan, which is that of one microbatch, into pipeline stages; and what was asked of a
   * device of one.
   */
  stages?: {
    readonly cut: Stages;
    readonly asked: { readonly request: PlanRequest; readonly budgetBytes: number };
  },
): Promise<number> {
  if (request.overlap === true)
    (await import('../../../simulate/overlap/plan.ts')).checkOverlap(request);
  const steps = options.explainSolver === true ? new SolverSteps() : undefined;
  const deadline = steps === undefined ? limit : limit.telling(steps.listen);
  const began = performance.now();
  const prepared = prepare(graph, request, table, deadline);
  const search = deadline.reserving((RE_COSTING * (performance.now() - began)) / 1e3);
  answers();
  if (options.emitIlp !== undefined) await emitIlp(prepared.left.problem, options.emitIlp);
  const recipes = options.recipes ? await priceRecipes(prepared, search.part(RECIPES)) : [];
  const starts = recipes.flatMap((r) => (r.status === 'priced' ? [r.choice] : []));
  const log = new SolverLog(prepared);
  const print = progressPrinter(io, options.quiet === true);
  const result = await shardPrepared(prepared, {
    starts,
    deadline: search,
    onProgress: (event) => (log.listen(event), print(event)),
  });
  if (result.status === 'infeasible')
    return reportInfeasible(result, prepared, io, options.json === true);
  const overlap =
    request.overlap === true && !deadline.isOver
      ? await withOverlap(result, { deadline, starts })
      : undefined;
  const step =
    stages === undefined && asksForStep(request)
      ? await withStep(result, recipes, deadline)
      : undefined;
  const { plan, choice } = overlap?.result ?? step?.result ?? result;
  checkRecipes(prepared.question.given, plan, recipes);
  const ends =
    range === undefined || deadline.isOver
      ? undefined
      : await planAtEnds(plan, range.open, range.sizes, request, { table, deadline });
  const pipeline = stages?.cut(result.prepared, choice);
  const more = {
    ...(ends === undefined ? {} : { ends }),
    ...(pipeline === undefined ? {} : { pipeline }),
    ...(overlap === undefined ? {} : { overlap: overlapRecord(overlap) }),
    ...(step === undefined ? {} : { simulated: stepRecord(step) }),
    ...(steps === undefined ? {} : { solverSteps: steps.steps }),
  };
  if (options.json === true) io.stdout(`${JSON.stringify({ ...plan, ...more })}\n`);
  else {
    if (options.program === true) io.stdout(`${annotatedProgram(result.graph, plan)}\n\n`);
    io.stdout(
      `${planSummary(result.graph, plan, recipes, { ...(stages?.asked ?? asGiven(plan, request)), secondOpinion: result.secondOpinion, ...(step === undefined ? {} : { simulated: stepText(step) }) })}\n`,
    );
    const why = whyRecipesAreCheaper(prepared.question.given, plan, recipes);
    if (why !== undefined) io.stdout(`note  ${why}\n`);
    if (overlap !== undefined) io.stdout(`\n${overlapText(overlap)}\n`);
    else if (request.overlap === true)
      io.stdout(`\noverlap    not looked for: ${deadline.cause}\n`);
    if (ends !== undefined) io.stdout(`\n${endsText(ends)}\n`);
    if (pipeline !== undefined) io.stdout(`\n${pipelineText(pipeline)}\n`);
    if (steps !== undefined) io.stdout(`\n${solverStepsText(steps.steps)}\n`);
  }
  // The answer is out: a disk that is full by now takes nothing away.
  if (options.output !== undefined) {
    const files = planFiles(
      plan,
      result.prepared.question.program,
      result.certificate,
      table,
      pipeline,
    );
    const all = [
      ...files,
      [PROGRESS_FILE, progressText(files[0][1], log.incumbents(plan))],
      ...(pipeline === undefined ? [[PIPELINE_FILE, undefined] as const] : []),
    ] as const;
    writeFolder(options.output, all, 'plan');
    const line =
      options.json === true
        ? ''
        : wroteText(
            options.output,
            files.map(([name]) => name),
          );
    if (line !== '') io.stdout(line);
    options.onFiles?.(all, line);
  }
  // What a plan with overlap in view gives away one after another is meant: the gap asked for is
  // that of the plan it began with.
  const { proof } = result.plan;
  const good = askedGap(result.plan.request);
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
 * The request as given: a checkpoint policy stands in the program of the plan, and no longer in its
 * request.
 */
function asGiven(
  plan: Plan,
  { checkpoint, activations }: PlanRequest,
): { readonly request: PlanRequest; readonly budgetBytes: number } {
  const { checkpoint: _, activations: __, ...made } = plan.request;
  const request = {
    ...made,
    ...(checkpoint === undefined ? {} : { checkpoint }),
    ...(activations === undefined ? {} : { activations }),
  };
  return { request, budgetBytes: plan.memory.budgetBytes };
}

async function withOverlap(
  result: Extract<ShardResult, { readonly status: 'planned' }>,
  options: { readonly deadline: Deadline; readonly starts: readonly Int32Array[] },
): Promise<OverlapPlan | undefined> {
  const { overlapPlan } = await import('../../../simulate/overlap/plan.ts');
  try {
    return await overlapPlan(result, options);
  } catch (error) {
    if (error instanceof NoChoiceInTime) return undefined;
    throw error;
  }
}

/**
 * Whether the plan is the known one of the shortest simulated step, where nothing else is asked
 * for.
 */
function asksForStep({ objective, overlap, solver }: PlanRequest): boolean {
  return objective === 'time' && overlap !== true && solver !== 'propagate';
}

async function withStep(
  result: Extract<ShardResult, { readonly status: 'planned' }>,
  recipes: Awaited<ReturnType<typeof priceRecipes>>,
  deadline: Deadline,
): Promise<OverlappedStep | undefined> {
  const known = recipes.flatMap((r) =>
    r.status === 'priced' ? [{ name: r.name, choice: r.choice }] : [],
  );
  if (known.length === 0 || deadline.isOver) return undefined;
  const { overlappedStep } = await import('../../../simulate/overlap/known-plan.ts');
  return overlappedStep(result, known, deadline);
}

/** What `--json` prints of the step with communication beside compute, beside the plan. */
function stepRecord({ result: _, ...record }: OverlappedStep): Omit<OverlappedStep, 'result'> {
  return record;
}

function stepText({
  name,
  simulatedSeconds,
  baseSimulatedSeconds,
  serialSeconds,
  baseSerialSeconds,
  boundSeconds,
  gap,
}: OverlappedStep): string {
  const proven =
    boundSeconds === null || gap === null
      ? ''
      : `; no plan takes less than ${secondsText(boundSeconds)} (gap ${percentText(gap)})`;
  const first =
    `overlapped ${secondsText(simulatedSeconds)} simulated, communication beside ` +
    `compute${proven}`;
  if (name === undefined) return first;
  return (
    `${first}\n           ${name}: ` +
    `${percentText(shareOf(baseSimulatedSeconds - simulatedSeconds, baseSimulatedSeconds))} ` +
    'less than the plan of least seconds one after another ' +
    `(${secondsText(baseSimulatedSeconds)})\n           one after another it takes ` +
    `${percentText(excessOver(baseSerialSeconds, serialSeconds))} more than that plan, which ` +
    '--objective serial prints'
  );
}

/** What `--json` prints of a plan with overlap in view, beside the plan. */
function overlapRecord({ result: _, ...record }: OverlapPlan): Omit<OverlapPlan, 'result'> {
  return record;
}

function overlapText(overlap: OverlapPlan): string {
  const {
    changed,
    simulatedSeconds,
    boundSeconds,
    gap,
    baseSimulatedSeconds,
    serialSeconds,
    baseSerialSeconds,
    rounds,
  } = overlap;
  const proven =
    `no plan takes less than ${secondsText(boundSeconds)} (gap ${percentText(gap)}); ` +
    `${countedText(rounds, 'plan')} ` +
    `simulated${holdsPeak(overlap.result.prepared.question.request) ? '\n           every plan simulated keeps the peak of memory within the budget; the bound holds whatever the peak is' : ''}`;
  if (!changed) return `overlap    ${secondsText(simulatedSeconds)} simulated; ${proven}`;
  return (
    `overlap    ${secondsText(simulatedSeconds)} simulated, ` +
    `${percentText(shareOf(baseSimulatedSeconds - simulatedSeconds, baseSimulatedSeconds))} ` +
    'less than the plan of least seconds one after another ' +
    `(${secondsText(baseSimulatedSeconds)}); one after another ` +
    `${percentText(excessOver(baseSerialSeconds, serialSeconds))} more\n           ${proven}`
  );
}

type Stages = (prepared: Prepared, choice: Int32Array) => PlanPipeline;

/** The request with what was padded before planning. */
export function padded(request: PlanRequest, padding: VocabularyPadding | undefined): PlanRequest {
  return padding === undefined ? request : { ...request, padVocabulary: padding };
}

const { batchDim, sequenceDim, ...others } = PLAN_FLAGS;
const { ignoreShardings, overlap } = PLAN_COMMAND;
/**
 * Flags that say something of the plan that is asked for, in the order of the fields that they set.
 */
const REQUEST_FLAGS = { ignoreShardings, ...others, overlap, batchDim, sequenceDim };
type RequestOptions = Given<typeof REQUEST_FLAGS> & {
  readonly mesh: string;
  readonly cluster: string;
};

/**
 * What the flags ask for. @param options `cluster` is the text of a cluster, or the name of a node
 * design
 */
export function requestOf(options: RequestOptions): PlanRequest {
  const { mesh, cluster } = options;
  const request = requestOfFlags(REQUEST_FLAGS, options, { ...DEFAULT_REQUEST, mesh, cluster });
  if (
    request.activations !== undefined &&
    request.activations !== 'constraint' &&
    recomputesUnderBudget(request)
  )
    throw new ShardwrightError(
      'E_USAGE',
      `--checkpoint ${String(request.checkpoint)} limits peak memory to the budget, and ` +
        `--activations ${request.activations} does not`,
      { hint: 'leave --activations out, or give --activations constraint.' },
    );
  return request;
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
  if (json)
    io.stdout(
      `${JSON.stringify({ error: { code: 'E_INFEASIBLE', message, hint }, ...result, model: model.graph.name })}\n`,
    );
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
