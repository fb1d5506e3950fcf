/**
 * `stages.json` in a folder of pipeline stages: the plan folder of each, what stages send one
 * another and return, and the schedule that was priced.
 */

import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';

import * as z from 'zod';

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Graph } from '../../graph/types.ts';
import { itemAt } from '../../item-at.ts';
import type { Message, StageGraph } from '../../passes/stages/write-stage.ts';
import { readFileText } from '../../platform/read-file.ts';
import type { StagedPlanReport } from '../../report/text/stages.ts';
import { PIPELINE_SCHEDULES } from '../../simulate/pipeline/schedules.ts';
import type { GraphStages } from '../../sweep/pipeline/graph-stages.ts';
import { parseJson } from '../../text/json.ts';
import { countedText } from '../../units.ts';

export const STAGES_FILE = 'stages.json';
const STAGES_VERSION = 1;

const seconds = z.number().nonnegative();
const bytes = z.number().nonnegative();
const named = z.strictObject({ names: z.array(z.string()), stages: z.array(z.int()) });

const stageSchema = z.strictObject({
  /** The plan folder, beside this file. */
  folder: z.string(),
  /** SHA-256 of its plan. */
  plan: z.string(),
  /** Values from the stage in front, with the inputs that take them. */
  receives: z.array(z.strictObject({ value: z.string(), input: z.string() })),
  /** Values from the stage behind, with the results whose gradients they are. */
  receivesBack: z.array(z.strictObject({ value: z.string(), index: z.int() })),
  /** Values for the stage behind, with their numbers among the user's results. */
  sends: z.array(z.strictObject({ value: z.string(), index: z.int() })),
  /** Values for the stage in front: gradients of inputs, or results with their numbers. */
  sendsBack: z.array(
    z.strictObject({
      value: z.string(),
      of: z.string().exactOptional(),
      index: z.int().exactOptional(),
    }),
  ),
  results: z.array(
    z.strictObject({
      role: z.string(),
      of: z.string().exactOptional(),
      index: z.int().exactOptional(),
      isPart: z.boolean(),
    }),
  ),
});

const pipelineSchema = z.strictObject({
  schedule: z.enum(PIPELINE_SCHEDULES),
  microbatches: z.int().positive(),
  virtual: z.int().positive(),
  stages: z
    .array(
      z.strictObject({
        calls: z.tuple([z.string(), z.string()]),
        parts: z.int(),
        parameters: z.int(),
        seconds,
        peakBytes: bytes,
        inFlight: z.int(),
        idleShare: z.number(),
        sendBytes: bytes,
        sendBackBytes: bytes,
        proof: z.strictObject({
          status: z.enum(['optimal', 'feasible']),
          bound: seconds,
          gap: z.number(),
          solver: z.string(),
        }),
        sameAs: z.int(),
      }),
    )
    .min(1),
  cutPoints: z.int(),
  cuts: z.array(z.string()),
  planned: z.int(),
  shared: z.array(named),
  carried: z.array(z.strictObject({ value: z.string(), stages: z.array(z.int()) })),
  bubbleSeconds: seconds,
  seconds,
  budgetBytes: bytes,
  fits: z.boolean(),
  moved: z.array(z.string()),
});

const stagesSchema = z.strictObject({
  version: z.literal(STAGES_VERSION),
  model: z.string(),
  /** The mesh of a stage. */
  mesh: z.string(),
  cluster: z.string(),
  /** Inputs of the whole program, in its order. */
  inputs: z.array(z.string()),
  stages: z.array(stageSchema).min(1),
  shared: z.array(named),
  pipeline: pipelineSchema,
});

/** The contents of `stages.json`. */
export type StagesFile = z.infer<typeof stagesSchema>;

/** The record of stages whose plans have these hashes. */
export function stagesFile(
  graph: Graph,
  { mesh, cluster }: Pick<StagesFile, 'mesh' | 'cluster'>,
  { staged, pipeline }: GraphStages,
  plans: readonly Pick<StagesFile['stages'][number], 'folder' | 'plan'>[],
): string {
  const inputs = graph.nodes.flatMap((node) =>
    node.kind === 'placeholder' && !STATES.has(node.meta.role ?? '') ? [roleName(node)] : [],
  );
  const stages = staged.stages.map((stage, k) => ({ ...itemAt(plans, k), ...endsOf(stage) }));
  const record = {
    version: STAGES_VERSION,
    model: graph.name,
    mesh,
    cluster,
    inputs,
    stages,
    shared: staged.shared,
    pipeline,
  };
  return `${JSON.stringify(record, null, 1)}\n`;
}

const STATES: ReadonlySet<string> = new Set(['parameter', 'buffer', 'tangent']);

type Ends = Omit<StagesFile['stages'][number], 'folder' | 'plan'>;

function endsOf({ graph, receives, receivesBack, sends, sendsBack, results }: StageGraph): Ends {
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  const output = ({ output: k }: Pick<Message, 'output'>) => itemAt(graph.outputs, k);
  const nodeOf = (value: string) => {
    const node = nodes.get(value);
    if (node === undefined) throw new ShardwrightError('E_INTERNAL', `no input ${value}`);
    return node;
  };
  return {
    receives: receives.map((value) => ({ value, input: roleName(nodeOf(value)) })),
    receivesBack: receivesBack.map((value) => ({
      value,
      index: nodeOf(value).meta.roleIndex ?? 0,
    })),
    sends: sends.map((sent) => ({ value: sent.value, index: output(sent).index ?? 0 })),
    sendsBack: sendsBack.map((sent) => {
      const { role, of, index } = output(sent);
      return { value: sent.value, ...(role === 'grad' ? defined({ of }) : defined({ index })) };
    }),
    results: results.map(({ own, isPart }) => {
      const { role, of, index } = output({ output: own });
      return { role, ...defined({ of, index }), isPart };
    }),
  };
}

/** Tells whether a path is a folder of pipeline stages, and not a plan folder. */
export function isStagesFolder(path: string): boolean {
  return existsSync(path) && statSync(path).isDirectory() && existsSync(join(path, STAGES_FILE));
}

/** The answer that was printed when a folder of stages was written. */
export function reportOfStages({ model, mesh, cluster, pipeline }: StagesFile): StagedPlanReport {
  return {
    model,
    mesh,
    cluster,
    stepSeconds: pipeline.seconds,
    peakBytes: Math.max(...pipeline.stages.map(({ peakBytes }) => peakBytes)),
    pipeline,
  };
}

/** @throws E_PLAN for a folder of stages where one plan is wanted, with what takes it */
export function refuseStages(path: string): void {
  if (!isStagesFolder(path)) return;
  const folders = readStages(path).stages.map(({ folder }) => join(path, folder));
  throw new ShardwrightError(
    'E_PLAN',
    `${path} holds ${countedText(folders.length, 'stage')} of a pipeline, each a plan of its own`,
    {
      file: path,
      hint:
        `give one of ${folders.join(', ')} (audit: audit ${folders[0] ?? ''}/graph.swg --plan ` +
        `${folders[0] ?? ''}); check-plan and report take all of them.`,
    },
  );
}

/**
 * Reads `stages.json` of a folder.
 *
 * @throws E_SYNTAX, E_TYPE with the path of the field that does not fit
 */
export function readStages(folder: string): StagesFile {
  const file = join(folder, STAGES_FILE);
  const hint = 'make the stages again, or restore the file.';
  const parsed = stagesSchema.safeParse(
    parseJson(readFileText(file, { what: 'stages' }), { file, hint }),
  );
  if (parsed.success && parsed.data.stages.length === parsed.data.pipeline.stages.length)
    return parsed.data;
  const [issue] = parsed.error?.issues ?? [];
  const why =
    issue === undefined
      ? '$.pipeline.stages: not as many as $.stages'
      : `$.${issue.path.join('.')}: ${issue.message}`;
  throw new ShardwrightError('E_TYPE', why, { file, hint });
}
