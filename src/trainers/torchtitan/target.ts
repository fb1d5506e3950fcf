/**
 * `--target torchtitan` writes degrees of parallelism for torchtitan: `torchtitan.toml` (up to 0.2)
 * and `torchtitan_config.py` (0.3). Source: `torchtitan.config`, ParallelismConfig.
 */
import { lossLines } from '../../backend/loss-lines.ts';
import { headLines } from '../../backend/python-text.ts';
import type { ExportResult, ExportSource, ExportTarget } from '../../backend/target.ts';
import { trainerLosses } from '../roles/megatron-layout.ts';
import { refuseUnsafe } from '../roles/refuse-unsafe.ts';
import { type PlanRoles, planRoles } from '../roles/roles.ts';

/**
 * World = dp_replicate · dp_shard · cp · tp; expert parallelism takes its devices from dp_shard ·
 * cp · tp.
 */
function degrees({ degree }: PlanRoles): Readonly<Record<string, number>> {
  return {
    data_parallel_replicate_degree: degree('data'),
    data_parallel_shard_degree: degree('fsdp') * degree('expert'),
    tensor_parallel_degree: degree('tensor'),
    context_parallel_degree: degree('context'),
    pipeline_parallel_degree: 1,
    expert_parallel_degree: degree('expert'),
  };
}

function write(source: ExportSource): ExportResult {
  const roles = planRoles(source);
  refuseUnsafe(source, roles, 'torchtitan');
  const losses = trainerLosses(roles, source, 'torchtitan');
  const head = [...headLines(source, 'torchtitan'), ...lossLines(losses)].map(
    (line) => `# ${line}`,
  );
  const training = trainingSizes(roles);
  const recompute = source.plan.request.checkpoint === 'full';
  return {
    files: [
      { name: 'torchtitan_config.py', text: pythonText(head, roles, training) },
      { name: 'torchtitan.toml', text: tomlText(head, roles, { training, recompute }) },
    ],
    losses,
    notes: [
      'With FSDP of PyTorch 2.13 set parallelism.spmd_backend = "partial_dtensor"; the ' +
        'default of torchtitan 0.3.0 needs a later one.',
    ],
  };
}

/** Sizes of the training, as both files name them; none where the plan does not tell its batch. */
function trainingSizes({ batch, degree }: PlanRoles): readonly (readonly [string, number])[] {
  if (batch === undefined) return [];
  const data = degree('data') * degree('fsdp');
  return [
    ['local_batch_size', Math.max(1, Math.floor(batch.sequences / data))],
    ['global_batch_size', batch.sequences],
    ['seq_len', batch.tokens],
  ];
}

/** The file of torchtitan 0.2. */
function tomlText(
  head: readonly string[],
  roles: PlanRoles,
  {
    training,
    recompute,
  }: { readonly training: ReturnType<typeof trainingSizes>; readonly recompute: boolean },
): string {
  return [
    ...head,
    '[parallelism]',
    ...Object.entries(degrees(roles)).map(([name, value]) => `${name} = ${value}`),
    'fsdp_reshard_after_forward = "always"',
    ...(training.length === 0 ? [] : ['', '[training]']),
    ...training.map(([name, value]) => `${name} = ${value}`),
    '',
    '[activation_checkpoint]',
    `mode = "${recompute ? 'full' : 'none'}"`,
    '',
  ].join('\n');
}

/** The file of torchtitan 0.3. */
function pythonText(
  head: readonly string[],
  roles: PlanRoles,
  training: ReturnType<typeof trainingSizes>,
): string {
  return [
    ...head,
    'from torchtitan.config import ParallelismConfig',
    '',
    '',
    'def parallelism():',
    '    """The degrees of the plan."""',
    '    return ParallelismConfig(',
    ...Object.entries(degrees(roles)).map(([name, value]) => `        ${name}=${value},`),
    `        enable_sequence_parallel=${roles.sequenceParallel ? 'True' : 'False'},`,
    '        fsdp_reshard_after_forward="always",',
    '    )',
    '',
    '',
    'def plan(recipe):',
    '    """A recipe of torchtitan, such as `llama3_debugmodel`, with the degrees of the plan."""',
    '    config = recipe()',
    '    config.parallelism = parallelism()',
    ...training.map(([name, value]) => `    config.training.${name} = ${value}`),
    '    return config',
    '',
  ].join('\n');
}

export const torchtitanTarget: ExportTarget = {
  name: 'torchtitan',
  summary: 'degrees of parallelism for torchtitan, as 0.2 TOML and as 0.3 configuration',
  triedWith: ['torchtitan 0.3.0'],
  write,
};
