/** Edits the YAML of NeMo and Megatron-Bridge: settings of Megatron-Core, in sections. */
import { editYaml, type Settings } from '../layout/edit-settings.ts';
import type { ConfigEdits } from '../layout/edited-layout.ts';
import { megatronSettings } from '../megatron/edits.ts';

export const NEMO_EDITS: ConfigEdits = {
  settings: (layout) => {
    const {
      recompute_activations: _,
      recompute_modules: modules,
      ...settings
    } = megatronSettings(layout);
    return {
      ...settings,
      recompute_modules:
        modules === undefined ? undefined : `[${String(modules).replaceAll(' ', ', ')}]`,
    };
  },
  edit: (text, changed) =>
    editYaml(
      text,
      Object.fromEntries(
        Object.entries(changed).map(([name, value]) => [pathOf(text, name), offOf(name, value)]),
      ),
    ),
};

/** The value in YAML of a switch that is off, and of a setting without a value. */
function offOf(name: string, value: Settings[string]): Settings[string] {
  if (value !== undefined) return value;
  return /^(sequence_parallel|use_|overlap_)/.test(name) ? false : 'null';
}

/** The path of a setting; one that is not there goes to the tensor-parallel size. */
function pathOf(text: string, name: string): string {
  const own = pathIn(text, name);
  if (own !== undefined) return own;
  const model = pathIn(text, 'tensor_model_parallel_size') ?? '';
  return `${model.slice(0, model.lastIndexOf('.') + 1)}${name}`;
}

function pathIn(text: string, name: string): string | undefined {
  const open: { readonly name: string; readonly indent: number }[] = [];
  for (const line of text.split('\n')) {
    const found = /^(\s*)([\w-]+):/.exec(line);
    if (found === null) continue;
    const indent = found[1].length;
    while (open.length > 0 && (open.at(-1)?.indent ?? 0) >= indent) open.pop();
    open.push({ name: found[2], indent });
    if (found[2] === name) return open.map((o) => o.name).join('.');
  }
  return undefined;
}
