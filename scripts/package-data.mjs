// The module that stands in the place of src/platform/package-data.ts where the planner is bundled
// for a page. In: the folder data. Out: JavaScript that exports the texts of its JSON files, by
// name.
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
