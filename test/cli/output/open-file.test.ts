import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, expect, it } from 'vitest';

import { openFile } from '../../../src/cli/output/open-file.ts';
import { cli, fixture } from '../support.ts';

const root = mkdtempSync(join(tmpdir(), 'shardwright-open-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

it('gives the path, blanks and all, to the opener as its last word', async () => {
  const [said, path] = [join(root, 'said.txt'), join(root, 'my report.html')];
  const note = 'require("fs").writeFileSync(process.argv[1], process.argv[2])';
  let err = '';
  await openFile(path, { stderr: (text) => void (err += text) }, [
    process.execPath,
    '-e',
    note,
    said,
  ]);
  for (let tries = 0; tries < 200 && !existsSync(said); tries++)
    await new Promise((resolve) => setTimeout(resolve, 25));
  expect(readFileSync(said, 'utf8')).toBe(path);
  expect(err).toBe('');
});

it('says what to open where there is no opener', async () => {
  let err = '';
  const io = { stderr: (text: string): void => void (err += text) };
  await openFile('/r.html', io, ['shardwright-no-such-opener']);
  expect(err).toBe(
    '--open: there is no shardwright-no-such-opener here; open /r.html in a browser\n',
  );
});

it('report --open writes a file to look at, in the format that is asked for', async () => {
  const plan = join(root, 'plan');
  const on = ['--mesh', 'dp=2', '--cluster', 'dgx-h100', '--no-recipes', '-o', plan];
  expect((await cli('plan', fixture('mlp'), ...on)).code).toBe(0);
  const path = process.env['PATH'];
  try {
    // No browser opens in a test.
    process.env['PATH'] = root;
    const { code, out, err } = await cli(
      'report',
      plan,
      '--open',
      '--no-recipes',
      '--format',
      'md',
    );
    expect([code, out]).toEqual([0, '']);
    const [, file = ''] = /^wrote (.*report\.md)$/m.exec(err) ?? [];
    expect(readFileSync(file, 'utf8')).toContain('dp=2');
    rmSync(join(file, '..'), { recursive: true });
  } finally {
    process.env['PATH'] = path;
  }
});
