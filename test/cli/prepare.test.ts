import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';

import { SOURCES_HASH, sourcesHash } from '../../scripts/sources-hash.mjs';
import { temporaryFolder } from '../support/temporary-folder.ts';

test('npx shardwright in a checkout builds where sources changed, and ends at once where not', () => {
  const root = temporaryFolder();
  const scripts = fileURLToPath(new URL('../../scripts', import.meta.url));
  for (const name of ['src', 'data', 'scripts', 'dist']) mkdirSync(join(root, name));
  for (const name of ['prepare', 'sources-hash'])
    cpSync(join(scripts, `${name}.mjs`), join(root, 'scripts', `${name}.mjs`));
  for (const name of ['compile-program', 'package-data'])
    writeFileSync(join(root, 'scripts', `${name}.mjs`), '');
  for (const name of ['package', 'package-lock', 'tsconfig', 'tsconfig.build'])
    writeFileSync(join(root, `${name}.json`), '{}');
  writeFileSync(join(root, 'src/a.ts'), 'export const a = 1;\n');
  const marker = join(root, 'built');
  writeFileSync(
    join(root, 'scripts/build.mjs'),
    `import { writeFileSync } from 'node:fs';\nwriteFileSync(${JSON.stringify(marker)}, '');\n`,
  );
  /** What `npm ci` and `npx` run first; true if it builds. */
  const builds = (): boolean => {
    rmSync(marker, { force: true });
    execFileSync(process.execPath, [join(root, 'scripts/prepare.mjs')]);
    return existsSync(marker);
  };
  expect(builds()).toBe(true);
  writeFileSync(join(root, 'dist', SOURCES_HASH), sourcesHash(root));
  expect(builds()).toBe(false);
  writeFileSync(join(root, 'src/a.ts'), 'export const a = 2;\n');
  expect(builds()).toBe(true);
});
