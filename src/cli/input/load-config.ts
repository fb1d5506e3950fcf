/** Builds the graph of a model from its name or its Hugging Face config, with the size flags. */

import { existsSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';

import { defined } from '../../defined.ts';
import { didYouMean, ShardwrightError } from '../../errors.ts';
import type { Graph } from '../../graph/types.ts';
import { detectFormat } from '../../import/detect.ts';
import { gunzip } from '../../import/file/unpack.ts';
import { parseMesh } from '../../mesh/devices/mesh.ts';
import type { ModelConfig } from '../../models/families.ts';
import { type JsonRecord, MAX_CONFIG_BYTES, parseConfigText } from '../../models/read-config.ts';
import { tensorRanks, type VocabularyPadding, vocabularyPadding } from '../../models/vocabulary.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { shownPath } from '../../platform/read-file.ts';
import { countedText } from '../../units.ts';
import { decodeUtf8 } from '../../utf8.ts';
import { longName } from './flags/flag.ts';
import type { SizeOptions } from './flags/model-flags.ts';

/** Sizes of what is built from a config. */
export interface BuildOptions extends SizeOptions {
  /**
   * Ranks that cut the vocabulary, which is padded for them; no flag, but the mesh dim of tensor
   * parallelism. 1 by default.
   */
  readonly tensor?: number;
  /** Devices of the question, no flag: a training step has one sequence a device by default. */
  readonly devices?: number | undefined;
  /** Passes of a training step, each of a batch; 1 by default. */
  readonly accumulate?: number | undefined;
}

/** The settings of a model that is built for the devices of a mesh. */
export function ofMesh(mesh: string): Pick<BuildOptions, 'tensor' | 'devices'> {
  return { tensor: tensorRanks(mesh), devices: parseMesh(mesh).size };
}

/** The graph that a config was built into. */
export interface BuiltModel {
  readonly graph: Graph;
  /** The padding of the vocabulary, where it was asked for. */
  readonly padding?: VocabularyPadding;
  /** The step that was built, with the flags that ask for another one. */
  readonly step?: string;
}

/**
 * The graph of a model known by name, undefined where a file of that name exists or no model has
 * it.
 */
export async function namedModel(
  name: string,
  flags: BuildOptions,
  table: OperatorTable,
): Promise<BuiltModel | undefined> {
  if (name === '-' || existsSync(name)) return undefined;
  // The families are a third of all code: a command on a file does without them.
  const [{ isModelName, modelEntries, modelEntry, nearHubNames }, { readModelConfig }] =
    await Promise.all([import('../../models/registry.ts'), import('../../models/families.ts')]);
  if (isModelName(name)) {
    const { name: own, config } = modelEntry(name);
    return built(readModelConfig(withAdapters(config, flags.lora)), own, flags, table);
  }
  const names = modelEntries().map((entry) => entry.name);
  const hub = nearHubNames(name);
  const found = hub.length > 0 ? hub : didYouMean(name, names);
  const near = found.length > 0 ? found : similar(name, names);
  if (near.length === 0 || (/[\\/]/.test(name) && hub.length === 0)) return undefined;
  throw new ShardwrightError('E_REF', `there is no file and no model '${name}'`, {
    hint:
      `did you mean ${near.map((n) => `'${n}'`).join(' or ')}?` +
      (hub.length === 0 ? '' : ' The config.json of any model of these families works, too.'),
  });
}

/** Names that begin with the same letters and digits: `llama3` of `llama-3.1-8b`. */
function similar(name: string, names: readonly string[]): string[] {
  const plain = (text: string): string => text.toLowerCase().replace(/[^a-z0-9]/g, '');
  const begin = plain(name);
  return begin.length < 3 ? [] : names.filter((n) => plain(n).startsWith(begin)).slice(0, 3);
}

/** The graph of a Hugging Face config, packed or not; undefined for any other content. */
export async function configModel(
  bytes: Uint8Array,
  path: string,
  format: string | undefined,
  flags: BuildOptions,
  table: OperatorTable,
): Promise<BuiltModel | undefined> {
  const text = configText(bytes, format);
  if (text === undefined) return undefined;
  const { readModelConfig } = await import('../../models/families.ts');
  const file = shownPath(path);
  const folder = basename(dirname(resolve(path)));
  const plain = path === '-' ? 'stdin' : basename(path).replace(/(\.(gz|json))+$/, '');
  return built(
    readModelConfig(withAdapters(parseConfigText(text, file), flags.lora), file),
    plain === 'config' ? folder : plain,
    flags,
    table,
  );
}

/** A config with the adapters that are asked for. */
function withAdapters(config: JsonRecord, lora: JsonRecord | undefined): JsonRecord {
  return lora === undefined ? config : { ...config, adapter_config: lora };
}

/** @throws E_USAGE for a flag that only configs take */
export function refuseSizes(path: string, flags: BuildOptions): void {
  const names = ['batch', 'seq', 'dtype', 'layers', 'forward', 'padVocab', 'lora'] as const;
  const given = names.find((name) => flags[name] !== undefined);
  if (given === undefined) return;
  const flag = longName(given);
  throw new ShardwrightError(
    'E_USAGE',
    `${flag} is for model names and configs; ${path} states its own sizes`,
    {
      hint: `leave out ${flag}, or name a model (shardwright models list).`,
    },
  );
}

function configText(bytes: Uint8Array, format: string | undefined): string | undefined {
  if (format !== undefined && format !== 'hf-config') return undefined;
  if (bytes.byteLength > MAX_CONFIG_BYTES) return undefined;
  try {
    const content = gunzip(bytes, { maxBytes: MAX_CONFIG_BYTES });
    return format !== undefined || detectFormat(content) === 'hf-config'
      ? decodeUtf8(content)
      : undefined;
  } catch {
    // The importer reads other kinds of files next, and reports their faults.
    return undefined;
  }
}

async function built(
  config: ModelConfig,
  name: string,
  flags: BuildOptions,
  table: OperatorTable,
): Promise<BuiltModel> {
  const { buildModel, DEFAULT_BATCH, defaultSequence } = await import('../../models/build.ts');
  const { training, forward, padVocab, tensor = 1, devices, seq, dtype, layers } = flags;
  if (training === true && forward === true)
    throw new ShardwrightError('E_USAGE', '--training and --forward exclude each other', {
      hint: 'leave one out; a training step is the default.',
    });
  const { batch = devices } = flags;
  const pad = padVocab === undefined ? undefined : { multiple: padVocab, tensor };
  const padding = pad === undefined ? undefined : vocabularyPadding(config, pad);
  const graph = buildModel(config, {
    name,
    table,
    training: forward !== true,
    ...defined({ batch, seq, layers, dtype, padVocabulary: pad }),
  });
  const sequence = seq ?? defaultSequence(config);
  const step = stepText({ ...flags, batch: batch ?? DEFAULT_BATCH }, sequence);
  return { graph, step, ...defined({ padding }) };
}

/** The step that is asked for, with all of its passes, and the flags that ask for another. */
function stepText(
  { forward, batch, accumulate = 1 }: BuildOptions & { readonly batch: number },
  sequence: number,
): string {
  const sequences = countedText(batch * accumulate, 'sequence');
  const passes = accumulate === 1 ? '' : `, in ${accumulate} passes of ${batch}`;
  return (
    `${forward === true ? 'the forward pass' : 'a training step'} of ${sequences} of ` +
    `${sequence} tokens${passes} (others: --forward, --batch, --seq` +
    `${accumulate === 1 ? '' : ', --accumulate'})`
  );
}
