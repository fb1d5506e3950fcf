// What `npm ci`, `npm pack` and `npx shardwright` in a checkout run first ("prepare"): builds dist/
// unless it is that of these sources, and says what to type next.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { SOURCES_HASH, sourcesHash } from './sources-hash.mjs';

const root = fileURLToPath(new URL('../', import.meta.url));
const built = join(root, 'dist', SOURCES_HASH);
if (!existsSync(built) || readFileSync(built, 'utf8') !== sourcesHash(root))
  await import('./build.mjs');
if (process.env.npm_command === 'ci' || process.env.npm_command === 'install')
  process.stdout.write(
    'dist/ is built. Next: npm start (plans a training step on 64 GPUs), npm test\n',
  );
