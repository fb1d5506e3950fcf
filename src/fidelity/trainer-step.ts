/**
 * The software of trainers, as the steps of plans are chosen and checked by it; and the checks of
 * whole plan folders, which ask for it.
 */
import { hasAdapters, hasExperts, isUnmeasured, safePeakBytes } from '../cost/error-bands.ts';
import { type Cluster, usableMemoryBytes } from '../cost/hardware/cluster.ts';
import { loadCluster } from '../cost/hardware/load-cluster.ts';
import { FITTED } from '../cost/kernels/fitted.ts';
import { defaultCostPreset } from '../cost/presets/presets.ts';
import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import { roleName } from '../graph/nodes.ts';
import type { Graph } from '../graph/types.ts';
import { parseModelConfig } from '../models/families.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import { decode } from '../plan/choice/decode.ts';
import { choiceOfPlan } from '../plan/choice/transfer.ts';
import { prepare } from '../plan/prepare/prepare.ts';
import type { Prepared } from '../plan/prepare/prepared.ts';
import { EXPORTED, isOfTrainer } from '../plan/record/answer.ts';
import type { Plan, StepFigures } from '../plan/record/types.ts';
import type { Deadline } from '../plan/request/deadline.ts';
import type { PlanRequest } from '../plan/request/request.ts';
import { simulatedStep } from '../recipes/chosen-step.ts';
import { DEFAULT_RISK } from '../recipes/compare/best-plan.ts';
import { simulatedSeconds } from '../recipes/compare/simulated.ts';
import { recipeChoice } from '../recipes/recipe-choice.ts';
import type { StepFacts } from '../step/facts.ts';
import { hasRoutedBlocks } from '../step/read/routed-blocks.ts';
import { expertsNotRun } from '../step/read/routed-part.ts';
import { stepOfPlan } from '../step/step-of-plan.ts';
import { softwareWithGradients, type SweepQuestion } from '../sweep/model/question.ts';
import { trainerLimits } from '../sweep/model/trainer-limits.ts';
import { recomputes } from '../trainers/runs.ts';
import {
  type AskedTrainer,
  checkAdapters,
  defaultTrainer,
  trainerNamed,
} from '../trainers/trainers.ts';
import { frameworkSoftware } from './software.ts';

/**
 * The software by which a request's step is priced; undefined where it is for the exported program.
 *
 * @throws E_USAGE for an unknown trainer, and for prices that no software has
 */
export function trainerFacts({
  trainer,
  cluster: asked,
  cost: askedCost,
  compiled,
  gradients,
  optimizer,
  ...limits
}: StepRequest): StepFacts | undefined {
  if (trainer === undefined || trainer === EXPORTED) return undefined;
  const { profile } = trainerNamed(trainer, '--for');
  const cluster = loadCluster(asked);
  const cost = askedCost ?? defaultCostPreset(cluster);
  if (cost !== 'nccl')
    throw new ShardwrightError('E_USAGE', `--for goes with --cost nccl, not ${cost}`, {
      hint: 'other presets price calls one by one, whatever runs them.',
    });
  const own = frameworkSoftware(profile, cluster, compiled === true);
  const software = gradients === undefined ? own : softwareWithGradients(own, gradients);
  const system = { cluster, software, constants: FITTED };
  const recompute =
    limits.activations === 'trainer' ? recomputeOf(trainer, cluster, limits) : undefined;
  return { trainer, system, ...defined({ optimizer, recompute }) };
}

/** The fields of a request by which a trainer's step is priced. */
type StepRequest = Pick<
  PlanRequest,
  | 'trainer'
  | 'cluster'
  | 'cost'
  | 'compiled'
  | 'gradients'
  | 'optimizer'
  | 'activations'
  | 'memoryBytes'
  | 'headroom'
  | 'risk'
>;

/** The recomputation of a trainer, to the bytes that fit as surely as is asked. */
function recomputeOf(
  trainer: string,
  cluster: Cluster,
  { risk = DEFAULT_RISK, ...limits }: Pick<StepRequest, 'memoryBytes' | 'headroom' | 'risk'>,
): NonNullable<StepFacts['recompute']> {
  const runs = trainerLimits({ trainer });
  const { memoryBytes = cluster.memoryBytes } = limits;
  return {
    limitBytes: Math.min(usableMemoryBytes(cluster, limits), safePeakBytes(memoryBytes, risk)),
    runs: (checkpoint) => runs === undefined || recomputes(runs, checkpoint),
  };
}

/**
 * The request for the trainer that it names; for the default one, where it names none and is of the
 * training step of a known model.
 *
 * @param isNamed whether the graph was made from the name or the config of a model
 * @throws E_USAGE where no trainer runs the program, or where the plan is not chosen by its step
 */
export function forTrainer(request: PlanRequest, graph: Graph, isNamed: boolean): PlanRequest {
  const { trainer } = request;
  const cluster = loadCluster(request.cluster);
  checkTrainer(request, graph);
  const not = notRun(request, graph);
  const cost = request.cost ?? defaultCostPreset(cluster);
  const own = trainerByDefault(cluster, cost, isUnmeasured(graph.nodes.map(roleName)));
  if (trainer !== undefined || not !== undefined || !isNamed || own === undefined)
    return withRoutedRows(request, graph);
  return withRoutedRows({ ...request, trainer: own.trainer.id, trainerAssumed: true }, graph);
}

/**
 * The request for a trainer that routes experts: the rows that the program sorts for all devices
 * are not on a device of it, so that activations are those of its step alone.
 */
export function withRoutedRows(request: PlanRequest, graph: Graph): PlanRequest {
  const { trainer, activations } = request;
  const isRouted = trainer !== undefined && trainer !== EXPORTED && hasRoutedBlocks(graph);
  return isRouted && activations === undefined ? { ...request, activations: 'trainer' } : request;
}

/** @throws E_USAGE where the trainer that is named does not run the program, or not by its step */
function checkTrainer(request: PlanRequest, graph: Graph): void {
  const { trainer, activations } = request;
  if (trainer === EXPORTED && activations === 'trainer')
    throw new ShardwrightError('E_USAGE', `--activations trainer with --for ${trainer}`, {
      hint: 'the exported program has no trainer: leave one of them out.',
    });
  if (trainer === undefined || trainer === EXPORTED) return;
  if (hasAdapters(graph.nodes.map(roleName))) checkAdapters(trainer);
  const not = notRun(request, graph);
  if (not !== undefined)
    throw new ShardwrightError('E_USAGE', `--for ${trainer}: ${not.why}`, { hint: not.hint });
}

/**
 * The software for the steps of a request's plans.
 *
 * @throws what `trainerFacts` throws, and E_USAGE for a trainer that does not run the program
 */
export function stepFactsOf(request: PlanRequest, graph: Graph): StepFacts | undefined {
  checkTrainer(request, graph);
  return trainerFacts(request);
}

/** The default trainer on a cluster; undefined under prices that no software has. */
export function trainerByDefault(
  { accelerator }: Cluster,
  cost: string,
  adapters: boolean,
): AskedTrainer | undefined {
  return cost === 'nccl' ? trainerNamed(defaultTrainer(accelerator, adapters), '--for') : undefined;
}

/** The question of a sweep for the default trainer, where it is asked for none. */
export function questionForTrainer(question: SweepQuestion): SweepQuestion {
  const cluster = loadCluster(question.cluster);
  const { lora } = parseModelConfig(question.config);
  const own = trainerByDefault(cluster, question.cost, lora !== undefined);
  if (question.trainer !== undefined || own === undefined) return question;
  return {
    ...question,
    trainer: own.trainer.id,
    trainerAssumed: true,
    software: question.software ?? frameworkSoftware(own.profile, cluster),
  };
}

/** Why the plan of a graph has no step under a trainer's software; undefined where it has one. */
function notRun(
  { overlap, objective, solver, checkpoint, activations }: PlanRequest,
  graph: Graph,
): { readonly why: string; readonly hint: string } | undefined {
  if (!graph.outputs.some(({ role }) => role === 'grad'))
    return {
      why: 'the program is not a training step',
      hint: 'plan its training step: leave out --forward, or give a program with gradients.',
    };
  const hasRouted = hasRoutedBlocks(graph);
  if (!hasRouted && hasExperts(graph.nodes.map(roleName)))
    return {
      why: 'it runs routed experts otherwise than this program does',
      hint: 'ask compare for the layouts of the model.',
    };
  if (hasRouted && (checkpoint ?? 'none') !== 'none')
    return {
      why: `--checkpoint ${String(checkpoint)} recomputes the rows of the exported program`,
      hint: 'take --for shardwright, or ask compare, which recomputes as trainers do.',
    };
  if (hasRouted && (activations ?? 'trainer') !== 'trainer')
    return {
      why: `--activations ${activations} counts the rows of the exported program`,
      hint: 'take --for shardwright, or leave it out: the step of a trainer counts its own.',
    };
  if (overlap === true)
    return {
      why: '--overlap plays the exported program',
      hint: 'leave one of them out.',
    };
  if (objective !== 'time' || solver === 'propagate')
    return {
      why: 'the plan is not chosen by its step',
      hint: 'leave out --objective and --solver propagate.',
    };
  return undefined;
}

/** The step of a plan again, for the trainer that it names. */
export function stepAgain(prepared: Prepared, choice: Int32Array, plan: Plan): StepFigures {
  const { request } = prepared.question;
  const trainer = request.trainer ?? EXPORTED;
  const facts = trainerFacts({ ...request, trainer });
  if (facts !== undefined) return stepOfPlan(prepared.model, choice, facts);
  return simulatedStep(plan, simulatedSeconds(prepared, choice, decode(prepared.model, choice)));
}

/**
 * The step of another plan of the same problem, by the software of the one that was asked about.
 *
 * @returns undefined where that has no step, and where its trainer does not run the other
 */
export function stepOfOther(prepared: Prepared, asked: Plan, other: Plan): StepFigures | undefined {
  if (asked.step === undefined) return undefined;
  const choice = choiceOfPlan(other, prepared.model);
  const isRun = !isOfTrainer(asked) || expertsNotRun(prepared.model, choice) === undefined;
  return isRun ? stepAgain(prepared, choice, other) : undefined;
}

/**
 * The step of a recipe's plan, for the trainer that the request names.
 *
 * @throws what `prepare` and `recipeChoice` throw
 */
export async function stepOfRecipe(
  graph: Graph,
  request: PlanRequest & { readonly recipe: string },
  table: OperatorTable,
  deadline: Deadline,
): Promise<StepFigures> {
  const prepared = prepare(graph, request, table, deadline);
  const { choice, peakBytes } = await recipeChoice(prepared, request.recipe, deadline);
  const facts = trainerFacts(request);
  if (facts !== undefined) return stepOfPlan(prepared.model, choice, facts);
  const decoded = decode(prepared.model, choice);
  return {
    trainer: EXPORTED,
    stepSeconds: simulatedSeconds(prepared, choice, decoded),
    peakBytes,
  };
}
