import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

import type { DrawResult } from '../../../../src/cli/commands/tools/draw.ts';
import { FULL } from '../../../support/full.ts';
import { cli } from '../../support.ts';

let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-draw-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('draw', () => {
  test.each<[string, string[], string]>([
    [
      'a shape of four dims',
      ['--shape', '2,2,2,2'],
      ' 0  1    4  5\n 2  3    6  7\n\n 8  9   12 13\n10 11   14 15',
    ],
    [
      'cuts of two dims',
      ['--shape', '2,2,2,2', '--cut', '0,1'],
      '  0  1 |  4  5\n  2  3 |  6  7\n-------+-------\n  8  9 | 12 13\n 10 11 | 14 15',
    ],
    [
      'shards of both dims',
      ['--shape', '4,4', '--mesh', 'dp=2,tp=2', '--placement', 'S(0)S(1)'],
      '  0    0 |  1    1\n  0    0 |  1    1\n---------+---------\n  2    2 |  3    3\n  2    2 |  3    3',
    ],
    [
      'a strided shard without borders',
      ['--shape', '8,1', '--mesh', 'dp=2,tp=2', '--placement', '_S(0, 2)S(0)', '--no-borders'],
      '0\n0\n2\n2\n1\n1\n3\n3',
    ],
    [
      'a strided shard',
      ['--shape', '8,1', '--mesh', 'dp=2,tp=2', '--placement', '_S(0, 2)S(0)'],
      '  0\n  0\n----\n  2\n  2\n----\n  1\n  1\n----\n  3\n  3',
    ],
    [
      'a layout in lexicographic order',
      ['--layout', '((2,2),2):((2,4),1)', '--order', 'lex'],
      '0  1\n4  5\n2  3\n6  7',
    ],
    [
      'a layout in colexicographic order',
      ['--layout', '((2,2),2):((2,4),1)', '--order', 'colex'],
      '0  1\n2  3\n4  5\n6  7',
    ],
    ['a cut at one place', ['--shape', '1,4', '--cut', '1@1'], '0 |  1    2    3'],
    ['a scalar', ['--shape', '()'], '0'],
    [
      'a PartitionSpec',
      ['--shape', '8', '--mesh', 'dp=2,tp=2', '--placement', 'P(("tp", "dp"))'],
      '0    0 |  2    2 |  1    1 |  3    3',
    ],
    [
      'a PartitionSpec',
      ['--shape', '4,1', '--mesh', 'dp=2,tp=2', '--placement', 'P("tp", None)'],
      ' 0,2\n 0,2\n-----\n 1,3\n 1,3',
    ],
    [
      'a pending sum, not a PartitionSpec',
      ['--shape', '2', '--mesh', 'x=2', '--placement', 'P(sum)'],
      '0+1 0+1',
    ],
    [
      'einshard text with its own mesh',
      ['--shape', '4,2', '--placement', 'a b -> 2 a2* b*', '--devices', '16'],
      '  0,8 |  1,9\n------+------\n 2,10 | 3,11\n------+------\n 4,12 | 5,13\n------+------\n 6,14 | 7,15',
    ],
    [
      'einshard text on a mesh',
      ['--shape', '2,2', '--placement', 'a b -> 2 a2 b2', '--mesh', 'x=2,y=2,z=2'],
      ' 0,4 | 1,5\n-----+-----\n 2,6 | 3,7',
    ],
  ])('%s %j', async (_, flags, expected) => {
    const run = await cli('draw', ...flags);
    expect(run).toEqual({ code: 0, out: `${expected}\n`, err: '' });
    const json = await cli('draw', ...flags, '--json');
    expect(json.code).toBe(0);
    const value = JSON.parse(json.out) as DrawResult;
    expect(Object.keys(value)).toEqual(['text', 'rows', 'columns', 'cells']);
    expect(value.text).toBe(expected);
    expect(value.cells).toHaveLength(value.rows);
    for (const row of value.cells) expect(row).toHaveLength(value.columns);
  });

  test('on a dim that does not divide, an order and a stride cut differently', async () => {
    const held = async (spec: string): Promise<string[]> => {
      const run = await cli(
        'draw',
        '--shape',
        '7',
        '--mesh',
        'dp=3,tp=2',
        '--placement',
        spec,
        '--json',
      );
      return (JSON.parse(run.out) as DrawResult).cells[0].map(String);
    };
    // Ranks are 2 dp + tp. Ordered (tp, dp): dp0 [0,1][4], dp1 [2,3][5], dp2 [][6]; strided: dp2
    // [6][].
    expect(await held('S(0)[1]S(0)[0]')).toEqual(['0', '0', '2', '2', '1', '3', '5']);
    expect((await held('_S(0, 2)S(0)'))[6]).toBe('4');
  });

  test('--svg writes a picture that says what it shows', async () => {
    const path = join(folder, 'picture.svg');
    const flags = ['--shape', '4,4', '--mesh', 'dp=2,tp=2', '--placement', 'S(0)S(1)'];
    const run = await cli('draw', ...flags, '--svg', path);
    expect(run.code).toBe(0);
    expect(run.out).toBe((await cli('draw', ...flags)).out);
    expect(run.err).toBe(`wrote ${path}\n`);
    const svg = readFileSync(path, 'utf8');
    expect(svg).toMatch(/^<svg xmlns="http:\/\/www.w3.org\/2000\/svg"/);
    expect(svg).toContain('>S(0)S(1) on dp=2,tp=2, shape (4, 4)</title>');
    expect(svg).toContain('Each cell shows the devices that hold it; lines are shard borders.');
  });

  test('the help of draw has an example', async () => {
    const run = await cli('draw', '--help');
    expect(run.code).toBe(0);
    expect(run.out).toContain('$ shardwright draw --shape 2,2,2,2 --cut 0,1');
  });
});

describe('wrong input exits with 2 and says what to write', () => {
  test.each<[string[], string, string]>([
    [[], '--shape is missing', '--shape 2,2,2,2'],
    [['--shape', '2,x'], "size 1 is 'x'", '--shape 4,8'],
    [['--shape', '(2,2'], 'brackets do not match', '--shape 4,8'],
    [['--shape', '-2'], "size 0 is '-2'", '--shape 4,8'],
    [['--shape', '2,0'], 'dim 1 of (2, 0) has size 0', 'at least 1'],
    [['--shape', '300,300'], '90000 cells', 'smaller shape'],
    [['--shape', '99999999999999999999'], 'is not a shape', '--shape 4,8'],
    [['--shape', '2,2', '--cut', '2'], 'cannot cut dim 2 of a 2-D tensor', '0 to 1'],
    [['--shape', '2,2', '--cut', '0,1@2'], 'cannot cut dim 1 of size 2 at 2', 'slice 1'],
    [['--shape', '2,2', '--cut', '0,,1'], "at column 3, got ''", '0,1@2'],
    [['--shape', '2', '--order', 'lex'], '--order belongs to --layout', 'row-major'],
    [['--shape', '2', '--no-borders'], '--no-borders belongs to --placement', 'leave it out'],
    [['--layout', '4:1'], 'needs --order', '--order colex'],
    [['--layout', '4:1', '--order', 'row'], "'row' is not one of lex, colex", 'E_USAGE'],
    [['--layout', '4:x', '--order', 'lex'], 'at column 3', 'SHAPE:STRIDE'],
    [['--layout', '(2,2):(2,1)', '--order', 'lex', '--shape', '8'], '4 coordinates', 'same size'],
    [
      ['--layout', '4:1', '--order', 'lex', '--mesh', 'x=2'],
      '--layout and --placement',
      'one of them',
    ],
    [['--shape', '4', '--placement', 'S(0)'], "'S(0)' needs a mesh", '--mesh dp=2,tp=2'],
    [['--shape', '4', '--mesh', 'x=2', '--placement', 'P("y")'], "no dim 'y'", 'E_MESH'],
    [
      ['--shape', '4', '--mesh', 'x=2', '--placement', 'P(None, "x")'],
      'the tensor has 1',
      'E_PLACEMENT',
    ],
    [['--shape', '4', '--placement', 'a -> a4'], 'needs the number of devices', '--devices 16'],
    [['--shape', '4', '--placement', 'a -> a4', '--devices', '8'], '8', 'E_EINSHARD'],
    [['--shape', '4', '--mesh', 'x=2'], '--mesh is given without --placement', '--placement'],
    [
      ['--shape', '4', '--mesh', 'x=2', '--devices', '2', '--placement', 'S(0)'],
      'both state',
      'one of them',
    ],
    [
      ['--shape', '4', '--mesh', 'x=2,y=2', '--placement', 'S(0)'],
      'has 1 placement',
      'outermost first',
    ],
    [['--shape', '4', '--mesh', 'x=2', '--placement', 'S(1)'], '1-D tensor', 'E_SYNTAX'],
    [['--shape', '4', '--mesh', 'x=2048', '--placement', 'R'], '2048 devices', 'smaller mesh'],
    [
      ['--shape', '4', '--svg', '/no/such/folder/x.svg'],
      'cannot write the drawing',
      'folder that exists',
    ],
  ])('%j', async (flags, what, fix) => {
    const run = await cli('draw', ...flags);
    expect(run.code, run.err).toBe(2);
    expect(run.out).toBe('');
    expect(run.err).toContain(what);
    expect(run.err).toContain(fix);
    const json = await cli('draw', ...flags, '--json');
    expect(json.code).toBe(2);
    expect((JSON.parse(json.out) as { error: { code: string } }).error.code).toMatch(/^E_/);
  });
});

describe('any text', () => {
  const texts = {
    shape: [
      '2,2',
      '4',
      '()',
      '(2,',
      '1,1,1,1,1,1',
      '0',
      '70000',
      '-1',
      'x',
      '2.5',
      '1e3',
      ' 3 , 2 ',
      '[2,2]',
    ],
    cut: ['0', '1', '0,1', '0@1', '9', '1@0', '@', ',', '0@1,0@2', 'all'],
    layout: [
      '4:1',
      '(2,2):(1,2)',
      '((2,2),2):((2,4),1)',
      '(',
      '2:2:2',
      '4',
      '(1,2):(3)',
      '99999999:1',
      '4:99999999999999999',
    ],
    order: ['lex', 'colex', 'row'],
    mesh: ['x=2', 'x=2,y=2', 'x=0', 'x=9999', 'x', 'x=2,x=2', '', 'x=1'],
    devices: ['4', '16', '0', '-1', 'many', '99999999'],
    placement: [
      'S(0)',
      'R',
      'S(0)R',
      'S(0)S(1)',
      '_S(0, 2)S(0)',
      'P(sum)',
      'P("x")',
      'P(("y", "x"))',
      'a -> a4',
      'a b -> a2 b2',
      'S(9)',
      'Ragged(0, [1, 1], 1)',
      'Ragged(0, [9], 1)',
      '_S(0, 99999)',
      'S(-1)R',
      '[S(0), R',
      '_NormP(2)',
      'MaskP(sum, [2], 0)',
      'P(None)',
    ],
  } as const;

  test('draws or is refused with a reason, and is never an internal fault', async () => {
    const some = (...names: readonly (keyof typeof texts)[]): fc.Arbitrary<[string, string][]> =>
      fc.tuple(
        ...names.map((name) =>
          fc.constantFrom<string>(...texts[name]).map((t): [string, string] => [name, t]),
        ),
      );
    const flags = fc.oneof(
      some('shape'),
      some('shape', 'cut'),
      some('layout', 'order'),
      some('layout', 'order', 'cut'),
      some('layout', 'order', 'shape'),
      some('shape', 'mesh', 'placement'),
      some('shape', 'mesh', 'placement', 'cut'),
      some('shape', 'devices', 'placement'),
      some('shape', 'layout', 'order', 'mesh', 'devices', 'placement'),
    );
    let drawn = 0;
    await fc.assert(
      fc.asyncProperty(flags, async (chosen) => {
        const run = await cli('draw', ...chosen.map(([flag, text]) => `--${flag}=${text}`));
        expect([0, 2], run.err).toContain(run.code);
        if (run.code === 0) drawn++;
        else expect(run.err).toMatch(/E_[A-Z]+ \S+/);
      }),
      { numRuns: FULL ? 1500 : 500, seed: 8 },
    );
    expect(drawn).toBeGreaterThan(FULL ? 100 : 30);
  });
});
