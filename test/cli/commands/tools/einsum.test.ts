import { describe, expect, test } from 'vitest';

import { cli } from '../../support.ts';

const run = async (...argv: readonly string[]): Promise<string> => {
  const { code, out, err } = await cli('einsum', ...argv);
  expect([code, err]).toEqual([0, '']);
  return out;
};

describe('shardwright einsum', () => {
  test('says in words what each letter is, where the result is and what gradients owe', async () => {
    expect(await run('abi,aoi->abo', '--shard', 'x=S(b)', '--axis', 'tp=8')).toMatchInlineSnapshot(`
      "einsum abi,aoi->abo
        a  batch       in x, y and the result; not cut
        b  free        in x and the result; cut on tp: the result is cut; y is broadcast along it, so its gradient sums over it
        i  contraction in x, y; not cut
        o  free        in y and the result; not cut
      result: S(1) on tp
      gradient of x: abo,aoi->abi, S(1) on tp
        owes nothing
      gradient of y: abi,abo->aoi, P on tp
        owes 1 all_reduce on tp: b, cut on tp, is summed over in it
      "
    `);
  });

  test('--json prints classes, result and gradients', async () => {
    const answer = JSON.parse(
      await run('sbi,io->sbo', '--shard', 'y=S(o)', '--axis', 'tp=8', '--json'),
    ) as unknown;
    expect(answer).toMatchObject({
      classes: {
        batch: [],
        contraction: ['i'],
        free: [['s', 'b'], ['o']],
        broadcast: [['o'], ['s', 'b']],
      },
      result: { tp: 'S(2)' },
      gradients: [
        {
          operand: 'x',
          equation: 'sbo,io->sbi',
          states: { tp: 'P' },
          owes: [
            { axis: 'tp', collective: 'all_reduce', because: 'o, cut on tp, is summed over in it' },
          ],
        },
        { operand: 'y', equation: 'sbi,sbo->io', states: { tp: 'S(1)' }, owes: [] },
      ],
    });
    expect((answer as { rules: string[] }).rules).toHaveLength(9);
  });

  test('two mesh dims, one of them strict about a weight that is I', async () => {
    const args = [
      'bh,ho->bo',
      '--shard',
      'x=S(b)R',
      '--shard',
      'y=IS(o)',
      '--axis',
      'dp=2',
      '--axis',
      'tp=4',
    ];
    const strict = await run(...args, '--mode', 'strict');
    expect(strict).toContain('write convert(y, "dp", I→R)');
    expect(strict).toContain('result: refused');
    const auto = await run(...args);
    expect(auto).toContain('y: cast on dp, I → R');
    expect(auto).toContain('result: S(0) on dp, S(1) on tp');
    expect(auto).toContain('owes 1 all_reduce on dp: b, cut on dp, is summed over in it');
  });

  test('a mesh dim of one device is left out; without mesh dims the rules are listed', async () => {
    expect(await run('mk,kn->mn', '--shard', 'x=S(m)S(m)', '--axis', 'dp=1,tp=2')).toContain(
      'result: S(0) on tp\n',
    );
    expect(await run('mk,kn->mn')).toContain('  S(1), S(0) -> P(sum)\n');
  });

  test.each([
    [['mk'], "E_SYNTAX einsum 'mk': found no '->' at column 3"],
    [['mk,kn->mn', '--shard', 'x=S(m)'], 'E_USAGE --shard needs the mesh dims that cut'],
    [
      ['mk,kn->mn', '--shard', 'q=R', '--axis', 'tp=2'],
      "E_USAGE --shard 'q=R' names no operand of 'mk,kn->mn'",
    ],
    [
      ['mk,kn->mn', '--shard', 'x=R', '--shard', '0=R', '--axis', 'tp=2'],
      "E_USAGE --shard names operand '0' twice",
    ],
    [['mk,kn->mn', '--shard', 'x=S(n)', '--axis', 'tp=2'], "E_PLACEMENT x has no letter 'n'"],
    [['mk,kn->mn', '--shard', 'x=Q', '--axis', 'tp=2'], "E_SYNTAX x: 'Q' has no state at column 1"],
    [['mk,kn->mn', '--axis', 'tp=2,tp=4'], 'E_MESH'],
    [['mk,kn->mn', '--mode', 'manual'], "--mode 'manual' is not one of auto, strict"],
  ])('%j is refused', async (argv, message) => {
    const { code, out, err } = await cli('einsum', ...argv);
    expect([code, out]).toEqual([2, '']);
    expect(err).toContain(message);
  });
});
