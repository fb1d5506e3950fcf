import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { describe, expect, it } from 'vitest';

import { runCli } from '../../../../src/cli/program.ts';
import { Deadline } from '../../../../src/plan/request/deadline.ts';
import type { Planning } from '../../../../src/sweep/planning/planning.ts';
import { temporaryFolder } from '../../../support/temporary-folder.ts';
import { cli } from '../../support.ts';

const QUESTIONS = `
models: [gpt2]
clusters:
  - { name: own.json, price: 3EUR }
  - { name: dgx-b200, devices: 8, price: 5EUR }
devices: 8
sequences: 1024
globalBatches: [16]
tokens: 100B
plans: [fsdp]
`;

function written(): string {
  const at = temporaryFolder();
  writeFileSync(join(at, 'questions.yaml'), QUESTIONS);
  writeFileSync(join(at, 'own.json'), '{"base": "dgx-h100", "operation": {"pue": 1.2}}');
  return at;
}
const run = (at: string, out: string, ...more: string[]): ReturnType<typeof cli> =>
  cli(
    'compare',
    '--sweep',
    join(at, 'questions.yaml'),
    '-o',
    join(at, out),
    '--quiet',
    '--threads',
    '1',
    ...more,
  );

describe('compare --sweep', () => {
  it('asks every question once, keeps each answer, and goes on from those that are there', async () => {
    const at = written();
    const first = await run(at, 'a', '--json');
    expect(first.code, first.err).toBe(0);
    const { points } = JSON.parse(first.out) as Planning;
    expect(
      points.map(
        (p) =>
          `${p.model} ${p.cluster} ${p.devices} ${p.globalBatch} ${p.run?.price?.currency ?? ''}`,
      ),
    ).toEqual(['gpt2 own 8 16 EUR', 'gpt2 dgx-b200 8 16 EUR']);
    const files = readdirSync(join(at, 'a')).sort();
    expect(files).toHaveLength(3);
    const listed = async (out: string): Promise<unknown> =>
      JSON.parse((await run(at, out, '--list', '--json')).out);
    const ids = ['gpt2--own--8--1024--16', 'gpt2--dgx-b200--8--1024--16'];
    expect(await listed('a')).toEqual(ids.map((id) => ({ id, answered: true })));
    expect(await listed('none')).toEqual(ids.map((id) => ({ id, answered: false })));
    expect(existsSync(join(at, 'none'))).toBe(false);
    // An answer that is cut off is asked again, and nothing else.
    const kept = statSync(join(at, 'a', files[1])).mtimeMs;
    writeFileSync(join(at, 'a', files[0]), '{"version"');
    const again = await run(at, 'a', '--json');
    expect(again.err).toContain('1 asked, 1 answered before');
    expect(again.out).toBe(first.out);
    expect(statSync(join(at, 'a', files[1])).mtimeMs).toBe(kept);
    // Parts on other machines give the same bytes.
    for (const part of ['1/2', '2/2']) expect((await run(at, 'b', '--slice', part)).code).toBe(0);
    for (const file of files.filter((name) => name !== 'planning.json'))
      expect(readFileSync(join(at, 'b', file), 'utf8')).toBe(
        readFileSync(join(at, 'a', file), 'utf8'),
      );
    expect((await run(at, 'b')).err).toContain('0 asked, 2 answered before');
    expect(readFileSync(join(at, 'b', 'planning.json'), 'utf8')).toBe(
      readFileSync(join(at, 'a', 'planning.json'), 'utf8'),
    );
    // The folder of other questions is refused.
    writeFileSync(join(at, 'questions.yaml'), QUESTIONS.replace('3EUR', '4EUR'));
    const other = await run(at, 'a');
    expect([other.code, other.err]).toEqual([
      2,
      expect.stringContaining('the file answers another question'),
    ]);
  }, 120_000);

  it('does not keep an answer that was cut short', async () => {
    const at = written();
    writeFileSync(
      join(at, 'questions.yaml'),
      'models: [gpt2]\nclusters: [dgx-h100]\ndevices: 8\nsequences: 1024\nglobalBatches: 16\n',
    );
    const file = join(at, 'out', 'gpt2--dgx-h100--8--1024--16.json');
    let out = '';
    const stop = new AbortController();
    await runCli(
      ['compare', '--sweep', join(at, 'questions.yaml'), '-o', join(at, 'out'), '--json'].concat(
        '--quiet --threads 1'.split(' '),
      ),
      { stdout: (text) => void (out += text), stderr: () => undefined, isTerminal: false },
      {
        deadline: (limitSeconds) => new Deadline(limitSeconds, { signal: stop.signal }),
        // There are first plans, and programs that are not priced yet.
        answers: () => stop.abort(),
      },
    );
    const [point] = (JSON.parse(out) as Planning).points;
    expect(point.stopped).toBe('interrupted');
    expect(point.best).not.toBeNull();
    expect(existsSync(file)).toBe(false);
    const { out: listed } = await run(at, 'out', '--list', '--json');
    expect(JSON.parse(listed)).toMatchObject([{ answered: false }]);
  }, 240_000);

  it.each([
    ['models: [gpt2]', 'clusters: found nothing, wanted a list of names, or of { name:'],
    [
      'models: [gpt2]\nclusters: [dgx-h100]\ndevice: 8',
      "the file: unknown key 'device'\n  hint: did you mean 'devices'",
    ],
    [
      'models: [gpt2]\nclusters: [{name: dgx-h100, prize: 3EUR}]\ndevices: 8',
      "clusters.0: unknown key 'prize'",
    ],
    [
      'models: [gpt2]\nclusters: [{name: dgx-h100, price: 3}]\ndevices: 8',
      'clusters.0.price: found 3, wanted an amount with its currency',
    ],
    [
      'models: [gpt2]\nclusters: [{name: dgx-h100, price: 3EURO}]\ndevices: 8',
      'clusters.0.price: found "3EURO", wanted an amount with its currency',
    ],
    [
      'models: [gpt2]\nclusters: [{name: dgx-h100, price: 3EUR}]\ndevices: 8',
      'clusters: a price is of a whole run, and no tokens are stated: write tokens: 15T',
    ],
    [
      'models: gpt2\nclusters: [dgx-h100]\ndevices: 8',
      'models: found "gpt2", wanted a list of names',
    ],
    [
      'models: [gpt2]\nclusters: [dgx-h100]\ndevices: [8, eight]',
      'devices.1: found "eight", wanted whole numbers from 1 on',
    ],
    [
      'models: [gpt2]\nclusters: [dgx-h100]\ndevices: 8\ntimeLimitSeconds: -1',
      'timeLimitSeconds: found -1, wanted seconds above 0',
    ],
    ['models: [gpt2]\nclusters: [dgx-h9]\ndevices: 8', 'dgx-h9'],
    [
      'models: [gpt2]\nclusters: [dgx-h100]\ndevices: 8\nplans: [fsdq]',
      "there is no recipe 'fsdq'",
    ],
    [
      'models: [gpt2]\nclusters: [dgx-h100]\ndevices: 8\ntokens: 15X',
      "tokens '15X' is not a number of tokens",
    ],
    ['- gpt2', 'the file: found ["gpt2"], wanted keys such as models'],
    [
      'models: [gpt2]\nclusters: [{name: dgx-h100, price: 3EUR}, dgx-b200]\ndevices: 8',
      'some clusters state a price',
    ],
    ['models: [gtp2]\nclusters: [dgx-h100]\ndevices: 8', "'gtp2' is not a model by name or config"],
    ['models: [gpt2]\nclusters: [dgx-h100]', 'no number of devices for dgx-h100'],
    ['models: [gpt2, gpt2]\nclusters: [dgx-h100]\ndevices: 8', 'is asked twice'],
    ['models: [', 'not YAML'],
    ['a: &a [1]\nmodels: *a', 'not YAML'],
  ])('%s is refused', async (text, found) => {
    const at = written();
    writeFileSync(join(at, 'questions.yaml'), text);
    const { code, err } = await run(at, 'a');
    expect(code).toBe(2);
    expect(err).toContain(found);
  });

  it('needs a folder, and no model', async () => {
    expect((await cli('compare', '--sweep', 'q.yaml')).err).toContain('--sweep needs a folder');
    expect((await cli('compare', 'gpt2', '--sweep', 'q.yaml')).err).toContain('gpt2 is named too');
  });
});
