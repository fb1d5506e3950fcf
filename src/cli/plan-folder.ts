import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { ShardwrightError } from '../errors.ts';
import { readPlanFolder, type PlanFolder } from '../plan/folder.ts';

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
  return readPlanFolder(
    { plan, ...(graph !== undefined ? { graph } : {}), ...(request !== undefined ? { request } : {}) },
    file,
  );
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

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new ShardwrightError(
      'E_IO',
      `cannot read the plan: ${error instanceof Error ? error.message : String(error)}`,
      {
        file: path,
        hint: 'give a plan folder, as `shardwright plan ... -o DIR` writes it, or its plan.json.',
      },
    );
  }
}
