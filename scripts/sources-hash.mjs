// The hash of all files of src/, in: the root of the checkout; out: SHA-256 in hex. The build keeps
// it in dist/, so that whoever starts the built command knows whether it is of these sources: dates
// of files say when they were checked out.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** Where the build keeps it, below dist/. */
export const SOURCES_HASH = 'sources.sha256';

/** @param {string} root @returns {string} */
export function sourcesHash(root) {
  const hash = createHash('sha256');
  const entries = readdirSync(join(root, 'src'), { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  for (const path of paths.sort()) {
    const bytes = readFileSync(path);
    hash.update(`${relative(root, path).replaceAll('\\', '/')} ${bytes.length}\n`).update(bytes);
  }
  return hash.digest('hex');
}
