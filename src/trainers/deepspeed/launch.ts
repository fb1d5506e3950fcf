/**
 * Writes a configuration of DeepSpeed for a layout, `ds_config.json`. Recomputation and the length
 * of sequences are of the training script, so layouts that recompute have no such file. Source:
 * DeepSpeed 0.19.
 */
import { editedLayout } from '../layout/edited-layout.ts';
import {
  differences,
  type LaunchedLayout,
  type LaunchFile,
  type LaunchForms,
  type LaunchLoss,
} from '../layout/launched-layout.ts';
import { DEEPSPEED_EDITS } from './edits.ts';

const FORMS: LaunchForms = {
  schedules: [],
  otherSchedule: () => 'none: its pipelines are programs',
  recomputes: () => false,
  someUnits: false,
  pairsMicrobatches: false,
  gathersOnce: false,
};

/** None for a layout that the configuration cannot state. */
export function deepspeedLaunch(layout: LaunchedLayout): LaunchFile | readonly [] {
  const { sizes, context, sequenceParallel } = layout;
  const settings = DEEPSPEED_EDITS.settings(editedLayout(layout), '"train_batch_size"');
  if (settings === undefined) return [];
  const losses: LaunchLoss[] = [...layout.losses, ...differences(layout, FORMS)];
  if (sizes.cp > 1 && context !== 'ulysses')
    losses.push({ planned: `context=${context}`, instead: 'the sequence cut as Ulysses does' });
  if (sequenceParallel)
    losses.push({ planned: 'activations cut over tp', instead: 'whole on every device of tp' });
  if ((sizes.etp ?? 1) > 1) losses.push({ planned: `etp=${sizes.etp}`, instead: 'whole experts' });
  const config: Record<string, unknown> = { bf16: { enabled: true } };
  for (const [path, value] of Object.entries(settings)) {
    const [section, key] = path.split('.');
    const isOne = value === 1 && /size$/.test(path) && !path.startsWith('train_');
    if (value === undefined || isOne) continue;
    if (key === undefined) config[section] = value;
    else config[section] = { ...(config[section] as object | undefined), [key]: value };
  }
  const text = `${JSON.stringify(config, null, 2)}\n`;
  return { trainer: 'DeepSpeed', file: 'ds_config.json', text, losses };
}
