/**
 * Finds the model that a trainer's configuration is for: by the name or the folder that it has of
 * it, or by the sizes that it states. Sources: `[model]` of torchtitan 0.2 (name and flavor);
 * arguments of Megatron-LM and settings of NeMo.
 */
import { ShardwrightError } from '../errors.ts';
import { readModelConfig } from '../models/families.ts';
import { modelEntries } from '../models/registry.ts';

/** Names of torchtitan, with the flavor behind them. */
const TITAN: Readonly<Record<string, string>> = {
  llama3: 'llama-3.1-',
  llama3_1: 'llama-3.1-',
  qwen3: 'qwen3-',
  deepseek_v3: 'deepseek-v3',
};

/** The known model that a file is for. @throws E_USAGE where its text does not say which */
export function modelOfFile(file: string, text: string): string {
  const [name, ...others] = modelsOfFile(text);
  if (name !== undefined && others.length === 0) return name;
  throw new ShardwrightError(
    'E_USAGE',
    name === undefined
      ? `${file} names no model`
      : `the sizes in ${file} are those of ${[name, ...others].join(', ')}`,
    { hint: `give --model ${name ?? 'llama-3.1-8b'}.` },
  );
}

/** Names of known models that fit the text; several, where it does not say which. */
export function modelsOfFile(text: string): readonly string[] {
  const named = namedIn(text) ?? titanIn(text);
  return named === undefined ? sizedIn(text) : [named];
}

/** A model whose name, or that of its folder on the hub, is a word of the text. */
function namedIn(text: string): string | undefined {
  const words = new Set(
    text
      .split('\n')
      .filter((line) => /assets|tokenizer|model|checkpoint|hf_/i.test(line))
      .flatMap((line) => line.split(/["'\s/=,:]+/))
      .map((word) => word.toLowerCase()),
  );
  const found = modelEntries().find(({ name, hfId = name }) => {
    const hub = hfId.slice(hfId.indexOf('/') + 1).toLowerCase();
    return [name, hub, hub.replace(/^meta-/, '')].some((own) => words.has(own));
  });
  return found?.name;
}

function titanIn(text: string): string | undefined {
  const stated = (key: string): string | undefined =>
    new RegExp(`^\\s*${key}\\s*=\\s*["'](\\w[\\w.]*)["']`, 'm').exec(text)?.[1];
  const stem = TITAN[stated('name')?.toLowerCase() ?? ''];
  if (stem === undefined) return undefined;
  const flavor = stated('flavor')?.toLowerCase() ?? '';
  return modelEntries().find(({ name }) => name === (stem.endsWith('-') ? stem + flavor : stem))
    ?.name;
}

/** Sizes by the names that arguments and settings have. */
const SIZES = {
  layers: 'num[-_]layers',
  width: 'hidden[-_]size',
  hidden: 'ffn[-_]hidden[-_]size',
  heads: 'num[-_]attention[-_]heads',
  keyHeads: 'num[-_]query[-_]groups',
  vocabulary: 'vocab[-_]size',
} as const;

/** Models of the stated sizes; those that a text does not state are any. */
function sizedIn(text: string): readonly string[] {
  const facts = Object.keys(SIZES) as (keyof typeof SIZES)[];
  const sizes = facts.flatMap((fact) => {
    const name = SIZES[fact];
    const found = new RegExp(`(?<![\\w-])(?:--)?${name}["']?[ \\t]*[ =:][ \\t]*["']?(\\d+)`).exec(
      text,
    );
    return found === null ? [] : [[fact, Number(found[1])] as const];
  });
  const has = (fact: keyof typeof SIZES): boolean => sizes.some(([own]) => own === fact);
  if (!has('layers') || !has('width')) return [];
  return modelEntries().flatMap(({ name, config }) => {
    const { shape } = readModelConfig(config).architecture;
    return sizes.every(([fact, n]) => shape[fact] === n) ? [name] : [];
  });
}
