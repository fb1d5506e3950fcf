/**
 * Pipeline stages, where the outermost dim of the mesh is `pp`. In: a question. Out: the request of
 * one stage; and of a graph that is cut by its dataflow, its stages planned, in words.
 */
import {
  type AskedPipeline,
  askedPipeline,
  askedSchedule,
  defined,
  infeasibleText,
  MICROBATCHES_A_STAGE,
  PIPELINE_SCHEDULES,
  planGraphStages,
  type PlanRequest,
  ShardwrightError,
  stagesText,
  trainingGraph,
  withStagesOfMesh,
} from '../../src/entries/page.ts';
import type { Deadline } from '../../src/plan/request/deadline.ts';
import type { Question } from '../protocol.ts';
import { type AskedGraph, count, table } from './model.ts';
import { requestOf } from './request.ts';

/** A question whose mesh is that of one stage. */
export interface StagedQuestion {
  /** Its batch is that of a microbatch. */
  readonly question: Question;
  readonly request: PlanRequest;
  /** Absent: the plan has no stages. */
  readonly stages?: AskedPipeline;
}

/** @throws E_USAGE for stages inside of another dim, and settings that do not go together */
export function stagedQuestion(question: Question): StagedQuestion {
  const { pp, mesh, ...settings } = withStagesOfMesh(settingsOf(question));
  if (pp === undefined) return { question, request: requestOf(question) };
  const request = requestOf({ ...question, mesh });
  const stages = askedPipeline({ pp, ...settings }, request);
  if (stages === undefined) return { question, request };
  const { microbatch } = stages;
  return { question: { ...question, mesh, batch: String(microbatch) }, request, stages };
}

interface Settings {
  readonly mesh: string;
  readonly pp?: number;
  readonly schedule?: (typeof PIPELINE_SCHEDULES)[number];
  readonly microbatches?: number;
  readonly batch?: number;
}

function settingsOf({ mesh, schedule, microbatches, batch }: Question): Settings {
  return {
    mesh,
    ...defined({
      schedule: schedule === '' ? undefined : oneOf(PIPELINE_SCHEDULES, schedule),
      microbatches: count('number of microbatches', microbatches),
      batch: count('batch', batch),
    }),
  };
}

/** The stages of a graph that was captured or traced, each planned on its mesh. */
export async function graphStages(
  { graph: given, isTraced }: AskedGraph,
  asked: Question,
  { request, stages }: StagedQuestion & { readonly stages: AskedPipeline },
  deadline: Deadline,
): Promise<{ readonly text: string; readonly seconds: number }> {
  const format = isTraced ? 'trace' : 'file';
  const { graph, isDerived } = trainingGraph({ graph: given, table: table(), format });
  const { devices } = stages;
  const settings = settingsOf(asked);
  const { microbatches = MICROBATCHES_A_STAGE * devices } = settings;
  const cut = { devices, microbatches, ...askedSchedule(settings) };
  const found = await planGraphStages(graph, request, cut, { table: table(), deadline });
  if ('infeasible' in found) {
    const { message, hint } = infeasibleText(found.infeasible, request);
    throw new ShardwrightError('E_INFEASIBLE', `${found.part}: ${message}`, { hint });
  }
  const { pipeline } = found;
  const report = {
    model: graph.name,
    mesh: request.mesh,
    cluster: request.cluster,
    stepSeconds: pipeline.seconds,
    peakBytes: Math.max(...pipeline.stages.map((stage) => stage.peakBytes)),
    pipeline,
  };
  return { text: stagesText(report, isDerived), seconds: pipeline.seconds };
}

/** One of some names. @throws E_USAGE */
function oneOf<const T extends string>(names: readonly T[], text: string): T {
  const known = names.find((name) => name === text);
  if (known !== undefined) return known;
  throw new ShardwrightError('E_USAGE', `'${text}' is none of ${names.join(', ')}`);
}
