/** The pipeline part of `plan`: reads `--pp` and its flags, plans one microbatch, writes and reads `pipeline.json`. */

import { existsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import * as z from 'zod';
import { loadCluster, usableMemoryBytes } from '../../../cost/hardware/cluster.ts';
import { ShardwrightError } from '../../../errors.ts';
import type { PlanRequest } from '../../../plan/request/request.ts';
import { readFileText } from '../../../read-file.ts';
import { bytesText, countedText, percentText, secondsText, tableText } from '../../../units.ts';
import { PIPELINE_SCHEDULES, type PipelineSchedule } from '../../../simulate/pipeline/schedules.ts';
import type { PlanPipeline, PlanPipelineRequest } from '../../../zoo/pipeline/plan.ts';
import type { PlanOptions } from './flags.ts';

/** The stages of a plan, beside it. */
export const PIPELINE_FILE = 'pipeline.json';

const FLAGS = ['schedule', 'microbatches', 'virtual'] as const;
const DEFAULT_BATCH = 8;

/** What `--pp` asks, and the sequences of the program that is then planned: those of one microbatch. */
export interface AskedPipeline extends PlanPipelineRequest {
  readonly microbatch: number;
}

/**
 * @param options `batch` is that of a step
 * @throws E_USAGE for graph files, and for flags that do not go with `--pp`
 */
export function askedPipeline(
  model: string,
  options: PlanOptions,
  request: PlanRequest,
): AskedPipeline | undefined {
  const usage = (message: string, hint: string): ShardwrightError => new ShardwrightError('E_USAGE', message, { hint });
  if (options.pp === undefined) {
    const given = FLAGS.find((flag) => options[flag] !== undefined);
    if (given === undefined) return undefined;
    throw usage(`--${given} is for pipelines`, 'give --pp with the number of stages, or leave it out.');
  }
  if (existsSync(model) && !/\.json(\.gz)?$/.test(model))
    throw usage(`--pp cuts models by name or config; ${model} is a graph`, 'name a model (shardwright models list).');
  const other = (['activations', 'checkpoint', 'range', 'overlap'] as const).find((flag) => options[flag] !== undefined);
  if (other !== undefined)
    throw usage(`--${other} does not go with --pp`, 'stages count their own activations, each microbatch that they keep.');
  const { pp: devices, virtual: chunks, batch = DEFAULT_BATCH } = options;
  const schedule: PipelineSchedule = options.schedule ?? ((chunks ?? 1) > 1 ? 'interleaved' : '1f1b');
  const virtual = chunks ?? (schedule === 'interleaved' ? 2 : 1);
  if ((schedule === 'interleaved') !== virtual > 1)
    throw usage(`schedule ${schedule} with ${virtual} chunks a device`, 'only interleaved has several chunks on a device (--virtual 2 or more).'); // prettier-ignore
  const { microbatches = defaultMicrobatches(batch, devices) } = options;
  if (batch % microbatches !== 0)
    throw usage(`${microbatches} microbatches do not divide a batch of ${batch}`, `--microbatches of ${divisors(batch).join(', ')}, or another --batch.`); // prettier-ignore
  const budgetBytes = request.memoryBytes ?? usableMemoryBytes(loadCluster(request.cluster));
  return { devices, schedule, virtual, microbatches, microbatch: batch / microbatches, budgetBytes };
} // prettier-ignore

function divisors(n: number): number[] {
  return Array.from({ length: n }, (_, i) => i + 1).filter((d) => n % d === 0);
}

/** The most that divide the batch, up to four for every stage: the bubble is then under a quarter of the work. */
function defaultMicrobatches(batch: number, devices: number): number {
  return Math.max(...divisors(batch).filter((d) => d <= 4 * devices));
}

/** The request of the program of one microbatch: all stages together have so many times the memory of one. */
export function requestOfStages(request: PlanRequest, { devices, budgetBytes }: AskedPipeline): PlanRequest {
  return { ...request, memoryBytes: budgetBytes * devices, activations: 'off' };
}

const pipelineSchema = z.strictObject({
  schedule: z.enum(PIPELINE_SCHEDULES),
  microbatches: z.int().positive(),
  virtual: z.int().positive(),
  stages: z
    .array(
      z.strictObject({
        layers: z.tuple([z.int().nonnegative(), z.int().nonnegative()]).nullable(),
        embedding: z.boolean(),
        head: z.boolean(),
        seconds: z.number(),
        peakBytes: z.number(),
        inFlight: z.int(),
        idleShare: z.number(),
      }),
    )
    .min(1),
  bubbleSeconds: z.number(),
  seconds: z.number(),
  budgetBytes: z.number(),
  fits: z.boolean(),
  moved: z.array(z.string()),
});

/**
 * The stages that `plan --pp -o` wrote beside a plan; undefined where there are none.
 *
 * @param path plan folder, or the plan file in it
 * @throws E_TYPE with the path of what does not fit
 */
export function readPipeline(path: string): PlanPipeline | undefined {
  const file = join(statSync(path).isDirectory() ? path : dirname(path), PIPELINE_FILE);
  if (!existsSync(file)) return undefined;
  const again = 'make the plan again with --pp, or remove pipeline.json.';
  let value: unknown;
  try {
    value = JSON.parse(readFileText(file));
  } catch (error) {
    if (error instanceof ShardwrightError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new ShardwrightError('E_SYNTAX', `not JSON: ${why}`, { file, hint: again });
  }
  const parsed = pipelineSchema.safeParse(value);
  if (parsed.success && parsed.data.stages.length % parsed.data.virtual === 0) return parsed.data;
  const [issue] = parsed.error?.issues ?? [];
  const why = issue === undefined ? '$.stages: not a multiple of $.virtual' : `$.${issue.path.join('.')}: ${issue.message}`; // prettier-ignore
  throw new ShardwrightError('E_TYPE', why, { file, hint: again });
}

/** The stages as text. */
export function pipelineText(pipeline: PlanPipeline): string {
  const { schedule, microbatches, virtual, seconds, bubbleSeconds, budgetBytes, stages, moved } = pipeline;
  const chunks = virtual > 1 ? ` by ${virtual}` : '';
  const devices = stages.length / virtual;
  const rows = stages.map((s, k) => [
    `${k}`,
    `${k % devices}`,
    [s.embedding ? 'embedding' : '', s.layers === null ? '' : `layers ${s.layers[0]}-${s.layers[1]}`, s.head ? 'head' : ''].filter((t) => t !== '').join(', '),
    secondsText(s.seconds),
    bytesText(s.peakBytes),
    `${s.inFlight}`,
    percentText(s.idleShare),
  ]); // prettier-ignore
  return [
    `pipeline   ${secondsText(seconds)} a step: ${schedule}${chunks}, ${countedText(microbatches, 'microbatch', 'microbatches')} (--schedule, --virtual, --microbatches); bubble ${secondsText(bubbleSeconds)}`,
    `           the plan above is that of one microbatch on the mesh of one stage; its memory is that of ${devices === 1 ? 'one stage' : `all ${devices} stages together`}`,
    '',
    tableText([['stage', 'device', 'holds', 'a microbatch', 'memory', 'kept', 'idle'], ...rows], [0, 1, 3, 4, 5, 6]),
    ...moved.map((text) => `note       ${text}`),
    ...(pipeline.fits ? [] : [`           does not fit: ${bytesText(budgetBytes)} per device`]),
  ].join('\n');
}
