// Makes the module that replaces src/platform/package-data.ts where the planner is bundled for a
// page: JavaScript that exports the texts of the JSON files in the folder data, by name.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** @param {string} folder @returns {string} */
export function packageDataModule(folder) {
  const names = readdirSync(folder).filter((name) => name.endsWith('.json'));
  const texts = Object.fromEntries(
    names.sort().map((name) => [name, readFileSync(join(folder, name), 'utf8')]),
  );
  return `export const PACKAGE_DATA = ${JSON.stringify(texts)};`;
}
