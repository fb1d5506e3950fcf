import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, expect, it } from 'vitest';

import { COMMAND } from '../../../../scripts/command.ts';
import { cli, fixture } from '../../support.ts';

const folder = mkdtempSync(join(tmpdir(), 'shardwright-batch-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Answer {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** What `batch` answers to each line of stdin. */
function batch(...lines: readonly string[]): readonly Answer[] {
  const run = spawnSync(process.execPath, [...COMMAND, 'batch'], {
    input: lines.map((line) => `${line}\n`).join(''),
    encoding: 'utf8',
  });
  expect([run.status, run.stderr]).toEqual([0, '']);
  const [first, ...rest] = run.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, string | number>);
  expect(first).toEqual({ version: 1 });
  const answers: Answer[] = [];
  let [out, err] = ['', ''];
  for (const line of rest) {
    out += line.stdout ?? '';
    err += line.stderr ?? '';
    if (typeof line.code !== 'number') continue;
    answers.push({ code: line.code, out, err });
    [out, err] = ['', ''];
  }
  return answers;
}

const asked = (...argv: readonly string[]): string => JSON.stringify({ argv, cwd: folder });

/** The file of a plan folder without the times that the clock gave. */
const planOf = (name: string): string =>
  readFileSync(join(folder, name, 'plan.json'), 'utf8').replace(/"\w*Seconds":[^,}]*clock/g, '');

it('answers as a process for each command line does, and plans alike the second time', async () => {
  const model = fixture('mlp');
  const plan = (out: string) => [
    'plan',
    model,
    '--mesh',
    'dp=2',
    '--cluster',
    'dgx-h100',
    '--no-recipes',
    '-o',
    out,
    '--json',
  ];
  const [first, again, limited, refused] = batch(
    asked(...plan('first')),
    asked(...plan('again')),
    asked('plan', model, '--mesh', 'dp=2', '--cluster', 'nowhere', '--json'),
    asked('inspect', 'absent.fx.txt'),
  );
  const alone = await cli(...plan(join(folder, 'alone')));
  expect([first?.code, again?.code, alone.code]).toEqual([0, 0, 0]);
  expect(planOf('again')).toBe(planOf('first'));
  expect(planOf('first')).toBe(planOf('alone'));
  expect(limited).toMatchObject({ code: 2, out: expect.stringContaining('E_CLUSTER') as string });
  expect(refused).toMatchObject({
    code: 2,
    err: expect.stringContaining('absent.fx.txt') as string,
  });
});

it('refuses lines that are not a command line, and goes on', () => {
  const answers = batch(
    'plan model',
    '{"argv": "plan"}',
    '{"argv": [], "cwd": "/"}',
    asked('batch'),
    JSON.stringify({ argv: ['rules', '--names'], cwd: join(folder, 'absent') }),
    '',
    asked('rules', '--names'),
  );
  expect(answers.map(({ code }) => code)).toEqual([2, 2, 2, 2, 2, 0]);
  expect(answers[0]?.out).toContain('"code":"E_SYNTAX"');
  expect(answers[3]?.out).toContain('batch runs no batch');
  expect(answers[4]?.out).toContain('"code":"E_IO"');
  expect(answers[5]?.out.split('\n')).toContain('aten.mm.default');
});
