import { describe, expect, it } from 'vitest';

import type { Redistribution } from '../../../../src/cli/commands/tools/redistribute.ts';
import { cli } from '../../support.ts';

const ON = ['--mesh', 'a=2,b=2', '--shape', '8,8', '--dtype', 'f32', '--cost', 'dtensor'] as const;

async function json(...argv: readonly string[]): Promise<Redistribution> {
  const run = await cli('redistribute', ...argv, '--json');
  expect(run.code, run.out + run.err).toBe(0);
  return JSON.parse(run.out) as Redistribution;
}

describe('redistribute', () => {
  it('prints the plan and its time', async () => {
    const run = await cli('redistribute', 'S(0)S(1)', 'S(1)S(0)', ...ON, '--no-merge');
    expect(run.code).toBe(0);
    expect(run.err).toBe('');
    expect(run.out).toMatchInlineSnapshot(`
      "S(0)S(1)->RS(1)->RR->S(1)R->S(1)S(0)
      14.402 µs (dtensor on dgx-h100), 2 collectives, at most 256 B of it on a device

      step        mesh dims  devices  bytes       time
      all_gather  a                2  128 B  7.2007 µs
      all_gather  b                2  256 B  7.2014 µs
      slice       a                2  128 B        0 s
      slice       b                2    0 B        0 s

      PyTorch by default: 15.401 µs, 2 collectives
        S(0)S(1)->S(0)R->S(1)R->S(1)S(0)
      "
    `);
  });

  it('--json prints the plan with kind, group and bytes of each step', async () => {
    const found = await json('S(0)S(1)', 'S(1)S(0)', ...ON, '--no-merge');
    expect(found.plan).toBe('S(0)S(1)->RS(1)->RR->S(1)R->S(1)S(0)');
    expect(found.seconds * 1e6).toBeCloseTo(14.402, 3);
    expect(found.steps.map((s) => [s.kind, s.meshDims, s.groupSize, s.bytes])).toEqual([
      ['all_gather', ['a'], 2, 128],
      ['all_gather', ['b'], 2, 256],
      ['slice', ['a'], 2, 128],
      ['slice', ['b'], 2, 0],
    ]);
    expect(found.steps.reduce((sum, s) => sum + s.seconds, 0)).toBe(found.seconds);
    expect(found.greedy?.seconds).toBeGreaterThan(found.seconds);
  });

  it('a permutation lists who sends to whom; no default plan for other orders', async () => {
    const found = await json('S(0)S(0)', '_S(0, 2)S(0)', ...ON);
    expect(found.plan).toBe('S(0)[0]S(0)[1]-->S(0)[1]S(0)[0]');
    expect(found.steps[0].pairs).toEqual([
      [0, 0],
      [1, 2],
      [2, 1],
      [3, 3],
    ]);
    expect(found.greedy).toBeNull();
  });

  it('reads einshard, long forms and dims from the end; presets differ', async () => {
    const text = await json(
      'a b -> a2 b2',
      'Replicate() Shard(dim=-1)',
      '--mesh',
      'a=2,b=2',
      '--shape',
      '8,8',
    );
    expect(text.plan).toBe('S(0)S(1)->RS(1)');
    const priced = await json('S(0)R', 'RR', ...ON);
    expect(priced.seconds).not.toBe(
      (await json('S(0)R', 'RR', '--mesh', 'a=2,b=2', '--shape', '4096,4096')).seconds,
    );
  });

  it('under autoparallel says what runs and what a plan is charged', async () => {
    const given = [
      '--mesh',
      'a=8,b=8',
      '--shape',
      '512,128,128',
      '--dtype',
      'f32',
      '--cost',
      'autoparallel',
    ] as const;
    const run = await cli('redistribute', 'S(0)S(0)', 'RR', ...given);
    expect(run.out).toContain('313.82 µs (autoparallel on dgx-h100), 1 collective');
    expect(run.out).toContain(
      "271.72 µs charged in a plan, by the preset's formula for a contiguous tensor",
    );
    expect((await json('RS(0)', 'S(0)S(0)', ...given)).chargedSeconds).toBe(0);
    expect((await json('RR', 'P(sum)R', ...given)).chargedSeconds).toBe(null);
    expect(await json('RR', 'P(sum)R', ...ON)).not.toHaveProperty('chargedSeconds');
  });

  it('an uneven strided list stays what it says', async () => {
    const odd = await json('_S(0, 2)S(0)', 'RR', '--mesh', 'dp=3,tp=2', '--shape', '7');
    expect(odd.plan).toBe('_S(0, 2)S(0)->_S(0, 2)R->RR');
    const even = await json('_S(0, 2)S(0)', 'RR', '--mesh', 'dp=3,tp=2', '--shape', '12');
    expect(even.plan.startsWith('S(0)[1]S(0)[0]')).toBe(true);
  });

  it.each([
    [
      ['S(0)S(1)', 'RX'],
      ['1:2: E_SYNTAX', 'column 2', "got 'X'"],
    ],
    [
      ['S(0)', 'RR'],
      ["'S(0)' has 1 placement", 'mesh a=2,b=2 has 2 dims'],
    ],
    [
      ['S(2)R', 'RR'],
      ['E_SYNTAX', '2-D'],
    ],
    [
      ['S(0)R', 'P(sum)R'],
      [
        "on mesh dim 'a' S(0) does not become P(sum)",
        'hint: go to R first',
        'S(0) -> R, then R -> P(sum)',
      ],
    ],
    [
      ['P(sum)R', 'P(avg)R'],
      ['P(sum) does not become P(avg)', 'P(sum) -> R, then R -> P(avg)'],
    ],
    [
      ['RR', 'P(bor)R'],
      ['R does not become P(bor)', 'equal values are not its operands'],
    ],
    [
      ['Ragged(0, [2, 1], 3)R', 'RR'],
      ["mesh dim 'a'", '9 rows in all, the dim has 8'],
    ],
  ])('refuses %j with the reason', async (argv, words) => {
    const run = await cli('redistribute', ...argv, ...ON);
    expect(run.code, run.out).toBe(2);
    expect(run.out).toBe('');
    for (const word of words) expect(run.err).toContain(word);
  });

  it.each([
    ['--shape', '8,x', "size 1 is 'x'"],
    ['--dtype', 'f33', "did you mean 'f32'"],
    ['--mesh', 'a=2,b', 'column 5'],
    ['--cost', 'dtenso', "did you mean 'dtensor'"],
    ['--cluster', 'dgx-h10', "did you mean 'dgx-h100'"],
  ])('%s %s is refused', async (flag, value, word) => {
    const run = await cli('redistribute', 'S(0)R', 'RR', ...ON, flag, value);
    expect(run.code).toBe(2);
    expect(run.err).toContain(word);
  });

  it('has help with an example', async () => {
    const run = await cli('redistribute', '--help');
    expect(run.code).toBe(0);
    expect(run.out).toContain('$ shardwright redistribute');
  });
});
