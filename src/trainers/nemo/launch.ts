/**
 * Writes a configuration of NeMo or Megatron-Bridge for a layout, in the sections of
 * `ConfigContainer`: settings of Megatron-Core under their own names. Source: Megatron-Bridge 0.5
 * (`training/config.py`, `models/gpt_provider.py`).
 */
import { type LaunchedLayout, type LaunchFile, launchHead } from '../layout/launched-layout.ts';
import { megatronArguments } from '../megatron/launch.ts';

/** Sections by setting; all else is of the model. */
const SECTIONS: Readonly<Record<string, string>> = {
  micro_batch_size: 'train',
  global_batch_size: 'train',
  use_distributed_optimizer: 'ddp',
  use_megatron_fsdp: 'ddp',
  data_parallel_sharding_strategy: 'ddp',
  num_distributed_optimizer_instances: 'ddp',
  overlap_moe_expert_parallel_comm: 'comm_overlap',
  ckpt_format: 'checkpoint',
};
const ORDER = ['model', 'train', 'ddp', 'comm_overlap', 'checkpoint', 'dataset'];

/** @param file name of the file */
export function megatronYaml(layout: LaunchedLayout, trainer: string, file: string): LaunchFile {
  const { args, losses } = megatronArguments(layout);
  const sections = new Map<string, string[]>();
  const put = (section: string, line: string): void => {
    sections.set(section, [...(sections.get(section) ?? []), `  ${line}`]);
  };
  for (const argument of args) {
    const [flag, ...values] = argument.split(' ');
    const name = flag.replace(/^--/, '').replaceAll('-', '_');
    // The model has chunks, and sequences are those of the data set.
    if (name === 'max_position_embeddings') continue;
    if (name === 'num_layers_per_virtual_pipeline_stage')
      put('model', `virtual_pipeline_model_parallel_size: ${layout.tuning.chunks}`);
    else if (name === 'recompute_modules') put('model', `${name}: [${values.join(', ')}]`);
    else if (name === 'pipeline_model_parallel_layout') put('model', `${name}: "${values[0]}"`);
    else put(SECTIONS[name] ?? 'model', `${name}: ${values[0] ?? 'true'}`);
  }
  put('dataset', `sequence_length: ${layout.sequence}`);
  const head = launchHead(layout, trainer).map((line) => `# ${line}`);
  const text = ORDER.flatMap((name) => {
    const lines = sections.get(name);
    return lines === undefined ? [] : [`${name}:`, ...lines];
  });
  return { trainer, file, text: [...head, ...text, ''].join('\n'), losses };
}
