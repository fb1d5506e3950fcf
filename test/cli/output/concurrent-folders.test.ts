import { spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { expect, it } from 'vitest';

import { FULL } from '../../support/full.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const MODULE = fileURLToPath(new URL('../../../src/cli/output/write-file.ts', import.meta.url));

/** What a process says that runs these lines. */
function running(lines: string): Promise<string> {
  const program = `
    import { tryFolder, writeFolder, writeText } from ${JSON.stringify(MODULE)};
    ${lines}`;
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', program], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let err = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => void (err += text));
  return new Promise((resolve) => child.once('close', () => resolve(err)));
}

/** A process that tries and writes a folder of its own below one that all processes make. */
const writer = (out: string, own: string): Promise<string> =>
  running(`
    for (let i = 0; i < ${FULL ? 2000 : 300}; i++) tryFolder(${JSON.stringify(join(out, own))}, ['f'], 'plan');
    writeFolder(${JSON.stringify(join(out, own))}, [['f', 'x']], 'plan');
  `);

it('processes that make one new folder at the same time each write their own into it', async () => {
  const out = join(temporaryFolder(), 'out');
  const names = FULL ? ['1', '2', '3', '4'] : ['1', '2'];
  expect(await Promise.all(names.map((name) => writer(out, name)))).toEqual(names.map(() => ''));
  for (const name of names) expect(existsSync(join(out, name, 'f'))).toBe(true);
});

it('processes that write the same new folders at the same time leave in each the files of one of them, and nothing else', async () => {
  const out = temporaryFolder();
  const names = FULL ? ['1', '2', '3', '4'] : ['1', '2'];
  const files = ['graph.swg', 'plan.json', 'request.json'];
  const folders = Array.from({ length: 40 }, (_, k) => join(out, String(k)));
  const said = await Promise.all(
    names.map((name) =>
      running(`
        const [folders, files] = ${JSON.stringify([folders, files])};
        for (const folder of folders) {
          tryFolder(folder, files, 'plan');
          writeFolder(folder, files.map((file) => [file, '${name}']), 'plan');
          writeText(folder + '/report.html', '${name}', 'report');
        }
      `),
    ),
  );
  expect(said).toEqual(names.map(() => ''));
  for (const folder of folders) {
    expect(readdirSync(folder).sort()).toEqual([...files, 'report.html'].sort());
    const [first, ...others] = files.map((file) => readFileSync(join(folder, file), 'utf8'));
    expect(names).toContain(first);
    expect(others).toEqual(others.map(() => first));
  }
});
