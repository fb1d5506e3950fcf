/**
 * Writes a configuration of Accelerate for a layout, `accelerate.yaml`. Batches and the length of
 * sequences are of the training script, so layouts of more than one sequence at a time have no such
 * file. Source: Accelerate 1.15.
 */
import {
  differences,
  type LaunchedLayout,
  type LaunchFile,
  type LaunchForms,
  launchHead,
  type LaunchLoss,
} from '../layout/launched-layout.ts';

const FORMS: LaunchForms = {
  schedules: [],
  otherSchedule: () => 'none',
  recomputes: (checkpoint) => checkpoint === 'full',
  someUnits: false,
  pairsMicrobatches: false,
  gathersOnce: true,
};

export function accelerateLaunch(layout: LaunchedLayout): LaunchFile {
  const { sizes, mode, context, tuning, devices, hosts } = layout;
  const { pp, dp_replicate: replicas, dp_shard: shards, cp, tp, ep } = sizes;
  const losses: LaunchLoss[] = [...layout.losses, ...differences(layout, FORMS)];
  const no = (planned: string, instead: string): void => void losses.push({ planned, instead });
  if (pp > 1) no(`pp=${pp}`, 'one stage');
  if (ep > 1) no(`ep=${ep}`, 'experts cut as the other weights are');
  if (tuning.microbatch > 1) no(`mbs=${tuning.microbatch}`, 'the batch of the training script');
  if (layout.sequenceParallel) no('activations cut over tp', 'whole on every device of tp');
  if (cp > 1 && context === 'ulysses') no('context=ulysses', 'ring attention');
  if (mode === 'zero1' || mode === 'zero2') no(mode, 'FSDP');
  const whole = mode === 'dp';
  if (whole && tp * cp > 1) no('whole weights with tp or cp', 'a refusal');
  const lines = [
    'compute_environment: LOCAL_MACHINE',
    `distributed_type: ${whole ? 'MULTI_GPU' : 'FSDP'}`,
    'mixed_precision: bf16',
    `num_machines: ${Math.max(1, ...hosts.values())}`,
    `num_processes: ${devices}`,
    ...(whole
      ? []
      : [
          'fsdp_config:',
          '  fsdp_version: 2',
          `  fsdp_reshard_after_forward: ${!layout.gathersOnce}`,
          `  fsdp_activation_checkpointing: ${tuning.checkpoint === 'full'}`,
          '  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP',
          '  fsdp_state_dict_type: SHARDED_STATE_DICT',
        ]),
    'parallelism_config:',
    `  parallelism_config_dp_replicate_size: ${whole ? replicas * shards : replicas}`,
    `  parallelism_config_dp_shard_size: ${whole ? 1 : shards}`,
    `  parallelism_config_tp_size: ${tp}`,
    `  parallelism_config_cp_size: ${cp}`,
    ...(cp > 1
      ? [`  parallelism_config_cp_comm_strategy: ${context === 'ring' ? 'alltoall' : 'allgather'}`]
      : []),
  ];
  if (whole && tuning.checkpoint !== 'none') no('recomputation', 'none: it is a setting of FSDP');
  const head = [
    ...launchHead(layout, 'Accelerate'),
    'The training script has one sequence at a time, and ' +
      `gradient_accumulation_steps=${tuning.microbatches}.`,
  ].map((line) => `# ${line}`);
  const text = [...head, ...lines, ''].join('\n');
  return { trainer: 'Accelerate', file: 'accelerate.yaml', text, losses };
}
