/** The models that the package knows by name (`data/models.json`). */

import * as z from 'zod';

import { internalError, ShardwrightError, suggestion } from '../errors.ts';
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
  return modelEntries().some((entry) => entry.name === name || entry.hfId === name);
}

/** The entry of this name, or of this Hugging Face id. @throws E_REF with near names */
export function modelEntry(name: string): ModelEntry {
  const found = modelEntries().find((entry) => entry.name === name || entry.hfId === name);
  if (found !== undefined) return found;
  throw new ShardwrightError('E_REF', `there is no model '${name}'`, {
    hint: suggestion(
      name,
      modelEntries().map((entry) => entry.name),
      'models',
    ),
  });
}

/**
 * The config of a model that is known by name.
 *
 * @throws E_REF with near names
 */
export function knownModelConfig(name: string): ModelConfig {
  return readModelConfig(modelEntry(name).config);
}
