/** Writes what `plan` leaves on the disk: the plan folder, and its integer program. */

import { ownTarget } from '../../../backend/target.ts';
import { itemAt } from '../../../item-at.ts';
import type { SolverLog } from '../../../report/analysis/incumbents.ts';
import type { Problem } from '../../../solver/types.ts';
import { PIPELINE_FILE } from '../../input/pipeline-file.ts';
import { PLAN_FILES, planFiles, PROBLEMS } from '../../input/plan-folder.ts';
import { PROGRESS_FILE, progressText } from '../../output/plan-progress.ts';
import { tryFile, tryFolder, writeFolder, writeText } from '../../output/write-file.ts';
import type { PlanOptions } from './flags.ts';
import { wroteText } from './plan-cache.ts';
import { FRONTIER_FILE } from './plan-frontier.ts';
import type { Found, PlanTask } from './plan-task.ts';

/** Tries what will be written before anything is computed. @throws E_IO */
export function tryOutputs({ frontier, output, emitIlp }: PlanOptions): void {
  const names =
    frontier === undefined ? [...PLAN_FILES, PROGRESS_FILE, PIPELINE_FILE] : [FRONTIER_FILE];
  if (output !== undefined) tryFolder(output, names, 'plan');
  if (emitIlp !== undefined) tryFile(emitIlp, 'integer program');
}

export function writePlanFolder(
  { table, options, io, onFiles }: PlanTask,
  folder: string,
  { plan, serial, pipeline }: Found,
  { log, checked }: { readonly log: SolverLog; readonly checked: boolean },
): void {
  const { program } = serial.prepared.question;
  const files = planFiles(plan, program, serial.certificate, table, { stages: pipeline, checked });
  const all = [
    ...files,
    [PROGRESS_FILE, progressText(itemAt(files, 0)[1], log.incumbents(plan))],
    // Of an earlier plan in the folder.
    ...(checked ? [] : [[PROBLEMS, undefined] as const]),
    ...(pipeline === undefined ? [[PIPELINE_FILE, undefined] as const] : []),
  ] as const;
  writeFolder(folder, all, 'plan');
  const names = files.map(([name]) => name);
  const line = options.json === true ? '' : wroteText(folder, names, ownTarget(program));
  if (line !== '') io.stdout(line);
  onFiles?.(all, line);
}

export async function emitIlp(problem: Problem, path: string): Promise<void> {
  const { encode, lpText } = await import('../../../solver/milp/encode.ts');
  writeText(path, lpText(encode(problem)), 'integer program');
}
