import { describe, expect, it, test } from 'vitest';

import { cli } from '../../support.ts';

describe('layout', () => {
  it('asks for the order and exits 2 without it', async () => {
    const run = await cli('layout', 'coalesce (2,(1,6)):(1,(6,2))');
    expect(run.code).toBe(2);
    expect(run.out).toBe('');
    expect(run.err).toContain('--order lex or --order colex');
    expect(run.err).toContain('colex: the first coordinate is the fastest');
  });

  it('layout prints the coalesced layout', async () => {
    const run = await cli('layout', 'coalesce (2,(1,6)):(1,(6,2))', '--order', 'colex');
    expect(run).toEqual({ code: 0, out: '12:1\n', err: '' });
  });

  it('prints the keys of the contract', async () => {
    const run = await cli(
      'layout',
      'compose (6,2):(8,2) (4,3):(3,1)',
      '--order',
      'colex',
      '--json',
    );
    expect(JSON.parse(run.out)).toEqual({
      result: '((2,2),3):((24,2),8)',
      size: 12,
      cosize: 43,
      offsets: [0, 24, 2, 26, 8, 32, 10, 34, 16, 40, 18, 42],
    });
  });

  test.each([
    ['show ((2,2),2):((2,4),1)', 'lex', '((2,2),2):((2,4),1)'],
    ['show (2,(2,2))', 'colex', '(2,(2,2)):(1,(2,4))'],
    ['show (2,(2,2))', 'lex', '(2,(2,2)):(4,(2,1))'],
    ['flatten ((2,2),3):((24,2),8)', 'lex', '(2,2,3):(24,2,8)'],
    ['coalesce (2,2):(2,1)', 'lex', '4:1'],
    ['coalesce-modes (2,(1,6)):(1,(6,2))', 'colex', '(2,6):(1,2)'],
    ['composition (12,(4,8)):(59,(13,1)) <3:4, 8:2>', 'colex', '(3,(2,4)):(236,(26,1))'],
    ['compose (12,(4,8)):(59,(13,1)) (3,8)', 'colex', '(3,(4,2)):(59,(13,1))'],
    ['compose (12,(4,8)):(59,(13,1)) <_,8:2>', 'colex', '(12,(2,4)):(59,(26,1))'],
    ['complement 4:2 24', 'colex', '(2,3):(1,8)'],
    ['divide (4,2,3):(2,1,8) 4:2', 'colex', '((2,2),(2,3)):((4,1),(2,8))'],
    ['zipped_divide (4,4):(1,4) <2:1, 2:2>', 'colex', '((2,2),(2,2)):((1,8),(2,4))'],
    [
      'tiled_divide (9,(4,8)):(59,(13,1)) <3:3,(2,4):(1,8)>',
      'colex',
      '((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))',
    ],
    [
      'flat_divide (9,(4,8)):(59,(13,1)) <3:3,(2,4):(1,8)>',
      'colex',
      '(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))',
    ],
    ['product (2,2):(4,1) 6:1', 'colex', '((2,2),(2,3)):((4,1),(2,8))'],
    ['zipped_product (2,5):(5,1) <3:5, 4:6>', 'colex', '((2,5),(3,4)):((5,1),(10,30))'],
    ['tiled_product (2,5):(5,1) <3:5, 4:6>', 'colex', '((2,5),3,4):((5,1),10,30)'],
    ['flat_product (2,5):(5,1) <3:5, 4:6>', 'colex', '(2,5,3,4):(5,1,10,30)'],
    ['blocked_product (2,5):(5,1) (3,4):(1,3)', 'colex', '(6,(5,4)):(5,(1,30))'],
    ['raked_product (2,5):(5,1) (3,4):(1,3)', 'colex', '((3,2),(4,5)):((10,5),(30,1))'],
    ['right_inverse (4,8):(8,1)', 'colex', '(8,4):(4,1)'],
    ['left_inverse (3,2):(4,1)', 'colex', '(4,3):(3,1)'],
  ])('%s (%s)', async (expression, order, expected) => {
    const run = await cli('layout', expression, '--order', order);
    expect(run.err).toBe('');
    expect(run.out).toBe(`${expected}\n`);
  });

  test.each([
    [
      'coalesce (2,(1,6)):(1,6)',
      /strides \(1,6\) are not nested as the shape \(2,\(1,6\)\) is, at column 20/,
    ],
    ['coalesce (2,:(1)', /expected an integer or '\(', got ':' at column 13/],
    ['coalesce (2,3', /expected ',' or '\)', got the end at column 14/],
    ['coalesce 4:1 5', /expected nothing more, got '5' at column 14/],
    ['coalesce 0:1', /the shape holds 0, expected an integer of at least 1/],
    ['coalesce 99999999999999999999:1', /2\^53 - 1, got '9' at column 10/],
    ['coalesce (9007199254740991,9):(1,1)', /above 2\^53 - 1/],
    ['coalesse 4:1', /unknown operation 'coalesse' at column 1/],
    ['', /expected an operation, got the end at column 1/],
    ['complement 4:1', /expected an integer, got the end at column 15/],
    ['compose (4,3):(1,100) 6:1', /size 6 is not divisible by 4/],
    ['compose 4:1 <2:1,2:1>', /2 parts, but 4:1 has 1 mode/],
    [`coalesce ${'('.repeat(40)}4${')'.repeat(40)}:1`, /nested at most 32 deep/],
    [`coalesce ${'('.repeat(40000)}`, /nested at most 32 deep/],
    [`coalesce (${'1,'.repeat(5000)}1):1`, /at most 4096 integers/],
    [`coalesce ${'<'.repeat(100)}`, /expected an integer or '\('/],
    [`compose 4:1 ${'<'.repeat(40000)}`, /nested at most 32 deep/],
    [`coalesce ${'4'.repeat(70000)}`, /more than 65536/],
  ] as const)('refuses case %#', async (expression, message) => {
    const run = await cli('layout', expression, '--order', 'colex');
    expect(run.code).toBe(2);
    expect(run.out).toBe('');
    expect(run.err).toMatch(message);
  });

  it('shows where the text is wrong, and the nearest operation', async () => {
    const run = await cli('layout', 'coalesse 4:1', '--order', 'lex');
    expect(run.err.split('\n').slice(1, 4)).toEqual([
      '  coalesse 4:1',
      '  ^',
      "  hint: did you mean 'coalesce'?",
    ]);
  });

  it('says that divides and products are colex, and which orders there are', async () => {
    const lex = await cli('layout', 'divide 8:1 2:1', '--order', 'lex');
    expect(lex.code).toBe(2);
    expect(lex.err).toContain('colex order only');
    const other = await cli('layout', 'show 8:1', '--order', 'row');
    expect(other.code).toBe(2);
    expect(other.err).toContain("'row' is not one of lex, colex");
  });

  it('gives errors as one JSON value with the column', async () => {
    const run = await cli('layout', 'coalesce (2,', '--order', 'lex', '--json');
    expect(run.code).toBe(2);
    const { error } = JSON.parse(run.out) as { error: { code: string; where: { column: number } } };
    expect(error.code).toBe('E_SYNTAX');
    expect(error.where.column).toBe(13);
  });

  it('refuses to list too many offsets, but prints the layout', async () => {
    const text = await cli('layout', 'show 9000000:1', '--order', 'lex');
    expect(text.out).toBe('9000000:1\n');
    const json = await cli('layout', 'show 9000000:1', '--order', 'lex', '--json');
    expect(json.code).toBe(2);
    expect(json.out).toContain('E_LIMIT');
  });

  it('has help with an example that works, naming every operation', async () => {
    const help = await cli('layout', '--help');
    expect(help.code).toBe(0);
    expect(help.out).toContain(
      "$ shardwright layout 'compose (6,2):(8,2) (4,3):(3,1)' --order colex",
    );
    const refused = await cli('layout', 'zzzzzzzzzz 4:1', '--order', 'colex');
    const known = /known operations: (.*)/.exec(refused.err)?.[1].split(', ') ?? [];
    expect(known.length).toBe(18);
    for (const name of known) expect(help.out).toContain(name);
  });
});
