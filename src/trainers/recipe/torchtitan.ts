/**
 * `--target torchtitan` writes degrees of parallelism for torchtitan: `torchtitan.toml` (up to 0.2)
 * and `torchtitan_config.py` (0.3). Source: `torchtitan.config`, ParallelismConfig.
 */
import { lossLines } from '../../backend/loss-lines.ts';
import { headLines } from '../../backend/python-text.ts';
import type { ExportLoss, ExportResult, ExportSource, ExportTarget } from '../../backend/target.ts';
import { layoutLosses } from '../roles/megatron-layout.ts';
import { type PlanRoles, planRoles } from '../roles/roles.ts';
import { recipeLosses, tensorStyles } from '../roles/styles.ts';

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
  const { modules, losses: styleLosses } = tensorStyles(roles, source);
  const losses: ExportLoss[] = [
    ...recipeLosses(roles, source),
    ...styleLosses,
    ...layoutLosses(modules, roles.degree('tensor')).map((l) => ({
      ...l,
      instead: l.instead.replace('Megatron', 'torchtitan'),
    })),
  ];
  const own = degrees(roles);
  const recompute = source.plan.request.checkpoint === 'full';
  const data = roles.degree('data') * roles.degree('fsdp');
  const { batch } = roles;
  const local = batch === undefined ? undefined : Math.max(1, Math.floor(batch.sequences / data));
  const head = [...headLines(source, 'torchtitan'), ...lossLines(losses)].map(
    (line) => `# ${line}`,
  );
  const toml = [
    ...head,
    '[parallelism]',
    ...Object.entries(own).map(([name, value]) => `${name} = ${value}`),
    'fsdp_reshard_after_forward = "always"',
    ...(batch === undefined
      ? []
      : [
          '',
          '[training]',
          `local_batch_size = ${local}`,
          `global_batch_size = ${batch.sequences}`,
          `seq_len = ${batch.tokens}`,
        ]),
    '',
    '[activation_checkpoint]',
    `mode = "${recompute ? 'full' : 'none'}"`,
    '',
  ].join('\n');
  const python = [
    ...head,
    'from torchtitan.config import ParallelismConfig',
    '',
    '',
    'def parallelism():',
    '    """The degrees of the plan."""',
    '    return ParallelismConfig(',
    ...Object.entries(own).map(([name, value]) => `        ${name}=${value},`),
    `        enable_sequence_parallel=${roles.sequenceParallel ? 'True' : 'False'},`,
    '        fsdp_reshard_after_forward="always",',
    '    )',
    '',
    '',
    'def plan(recipe):',
    '    """A recipe of torchtitan, such as `llama3_debugmodel`, with the degrees of the plan."""',
    '    config = recipe()',
    '    config.parallelism = parallelism()',
    ...(batch === undefined
      ? []
      : [
          `    config.training.local_batch_size = ${local}`,
          `    config.training.global_batch_size = ${batch.sequences}`,
          `    config.training.seq_len = ${batch.tokens}`,
        ]),
    '    return config',
    '',
  ].join('\n');
  return {
    files: [
      { name: 'torchtitan_config.py', text: python },
      { name: 'torchtitan.toml', text: toml },
    ],
    losses,
    notes: [
      'With FSDP of PyTorch 2.13 set parallelism.spmd_backend = "partial_dtensor"; the ' +
        'default of torchtitan 0.3.0 needs a later one.',
    ],
  };
}

export const torchtitanTarget: ExportTarget = {
  name: 'torchtitan',
  summary: 'degrees of parallelism for torchtitan, as 0.2 TOML and as 0.3 configuration',
  triedWith: ['torchtitan 0.3.0'],
  write,
};
