/**
 * Writes a configuration of MaxText for a layout, `maxtext.yml`, with a list of MaxText's
 * differences. Source: `base.yml` of MaxText: a mesh dim is `ici` within a host and `dcn` between
 * hosts, and the product of all is the number of devices.
 */

import {
  hasEqualStages,
  type LaunchedLayout,
  type LaunchFile,
  launchHead,
  type LaunchLoss,
} from './launched-layout.ts';

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
  if (layout.pairsMicrobatches)
    losses.push({ planned: 'forward passes beside backward passes', instead: 'one after another' });
  if (layout.gathersOnce)
    losses.push({ planned: 'parameters gathered once a step', instead: 'gathered for every pass' });
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
    ...stages(layout, losses),
    `remat_policy: ${policy(layout, losses)}`,
  );
  const head = launchHead(layout, 'MaxText', losses).map((line) => `# ${line}`);
  return {
    trainer: 'MaxText',
    file: 'maxtext.yml',
    text: [...head, ...lines, ''].join('\n'),
    losses,
  };
}

function stages(layout: LaunchedLayout, losses: LaunchLoss[]): string[] {
  const { sizes, tuning, stageLayers } = layout;
  if (sizes.pp === 1) return [];
  losses.push({
    planned: `schedule ${tuning.schedule}`,
    instead: 'the circular pipeline of MaxText',
  });
  if (!hasEqualStages(layout))
    losses.push({
      planned: `stages of ${stageLayers.join(', ')} layers`,
      instead: 'equal stages, which the layers have to allow',
    });
  return [
    `num_layers_per_pipeline_stage: ${Math.max(...stageLayers)}`,
    `num_pipeline_microbatches: ${tuning.microbatches}`,
  ];
}

function policy({ tuning, unitsAgain }: LaunchedLayout, losses: LaunchLoss[]): string {
  const { checkpoint } = tuning;
  if (unitsAgain !== undefined)
    losses.push({ planned: `${unitsAgain} units recomputed`, instead: 'all layers' });
  if (checkpoint === 'none') return 'none';
  if (checkpoint === 'products') return 'minimal';
  if (checkpoint !== 'full')
    losses.push({
      planned: `recompute=${checkpoint}`,
      instead: 'full, which is slower and keeps less',
    });
  return 'full';
}
