/**
 * Launch configurations of a compared plan. In: a plan of a comparison by model name, the question,
 * the devices. Out: what to give to Megatron-LM, torchtitan and MaxText so that they run its
 * layout, each with what that trainer does otherwise.
 */

import type { ComparedPlan, Comparison } from '../../recipes/compare/comparison.ts';
import { launchedLayout, type LaunchFile } from './launched-layout.ts';
import { maxtextLaunch } from './maxtext.ts';
import { megatronLaunch } from './megatron.ts';
import { torchtitanLaunch } from './torchtitan.ts';

/** Empty of comparisons of a graph: `export` writes its plans out. */
export function launchFiles(
  plan: ComparedPlan,
  { question, devices, meshes }: Pick<Comparison, 'question' | 'devices' | 'meshes'>,
): readonly LaunchFile[] {
  const layout =
    question === undefined ? undefined : launchedLayout(plan, question, devices, meshes);
  return layout === undefined
    ? []
    : [megatronLaunch(layout), torchtitanLaunch(layout), maxtextLaunch(layout)];
}
