// The hash of all that dist/ is made of: src/, data/, the scripts that build it, and the versions of
// the packages; in: the root of the checkout; out: SHA-256 in hex. The build keeps it in dist/, so
// that whoever starts the built command knows whether it is of these sources: dates of files say
// when they were checked out.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** Where the build keeps it, below dist/. */
export const SOURCES_HASH = 'sources.sha256';

const FOLDERS = ['src', 'data'];
const FILES = ['build', 'compile-program', 'package-data']
  .map((name) => `scripts/${name}.mjs`)
  .concat('package.json', 'package-lock.json', 'tsconfig.json', 'tsconfig.build.json');

/** @param {string} root @returns {string} */
export function sourcesHash(root) {
  const hash = createHash('sha256');
  const entries = FOLDERS.flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, withFileTypes: true }),
  );
  const paths = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .concat(FILES.map((file) => join(root, file)));
  for (const path of paths.sort()) {
    const bytes = readFileSync(path);
    hash.update(`${relative(root, path).replaceAll('\\', '/')} ${bytes.length}\n`).update(bytes);
  }
  return hash.digest('hex');
}
