/**
 * Checks all types: of the project, of the page, and of the folders of `STRICT` once more with
 * `noUncheckedIndexedAccess`, in which every `list[i]` may be undefined. TypeScript has that flag
 * for a whole program alone, so errors elsewhere are left out.
 */
import { spawnSync } from 'node:child_process';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

import { TSC } from './tsc.mjs';

const STRICT = /^src\/(?:cli|import|report|text)\//;

const root = dirname(dirname(fileURLToPath(import.meta.url)));

/**
 * @param {string} config its file
 * @returns {{ failed: boolean, lines: string[] }} what the compiler prints, a line an error
 */
function checked(config) {
  const { status, stdout, stderr, error } = spawnSync(
    process.execPath,
    [TSC, '--noEmit', '-p', config, '--pretty', 'false'],
    { cwd: root, encoding: 'utf8', maxBuffer: 1 << 28 },
  );
  if (error !== undefined) throw error;
  const lines = `${stdout}${stderr}`.split('\n').filter((line) => line !== '');
  return { failed: status !== 0, lines };
}

const plain = ['tsconfig.json', 'site/tsconfig.json'].map(checked);
const strict = checked('tsconfig.strict-index.json');
// Lines of an error that begin with blanks belong to the one before.
let isStrict = false;
const indexed = strict.lines.filter((line) => {
  if (!line.startsWith(' ')) isStrict = STRICT.test(line) || !/^[\w./-]+\(\d+,\d+\)/.test(line);
  return isStrict;
});
const faults = [...plain.filter(({ failed }) => failed).flatMap(({ lines }) => lines), ...indexed];
for (const line of faults) console.error(line);
if (plain.some(({ failed }) => failed) || indexed.length > 0) process.exit(1);
