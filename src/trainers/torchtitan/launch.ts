/**
 * Writes a configuration of torchtitan for a layout, `torchtitan_config.py`: the degrees, and a
 * function that sets them, the batch and the recomputation in a recipe of torchtitan, with a list
 * of where torchtitan would run another layout. Source: `torchtitan.config` of 0.3.0.
 */

import type { PipelineSchedule } from '../../simulate/pipeline/schedules.ts';
import {
  differences,
  type LaunchedLayout,
  type LaunchFile,
  type LaunchForms,
  launchHead,
  type LaunchLoss,
} from '../layout/launched-layout.ts';
import { torchtitanCuts } from '../layout/stage-cuts.ts';

const SCHEDULES: ReadonlyMap<PipelineSchedule, string> = new Map([
  ['gpipe', 'GPipe'],
  ['1f1b', '1F1B'],
  ['interleaved', 'Interleaved1F1B'],
]);
const TORCHTITAN_FORMS: LaunchForms = {
  schedules: [...SCHEDULES.keys()],
  otherSchedule: () => '1F1B',
  unequalStages: 'stages as equal as they can be',
  cuts: (parts, layers) => torchtitanCuts(parts, layers, 1, 1),
  recomputes: (checkpoint) => checkpoint === 'full' || checkpoint === 'operators',
  someUnits: false,
  pairsMicrobatches: false,
  gathersOnce: true,
};

export function torchtitanLaunch(layout: LaunchedLayout): LaunchFile {
  const { tuning, sizes } = layout;
  const losses = [
    ...layout.losses,
    ...degreeLosses(layout),
    ...differences(layout, TORCHTITAN_FORMS),
  ];
  const fields = { ...degrees(layout), ...stages(layout) };
  const local = sizes.pp > 1 ? tuning.microbatch * tuning.microbatches : tuning.microbatch;
  const training = {
    local_batch_size: local,
    global_batch_size: layout.globalBatch,
    seq_len: layout.sequence,
  };
  const recompute = recomputation(layout);
  const head = launchHead(layout, 'torchtitan').map((line) => `# ${line}`);
  const text = [
    ...head,
    'from torchtitan.config import ParallelismConfig',
    ...(recompute === undefined
      ? []
      : [`from torchtitan.distributed.activation_checkpoint import ${recompute}`]),
    '',
    '',
    'def parallelism():',
    '    """The degrees of the layout."""',
    '    return ParallelismConfig(',
    ...Object.entries(fields).map(([name, value]) => `        ${name}=${python(value)},`),
    '    )',
    '',
    '',
    'def plan(recipe):',
    '    """A recipe of torchtitan, such as `llama3_8b`, with this layout."""',
    '    config = recipe()',
    '    config.parallelism = parallelism()',
    ...Object.entries(training).map(
      ([name, value]) => `    config.training.${name} = ${python(value)}`,
    ),
    '    config.activation_checkpoint = ' +
      `${recompute === undefined ? 'None' : `${recompute}.Config()`}`,
    '    return config',
    '',
  ].join('\n');
  return { trainer: 'torchtitan', file: 'torchtitan_config.py', text, losses };
}

type Field = number | string | boolean;

function python(value: Field): string {
  return typeof value === 'string'
    ? JSON.stringify(value)
    : typeof value === 'boolean'
      ? value
        ? 'True'
        : 'False'
      : String(value);
}

function degrees(layout: LaunchedLayout): Record<string, Field> {
  const { sizes, mode } = layout;
  const { pp, dp_replicate: replicas, dp_shard: shards, cp, tp, ep } = sizes;
  const whole = mode === 'dp';
  const keeps = mode === 'zero1' || mode === 'zero2' || layout.gathersOnce;
  return {
    data_parallel_replicate_degree: whole ? replicas * shards : replicas,
    data_parallel_shard_degree: whole ? 1 : shards,
    tensor_parallel_degree: tp,
    ...(tp > 1 ? { enable_sequence_parallel: layout.sequenceParallel } : {}),
    context_parallel_degree: cp,
    pipeline_parallel_degree: pp,
    expert_parallel_degree: ep,
    fsdp_reshard_after_forward: keeps ? 'never' : 'always',
  };
}

/** Ranks of a layout that torchtitan has in another form. */
function degreeLosses({ sizes: { cp, etp = 1 }, mode, context }: LaunchedLayout): LaunchLoss[] {
  const losses: LaunchLoss[] = [];
  if (mode === 'zero1' || mode === 'zero2')
    losses.push({
      planned: mode === 'zero1' ? 'ZeRO-1' : 'ZeRO-2',
      instead: 'FSDP that keeps the gathered parameters for the step',
    });
  if (cp > 1 && context !== 'cp')
    losses.push({
      planned:
        context === 'ring'
          ? 'keys and values passed on in a ring'
          : 'the sequence cut as Ulysses does',
      instead: 'keys and values gathered',
    });
  if (mode === 'dp' && cp > 1)
    losses.push({
      planned: 'whole parameters on all ranks of cp',
      instead: 'parameters cut over them',
    });
  if (etp > 1)
    losses.push({ planned: `experts cut over ${etp} devices each`, instead: 'whole experts' });
  return losses;
}

function stages({ sizes, tuning, stageLayers }: LaunchedLayout): Record<string, Field> {
  if (sizes.pp === 1) return {};
  return {
    pipeline_parallel_schedule: SCHEDULES.get(tuning.schedule) ?? '1F1B',
    pipeline_parallel_microbatch_size: tuning.microbatch,
    ...(tuning.chunks > 1 ? { pipeline_parallel_layers_per_stage: Math.max(...stageLayers) } : {}),
  };
}

/** The class that recomputes. */
function recomputation({ tuning: { checkpoint } }: LaunchedLayout): string | undefined {
  if (checkpoint === 'none') return undefined;
  return checkpoint === 'operators' ? 'SelectiveAC' : 'FullAC';
}
