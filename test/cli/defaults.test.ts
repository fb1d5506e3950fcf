import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeEach, describe, expect, it } from 'vitest';

import { runCli } from '../../src/cli/program.ts';
import { unwatched } from '../../src/cli/thread/run-control.ts';
import { type CliRun, fixture } from './support.ts';

/** Defaults of flags by a file and a variable, and what goes before them. */

const root = mkdtempSync(join(tmpdir(), 'shardwright-defaults-'));
const inner = join(root, 'work', 'inner');
beforeEach(() => {
  rmSync(root, { recursive: true, force: true });
  mkdirSync(join(root, '.git'), { recursive: true });
  mkdirSync(inner, { recursive: true });
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const file = (text: string, folder = root): void =>
  writeFileSync(join(folder, '.shardwright.yaml'), text);

async function at(
  folder: string,
  cluster: string | undefined,
  ...argv: readonly string[]
): Promise<CliRun> {
  let [out, err] = ['', ''];
  const streams = {
    stdout: (text: string): void => void (out += text),
    stderr: (text: string): void => void (err += text),
    isTerminal: false,
  };
  const code = await runCli(argv, streams, unwatched(), { folder, cluster });
  return { code, out, err };
}

const PLAN = ['plan', fixture('mlp'), '--no-recipes', '--json'];
interface Planned {
  readonly cluster: string;
  readonly mesh: readonly { readonly size: number }[];
  readonly request: { readonly optimizer?: string };
}
const planned = ({ out, err, code }: CliRun): Planned => {
  expect(code, err).toBe(0);
  return JSON.parse(out) as Planned;
};

describe('defaults of a place', () => {
  it('are those of the file in the folder or above it in the repository, and are printed', async () => {
    file('cluster: dgx-a100-80gb\noptimizer: sgd\n');
    const run = await at(inner, undefined, ...PLAN, '--mesh', 'dp=2');
    expect(planned(run)).toMatchObject({
      cluster: 'dgx-a100-80gb',
      request: { optimizer: 'sgd' },
    });
    const name = '../../.shardwright.yaml';
    expect(run.err).toContain(
      `defaults: --cluster dgx-a100-80gb (${name}), --optimizer sgd (${name})\n`,
    );
    const quiet = await at(inner, undefined, ...PLAN, '--mesh', 'dp=2', '--quiet');
    expect(quiet.err).toBe('');
    expect(planned(quiet).cluster).toBe('dgx-a100-80gb');
  });

  it('give way to the variable, and that to the command line', async () => {
    file('cluster: dgx-a100-80gb\n');
    const variable = await at(root, 'dgx-h200', ...PLAN, '--mesh', 'dp=2');
    expect(planned(variable).cluster).toBe('dgx-h200');
    expect(variable.err).toContain('--cluster dgx-h200 (SHARDWRIGHT_CLUSTER)');
    const typed = await at(root, 'dgx-h200', ...PLAN, '--mesh', 'dp=2', '--cluster', 'dgx-h100');
    expect(planned(typed).cluster).toBe('dgx-h100');
    expect(typed.err).not.toContain('defaults');
    const kinds = await at(root, 'dgx-h200', ...PLAN, '--devices', '2xA100');
    expect(planned(kinds).cluster).toBe('dgx-a100-80gb');
  });

  it('of the mesh give way to devices that are typed', async () => {
    file('mesh: dp=4\ncluster: dgx-h100\n');
    const devices = await at(root, undefined, ...PLAN, '--devices', '2');
    expect(planned(devices).mesh.reduce((n, { size }) => n * size, 1)).toBe(2);
    expect(devices.err).not.toContain('--mesh');
  });

  it('outside of a repository are of the folder alone', async () => {
    rmSync(join(root, '.git'), { recursive: true });
    file('cluster: dgx-h100\n');
    expect((await at(inner, undefined, ...PLAN, '--mesh', 'dp=2')).code).toBe(2);
    expect((await at(root, undefined, ...PLAN, '--mesh', 'dp=2')).code).toBe(0);
  });

  it('name files as seen from their own', async () => {
    writeFileSync(join(root, 'ours.json'), JSON.stringify({ base: 'dgx-h100', id: 'ours' }));
    file('cluster: ours.json\n');
    const run = await at(inner, undefined, ...PLAN, '--mesh', 'dp=2');
    expect(planned(run).cluster).toBe('ours');
  });

  it.each([
    ['clutser: h100', ":1:1: E_INPUT there is no flag 'clutser'", "did you mean 'cluster'?"],
    ['seq: 4096\nops: a.ts', ":2:1: E_INPUT 'ops' is for the command line alone", 'cluster'],
    ['compiled: 3', ":1:1: E_INPUT 'compiled' is 3, not true or false", 'cluster'],
    ['cluster:\n  a: 1', ':1:1: E_INPUT \'cluster\' is {"a":1}, not text or number', 'seq'],
    ['- cluster', ': E_INPUT no flags are in it', 'cluster: h100'],
    ['cluster: [', 'E_INPUT not YAML', 'cluster: h100'],
  ])('%j is refused with its place', async (text, says, hint) => {
    file(text);
    const run = await at(root, undefined, ...PLAN, '--mesh', 'dp=2');
    expect([run.code, JSON.parse(run.out)]).toEqual([2, { error: expect.anything() as unknown }]);
    const plain = await at(root, undefined, 'plan', fixture('mlp'), '--mesh', 'dp=2');
    expect(plain.err).toMatch(/^\.shardwright\.yaml/);
    expect(plain.err).toContain(says);
    expect(plain.err).toContain(hint);
  });

  it('are not a concern of a command without such a flag', async () => {
    file('cluster: dgx-h100\n');
    const { code, err } = await at(root, 'dgx-h200', 'models', 'show', 'gpt2');
    expect([code, err]).toEqual([0, '']);
  });
});
