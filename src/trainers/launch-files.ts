/**
 * Writes launch configurations of a plan from a comparison by model name: the files that make
 * trainers run its layout, each with a list of the trainer's differences from the plan.
 */

import type { ComparedPlan, Comparison } from '../recipes/compare/comparison.ts';
import { launchedLayout, type LaunchFile } from './layout/launched-layout.ts';
import { TRAINERS } from './trainers.ts';

/** Empty of comparisons of a graph: `export` writes its plans out. */
export function launchFiles(
  plan: ComparedPlan,
  { question, devices, meshes }: Pick<Comparison, 'question' | 'devices' | 'meshes'>,
): readonly LaunchFile[] {
  const layout =
    question === undefined ? undefined : launchedLayout(plan, question, devices, meshes);
  return layout === undefined
    ? []
    : TRAINERS.flatMap(({ writeLaunch }) => writeLaunch?.(layout) ?? []);
}
