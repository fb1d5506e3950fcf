/**
 * `--target deepspeed` writes a DeepSpeed configuration, `ds_config.json`. Source: the
 * configuration of DeepSpeed 0.19: ZeRO stages, AutoTP with a partition of its own (`column` cuts
 * dim 0 of a linear weight, `row` dim 1).
 */
import { lossLines } from '../../backend/loss-lines.ts';
import { headLines } from '../../backend/python-text.ts';
import type {
  ExportFile,
  ExportLoss,
  ExportResult,
  ExportSource,
  ExportTarget,
} from '../../backend/target.ts';
import { modelShape } from '../roles/model-shape.ts';
import { refuseUnsafe } from '../roles/refuse-unsafe.ts';
import { type PlanRoles, planRoles } from '../roles/roles.ts';
import { recipeLosses, type StyledModule, tensorStyles } from '../roles/styles.ts';
import { zeroStage } from '../roles/zero-stage.ts';

/** `^model\.layers\.\d+\.mlp\.up_proj\.weight$` for `model.layers.*.mlp.up_proj`. */
function pattern(path: string): string {
  const parts = path.split('*').map((part) => part.replace(/[^A-Za-z0-9_]/g, (c) => `\\${c}`));
  return `^${parts.join(String.raw`\d+`)}\\.weight$`;
}

function write(source: ExportSource): ExportResult {
  const roles = planRoles(source);
  refuseUnsafe(source, roles, 'DeepSpeed');
  const { degree } = roles;
  const { modules, losses: styleLosses } = tensorStyles(roles, source);
  const losses: ExportLoss[] = [...recipeLosses(roles, source, 2), ...styleLosses];
  if (degree('context') > 1)
    losses.push({
      item: 'context parallelism',
      planned: `${degree('context')} ways`,
      instead: 'the configuration of DeepSpeed has no word for it',
    });
  for (const { path, style } of modules)
    if (style.startsWith('embedding'))
      losses.push({ item: path, planned: style, instead: 'AutoTP cuts linear layers only' });
  const config = configOf(source, roles, modules);
  const lines = lossLines(losses);
  const files: ExportFile[] = [
    { name: 'ds_config.json', text: `${JSON.stringify(config, null, 2)}\n` },
  ];
  // JSON has no comments.
  files.push({
    name: 'ds_config.txt',
    text: [...headLines(source, 'deepspeed'), ...lines, ''].join('\n'),
  });
  return { files, losses };
}

function configOf(
  source: ExportSource,
  roles: PlanRoles,
  modules: readonly StyledModule[],
): Readonly<Record<string, unknown>> {
  const { degree, batch } = roles;
  const data = degree('data') * degree('fsdp');
  const perDevice = batch === undefined ? 1 : Math.max(1, Math.floor(batch.sequences / data));
  const linear = modules.filter(({ style }) => !style.startsWith('embedding'));
  const specs = (style: StyledModule['style'], type: string): object[] => {
    const patterns = linear.filter((m) => m.style === style).map((m) => pattern(m.path));
    return patterns.length === 0 ? [] : [{ patterns, partition_type: type }];
  };
  const { is16Bit } = modelShape(source, roles);
  return {
    train_micro_batch_size_per_gpu: perDevice,
    gradient_accumulation_steps: 1,
    bf16: { enabled: is16Bit },
    zero_optimization: {
      stage: degree('fsdp') > 1 ? 3 : zeroStage(roles, source).stage,
      overlap_comm: true,
      contiguous_gradients: true,
      ...(degree('fsdp') > 1 && degree('data') > 1
        ? { zero_hpz_partition_size: degree('fsdp') }
        : {}),
    },
    ...(degree('tensor') === 1
      ? {}
      : {
          tensor_parallel: {
            autotp_size: degree('tensor'),
            partition_config: {
              use_default_specs: false,
              layer_specs: [...specs('colwise', 'column'), ...specs('rowwise', 'row')],
            },
          },
        }),
    ...(degree('expert') === 1
      ? {}
      : { expert_parallel: { enabled: true, autoep_size: degree('expert') } }),
    ...(source.plan.request.checkpoint === 'full'
      ? { activation_checkpointing: { partition_activations: false } }
      : {}),
  };
}

export const deepspeedTarget: ExportTarget = {
  name: 'deepspeed',
  summary: 'a DeepSpeed configuration: ZeRO stage and AutoTP partition',
  triedWith: ['deepspeed 0.19.8'],
  write,
};
