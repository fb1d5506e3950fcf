/**
 * `--target hf` writes a tensor-parallel plan for transformers and a configuration of Accelerate:
 * `tp_plan.json` (styles by module), `distributed_config.json` (the same with the degrees, for
 * `DistributedConfig.from_dict`) and `accelerate.yaml`. Source: transformers 5 (`distributed/`),
 * Accelerate 1.15.
 */
import { lossLines } from '../../backend/loss-lines.ts';
import { headLines } from '../../backend/python-text.ts';
import type { ExportLoss, ExportResult, ExportSource, ExportTarget } from '../../backend/target.ts';
import { setOwn } from '../../graph/value.ts';
import { modelShape } from '../roles/model-shape.ts';
import { refuseUnsafe } from '../roles/refuse-unsafe.ts';
import { type PlanRoles, planRoles } from '../roles/roles.ts';
import { recipeLosses, type Style, tensorStyles } from '../roles/styles.ts';

const STYLES: Readonly<Record<Style, string | undefined>> = {
  colwise: 'colwise',
  rowwise: 'rowwise',
  embedding_rowwise: 'embedding_rowwise',
  embedding_colwise: undefined,
};

function write(source: ExportSource): ExportResult {
  const roles = planRoles(source);
  refuseUnsafe(source, roles, 'transformers');
  const { degree } = roles;
  const { plan, losses: planLosses } = tensorPlan(source, roles);
  const losses: ExportLoss[] = [...recipeLosses(roles, source), ...planLosses];
  if (degree('expert') > 1)
    losses.push({
      item: 'experts',
      planned: `cut over ${degree('expert')} devices`,
      instead: 'the files have no ep_plan',
    });
  const distributed = {
    tp_size: degree('tensor'),
    fsdp_size: degree('fsdp'),
    dp_replicate_size: degree('data'),
    tp_plan: plan,
  };
  return {
    files: [
      { name: 'tp_plan.json', text: `${JSON.stringify(plan, null, 2)}\n` },
      { name: 'distributed_config.json', text: `${JSON.stringify(distributed, null, 2)}\n` },
      { name: 'accelerate.yaml', text: accelerateYaml(source, roles, losses) },
    ],
    losses,
    notes: [
      ...(degree('fsdp') > 1
        ? [
            'Name the class of the layers in fsdp_transformer_layer_cls_to_wrap; the graph ' +
              'does not tell it.',
          ]
        : []),
      ...(degree('context') > 1
        ? [
            'Context parallelism is in accelerate.yaml alone; distributed_config.json has no ' +
              'such size.',
          ]
        : []),
    ],
  };
}

/** Styles by module under the names that transformers has for them. */
function tensorPlan(
  source: ExportSource,
  roles: PlanRoles,
): { readonly plan: Readonly<Record<string, string>>; readonly losses: readonly ExportLoss[] } {
  const { modules, whole, losses: styleLosses } = tensorStyles(roles, source);
  const losses: ExportLoss[] = [...styleLosses];
  const plan: Record<string, string> = {};
  // A wrapper that was captured with the model is not part of its names.
  const isWrapped =
    roles.parameters.some(({ name }) => name.startsWith('model.model.')) &&
    roles.parameters.every(({ name }) => name.startsWith('model.'));
  const named = (path: string): string => (isWrapped ? path.slice('model.'.length) : path);
  for (const { path: stated, style } of modules) {
    const path = named(stated);
    const word =
      path === 'lm_head' && style === 'colwise' ? 'colwise_gather_output' : STYLES[style];
    if (word === undefined)
      losses.push({
        item: path,
        planned: style,
        instead: 'transformers has no style that cuts a table by columns',
      });
    else setOwn(plan, path, word);
  }
  // A plan that is given replaces rules of the model's own plan one by one: what is whole must be
  // said.
  if (roles.degree('tensor') > 1) for (const path of whole) setOwn(plan, named(path), 'replicate');
  return { plan, losses };
}

/** The configuration of Accelerate. */
function accelerateYaml(
  source: ExportSource,
  roles: PlanRoles,
  losses: readonly ExportLoss[],
): string {
  const { degree } = roles;
  const { is16Bit } = modelShape(source, roles);
  return [
    ...[...headLines(source, 'hf'), ...lossLines(losses)].map((line) => `# ${line}`),
    'compute_environment: LOCAL_MACHINE',
    `distributed_type: ${degree('fsdp') > 1 ? 'FSDP' : 'MULTI_GPU'}`,
    ...(degree('fsdp') > 1
      ? [
          'fsdp_config:',
          '  fsdp_version: 2',
          '  fsdp_reshard_after_forward: true',
          '  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP',
          '  fsdp_state_dict_type: SHARDED_STATE_DICT',
        ]
      : []),
    `mixed_precision: ${is16Bit ? 'bf16' : 'no'}`,
    `num_machines: ${Math.max(1, ...source.plan.mesh.map(({ hosts }) => hosts))}`,
    `num_processes: ${source.mesh.size}`,
    'parallelism_config:',
    `  parallelism_config_dp_replicate_size: ${degree('data')}`,
    `  parallelism_config_dp_shard_size: ${degree('fsdp')}`,
    `  parallelism_config_tp_size: ${degree('tensor')}`,
    `  parallelism_config_cp_size: ${degree('context')}`,
    '',
  ].join('\n');
}

export const hfTarget: ExportTarget = {
  name: 'hf',
  summary: 'tp_plan and DistributedConfig of transformers, a configuration of Accelerate',
  triedWith: ['transformers 5.23', 'accelerate 1.15'],
  write,
};
