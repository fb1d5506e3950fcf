/** The models that the package knows by name (`data/models.json`). */

import * as z from 'zod';

import { checkKinds } from '../arguments.ts';
import { didYouMean, internalError, ShardwrightError, suggestion } from '../errors.ts';
import { getOwn } from '../graph/value.ts';
import { packageData } from '../platform/platform.ts';
import { type ModelConfig, readModelConfig } from './families.ts';
import type { JsonRecord } from './read-config.ts';

const entrySchema = z.object({
  name: z.string(),
  hfId: z.string().optional(),
  source: z.string(),
  verbatim: z.boolean(),
  parameters: z.object({ total: z.number(), trainable: z.number(), active: z.number().optional() }),
  config: z.record(z.string(), z.json()),
});
const registrySchema = z.object({ models: z.array(entrySchema) });

/** A known model: its config, where that is from, and the counts of the published classes. */
export interface ModelEntry {
  readonly name: string;
  readonly hfId?: string | undefined;
  readonly source: string;
  readonly verbatim: boolean;
  readonly parameters: {
    readonly total: number;
    readonly trainable: number;
    readonly active?: number | undefined;
  };
  readonly config: JsonRecord;
}

let loaded: readonly ModelEntry[] | undefined;

/** All entries in the order of the file, read once; the file is part of the package. */
export function modelEntries(): readonly ModelEntry[] {
  if (loaded !== undefined) return loaded;
  const text = packageData('models.json');
  const parsed = registrySchema.safeParse(JSON.parse(text));
  if (!parsed.success) throw internalError(`data/models.json: ${z.prettifyError(parsed.error)}`);
  return (loaded = parsed.data.models);
}

export function isModelName(name: string): boolean {
  return entryNamed(name) !== undefined;
}

/**
 * The entry of this name, or of this Hugging Face id: in any case of letters, and of a model that
 * was tuned from it (`meta-llama/Llama-3.1-8B-Instruct`), whose program is the same.
 *
 * @throws E_REF with near names
 */
export function modelEntry(name: string): ModelEntry {
  checkKinds('modelEntry', { name: [name, 'string'] });
  const found = entryNamed(name);
  if (found !== undefined) return found;
  const names = modelEntries().map((entry) => entry.name);
  throw new ShardwrightError('E_REF', `there is no model '${name}'`, {
    hint: suggestion(hubName(name), names, 'models'),
  });
}

/** Known models near an id of the hub; none where its account has no known model. */
export function nearHubNames(id: string): string[] {
  if (!/^[\w.-]+\/[\w.-]+$/.test(id)) return [];
  const ours = modelEntries().filter(
    ({ hfId }) => hfId !== undefined && accountOf(hfId) === accountOf(id),
  );
  const names = ours.map(({ name }) => name);
  const near = didYouMean(hubName(id), names);
  return near.length > 0 ? near : names.slice(0, 3);
}

/** Accounts of the models on the hub. A path of any other folder is a file. */
const accountOf = (id: string): string => id.slice(0, id.indexOf('/')).toLowerCase();

function entryNamed(name: string): ModelEntry | undefined {
  const entries = modelEntries();
  const exact = entries.find((entry) => entry.name === name || entry.hfId === name);
  if (exact !== undefined || !/^[\w.-]+\/[\w.-]+$/.test(name)) return exact;
  const account = accountOf(name);
  return entries.find(
    ({ name: own, hfId }) =>
      hfId !== undefined &&
      accountOf(hfId) === account &&
      [hubName(own), hubName(hfId)].includes(hubName(name)),
  );
}

/** Ends of the names of tuned models and of checkpoint formats. */
const TUNED = /-(?:instruct|chat|it|pt|base|hf|text|0[1-9]\d\d|2[45]\d\d)$/;
/** Names of releases whose config has the shapes of an earlier one. */
const SAME_SHAPES: Readonly<Record<string, string>> = { 'llama-3.3-70b': 'llama-3.1-70b' };

/** A name or an id of the hub without account, case of letters and words for tuning. */
function hubName(id: string): string {
  let name = id
    .toLowerCase()
    .slice(id.indexOf('/') + 1)
    .replace(/^meta-/, '');
  while (TUNED.test(name)) name = name.replace(TUNED, '');
  return getOwn(SAME_SHAPES, name) ?? name;
}

/**
 * The config of a model that is known by name.
 *
 * @throws E_REF with near names
 */
export function knownModelConfig(name: string): ModelConfig {
  checkKinds('knownModelConfig', { name: [name, 'string'] });
  return readModelConfig(modelEntry(name).config);
}
