import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, describe, expect, it } from 'vitest';

import {
  acceleratorNames,
  clusterNames,
  loadCluster,
} from '../../src/cost/hardware/load-cluster.ts';
import { cli } from './support.ts';

/** The words that may come next, and the scripts, each run by its shell. */

const root = mkdtempSync(join(tmpdir(), 'shardwright-completion-'));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const next = async (...words: readonly string[]): Promise<readonly string[]> => {
  const { code, out, err } = await cli('complete', '--', ...words);
  expect([code, err]).toEqual([0, '']);
  return out.split('\n').flatMap((line) => (line === '' ? [] : [line.split('\t')[0]]));
};

describe('what may come next', () => {
  it('at the beginning is every command of the help, and no hidden one', async () => {
    const { out } = await cli('--help');
    const commands = [...out.matchAll(/^ {2}([a-z][a-z-]+) .* {2}/gm)].map(([, name]) => name);
    expect(commands.length).toBeGreaterThan(25);
    expect([...(await next(''))].sort()).toEqual([...new Set(commands)].sort());
  });

  it('after a dash is every flag of the command that is not there yet', async () => {
    const flags = await next('plan', 'gpt2', '--mesh', 'dp=8', '--pin', 'a=R', '--');
    const { out } = await cli('plan', '--help-all');
    const all = [...out.matchAll(/^ {2}(?:-\w, )?(--[a-z-]+)/gm)].map(([, flag]) => flag);
    expect([...flags, '--mesh'].sort()).toEqual([...all].sort());
  });

  it.each<[readonly string[], readonly string[]]>([
    [
      ['models', ''],
      ['list', 'show', 'help'],
    ],
    [
      ['plan', 'llama-3.2'],
      ['llama-3.2-1b', ':files'],
    ],
    [
      ['models', 'show', 'gpt2-'],
      ['gpt2-medium', 'gpt2-large', 'gpt2-xl'],
    ],
    [
      ['plan', 'gpt2', '--objective', ''],
      ['time', 'serial', 'parameter-memory'],
    ],
    [['report', 'plan', '--format', 'm'], ['md']],
    [['plan', 'gpt2', '--calibration', ''], [':files']],
    [['plan', 'gpt2', '-o', ''], [':files']],
    [['diff', 'a', ''], [':files']],
    [['diff', 'a', 'b', ''], []],
    [
      ['completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
    [['export', 'plan', '--target', 'torch-'], ['torch-dtensor']],
    [['plan', 'gpt2', '--devices', '16xH1'], ['16xH100']],
    [['compare', 'gpt2', '--devices', '8xmi325'], ['8xmi325x']],
    [['plan', 'gpt2', '--devices', '16'], []],
  ])('after %j is %j', async (words, wanted) => {
    expect(await next(...words)).toEqual(wanted);
  });

  it('after --cluster is every cluster, every accelerator that is a name of one, or a file', async () => {
    const all = await next('plan', 'gpt2', '--cluster', '');
    expect(all).toEqual([...clusterNames(), ...acceleratorNames(), ':files']);
    for (const name of acceleratorNames()) expect(() => loadCluster(name)).not.toThrow();
  });
});

/** A `shardwright` on the path: this one. */
const bin = join(root, 'bin');
mkdirSync(bin);
const command = join(bin, 'shardwright');
const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
writeFileSync(command, `#!/bin/sh\nexec '${process.execPath}' '${main}' "$@"\n`);
chmodSync(command, 0o755);
writeFileSync(join(root, 'a model.fx.txt'), '');

/** The script of a shell in a file, to be read as `completion` says. */
async function script(of: string): Promise<string> {
  const { code, out } = await cli('completion', of);
  expect(code).toBe(0);
  const path = join(root, `completion.${of}`);
  writeFileSync(path, out);
  return path;
}

function shell(program: string, ...words: readonly string[]): readonly string[] {
  const { stdout, stderr, status } = spawnSync(program, words, {
    cwd: root,
    encoding: 'utf8',
    env: { PATH: `${bin}:${process.env['PATH'] ?? ''}`, HOME: root, TERM: 'dumb' },
  });
  expect([status, stderr]).toEqual([0, '']);
  return stdout.split('\n').filter((line) => line !== '');
}

const has = (program: string): boolean =>
  (process.env['PATH'] ?? '').split(':').some((folder) => existsSync(join(folder, program)));

describe('the script of', () => {
  it.skipIf(!has('bash'))('bash completes commands, names and files with blanks', async () => {
    const path = await script('bash');
    const completed = (...line: readonly string[]): readonly string[] =>
      shell(
        'bash',
        '-c',
        `source '${path}'; COMP_WORDS=(shardwright "$@"); ` +
          `COMP_CWORD=$#; _shardwright shardwright "\${!#}"; printf '%s\\n' "\${COMPREPLY[@]}"`,
        'bash',
        ...line,
      );
    expect(completed('rep')).toEqual(['report']);
    expect(completed('models', 'show', 'gpt2-x')).toEqual(['gpt2-xl']);
    expect(completed('plan', 'a mo')).toEqual(['a model.fx.txt']);
  });

  it.skipIf(!has('fish'))('fish completes commands and names, each with what it is', async () => {
    const path = await script('fish');
    const completed = (line: string): readonly string[] =>
      shell('fish', '-c', `source '${path}'; complete -C '${line}'`);
    expect(completed('shardwright rep')[0]).toMatch(/^report\ta plan or a comparison/);
    expect(completed('shardwright models show gpt2-x')).toEqual(['gpt2-xl\tname']);
  });

  it.skipIf(!has('zsh'))('zsh offers commands and names to its own completion', async () => {
    const path = await script('zsh');
    // Without a terminal there is no completion: `_describe` and `_files` say what they are given.
    const completed = (...line: readonly string[]): readonly string[] =>
      shell(
        'zsh',
        '-fc',
        `compdef() {}; _files() { print files }; _describe() { print -l -- "\${(@P)2}" }; ` +
          `source '${path}'; words=(shardwright "$@"); ` +
          `CURRENT=$#words; _shardwright`,
        'zsh',
        ...line,
      );
    expect(completed('rep')[0]).toMatch(/^report:a plan or a comparison/);
    expect(completed('plan', 'llama-3.2-1')).toEqual(['llama-3.2-1b:model', 'files']);
  });

  it('another shell is refused with the three', async () => {
    const { code, err } = await cli('completion', 'bsh');
    expect(code).toBe(2);
    expect(err).toBe(
      "E_USAGE there is no completion for 'bsh'\n  hint: did you mean 'bash' or 'zsh'?\n",
    );
  });
});
