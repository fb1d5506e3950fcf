/**
 * Reads the layout of a job from the configuration of its trainer: the layout in the form of
 * `--layout`, the sequence and the batch where the file states them, and every setting of it that
 * has no price.
 */

import { ShardwrightError } from '../../errors.ts';
import { readJson } from '../../import/file/json.ts';
import { UNCUT_STREAM } from '../../recipes/expert-mesh.ts';
import { readYaml } from '../../text/yaml.ts';
import { readAccelerate } from './accelerate.ts';
import { readDeepspeed } from './deepspeed.ts';
import {
  type LayoutDraft,
  type LayoutSetting,
  type NotPriced,
  type SettledLayout,
  settleLayout,
} from './layout-draft.ts';
import { isMegatronArguments, readMegatronArguments, readMegatronYaml } from './megatron.ts';
import { readTorchtitanPython, readTorchtitanToml } from './torchtitan.ts';

/** A layout that a file states. */
export interface LayoutFile extends SettledLayout {
  readonly format: string;
  readonly notPriced: readonly NotPriced[];
}

const MOST_CHARACTERS = 2 ** 20;

interface Read {
  readonly format: string;
  readonly draft: LayoutDraft;
  readonly notPriced: readonly NotPriced[];
}

/** @throws E_INPUT naming the key, or where the file is none of the formats */
export function readLayoutFile(text: string, setting: LayoutSetting): LayoutFile {
  const { file } = setting;
  if (text.length > MOST_CHARACTERS)
    throw new ShardwrightError(
      'E_INPUT',
      `the file has ${text.length} characters; at most ${MOST_CHARACTERS} are read`,
      { file, hint: FORMATS },
    );
  const { format, draft, notPriced: found } = read(text, setting);
  const another = draft.layers !== undefined && draft.layers !== setting.layers;
  const notPriced = another
    ? [
        ...found,
        { key: 'num_layers', value: String(draft.layers), why: `the model has ${setting.layers}` },
      ]
    : found;
  const uncut = setting.routed && (draft.tp ?? 1) > 1 && draft.sequenceParallel === false;
  if (!uncut) return { ...settleLayout(draft, setting), format, notPriced };
  if (format === MEGATRON || format === NEMO)
    throw new ShardwrightError(
      'E_INPUT',
      `sequence_parallel: found false with tensor_model_parallel_size ${draft.tp}, wanted ` +
        'true for routed experts',
      { file, hint: `${UNCUT_STREAM}: state it in the file.` },
    );
  const why = 'priced with it: tokens are sent to experts from where they lie';
  return {
    ...settleLayout({ ...draft, sequenceParallel: true }, setting),
    format,
    notPriced: [...notPriced, { key: 'sequence parallelism', value: 'off', why }],
  };
}

const MEGATRON = 'Megatron-LM arguments';
const NEMO = 'NeMo or Megatron-Bridge';

/** Aliases that a configuration may repeat parts with. */
const MOST_ALIASES = 100;

const FORMATS =
  'read are Megatron-LM arguments, torchtitan TOML and Python, NeMo and Megatron-Bridge ' +
  'YAML, DeepSpeed JSON, Accelerate YAML.';

function read(text: string, { file, configuration }: LayoutSetting): Read {
  if (/^\s*\{/.test(text))
    return { format: 'DeepSpeed', ...readDeepspeed(jsonOf(text, file), file) };
  if (isMegatronArguments(text)) return { format: MEGATRON, ...readMegatronArguments(text, file) };
  if (/\bParallelismConfig\b|\.parallelism\.\w+\s*=|\btorchtitan\b.*\bimport\b/.test(text))
    return { format: 'torchtitan', ...readTorchtitanPython(text, file, configuration) };
  if (/^\s*\[(parallelism|training|job)\]/m.test(text))
    return { format: 'torchtitan', ...readTorchtitanToml(text, file) };
  const value = readYaml(text, file, FORMATS, MOST_ALIASES);
  if (/^\s*(tensor_model_parallel_size|pipeline_model_parallel_size|micro_batch_size):/m.test(text))
    return { format: NEMO, ...readMegatronYaml(value, file) };
  if (
    /^(distributed_type|compute_environment|mixed_precision|num_processes|fsdp_config|parallelism_config):/m.test(
      text,
    )
  )
    return { format: 'Accelerate', ...readAccelerate(value, file) };
  throw new ShardwrightError(
    'E_INPUT',
    'the file has none of the settings that trainers state a layout in',
    { file, hint: FORMATS },
  );
}

function jsonOf(text: string, file: string): unknown {
  try {
    return readJson(text);
  } catch (error) {
    throw error instanceof ShardwrightError ? error.with({ file, hint: FORMATS }) : error;
  }
}
