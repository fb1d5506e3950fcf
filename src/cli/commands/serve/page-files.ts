/**
 * Finds the files of the built page by the names that a browser asks for. A checkout has them in
 * `site/dist`, the package has them packed in `site/packed`; only names that are listed there are
 * read.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliDecompressSync } from 'node:zlib';

import { ShardwrightError } from '../../../errors.ts';

const SITE = fileURLToPath(new URL('../../../../site/', import.meta.url));

/** @throws E_IO where the page is not built */
export function pageFolder(): string {
  const found = [join(SITE, 'dist'), join(SITE, 'packed')].find((folder) => existsSync(folder));
  if (found !== undefined) return found;
  throw new ShardwrightError('E_IO', 'the page is not built', {
    hint: 'run npm run site in the checkout.',
  });
}

export function pageFile(folder: string, name: string): Buffer | undefined {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((path) =>
    path.replaceAll('\\', '/'),
  );
  if (files.includes(name) && /\.\w+$/.test(name)) return readFileSync(join(folder, name));
  if (files.includes(`${name}.br`))
    return brotliDecompressSync(readFileSync(join(folder, `${name}.br`)));
  // HiGHS is not packed twice.
  if (/^assets\/highs-[\w-]+\.wasm$/.test(name))
    return readFileSync(createRequire(import.meta.url).resolve('highs/runtime'));
  return undefined;
}
