/**
 * How this checkout's command is started, as arguments of Node: the built one where dist/ was built
 * from the files that src/ has now, as after `npm ci`; else the sources through tsx, which takes a
 * second and a half of processor time longer each time.
 */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { SOURCES_HASH, sourcesHash } from './sources-hash.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));

function isBuilt(): boolean {
  const built = join(root, 'dist', SOURCES_HASH);
  return existsSync(built) && readFileSync(built, 'utf8') === sourcesHash(root);
}

const built = isBuilt();

export const COMMAND: readonly string[] = built
  ? [join(root, 'dist/cli/main.js')]
  : ['--import', 'tsx', join(root, 'src/cli/main.ts')];

/** How `shardwright/register` is loaded before a program, as arguments of Node. */
export const REGISTER: readonly string[] = built
  ? ['--import', join(root, 'dist/trace/source/register-main.js')]
  : ['--import', 'tsx', '--import', join(root, 'src/trace/source/register-main.ts')];
