import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { expect, it } from 'vitest';

import { FULL } from '../../support/full.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const MODULE = fileURLToPath(new URL('../../../src/cli/output/write-file.ts', import.meta.url));

/** A process that tries and writes a folder of its own below one that all processes make. */
function writer(out: string, own: string): Promise<string> {
  const program = `
    import { tryFolder, writeFolder } from ${JSON.stringify(MODULE)};
    for (let i = 0; i < 2000; i++) tryFolder(${JSON.stringify(join(out, own))}, ['f'], 'plan');
    writeFolder(${JSON.stringify(join(out, own))}, [['f', 'x']], 'plan');
  `;
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', program], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let err = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => void (err += text));
  return new Promise((resolve) => child.once('close', () => resolve(err)));
}

it('processes that make one new folder at the same time each write their own into it', async () => {
  const out = join(temporaryFolder(), 'out');
  const names = FULL ? ['1', '2', '3', '4'] : ['1', '2'];
  expect(await Promise.all(names.map((name) => writer(out, name)))).toEqual(names.map(() => ''));
  for (const name of names) expect(existsSync(join(out, name, 'f'))).toBe(true);
});
