import { existsSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import { ShardwrightError, didYouMean } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import { detectFormat } from '../import/detect.ts';
import { decodeUtf8, gunzip } from '../import/unpack.ts';
import type { ModelConfig } from '../models/families.ts';
import { MAX_CONFIG_BYTES } from '../models/read-config.ts';
import type { OperatorTable } from '../ops/table.ts';
import { parseCount } from './options.ts';

/** Flags for models that are built from a config: a file of a graph has its sizes in it. */
export interface SizeFlags {
  readonly batch?: string;
  readonly seq?: string;
  readonly dtype?: string;
  readonly layers?: string;
  readonly training?: boolean;
}

/** The graph of a model known by name, undefined where a file of that name exists or no model has it. */
export async function namedModel(name: string, flags: SizeFlags, table: OperatorTable): Promise<Graph | undefined> {
  if (existsSync(name)) return undefined;
  // The families are a third of all code: a command on a file does without them.
  const { isModelName, knownModelConfig, modelEntries, modelEntry } = await import('../models/registry.ts');
  if (isModelName(name)) return built(knownModelConfig(name), modelEntry(name).name, flags, table);
  const names = modelEntries().map((entry) => entry.name);
  const found = didYouMean(name, names);
  const near = found.length > 0 ? found : alike(name, names);
  if (near.length === 0 || /[\\/]/.test(name)) return undefined;
  throw new ShardwrightError('E_REF', `there is no file and no model '${name}'`, {
    hint: `did you mean ${near.map((n) => `'${n}'`).join(' or ')}?`,
  });
}

/** Names that begin with the same letters and digits: `llama3` of `llama-3.1-8b`. */
function alike(name: string, names: readonly string[]): string[] {
  const plain = (text: string): string => text.toLowerCase().replace(/[^a-z0-9]/g, '');
  const begin = plain(name);
  return begin.length < 3 ? [] : names.filter((n) => plain(n).startsWith(begin)).slice(0, 3);
}

/** The graph of a Hugging Face config, packed or not; undefined for any other content. */
export async function configModel(
  bytes: Uint8Array,
  path: string,
  format: string | undefined,
  flags: SizeFlags,
  table: OperatorTable,
): Promise<Graph | undefined> {
  const text = configText(bytes, format);
  if (text === undefined) return undefined;
  const { parseModelConfig } = await import('../models/families.ts');
  const folder = basename(dirname(resolve(path)));
  const plain = basename(path).replace(/(\.(gz|json))+$/, '');
  return built(parseModelConfig(text, path), plain === 'config' ? folder : plain, flags, table);
}

/** @throws E_USAGE for a flag that only configs take */
export function refuseSizes(path: string, flags: SizeFlags): void {
  const given = (['batch', 'seq', 'dtype', 'layers', 'training'] as const).find((name) => flags[name] !== undefined);
  if (given === undefined) return;
  throw new ShardwrightError('E_USAGE', `--${given} is for model names and configs; ${path} states its own sizes`, {
    hint: `leave out --${given}, or name a model (shardwright models list).`,
  });
}

function configText(bytes: Uint8Array, format: string | undefined): string | undefined {
  if (format !== undefined && format !== 'hf-config') return undefined;
  if (bytes.byteLength > MAX_CONFIG_BYTES) return undefined;
  try {
    const content = gunzip(bytes, { maxBytes: MAX_CONFIG_BYTES });
    return format !== undefined || detectFormat(content) === 'hf-config' ? decodeUtf8(content) : undefined;
  } catch {
    // What is wrong with another kind of file is the business of the importer, which reads it next.
    return undefined;
  }
}

async function built(config: ModelConfig, name: string, flags: SizeFlags, table: OperatorTable): Promise<Graph> {
  const { buildModel, dtypeNamed } = await import('../models/build.ts');
  const count = (flag: 'batch' | 'seq' | 'layers'): Partial<Record<typeof flag, number>> => {
    const text = flags[flag];
    return text === undefined ? {} : { [flag]: parseCount(text, `--${flag}`) };
  };
  return buildModel(config, {
    name,
    table,
    training: flags.training === true,
    ...count('batch'),
    ...count('seq'),
    ...count('layers'),
    ...(flags.dtype === undefined ? {} : { dtype: dtypeNamed(flags.dtype) }),
  });
}
