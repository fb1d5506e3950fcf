/**
 * `pipeline.json` of a plan folder: takes what it says, gives it as stages, and the stages that
 * follow from the plan.
 */

import * as z from 'zod';

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import { stepAgain, trainerFacts } from '../../fidelity/trainer-step.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { MadeAgain, StagesAgain } from '../../plan/questions/check-plan.ts';
import type { PlanFolder } from '../../plan/record/folder.ts';
import { PIPELINE_SCHEDULES } from '../../simulate/pipeline/schedules.ts';
import { stackLayers } from '../../step/layers.ts';
import { pipelineOfPlan, type PlanPipeline } from '../../sweep/pipeline/plan.ts';
import { stagesNotRun } from '../../sweep/pipeline/staged-plan.ts';

/** The file with the pipeline stages of a plan, in the same folder. */
export const PIPELINE_FILE = 'pipeline.json';

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
  step: z
    .strictObject({
      trainer: z.string(),
      stepSeconds: z.number(),
      peakBytes: z.number(),
    })
    .optional(),
});

/**
 * The pipeline stages in the folder of a plan; undefined where it has none. @throws E_TYPE with the
 * path of the field that does not fit
 */
export function pipelineOf({ pipeline }: PlanFolder): PlanPipeline | undefined {
  if (pipeline === undefined) return undefined;
  const parsed = pipelineSchema.safeParse(pipeline.said);
  if (parsed.success && parsed.data.stages.length % parsed.data.virtual === 0) {
    const { step, ...rest } = parsed.data;
    return { ...rest, ...defined({ step }) };
  }
  const [issue] = parsed.error?.issues ?? [];
  const why =
    issue === undefined
      ? '$.stages: not a multiple of $.virtual'
      : `$.${issue.path.join('.')}: ${issue.message}`;
  throw new ShardwrightError('E_TYPE', why, {
    file: PIPELINE_FILE,
    hint: 'make the plan again with --pp.',
  });
}

/** Makes the parts of a plan folder again that a check compares. */
export function madeAgain(table: OperatorTable): MadeAgain {
  return { stages: stagesAgain(table), step: stepAgain };
}

/**
 * Cuts the stages of a plan again, as its request has them: all stages together have so many times
 * the budget of one.
 */
function stagesAgain(table: OperatorTable): StagesAgain {
  return (prepared, choice, said) => {
    const { schedule, microbatches, virtual, stages, budgetBytes, step } = said as PlanPipeline;
    const devices = stages.length / virtual;
    const { request } = prepared.question;
    const { memoryBytes = budgetBytes * devices } = request;
    const cut = { devices, schedule, microbatches, virtual, budgetBytes: memoryBytes / devices };
    // A file that was changed to stages that its trainer does not make is shown to differ by its
    // fields.
    const layers = stackLayers(prepared.model.graph);
    const isRun = step !== undefined && stagesNotRun(step.trainer, cut, layers) === undefined;
    const facts = isRun ? trainerFacts({ ...request, ...step }) : undefined;
    return pipelineOfPlan(prepared, choice, { ...cut, facts }, table);
  };
}
