/** How a plan of one microbatch is cut into pipeline stages. */

import type { PipelineSchedule } from '../../simulate/pipeline/schedules.ts';
import type { StepFacts } from '../../step/facts.ts';

/** The stages that are asked for, and who runs them. */
export interface PlanPipelineRequest {
  readonly devices: number;
  readonly schedule: PipelineSchedule;
  readonly microbatches: number;
  readonly virtual: number;
  /** The budget of a device. */
  readonly budgetBytes: number;
  /** The software of the trainer that runs the stages; absent: the exported program does. */
  readonly facts?: StepFacts | undefined;
}
