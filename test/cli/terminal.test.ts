import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import manifest from '../../package.json' with { type: 'json' };
import { runCli } from '../../src/cli/program.ts';
import { VERSION } from '../../src/version.ts';
import { cli, fixture } from './support.ts';

/**
 * What comes from outside cannot steer the terminal: titles, colours, erased lines, text that reads
 * backwards.
 */

const EVIL = '\u001b[2K\u001b]0;title\u0007\u009b31m\r\u202eproof';
const SHOWN = '\\u001b[2K\\u001b]0;title\\u0007\\u009b31m\\u000d\\u202eproof';
const OBEYED = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]/;

let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-terminal-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const MLP = fixture('mlp-loss');

describe('control characters are shown, not obeyed', () => {
  const file = (name: string, text: string): string => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };
  const cluster = (): string =>
    file(
      'cluster.json',
      JSON.stringify({
        base: 'dgx-h100',
        id: EVIL.replace('\r', ''),
        name: EVIL.replace('\r', ''),
      }),
    );
  it.each<[string, () => readonly string[]]>([
    ['a file that is not there', () => ['inspect', join(folder, `${EVIL}.fx.txt`)]],
    ['a command', () => [EVIL]],
    ['a flag', () => ['plan', MLP, `--${EVIL}`]],
    ['a value of a flag', () => ['plan', MLP, '--mesh', EVIL, '--cluster', 'dgx-h100']],
    ['a pin', () => ['plan', MLP, '--mesh', 'dp=4', '--cluster', 'dgx-h100', '--pin', `${EVIL}=R`]],
    [
      'the content of a file',
      () => ['inspect', file('evil.fx.txt', `def forward(self, x: "f32[4]"):\n    ${EVIL}\n`)],
    ],
    [
      'a name in a cluster file',
      () => ['plan', MLP, '--mesh', 'dp=4', '--cluster', cluster(), '--no-recipes'],
    ],
    ['a name in a cluster file, shown', () => ['hardware', 'show', cluster()]],
    [
      'an operator of a rules file',
      () => ['inspect', MLP, '--ops', file('evil.json', JSON.stringify({ [EVIL]: EVIL }))],
    ],
    [
      'what a program throws',
      () => [
        'trace',
        file(
          'evil.ts',
          `export const inputs = {};\nexport const model = () => { throw new Error(${JSON.stringify(EVIL)}); };`,
        ),
      ],
    ],
  ])('%s', async (_, words) => {
    for (const argv of [words(), [...words(), '--json']]) {
      const { out, err } = await cli(...argv);
      expect(out + err).not.toBe('');
      expect(out + err).not.toMatch(OBEYED);
      if (out.startsWith('{')) expect(() => JSON.parse(out) as unknown).not.toThrow();
    }
  });

  it('each as its code, and in JSON as the same text', async () => {
    const argv = ['inspect', join(folder, `${EVIL}.fx.txt`)];
    expect((await cli(...argv)).err).toContain(SHOWN);
    const { error } = JSON.parse((await cli(...argv, '--json')).out) as {
      error: { message: string };
    };
    expect(error.message).toContain(EVIL);
  });

  it('a line break in a name does not make a line that passes for ours', async () => {
    const { err } = await cli('inspect', join(folder, 'a\nproof      optimal (gap 0)\n.fx.txt'));
    expect(err).toContain('proof');
    expect(err).not.toMatch(/^proof/m);
    const there = join(folder, 'a\nproof      optimal (gap 0)\n.fx.txt.gz');
    copyFileSync(MLP, there);
    const { code, out } = await cli('inspect', there);
    expect(code).toBe(0);
    expect(out).not.toMatch(/^proof/m);
  });

  it('tables and CSV keep their line ends', async () => {
    expect((await cli('hardware', 'list')).out.split('\n').length).toBeGreaterThan(10);
    const out = join(folder, 'plan');
    await cli(
      'plan',
      '-v',
      MLP,
      '--mesh',
      'dp=4',
      '--cluster',
      'dgx-h100',
      '--no-recipes',
      '-o',
      out,
    );
    expect((await cli('report', out, '--format', 'csv')).out).toMatch(/^kind,name.*\r\n/);
  });
});

describe('progress on a terminal', () => {
  it('is one line, which is gone before the answer', async () => {
    let all = '';
    const write = (text: string): void => void (all += text);
    const argv = [
      'compare',
      'llama-3.2-1b',
      '--devices',
      '2',
      '--cluster',
      'dgx-h100',
      '--plans',
      'dp',
      '--seq',
      '128',
      '--threads',
      '1',
    ];
    await runCli(argv, { stdout: write, stderr: write, isTerminal: true });
    const lines = all.split('\r\u001b[K');
    expect(lines.length).toBeGreaterThan(2);
    for (const line of lines.slice(0, -1)) expect(line).not.toContain('\n');
    expect(lines.at(-1)).toContain('\n');
    expect(lines.at(-1)).not.toMatch(OBEYED);
  });
});

it('the version is that of the package', async () => {
  expect(VERSION).toBe(manifest.version);
  expect((await cli('--version')).out).toBe(`${manifest.version}\n`);
});
