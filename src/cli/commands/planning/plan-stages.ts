/**
 * `plan FILE --pp`: cuts a captured graph into pipeline stages, plans each on its mesh, and prints
 * the stages and the step.
 */

import { join } from 'node:path';

import { ShardwrightError } from '../../../errors.ts';
import type { Graph } from '../../../graph/types.ts';
import { itemAt } from '../../../item-at.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { leastCostPlan } from '../../../plan/least-cost-plan.ts';
import type { Plan } from '../../../plan/record/types.ts';
import type { Deadline } from '../../../plan/request/deadline.ts';
import { askedGap, type PlanRequest } from '../../../plan/request/request.ts';
import { infeasibleText } from '../../../report/text/infeasible.ts';
import { type StagedPlanReport, stagesText } from '../../../report/text/stages.ts';
import {
  type GraphStages,
  type InfeasiblePart,
  planGraphStages,
} from '../../../sweep/pipeline/graph-stages.ts';
import { MICROBATCHES_A_STAGE } from '../../../sweep/pipeline/microbatches.ts';
import { percentText } from '../../../units.ts';
import { longName } from '../../input/flags/flag.ts';
import { planFiles } from '../../input/plan-folder.ts';
import { STAGES_FILE, stagesFile } from '../../input/stages-folder.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { writeFolder, writeText } from '../../output/write-file.ts';
import type { PlanOptions } from './flags.ts';
import { askedSchedule } from './plan-pipeline.ts';

/** Flags that ask for what the stages of a graph do not have. */
const REFUSED = [
  'activations',
  'checkpoint',
  'range',
  'overlap',
  'forward',
  'recipe',
  'emitIlp',
  'emit',
  'program',
  'cache',
  'explainSolver',
  'accumulate',
] as const;

/** A graph to cut, and how it was asked for. */
interface StagesTask {
  readonly graph: Graph;
  /** True if its backward pass was derived here. */
  readonly isDerived: boolean;
  readonly table: OperatorTable;
  readonly request: PlanRequest;
  readonly options: PlanOptions & { readonly pp: number };
  readonly io: CliIo;
  readonly deadline: Deadline;
}

/**
 * Plans the stages, prints them, and writes a plan folder for each where one is asked for.
 *
 * @throws E_USAGE for flags that do not go with the stages of a graph, and what `planGraphStages`
 *   throws
 */
export async function stagesCommand(task: StagesTask): Promise<number> {
  const { graph, table, request, options, io, deadline } = task;
  const { pp: devices } = options;
  const microbatches = options.microbatches ?? MICROBATCHES_A_STAGE * devices;
  const asked = { devices, microbatches, ...askedSchedule(options) };
  const found = await planGraphStages(graph, request, asked, { table, deadline });
  if ('infeasible' in found) return reportPart(task, found);
  const { pipeline } = found;
  const report: StagedPlanReport = {
    model: graph.name,
    mesh: request.mesh,
    cluster: options.cluster,
    stepSeconds: pipeline.seconds,
    peakBytes: Math.max(...pipeline.stages.map((stage) => stage.peakBytes)),
    pipeline,
  };
  answer(io, options, report, () => stagesText(report, task.isDerived));
  if (options.output !== undefined) await writeStages(task, options.output, found);
  if (!pipeline.fits) return EXIT.infeasible;
  const gap = Math.max(...pipeline.stages.map(({ proof }) => proof.gap));
  const good = askedGap(request);
  if (gap <= good || pipeline.stages.every(({ proof }) => proof.status === 'optimal'))
    return EXIT.ok;
  io.stderr(`stopped at gap ${percentText(gap)}, asked for ${percentText(good)} (--gap)\n`);
  return EXIT.gap;
}

/** Says which part fits no device, and what would do. */
function reportPart(
  { request, graph, options, io }: StagesTask,
  { infeasible, part }: InfeasiblePart,
): number {
  const { message, hint } = infeasibleText(infeasible, request);
  const error = { code: 'E_INFEASIBLE', message: `${part}: ${message}`, hint };
  if (options.json === true)
    io.stdout(`${JSON.stringify({ error, ...infeasible, model: graph.name })}\n`);
  else io.stderr(`E_INFEASIBLE ${error.message}\n  hint: ${hint}\n`);
  return EXIT.infeasible;
}

/** @throws E_USAGE for flags that do not go with the stages of a graph */
export function checkStagesFlags(options: PlanOptions): void {
  const given = REFUSED.find((flag) => options[flag] !== undefined);
  if (given === undefined) return;
  throw new ShardwrightError('E_USAGE', `${longName(given)} does not go with --pp`, {
    hint:
      given === 'accumulate'
        ? 'the gradients of a stage are reduced once a step: give --microbatches.'
        : 'each stage is planned alone; write them with -o, and ask of a stage.',
  });
}

/** A plan folder for each stage, and `stages.json`, which says how they go together. */
async function writeStages(
  { graph, table, request, io, options, deadline }: StagesTask,
  folder: string,
  found: GraphStages,
): Promise<void> {
  const { staged, requests } = found;
  const plans: { folder: string; plan: string }[] = [];
  for (const [k, stage] of staged.stages.entries()) {
    const result = await leastCostPlan(stage.graph, itemAt(requests, k), { table, deadline });
    if (result.status !== 'planned')
      throw new ShardwrightError('E_TIME_LIMIT', `no time is left to write stage ${k}`, {
        hint: 'give --time-limit more.',
      });
    const { plan, prepared, certificate } = result;
    const name = `stage-${k}`;
    const files = planFiles(plan, prepared.question.program, certificate, table);
    writeFolder(join(folder, name), files, 'plan');
    plans.push({ folder: name, plan: hashOf(files) });
  }
  const about = { mesh: request.mesh, cluster: options.cluster };
  writeText(join(folder, STAGES_FILE), stagesFile(graph, about, found, plans), 'stages');
  if (options.json !== true)
    io.stdout(`\nwrote ${plans.map((one) => `${folder}/${one.folder}`).join(', ')}\n`);
}

/** The hash of the plan that files hold. */
function hashOf(files: ReturnType<typeof planFiles>): string {
  const text = files.find(([name]) => name === 'plan.json')?.[1];
  const { hashes } = JSON.parse(String(text)) as Pick<Plan, 'hashes'>;
  return hashes?.plan ?? '';
}
