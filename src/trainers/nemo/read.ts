/**
 * Reads the dumps of NeMo's and Megatron-Bridge's configurations, which have the settings of
 * Megatron-Core in sections of YAML. Source: `ConfigContainer` of Megatron-Bridge.
 */
import type { LayoutSetting } from '../layout/layout-draft.ts';
import { type FileSetting, isOff, settingsOf } from '../layout/settings-table.ts';
import { megatronLayout } from '../megatron/settings.ts';
import type { ReadLayout } from '../trainer.ts';

/**
 * Reads a dump of Megatron-Bridge's or NeMo's configuration: the settings are in sections, under
 * the same names. @throws E_INPUT
 */
export function readMegatronYaml(value: unknown, text: string, setting: LayoutSetting): ReadLayout {
  const settings = settingsOf(value);
  // Where sections repeat a setting, those of the model and the trainer decide.
  const order = (s: FileSetting): number =>
    s.value === 'null'
      ? 3
      : /(^|\.)(model|train|strategy|ddp|mixed_precision)\./.test(s.path)
        ? 0
        : /(^|\.)dataset\./.test(s.path)
          ? 1
          : 2;
  const seen = new Set<string>();
  const first = settings
    .map((s) => ({ s, at: order(s) }))
    .sort((a, b) => a.at - b.at)
    .flatMap(({ s }) => {
      // A precision that is stated anywhere counts: sections of the model are filled from it when
      // the run starts.
      const isOffHere = isOff(s.value) || s.value === 'null';
      if (seen.has(s.key) || isOffHere) return [];
      seen.add(s.key);
      return [s];
    });
  const nodes = settings.find((s) => /(^|\.)(trainer|resources)\.num_nodes$/.test(s.path));
  const each = settings.find((s) => /(^|\.)trainer\.devices$/.test(s.path));
  const found = megatronLayout(first, { text, setting, isWhole: false });
  if (nodes !== undefined && each !== undefined && Number(nodes.value) * Number(each.value) > 0)
    found.draft.devices = Number(nodes.value) * Number(each.value);
  return found;
}
