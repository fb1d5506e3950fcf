/**
 * Reads the layout of a job from the configuration of its trainer: the layout in the form of
 * `--layout`, the sequence and the batch where the file states them, and every setting of it that
 * has no price.
 */

import { ShardwrightError } from '../../errors.ts';
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
import { readMegatronYaml } from './megatron.ts';
import {
  isMegatronArguments,
  readMegatronArguments,
  readMegatronTest,
} from './megatron-arguments.ts';
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
  const { format, draft, notPriced } = read(text, setting);
  const uncut =
    setting.model.routed !== undefined && (draft.tp ?? 1) > 1 && draft.sequenceParallel === false;
  if (!uncut) return { ...settleLayout(draft, setting), format, notPriced };
  if (format === MEGATRON || format === TEST || format === NEMO)
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
const TEST = 'test of Megatron-LM';
const NEMO = 'NeMo or Megatron-Bridge';

/** Aliases that a configuration may repeat parts with. */
const MOST_ALIASES = 100;

const FORMATS =
  'read are launch scripts, arguments and tests of Megatron-LM, torchtitan TOML and Python, NeMo ' +
  'and Megatron-Bridge YAML, DeepSpeed JSON, Accelerate YAML.';

function read(text: string, setting: LayoutSetting): Read {
  const { file, configuration } = setting;
  if (/^\s*\{/.test(text.replace(/^(\s|#.*|\/\/.*|\/\*[\s\S]*?\*\/)*/, '')))
    return { format: 'DeepSpeed', ...readDeepspeed(text, setting) };
  if (isMegatronArguments(text))
    return { format: MEGATRON, ...readMegatronArguments(text, setting) };
  if (/\bParallelismConfig\b|\.parallelism\.\w+\s*=|\btorchtitan\b.*\bimport\b/.test(text))
    return { format: 'torchtitan', ...readTorchtitanPython(text, file, configuration) };
  if (/^\s*\[(parallelism|training|job)\]/m.test(text))
    return { format: 'torchtitan', ...readTorchtitanToml(text, file) };
  const value = readYaml(text, file, FORMATS, MOST_ALIASES);
  if (/^MODEL_ARGS:/m.test(text))
    return { format: TEST, ...readMegatronTest(value, text, setting) };
  if (/^\s*(tensor_model_parallel_size|pipeline_model_parallel_size|micro_batch_size):/m.test(text))
    return { format: NEMO, ...readMegatronYaml(value, text, setting) };
  if (
    /^(distributed_type|compute_environment|mixed_precision|num_processes|fsdp_config|parallelism_config):/m.test(
      text,
    )
  )
    return { format: 'Accelerate', ...readAccelerate(value, text, file) };
  throw new ShardwrightError(
    'E_INPUT',
    'the file has none of the settings that trainers state a layout in',
    { file, hint: FORMATS },
  );
}
