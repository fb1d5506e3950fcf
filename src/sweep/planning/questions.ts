/**
 * Reads the questions of a sweep, many models on many clusters, from a YAML (or JSON) file into
 * checked lists. Every model is asked on every cluster with every number of devices, sequence and
 * batch.
 */

import * as z from 'zod';

import { parsePrice } from '../../cost/hardware/operation.ts';
import { ShardwrightError, suggestion } from '../../errors.ts';
import { readYaml } from '../../text/yaml.ts';

/** One is a list of one. */
const counts = z.preprocess(
  (n): unknown => (Array.isArray(n) ? n : [n]),
  z.array(z.int().positive()).min(1).max(1000),
);
const name = z.string().min(1).max(400);

const price = z.string().refine((text) => parsePrice(text) !== undefined);

/** A name alone is a cluster. */
const cluster = z.preprocess(
  (given) => (typeof given === 'string' ? { name: given } : given),
  z.strictObject({
    name,
    devices: z.int().positive().exactOptional(),
    price: price.exactOptional(),
  }),
);

const questionsSchema = z
  .strictObject({
    models: z.array(name).min(1).max(1000),
    clusters: z.array(cluster).min(1).max(1000),
    devices: counts.exactOptional(),
    sequences: counts.exactOptional(),
    globalBatches: counts.exactOptional(),
    tokens: z.union([z.number().positive(), z.string()]).exactOptional(),
    plans: z.array(name).min(1).exactOptional(),
    /** The time limit of each question. */
    timeLimitSeconds: z.number().positive().exactOptional(),
  })
  .refine(({ clusters }) => new Set(clusters.map((c) => 'price' in c)).size === 1, {
    path: ['clusters'],
    message: 'some clusters state a price and some do not: give one for each, or none',
  })
  .refine(
    ({ clusters, tokens }) => tokens !== undefined || clusters.every((c) => c.price === undefined),
    {
      path: ['clusters'],
      message: 'a price is of a whole run, and no tokens are stated: write tokens: 15T',
    },
  );

const COUNTS = 'whole numbers from 1 on';
/** The values that each key takes. */
const WANTED: Readonly<Record<string, string>> = {
  models: 'a list of names',
  clusters: 'a list of names, or of { name: ..., devices: ..., price: ... }',
  devices: COUNTS,
  sequences: COUNTS,
  globalBatches: COUNTS,
  tokens: 'a number of tokens, such as 15T',
  plans: 'a list of recipes',
  timeLimitSeconds: 'seconds above 0',
  name: 'a node design or a cluster file',
  price: 'an amount with its currency, of one device for one hour, such as 2.5USD',
};

/** The lists of a sweep. */
export type SweepQuestions = z.infer<typeof questionsSchema>;

/** @throws E_INPUT with the key for what is not a file of questions */
export function parseQuestions(text: string, file: string): SweepQuestions {
  const hint = 'its form: docs/planning.md.';
  const value = readYaml(text, file, hint);
  const parsed = questionsSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const at = issue.path.join('.') || 'the file';
  if (issue.code === 'unrecognized_keys') {
    const known =
      issue.path.length === 0 ? Object.keys(questionsSchema.shape) : ['name', 'devices', 'price'];
    throw new ShardwrightError('E_INPUT', `${at}: unknown key '${issue.keys[0]}'`, {
      file,
      hint: suggestion(issue.keys[0], known, 'keys'),
    });
  }
  const key = issue.path.findLast((part) => typeof part === 'string');
  const found: unknown = issue.path.reduce<unknown>(
    (inner, part) => (inner as Record<PropertyKey, unknown> | undefined)?.[part],
    value,
  );
  const shown = JSON.stringify(found) as string | undefined;
  const wanted = key === undefined ? 'keys such as models, clusters and devices' : WANTED[key];
  throw new ShardwrightError(
    'E_INPUT',
    issue.code === 'custom' && issue.message !== 'Invalid input'
      ? `${at}: ${issue.message}`
      : `${at}: found ${shown?.slice(0, 80) ?? 'nothing'}, wanted ${wanted}`,
    { file, hint },
  );
}
