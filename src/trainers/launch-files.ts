/**
 * Writes the launch configuration of a plan from a comparison by model name: the file that makes a
 * trainer run exactly its layout.
 */

import type { ComparedPlan, Comparison } from '../recipes/compare/comparison.ts';
import { launchedLayout, type LaunchFile } from './layout/launched-layout.ts';
import { TRAINERS } from './trainers.ts';

/**
 * The file of the trainer that the question is for; of all that have one, where it is for none or
 * for one whose placements are free. A file that would mean another layout is left out. Empty of
 * comparisons of a graph: `export` writes its plans out.
 */
export function launchFiles(
  plan: ComparedPlan,
  { question, devices, meshes }: Pick<Comparison, 'question' | 'devices' | 'meshes'>,
): readonly LaunchFile[] {
  const layout =
    question === undefined ? undefined : launchedLayout(plan, question, devices, meshes);
  // A configuration without its adapters would train another model.
  if (layout === undefined || question?.adapters !== undefined) return [];
  const own = TRAINERS.find(({ id }) => id === question?.trainer);
  const asked = own === undefined || own.runs.isFree === true ? TRAINERS : [own];
  const files = asked.flatMap(({ writeLaunch }) => writeLaunch?.(layout) ?? []);
  return files.filter(({ losses }) => losses.length === 0);
}
