/**
 * `--target maxtext` writes a configuration of MaxText, `maxtext.yml`. Source: `base.yml` of
 * MaxText: a mesh dim is ici within a host and dcn between hosts; the other dims are 1.
 */
import { lossLines } from '../../backend/loss-lines.ts';
import { headLines } from '../../backend/python-text.ts';
import type { ExportResult, ExportSource, ExportTarget } from '../../backend/target.ts';
import { trainerLosses } from '../roles/megatron-layout.ts';
import { refuseUnsafe } from '../roles/refuse-unsafe.ts';
import { type MeshRole, planRoles } from '../roles/roles.ts';

const AXES: readonly (readonly [axis: string, role: MeshRole])[] = [
  ['data', 'data'],
  ['fsdp', 'fsdp'],
  ['context', 'context'],
  ['tensor', 'tensor'],
  ['expert', 'expert'],
];

const RULES =
  "[['activation_batch', ['data', 'fsdp', 'expert']], ['mlp', ['tensor']], ['embed', " +
  "['fsdp']], ['heads', ['tensor']], ['vocab', ['tensor']], ['exp', 'expert'], ['layers', " +
  "'stage']]";

function write(source: ExportSource): ExportResult {
  const roles = planRoles(source);
  refuseUnsafe(source, roles, 'MaxText');
  const losses = trainerLosses(roles, source, 'MaxText');
  const lines: string[] = [];
  for (const [axis, role] of AXES) {
    let [ici, dcn] = [1, 1];
    roles.roles.forEach((own, m) => {
      if (own !== role) return;
      const hosts = source.plan.mesh[m]?.hosts ?? 1;
      const between = Math.min(hosts, source.mesh.sizes[m]);
      dcn *= between;
      ici *= source.mesh.sizes[m] / between;
    });
    lines.push(`ici_${axis}_parallelism: ${ici}`, `dcn_${axis}_parallelism: ${dcn}`);
  }
  const head = [...headLines(source, 'maxtext'), ...lossLines(losses)];
  const { batch } = roles;
  const data = roles.degree('data') * roles.degree('fsdp');
  const text = [
    ...head.map((line) => `# ${line}`),
    ...lines,
    'shard_mode: auto',
    `remat_policy: ${source.plan.request.checkpoint === 'full' ? 'full' : 'minimal'}`,
    ...(batch === undefined
      ? []
      : [
          'per_device_batch_size: ' +
            `${batch.sequences / data / roles.degree('tensor') / roles.degree('context')}`,
          `max_target_length: ${batch.tokens}`,
        ]),
    `logical_axis_rules: ${RULES}`,
    '',
  ].join('\n');
  return { files: [{ name: 'maxtext.yml', text }], losses };
}

export const maxtextTarget: ExportTarget = {
  name: 'maxtext',
  summary: 'parallelism and logical axis rules of MaxText',
  triedWith: [],
  write,
};
