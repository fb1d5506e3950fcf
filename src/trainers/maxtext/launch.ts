/**
 * Writes a configuration of MaxText for a layout, `maxtext.yml`, with a list of where MaxText would
 * run another layout. Source: `base.yml` of MaxText: a mesh dim is `ici` within a host and `dcn`
 * between hosts, and the product of all is the number of devices.
 */

import {
  differences,
  type LaunchedLayout,
  type LaunchFile,
  type LaunchForms,
  launchHead,
  type LaunchLoss,
} from '../layout/launched-layout.ts';

const MAXTEXT_FORMS: LaunchForms = {
  // All forward passes come first: gradients are taken of the whole loop over microbatches.
  schedules: ['gpipe'],
  otherSchedule: () => 'the circular pipeline of MaxText',
  unequalStages: 'equal stages, which the layers have to allow',
  recomputes: (checkpoint) => checkpoint === 'full' || checkpoint === 'products',
  someUnits: false,
  pairsMicrobatches: false,
  gathersOnce: false,
};

export function maxtextLaunch(layout: LaunchedLayout): LaunchFile {
  const { sizes, mode, tuning, hosts } = layout;
  const { pp, dp_replicate: replicas, dp_shard: shards, cp, tp, ep, etp = 1 } = sizes;
  const losses: LaunchLoss[] = [...layout.losses];
  const whole = mode === 'dp' || mode === 'zero1' || mode === 'zero2';
  const [data, fsdp] = whole ? [replicas * shards, 1] : [replicas, shards];
  // An axis of experts is one of its own: its devices come out of those that hold other data.
  const fromData = whole ? data : fsdp;
  const expert = fromData % ep === 0 ? ep : 1;
  if (expert !== ep)
    losses.push({
      planned: `ep=${ep} over data, context and tensor ranks`,
      instead: 'experts cut as the other weights are',
    });
  if (etp > 1) losses.push({ planned: `etp=${etp}`, instead: `experts cut over tp=${tp}` });
  if (mode === 'zero2')
    losses.push({ planned: 'ZeRO-2', instead: 'ZeRO-1 (shard_optimizer_over_data)' });
  if (cp > 1 && layout.context === 'ulysses')
    losses.push({ planned: 'the sequence cut as Ulysses does', instead: 'ring attention' });
  losses.push(...differences(layout, MAXTEXT_FORMS));
  const dim = (name: string): number => hosts.get(name) ?? 1;
  const outer = dim(sizes.dp_replicate > 1 && sizes.dp_shard > 1 ? 'dp_shard' : 'dp');
  const axes: readonly (readonly [axis: string, size: number, hosts: number])[] = [
    ['pipeline', pp, dim('pp')],
    ['data', whole ? data / expert : data, whole ? outer : dim('dp_replicate')],
    ['fsdp', whole ? 1 : fsdp / expert, outer],
    ['expert', expert, 1],
    ['context', cp, Math.max(dim('cp'), dim('sp'))],
    [layout.sequenceParallel ? 'tensor_sequence' : 'tensor', tp, dim('tp')],
  ];
  const lines = axes.flatMap(([axis, size, touched]) => {
    const between = size % touched === 0 ? Math.min(touched, size) : 1;
    return [`ici_${axis}_parallelism: ${size / between}`, `dcn_${axis}_parallelism: ${between}`];
  });
  const pieces = pp > 1 ? 1 : tuning.microbatches;
  lines.push(
    `per_device_batch_size: ${layout.globalBatch / pieces / layout.devices}`,
    ...(pieces > 1 ? [`gradient_accumulation_steps: ${pieces}`] : []),
    `max_target_length: ${layout.sequence}`,
    ...(cp > 1
      ? [`context_parallel_strategy: ${layout.context === 'cp' ? 'all_gather' : 'ring'}`]
      : []),
    ...(mode === 'zero1' || mode === 'zero2' ? ['shard_optimizer_over_data: true'] : []),
    ...stages(layout),
    `remat_policy: ${policy(layout)}`,
  );
  const head = launchHead(layout, 'MaxText').map((line) => `# ${line}`);
  return {
    trainer: 'MaxText',
    file: 'maxtext.yml',
    text: [...head, ...lines, ''].join('\n'),
    losses,
  };
}

function stages({ sizes, tuning, stageLayers }: LaunchedLayout): string[] {
  if (sizes.pp === 1) return [];
  return [
    `num_layers_per_pipeline_stage: ${Math.max(...stageLayers)}`,
    `num_pipeline_microbatches: ${tuning.microbatches}`,
  ];
}

function policy({ tuning: { checkpoint } }: LaunchedLayout): string {
  return checkpoint === 'none' ? 'none' : checkpoint === 'products' ? 'minimal' : 'full';
}
