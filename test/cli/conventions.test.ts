import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { readPlan } from '../../src/plan/record/schema.ts';
import { cli, fixture } from './support.ts';

/**
 * What every command holds to: did-you-mean, one JSON value whatever happens, exit codes, nothing
 * but text in pipes.
 */
let root = '';
let locked = '';
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), 'shardwright-conventions-'));
  locked = join(root, 'locked.fx.txt');
  writeFileSync(locked, 'x');
  chmodSync(locked, 0);
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const MLP = fixture('mlp-loss');
const ON = ['--mesh', 'dp=4', '--cluster', 'dgx-h100'];

describe('a slip is exit 2, says the right word, and is one JSON value with --json', () => {
  it.each<[string, () => readonly string[], readonly string[]]>([
    ['comapre', () => ['comapre', MLP], ["did you mean 'compare'?"]],
    [
      '--cluster dgx-h1000',
      () => ['plan', MLP, '--mesh', 'dp=4', '--cluster', 'dgx-h1000'],
      ["did you mean 'dgx-h100' or 'dgx-h200'"],
    ],
    [
      '--cluster dgx-h1000 of compare',
      () => ['compare', MLP, '--devices', '8', '--cluster', 'dgx-h1000'],
      ["did you mean 'dgx-h100' or 'dgx-h200'"],
    ],
    [
      '--plans fspd',
      () => ['compare', MLP, '--devices', '8', '--cluster', 'dgx-h100', '--plans', 'fspd'],
      ["did you mean 'fsdp'?"],
    ],
    [
      '--plans fspd of a model by name',
      () => [
        'compare',
        'llama-3.2-1b',
        '--devices',
        '8',
        '--cluster',
        'dgx-h100',
        '--plans',
        'fspd',
        '--quiet',
      ],
      ["did you mean 'fsdp'"],
    ],
    ['models shwo', () => ['models', 'shwo', 'gpt2'], ["did you mean 'show'?"]],
    ['hardware dgx-h100', () => ['hardware', 'dgx-h100'], ['its commands are list, show']],
    [
      'a model and a word too many',
      () => ['plan', MLP, 'dp=4', ...ON],
      ["plan takes <model> alone, and 'dp=4' is left over"],
    ],
    ['--memory 60', () => ['plan', MLP, ...ON, '--memory', '60'], ['--memory', '60GiB', '60GB']],
    [
      'a file that is not there',
      () => ['plan', join(root, 'absent.fx.txt'), ...ON],
      [join(root, 'absent.fx.txt')],
    ],
    ['a folder for a file', () => ['plan', root, ...ON], [root]],
    [
      'a merge of nothing',
      () => ['compare', '--merge', join(root, 'absent.json')],
      [join(root, 'absent.json')],
    ],
  ])('%s', async (_, words, says) => {
    const [plain, json] = [await cli(...words()), await cli(...words(), '--json')];
    expect([plain.code, json.code]).toEqual([2, 2]);
    expect(plain.out).toBe('');
    for (const text of says) expect(plain.err).toContain(text);
    const { error } = JSON.parse(json.out) as {
      error: { code: string; message: string; hint?: string };
    };
    expect(error.code).toMatch(/^E_[A-Z_]+$/);
    // Nothing that a person is told is kept from a program.
    const told = JSON.stringify(error);
    for (const text of says) expect(told).toContain(JSON.stringify(text).slice(1, -1));
  });

  it.skipIf(process.getuid?.() === 0)(
    'a file that may not be read (skipped for root, who may)',
    async () => {
      const run = await cli('plan', '-v', locked, ...ON);
      expect([run.code, run.out]).toEqual([2, '']);
      expect(run.err).toContain(locked);
    },
  );
});

describe('what is listed needs no argument', () => {
  it.each(['hardware', 'models', 'recipes'])('%s is %s list', async (group) => {
    for (const json of [[], ['--json']]) {
      const [short, long] = [await cli(group, ...json), await cli(group, 'list', ...json)];
      expect([short.code, short.err]).toEqual([0, '']);
      expect(short.out).toBe(long.out);
      expect(short.out.length).toBeGreaterThan(500);
    }
  });

  it('export lists its targets, each with what it was tried with or nothing in its place', async () => {
    const { code, out } = await cli('export');
    expect(code).toBe(0);
    expect(out).toMatch(/^torch {9}.* \(torch \d/m);
    expect(out).not.toMatch(/ \(\)$/m);
  });
});

describe('exit codes, each by a command of the documentation', () => {
  it('the help lists the exit codes', async () => {
    const { out, code } = await cli('--help');
    expect(code).toBe(0);
    expect(out).toMatch(/Exit codes: 0 ok, 1 .*, 2 .*, 3 .*, 4 /);
  });

  it('an infeasible budget exits 3 and names a budget that works, and the plan of that budget exits 0', async () => {
    const plan = ['plan', MLP, ...ON, '--no-recipes'] as const;
    const none = await cli(...plan, '--memory', '1B');
    expect([none.code, none.out]).toEqual([3, '']);
    const [, needed] = /none needs less than (.*), activations included/.exec(none.err)!;
    const [, bytes] = /a plan of .* is known \((\d+) bytes\)/.exec(none.err)!;
    const fits = await cli(...plan, '--memory', `${bytes}B`, '--json');
    expect([0, 4]).toContain(fits.code);
    expect(readPlan(fits.out).memory.peakBytes).toBeLessThanOrEqual(Number(bytes));
    expect(
      (await cli(...plan, '--memory', needed.replace(' ', ''), '--time-limit', '5')).code,
    ).not.toBe(0);
  });

  it('bad input exits 2, too little memory for the states exits 3 with the least budget, and that budget exits 0', async () => {
    const plan = ['plan', MLP, ...ON, '--no-recipes', '--activations', 'report'] as const;
    expect((await cli(...plan, '--memory', '60')).code).toBe(2);
    const none = await cli(...plan, '--memory', '1B');
    expect([none.code, none.out]).toEqual([3, '']);
    const [, bytes] = /the smallest budget that works is .* \((\d+) bytes\)/.exec(none.err)!;
    const fits = await cli(...plan, '--memory', `${bytes}B`, '--json');
    expect(fits.code, fits.err).toBe(0);
    expect(readPlan(fits.out).memory.peakBytes).toBeLessThanOrEqual(Number(bytes));
    expect((await cli(...plan, '--memory', `${Number(bytes) - 1}B`)).code).toBe(3);
  });

  it('what is piped has no escape sequence and no carriage return', async () => {
    const runs = [
      await cli('plan', '-v', MLP, ...ON),
      await cli('compare', MLP, '--devices', '4', '--cluster', 'dgx-h100', '--max-dims', '1'),
      await cli('hardware', 'list'),
      await cli('recipes', 'list'),
      await cli('plan', '-v', MLP, ...ON, '--memory', '1B'),
    ];
    for (const { out, err } of runs) {
      expect(out + err).not.toBe('');
      expect(out + err).not.toMatch(/[\u001b\r]/);
    }
  });
});
