// Makes the module that replaces src/platform/package-data.ts where the planner is bundled for a
// page: JavaScript that exports the texts of the folder data, by path. The folder calibration is
// left out: the planner does not read it.
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

/** @param {string} folder @returns {string} */
export function packageDataModule(folder) {
  const paths = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.(json|css|js|py)$/.test(entry.name))
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)).replaceAll('\\', '/'))
    .filter((path) => !path.startsWith('calibration/'));
  const texts = Object.fromEntries(
    paths.sort().map((path) => [path, readFileSync(join(folder, path), 'utf8')]),
  );
  return `export const PACKAGE_DATA = ${JSON.stringify(texts)};`;
}
