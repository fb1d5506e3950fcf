import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { cli, fixture } from './support.ts';

/** Plans a tiny 2-layer Llama on 2 x 2 devices into a folder, and gives the folder's path. */
export async function planInto(root: string, name: string, ...flags: readonly string[]): Promise<string> {
  return planModelInto(fixture('llama-tiny'), root, name, ...flags);
}

/** The same for any model file. */
export async function planModelInto(
  model: string,
  root: string,
  name: string,
  ...flags: readonly string[]
): Promise<string> {
  const out = join(root, name);
  mkdirSync(root, { recursive: true });
  const run = await cli('plan', model, '--mesh', 'dp=2,tp=2', '--cluster', 'dgx-h100', '--no-recipes', '-o', out, ...flags); // prettier-ignore
  if (run.code !== 0) throw new Error(`plan exits ${run.code}: ${run.err}`);
  return out;
}
