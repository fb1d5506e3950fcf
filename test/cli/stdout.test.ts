import { spawnSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, describe, expect, it } from 'vitest';

import { COMMAND } from '../../scripts/command.ts';
import { FULL } from '../support/full.ts';
import { cli, fixture } from './support.ts';

/** An answer that cannot be printed takes no file away. */
const root = mkdtempSync(join(tmpdir(), 'stdout-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const plan = (folder: string): string[] => [
  ...COMMAND,
  'plan',
  fixture('mlp-loss'),
  '--mesh',
  'dp=2',
  '--cluster',
  'dgx-h100',
  '--no-recipes',
  '--quiet',
  '-o',
  folder,
];
const FILES = [
  'certificate.json.gz',
  'graph.swg',
  'plan.json',
  'problems.json.gz',
  'progress.json',
  'request.json',
];

describe('stdout on a full disk', () => {
  // Every write to this device fails as on a full disk.
  function full(args: readonly string[], stderr: 'pipe' | number = 'pipe') {
    const device = openSync('/dev/full', 'w');
    try {
      return spawnSync(process.execPath, args, {
        stdio: ['ignore', device, stderr],
        encoding: 'utf8',
      });
    } finally {
      closeSync(device);
    }
  }

  it.each(FULL ? [[[]], [['--json']]] : [[['--json']]])(
    'is E_IO, and the files of the plan are whole %j',
    async (json) => {
      const folder = join(root, `full${json.join('')}`);
      const run = full([...plan(folder), ...json]);
      expect(run.stderr).toMatch(
        /^<stdout>: E_IO cannot write the answer to stdout: ENOSPC.*\n {2}hint: .*\n$/,
      );
      expect(run.status).toBe(2);
      expect(readdirSync(folder).sort()).toEqual(FILES);
      expect((await cli('check-plan', folder)).code).toBe(0);
    },
  );

  it('of help and of a short answer is the same', () => {
    for (const args of FULL ? [['--help'], ['hardware', 'list']] : [['hardware', 'list']]) {
      const run = full([...COMMAND, ...args]);
      expect([args, run.status]).toEqual([args, 2]);
      expect(run.stderr).toContain('E_IO cannot write the answer to stdout: ENOSPC');
    }
  });

  it.runIf(FULL)('with stderr there as well still ends with its code and the files', () => {
    const device = openSync('/dev/full', 'w');
    const folder = join(root, 'both');
    expect(full(plan(folder), device).status).toBe(2);
    closeSync(device);
    expect(readdirSync(folder).sort()).toEqual(FILES);
  });
});

describe('a reader that stops early', () => {
  it('costs no file, and is not an error', async () => {
    const folder = join(root, 'early');
    const run = spawnSync(
      'bash',
      ['-c', '"$@" | true; echo ${PIPESTATUS[0]}', 'bash', process.execPath, ...plan(folder)],
      { encoding: 'utf8' },
    );
    expect([run.stdout, run.stderr]).toEqual(['0\n', '']);
    expect(readdirSync(folder).sort()).toEqual(FILES);
    expect((await cli('check-plan', folder)).code).toBe(0);
  });
});
