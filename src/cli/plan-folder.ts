import { existsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ShardwrightError } from '../errors.ts';
import { readPlanFolder, type PlanFolder } from '../plan/folder.ts';
import { readFileText } from '../read-file.ts';

/** A `<plan>` argument: a plan folder, or a plan file; what lies beside `plan.json` is read with it. @throws E_IO ... */
export function loadPlan(path: string): PlanFolder {
  const isFolder = existsSync(path) && statSync(path).isDirectory();
  const file = isFolder ? join(path, 'plan.json') : path;
  const plan = readText(file);
  // A plan file without hashes was never part of a folder: what lies beside it is another's.
  const folder = isFolder || /"hashes"\s*:/.test(plan.slice(-400)) ? dirname(file) : undefined;
  const beside = (name: string): string | undefined =>
    folder !== undefined && existsSync(join(folder, name)) ? readText(join(folder, name)) : undefined;
  const graph = beside('graph.swg');
  const request = beside('request.json');
  try {
    return readPlanFolder(
      { plan, ...(graph !== undefined ? { graph } : {}), ...(request !== undefined ? { request } : {}) },
      file,
    );
  } catch (error) {
    refuseOthers(plan, file);
    throw error;
  }
}

/** The same, for what needs the graph and the request of the plan. @throws E_PLAN where one is missing */
export function wholePlan(path: string): Required<PlanFolder> {
  const { plan, program, graph, request } = loadPlan(path);
  if (program === undefined || graph === undefined || request === undefined)
    throw new ShardwrightError(
      'E_PLAN',
      `${program === undefined ? 'graph.swg' : 'request.json'} is not beside the plan`,
      {
        file: path,
        hint: 'give a plan folder, as `shardwright plan ... -o DIR` writes it.',
      },
    );
  return { plan, program, graph, request };
}

const WHAT_IS_READ = 'give a plan folder, as `shardwright plan ... -o DIR` writes it, or its plan.json.';

/** What does not even look like a plan is said to be none, instead of a plan with faults. */
function refuseOthers(text: string, file: string): void {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // Whatever is wrong with its syntax is said by the reader of plans; what is no JSON at all is said here.
    if (/^\s*[[{]/.test(text)) return;
    throw new ShardwrightError('E_PLAN', 'this is no plan: not JSON', { file, hint: WHAT_IS_READ });
  }
  const isPlan = typeof value === 'object' && value !== null && 'version' in value && ('model' in value || 'objective' in value); // prettier-ignore
  if (!isPlan) throw new ShardwrightError('E_PLAN', 'this is no plan', { file, hint: WHAT_IS_READ });
}

function readText(path: string): string {
  return readFileText(path, { what: 'plan', hint: WHAT_IS_READ });
}
