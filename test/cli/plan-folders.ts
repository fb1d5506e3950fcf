import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { cli, fixture } from './support.ts';

/** Plans a small model into a folder, and gives the folder's path. */
export async function planInto(root: string, name: string, ...flags: readonly string[]): Promise<string> {
  const out = join(root, name);
  mkdirSync(root, { recursive: true });
  const run = await cli('plan', fixture('llama-tiny'), '--mesh', 'dp=2,tp=2', '--cluster', 'dgx-h100', '--no-recipes', '-o', out, ...flags); // prettier-ignore
  if (run.code !== 0) throw new Error(`plan exits ${run.code}: ${run.err}`);
  return out;
}
