import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { cli, fixture } from '../../support.ts';

/** An answer has a time in it (`solveSeconds`): equal bytes are those of the first run. */
let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const PLAN = ['plan', fixture('mlp-loss'), '--mesh', 'dp=4', '--cluster', 'dgx-h100', '--quiet'];

/** The files of a folder by name. */
function filesOf(path: string): Record<string, string> {
  return Object.fromEntries(
    readdirSync(path).map((name) => [name, readFileSync(join(path, name)).toString('base64')]),
  );
}

describe('plan --cache', () => {
  it.each([
    ['as text', []],
    ['as JSON', ['--json']],
  ] as const)('answers the same question with the same bytes, %s', async (name, flags) => {
    const cache = join(folder, `cache ${name}`);
    const [out, other] = [join(folder, `a ${name}`), join(folder, `b ${name}`)];
    const first = await cli(...PLAN, ...flags, '--cache', cache, '-o', out);
    expect(first.code, first.err).toBe(0);
    expect(readdirSync(cache)).toEqual([expect.stringMatching(/^[0-9a-f]{64}\.json\.gz$/)]);
    const again = await cli(...PLAN, ...flags, '--cache', cache, '-o', other);
    expect([again.code, again.err]).toEqual([first.code, first.err]);
    expect(again.out).toBe(first.out.replaceAll(out, other));
    expect(filesOf(other)).toEqual(filesOf(out));
  });

  it('tells questions apart: another mesh, another flag, another output', async () => {
    const cache = join(folder, 'apart');
    const asked = [
      PLAN,
      [...PLAN, '--json'],
      [...PLAN, '--no-recipes'],
      [...PLAN, '--memory', '40GiB'],
    ];
    asked.push(PLAN.map((word) => (word === 'dp=4' ? 'dp=8' : word)));
    for (const [k, words] of asked.entries()) {
      expect((await cli(...words, '--cache', cache)).code).toBe(0);
      expect(readdirSync(cache).length).toBe(k + 1);
    }
  });

  it('keeps no answer that a time limit may have cut short', async () => {
    const cache = join(folder, 'limited');
    expect((await cli(...PLAN, '--cache', cache, '--time-limit', '600')).code).toBe(0);
    expect(existsSync(cache)).toBe(false);
  });

  it('says that an entry is damaged, and makes the plan again', async () => {
    const cache = join(folder, 'damaged');
    const first = await cli(...PLAN, '--json', '--cache', cache);
    const path = join(cache, readdirSync(cache)[0]);
    for (const damage of [Buffer.from('no gzip'), readFileSync(path).subarray(0, 100)]) {
      writeFileSync(path, damage);
      const run = await cli(...PLAN, '--json', '--cache', cache);
      expect([run.code, run.err]).toEqual([
        0,
        `cache  ${path} is damaged: the plan is made again\n`,
      ]);
      const timeless = (text: string): string => text.replaceAll(/"solveSeconds":[\d.e-]+/g, '');
      expect(timeless(run.out)).toBe(timeless(first.out));
      expect((await cli(...PLAN, '--json', '--cache', cache)).out).toBe(run.out);
    }
  });

  it('refuses flags that ask for more than one plan', async () => {
    const run = await cli(...PLAN, '--frontier', '--cache', join(folder, 'none'));
    expect([run.code, run.out]).toEqual([2, '']);
    expect(run.err).toMatch(/^E_USAGE --cache keeps single plans, and --frontier asks for more/);
  });
});
