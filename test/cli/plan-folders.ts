import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { cli, fixture } from './support.ts';

/** Plans a tiny 2-layer Llama on 2 x 2 devices into a folder, and gives the folder's path. */
export async function planInto(
  root: string,
  name: string,
  ...flags: readonly string[]
): Promise<string> {
  return planModelInto(fixture('llama-tiny'), root, name, ...flags);
}

/**
 * The files of the plans of fixtures that were made in this thread: many tests begin with the same
 * one.
 */
const made = new Map<string, ReadonlyMap<string, Buffer>>();
const FIXTURES = join(fixture('any'), '../..');

/** The same for any model file. */
export async function planModelInto(
  model: string,
  root: string,
  name: string,
  ...flags: readonly string[]
): Promise<string> {
  const out = join(root, name);
  mkdirSync(out, { recursive: true });
  const key = JSON.stringify([model, ...flags]);
  const known = made.get(key);
  if (known !== undefined) {
    for (const [file, bytes] of known) writeFileSync(join(out, file), bytes);
    return out;
  }
  const run = await cli(
    'plan',
    '-v',
    model,
    '--mesh',
    'dp=2,tp=2',
    '--cluster',
    'dgx-h100',
    '--no-recipes',
    '-o',
    out,
    ...flags,
  );
  if (run.code !== 0) throw new Error(`plan exits ${run.code}: ${run.err}`);
  // Files of a test's own may be other ones the next time.
  if (model.startsWith(FIXTURES) && !flags.some((flag) => flag.includes('/')))
    made.set(key, new Map(readdirSync(out).map((file) => [file, readFileSync(join(out, file))])));
  return out;
}
