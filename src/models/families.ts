/** Takes a Hugging Face config and gives it as a model config that this package builds. */

import { checkKinds } from '../arguments.ts';
import { defined } from '../defined.ts';
import { ShardwrightError, suggestion } from '../errors.ts';
import type { Architecture, Family } from './architecture.ts';
import { BERT } from './families/bert.ts';
import { BLOOM } from './families/bloom.ts';
import { DECODER_FAMILIES } from './families/decoder-families.ts';
import { DIT } from './families/dit.ts';
import { GPT2 } from './families/gpt2.ts';
import { OPT } from './families/opt.ts';
import { T5 } from './families/t5.ts';
import { UNET } from './families/unet.ts';
import { VIT } from './families/vit.ts';
import { WHISPER } from './families/whisper.ts';
import { type LoraConfig, readLora, withLora } from './low-rank.ts';
import { ConfigReader, isRecord, type JsonRecord, parseConfigText } from './read-config.ts';

const FAMILIES: readonly Family[] = [
  ...DECODER_FAMILIES,
  GPT2,
  OPT,
  BLOOM,
  BERT,
  T5,
  VIT,
  WHISPER,
  DIT,
  UNET,
];

/** The `model_type` values that we build, sorted. */
export const MODEL_TYPES: readonly string[] = FAMILIES.flatMap((family) => family.types).sort();

/** Multimodal types, whose text tower is a family of ours. */
const TEXT_TOWERS = new Map([
  ['gemma3', 'gemma3_text'],
  ['llama4', 'llama4_text'],
]);

/** The key of a config under which the adapters of PEFT's `adapter_config.json` stand. */
export const ADAPTERS = 'adapter_config';

/** Keys of every config that say nothing about the graph. */
const BOOKKEEPING = [
  'model_type',
  'architectures',
  'transformers_version',
  '_name_or_path',
  'use_cache',
];

/** A config as it was understood. */
export interface ModelConfig {
  readonly type: string;
  readonly className?: string;
  readonly architecture: Architecture;
  /** Element type that the config states (`torch_dtype` or `dtype`), in its own words. */
  readonly statedDtype?: string;
  /** `num_key_value_heads = 32`: what was not stated. */
  readonly defaults: readonly string[];
  /** Low-rank adapters, which are then trained alone. */
  readonly lora?: LoraConfig;
  /** Keys that nothing was made of. */
  readonly ignored: readonly string[];
  readonly notes: readonly string[];
}

/**
 * Reads the text of a Hugging Face config.
 *
 * @throws E_LIMIT, E_SYNTAX, and what `readModelConfig` throws
 */
export function parseModelConfig(text: string, file?: string): ModelConfig {
  checkKinds('parseModelConfig', {
    text: [text, 'string'],
    file: [file, 'string', 'undefined'],
  });
  return readModelConfig(parseConfigText(text, file), file);
}

/**
 * The family and sizes of a Hugging Face config.
 *
 * @throws E_SYNTAX for a value of the wrong kind, E_TYPE for values that do not fit each other,
 * E_UNSUPPORTED for a family or a feature that we do not build; all with the JSON path
 */
export function readModelConfig(record: JsonRecord, file?: string): ModelConfig {
  const outer = new ConfigReader(record, '$', file);
  const notes: string[] = [];
  let config = outer;
  let type = outer.text('model_type');
  const className = outer.list('architectures', 'string')?.[0] as string | undefined;
  const tower = type === undefined ? undefined : TEXT_TOWERS.get(type);
  if (tower !== undefined && isRecord(record.text_config)) {
    config = outer.record('text_config') ?? outer;
    outer.checkHead(className, ['ForConditionalGeneration', 'ForCausalLM']);
    notes.push(`'${type ?? ''}' is multimodal: only its text tower (text_config) is built`);
  }
  const family = familyOf(tower ?? type, className, file);
  type = tower ?? type ?? family.types[0];
  config.known(...BOOKKEEPING);
  const stated =
    config.text('torch_dtype') ??
    config.text('dtype') ??
    outer.text('torch_dtype') ??
    outer.text('dtype');
  const own = family.read(config, type, tower === undefined ? className : undefined);
  const adapters = outer.record(ADAPTERS);
  const lora = adapters === undefined ? undefined : readLora(adapters);
  const architecture = lora === undefined ? own : withLora(own, lora);
  return {
    type,
    ...defined({ className }),
    architecture,
    ...defined({ statedDtype: stated, lora }),
    defaults: config.defaults,
    ignored: config.ignored(type),
    notes: [...notes, ...(architecture.notes ?? [])],
  };
}

/** Tells whether a text looks like a config: for telling it from other JSON files. */
export function looksLikeConfig(record: JsonRecord): boolean {
  return typeof record.model_type === 'string' || Array.isArray(record.architectures);
}

function familyOf(
  type: string | undefined,
  className: string | undefined,
  file: string | undefined,
): Family {
  const place = file === undefined ? {} : { file };
  if (type === undefined && className === undefined)
    throw new ShardwrightError('E_SYNTAX', 'the config has neither model_type nor architectures', {
      ...place,
      path: '$.model_type',
      hint: `add "model_type"; known: ${MODEL_TYPES.join(', ')}`,
    });
  const byType = FAMILIES.find((family) => type !== undefined && family.types.includes(type));
  const found =
    byType ??
    (type === undefined
      ? FAMILIES.find((family) =>
          family.classes.some((start) => className?.startsWith(start) === true),
        )
      : undefined);
  if (found !== undefined) return found;
  const [name, path] =
    type !== undefined ? [type, '$.model_type'] : [className ?? '', '$.architectures[0]'];
  throw new ShardwrightError('E_UNSUPPORTED', `${path} is '${name}', a family that is not built`, {
    ...place,
    path,
    hint: suggestion(name, MODEL_TYPES, 'families'),
  });
}
