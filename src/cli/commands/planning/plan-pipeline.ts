/**
 * The pipeline part of `plan`: reads `--pp` and its flags, plans one microbatch, says the stages.
 */

import { usableMemoryBytes } from '../../../cost/hardware/cluster.ts';
import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { defined } from '../../../defined.ts';
import { divisors } from '../../../divisors.ts';
import { ShardwrightError } from '../../../errors.ts';
import type { Graph } from '../../../graph/types.ts';
import { itemAt } from '../../../item-at.ts';
import { parseMesh } from '../../../mesh/devices/mesh.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { jointGraph } from '../../../passes/autodiff/joint.ts';
import type { Plan } from '../../../plan/record/types.ts';
import type { PlanRequest } from '../../../plan/request/request.ts';
import type { PipelineSchedule } from '../../../simulate/pipeline/schedules.ts';
import { stackLayers } from '../../../step/layers.ts';
import { hasRoutedBlocks } from '../../../step/read/routed-blocks.ts';
import { defaultMicrobatches } from '../../../sweep/pipeline/microbatches.ts';
import type { PlanPipeline } from '../../../sweep/pipeline/plan.ts';
import type { PlanPipelineRequest } from '../../../sweep/pipeline/request.ts';
import { stagesNotRun } from '../../../sweep/pipeline/staged-plan.ts';
import { bytesText, countedText, percentText, secondsText, tableText } from '../../../units.ts';
import type { PlanOptions } from './flags.ts';
import type { PlanTask } from './plan-task.ts';

const FLAGS = ['schedule', 'microbatches', 'virtual'] as const;

/** Mesh dims whose devices share the sequences of a batch. */
const OF_ONE_BATCH: ReadonlySet<string> = new Set(['tp', 'sp', 'cp']);

/**
 * The request of `--pp`, with the number of sequences in the program to plan: those of one
 * microbatch.
 */
export interface AskedPipeline extends PlanPipelineRequest {
  readonly microbatch: number;
}

/** The flags that go with `--pp`, and those that do not. */
type PipelineOptions = Partial<
  Pick<
    PlanOptions,
    | 'pp'
    | 'batch'
    | 'forward'
    | 'activations'
    | 'checkpoint'
    | 'range'
    | 'overlap'
    | (typeof FLAGS)[number]
  >
>;

/**
 * @param options `batch` is that of a step
 * @throws E_USAGE for flags that do not go with `--pp`
 */
export function askedPipeline(
  options: PipelineOptions,
  request: PlanRequest,
): AskedPipeline | undefined {
  const usage = (message: string, hint: string): ShardwrightError =>
    new ShardwrightError('E_USAGE', message, { hint });
  if (options.pp === undefined) {
    const given = FLAGS.find((flag) => options[flag] !== undefined);
    if (given === undefined) return undefined;
    throw usage(
      `--${given} is for pipelines`,
      'give --pp with the number of stages, or leave it out.',
    );
  }
  const other = (['activations', 'checkpoint', 'range', 'overlap'] as const).find(
    (flag) => options[flag] !== undefined,
  );
  if (other !== undefined)
    throw usage(
      `--${other} does not go with --pp`,
      'stages count their own activations, each microbatch that they keep.',
    );
  if (options.forward === true)
    throw usage('--forward does not go with --pp', 'a pipeline runs a training step.');
  const { pp: devices } = options;
  const mesh = parseMesh(request.mesh);
  const { batch = devices * mesh.size } = options;
  const { schedule, virtual } = askedSchedule(options);
  const dataRanks = mesh.dims.reduce(
    (ranks, { name, size }) => (OF_ONE_BATCH.has(name) ? ranks : ranks * size),
    1,
  );
  const { microbatches = defaultMicrobatches(batch, devices, dataRanks) } = options;
  if (batch % microbatches !== 0)
    throw usage(
      `${microbatches} microbatches do not divide a batch of ${batch}`,
      `--microbatches of ${divisors(batch).join(', ')}, or another --batch.`,
    );
  const budgetBytes = usableMemoryBytes(loadCluster(request.cluster), request);
  return {
    devices,
    schedule,
    virtual,
    microbatches,
    microbatch: batch / microbatches,
    budgetBytes,
  };
}

/**
 * The schedule and the chunks of a device.
 *
 * @throws E_USAGE for chunks of a schedule that has none
 */
export function askedSchedule({
  schedule: named,
  virtual: chunks,
}: Pick<PipelineOptions, 'schedule' | 'virtual'>): Pick<
  PlanPipelineRequest,
  'schedule' | 'virtual'
> {
  const schedule: PipelineSchedule = named ?? ((chunks ?? 1) > 1 ? 'interleaved' : '1f1b');
  const virtual = chunks ?? (schedule === 'interleaved' ? 2 : 1);
  if ((schedule === 'interleaved') === virtual > 1) return { schedule, virtual };
  throw new ShardwrightError('E_USAGE', `schedule ${schedule} with ${virtual} chunks a device`, {
    hint: 'only interleaved has several chunks on a device (--virtual 2 or more).',
  });
}

/**
 * The options with the outermost dim `pp` of a mesh as the number of stages: `pp=2,dp=2` is two
 * stages on `dp=2`.
 *
 * @throws E_USAGE for stages inside of another dim, and for two numbers of them
 */
export function withStagesOfMesh<
  O extends Pick<PipelineOptions, 'pp'> & { readonly mesh?: string | undefined },
>(options: O): O {
  const { dims } = options.mesh === undefined ? { dims: [] } : parseMesh(options.mesh);
  const at = dims.findIndex(({ name }) => name === 'pp');
  if (at < 0) return options;
  if (at > 0 || options.pp !== undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `--mesh ${options.mesh}${options.pp === undefined ? '' : ` with --pp ${options.pp}`}`,
      { hint: 'pp is the outermost dim, as in --mesh pp=2,dp=4, or --pp 2 --mesh dp=4.' },
    );
  const others = dims.slice(1);
  const mesh = others.map(({ name, size }) => `${name}=${size}`).join(',');
  return { ...options, pp: itemAt(dims, 0).size, mesh: mesh === '' ? 'dp=1' : mesh };
}

/**
 * The request of the program of one microbatch: all stages together have so many times the memory
 * of one.
 */
export function requestOfStages(
  request: PlanRequest,
  { devices, budgetBytes }: AskedPipeline,
): PlanRequest {
  const activations = request.activations === 'trainer' ? 'trainer' : 'off';
  return { ...request, memoryBytes: budgetBytes * devices, activations };
}

/** The request for the exported program where the trainer that was assumed makes no such stages. */
export function forStages(request: PlanRequest, asked: AskedPipeline, graph: Graph): PlanRequest {
  const { trainer, trainerAssumed, activations, ...rest } = request;
  // Stages are those of the plan of least seconds, which places experts as no trainer does.
  const isFree = request.recipe === undefined && hasRoutedBlocks(graph);
  const isRun =
    trainerAssumed !== true ||
    trainer === undefined ||
    (!isFree && stagesNotRun(trainer, asked, stackLayers(graph)) === undefined);
  if (isRun) return request;
  return activations === 'trainer' ? rest : { ...rest, ...defined({ activations }) };
}

/** The plan with the step of its stages, if a trainer runs them, and the budget of a device. */
export function inStages(
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

/** Rows of a first screen that the stages of a pipeline answer. */
export const OF_STAGES: ReadonlySet<string> = new Set(['step time', 'memory']);

/**
 * The training graph of a model: a traced program is a forward pass, of which the backward pass is
 * derived; a file is taken as it is.
 */
export function trainingGraph({
  graph,
  table,
  format,
}: {
  readonly graph: Graph;
  readonly table: OperatorTable;
  readonly format: string;
}): { readonly graph: Graph; readonly isDerived: boolean } {
  const isDerived = format === 'trace' && !graph.outputs.some(({ role }) => role === 'grad');
  return { graph: isDerived ? jointGraph(graph, { table }) : graph, isDerived };
}

/** The stages as text. */
export function pipelineText(pipeline: PlanPipeline): string {
  const { schedule, microbatches, virtual, seconds, bubbleSeconds, budgetBytes, stages, moved } =
    pipeline;
  const how = pipeline.step === undefined ? '' : ' call by call';
  const chunks = virtual > 1 ? ` by ${virtual}` : '';
  const devices = stages.length / virtual;
  const rows = stages.map((s, k) => [
    `${k}`,
    `${k % devices}`,
    [
      s.embedding ? 'embedding' : '',
      s.layers === null ? '' : `layers ${s.layers[0]}-${s.layers[1]}`,
      s.head ? 'head' : '',
    ]
      .filter((t) => t !== '')
      .join(', '),
    secondsText(s.seconds),
    bytesText(s.peakBytes),
    `${s.inFlight}`,
    percentText(s.idleShare),
  ]);
  return [
    `pipeline   ${secondsText(seconds)} a step${how}: ${schedule}${chunks}, ` +
      `${countedText(microbatches, 'microbatch', 'microbatches')} (--schedule, --virtual, ` +
      `--microbatches); bubble ${secondsText(bubbleSeconds)}`,
    '           the plan above is that of one microbatch on the mesh of one stage; its ' +
      `memory is that of ${devices === 1 ? 'one stage' : `all ${devices} stages together`}`,
    '',
    tableText(
      [['stage', 'device', 'holds', 'a microbatch', 'memory', 'kept', 'idle'], ...rows],
      [0, 1, 3, 4, 5, 6],
    ),
    ...moved.map((text) => `note       ${text}`),
    ...(pipeline.fits ? [] : [`           does not fit: ${bytesText(budgetBytes)} per device`]),
  ].join('\n');
}
