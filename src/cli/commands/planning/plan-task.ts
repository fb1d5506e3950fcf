/** The task of the command `plan`, and its findings. */

import type { SizeValues } from '../../../graph/text/size-value.ts';
import type { Graph } from '../../../graph/types.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import type { Prepared } from '../../../plan/prepare/prepared.ts';
import type { planAtEnds } from '../../../plan/questions/size-range.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import type { PlanRequest } from '../../../plan/request/request.ts';
import type { Answered } from '../../../recipes/chosen-step.ts';
import type { SolverSteps } from '../../../report/text/solver-steps.ts';
import type { PlanPipeline } from '../../../sweep/pipeline/plan.ts';
import type { CliIo } from '../../output/io.ts';
import type { PlanOptions } from './flags.ts';
import type { PlanFolderFiles } from './plan-cache.ts';
import type { TriedMesh } from './plan-mesh.ts';

type Stages = (prepared: Prepared, choice: Int32Array) => PlanPipeline;

/** A program to plan, how it is asked for, and who hears of it. */
export interface PlanTask {
  readonly graph: Graph;
  /** The step of a model by name, in words. */
  readonly step?: string;
  /** The meshes that were tried, where none was named. */
  readonly tried?: readonly TriedMesh[];
  readonly table: OperatorTable;
  readonly request: PlanRequest;
  readonly options: Pick<
    PlanOptions,
    | 'recipes'
    | 'program'
    | 'emit'
    | 'verbose'
    | 'output'
    | 'emitIlp'
    | 'json'
    | 'quiet'
    | 'explainSolver'
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
export interface Found extends Answered {
  readonly ends?: Awaited<ReturnType<typeof planAtEnds>>;
  readonly pipeline?: PlanPipeline;
  readonly steps?: SolverSteps;
}
