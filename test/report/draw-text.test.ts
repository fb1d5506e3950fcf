import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { DeviceMesh, parseMesh } from '../../src/mesh/devices/mesh.ts';
import { parseSharding } from '../../src/mesh/sharding/parse.ts';
import { drawBlocks } from '../../src/notations/draw/blocks.ts';
import { type Cuts, matrixOfMatrices } from '../../src/notations/draw/matrix.ts';
import { drawText } from '../../src/notations/draw/text.ts';
import { offsetsDrawing, placementDrawing, valuesDrawing } from '../../src/notations/draw/views.ts';
import { parseLayout } from '../../src/notations/layout/parse.ts';

const arange = (shape: readonly number[], cuts?: Cuts): string =>
  drawText(matrixOfMatrices(shape, String, cuts));
const all = (...dims: readonly number[]): Cuts => new Map(dims.map((d) => [d, 'all']));

describe('values', () => {
  test.each<[number[], string]>([
    [[], '0'],
    [[2], '0  1'],
    [[2, 2], '0  1\n2  3'],
    [[2, 2, 2], '0  1    4  5\n2  3    6  7'],
    [[2, 2, 2, 2], ' 0  1    4  5\n 2  3    6  7\n\n 8  9   12 13\n10 11   14 15'],
    [
      [2, 2, 2, 2, 2],
      ' 0  1    4  5  :  16 17   20 21\n 2  3    6  7  :  18 19   22 23\n               :\n 8  9   12 13  :  24 25   28 29\n10 11   14 15  :  26 27   30 31',
    ],
    [[2, 3, 4], '0  1  2  3   12 13 14 15\n4  5  6  7   16 17 18 19\n8  9 10 11   20 21 22 23'],
  ])('arange of %j', (shape, expected) => {
    expect(arange(shape)).toBe(expected);
  });

  test('six dims: dots between the rows of level 2', () => {
    const lines = arange([2, 2, 2, 2, 2, 2]).split('\n');
    expect(lines.slice(4, 7).join('\n')).toBe(
      '10 11   14 15  :  26 27   30 31\n...............:...............\n32 33   36 37  :  48 49   52 53',
    );
  });
});

describe('cuts', () => {
  test.each<[number[], number[], string]>([
    [
      [2, 2, 2, 2],
      [0],
      '  0  1    4  5\n  2  3    6  7\n---------------\n  8  9   12 13\n 10 11   14 15',
    ],
    [[2, 2, 2, 2], [1], ' 0  1 |  4  5\n 2  3 |  6  7\n      |\n 8  9 | 12 13\n10 11 | 14 15'],
    [
      [2, 2, 2, 2],
      [2],
      '  0  1    4  5\n------- -------\n  2  3    6  7\n\n  8  9   12 13\n------- -------\n 10 11   14 15',
    ],
    [
      [2, 2, 2, 2],
      [3],
      ' 0 |  1    4 |  5\n 2 |  3    6 |  7\n\n 8 |  9   12 | 13\n10 | 11   14 | 15',
    ],
    [
      [2, 2, 2, 2],
      [0, 1],
      '  0  1 |  4  5\n  2  3 |  6  7\n-------+-------\n  8  9 | 12 13\n 10 11 | 14 15',
    ],
    [
      [2, 2, 2, 2],
      [2, 3],
      '  0 |  1    4 |  5\n----+---- ----+----\n  2 |  3    6 |  7\n\n  8 |  9   12 | 13\n----+---- ----+----\n 10 | 11   14 | 15',
    ],
    [
      [2, 2, 2, 2, 2],
      [0],
      ' 0  1    4  5  |  16 17   20 21\n 2  3    6  7  |  18 19   22 23\n               |\n 8  9   12 13  |  24 25   28 29\n10 11   14 15  |  26 27   30 31',
    ],
    [
      [2, 2, 2, 2, 2],
      [1],
      '  0  1    4  5  :  16 17   20 21\n  2  3    6  7  :  18 19   22 23\n--------------- : ---------------\n  8  9   12 13  :  24 25   28 29\n 10 11   14 15  :  26 27   30 31',
    ],
  ])('%j cut at dims %j', (shape, dims, expected) => {
    expect(arange(shape, all(...dims))).toBe(expected);
  });
});

test('one cell for each block', () => {
  const blocks = Array.from({ length: 8 }, (_, i) => ({
    index: [i >> 1, i & 1],
    devices: [i + 8, i],
  }));
  expect(drawBlocks(blocks, [4, 2])).toBe(
    '  0,8 |  1,9\n------+------\n 2,10 | 3,11\n------+------\n 4,12 | 5,13\n------+------\n 6,14 | 7,15',
  );
});

describe('placements', () => {
  const devices = (
    spec: string,
    mesh: string,
    shape: readonly number[],
    borders = true,
  ): string => {
    const on = parseMesh(mesh);
    return drawText(
      placementDrawing(parseSharding(spec, on, { rank: shape.length }), on, shape, { borders })
        .drawing,
    );
  };
  test.each<[string, number[], boolean, string]>([
    ['_S(0, 2)S(0)', [8, 1], false, '0\n0\n2\n2\n1\n1\n3\n3'],
    ['_S(0, 2)S(0)', [8, 1], true, '  0\n  0\n----\n  2\n  2\n----\n  1\n  1\n----\n  3\n  3'],
    ['R S(0)', [4, 2], true, ' 0,2 0,2\n 0,2 0,2\n---------\n 1,3 1,3\n 1,3 1,3'],
    [
      'S(0)S(1)',
      [4, 4],
      true,
      '  0    0 |  1    1\n  0    0 |  1    1\n---------+---------\n  2    2 |  3    3\n  2    2 |  3    3',
    ],
  ])('%s on (dp2, tp2), shape %j, borders %s', (spec, shape, borders, expected) => {
    expect(devices(spec, 'dp=2,tp=2', shape, borders)).toBe(expected);
  });

  test('a pending reduction is told from copies: addends are joined, copies are listed', () => {
    const cell = (placement: string, mesh = 'dp=2,tp=2'): string => devices(placement, mesh, []);
    expect(
      ['RR', 'P(sum)R', 'RP(sum)', 'P(sum)P(sum)', 'P(avg)R', 'RP(max)'].map((p) => cell(p)),
    ).toEqual([
      '0,1,2,3',
      '0+2,1+3',
      '0+1,2+3',
      '0+1+2+3',
      'avg(0,2),avg(1,3)',
      'max(0,1),max(2,3)',
    ]);
    // Of one device there is nothing to add.
    expect(cell('P(sum)R', 'dp=1,tp=2')).toBe('0,1');
  });

  test('a pending reduction is on all devices, and uneven or empty shards stay what they are', () => {
    expect(devices('P(sum)S(0)', 'dp=2,tp=2', [2, 1])).toBe(' 0+2\n-----\n 1+3');
    // 5 rows on 4: two, two, one, none.
    expect(devices('S(0)', 'x=4', [5, 1])).toBe('  0\n  0\n----\n  1\n  1\n----\n  2');
  });

  test('device ids come from the table of the mesh, ascending', () => {
    const dims = [
      { name: 'x', size: 2 },
      { name: 'y', size: 2 },
    ];
    const mesh = new DeviceMesh(dims, [9, 4, 7, 12]);
    const { drawing, holders } = placementDrawing(parseSharding('R S(0)', mesh), mesh, [2]);
    expect(drawText(drawing)).toBe('7,9 | 4,12');
    expect(holders).toEqual(['7,9', '4,12']);
  });

  test('further cuts are drawn beside the borders', () => {
    const mesh = parseMesh('x=2');
    const { drawing } = placementDrawing(parseSharding('S(0)', mesh), mesh, [4], {
      cuts: new Map([[0, [1]]]),
    });
    expect(drawText(drawing)).toBe('0 |  0 |  1    1');
  });
});

describe('layouts', () => {
  const rows = (text: string, order: 'lex' | 'colex', shape?: readonly number[]): string[][] =>
    offsetsDrawing(parseLayout(text, order), order, shape).cells.map((row) =>
      row.map((cell) => cell.text),
    );
  const lines = (text: string): string[][] => text.split(' ').map((row) => row.split(','));

  test('the four rows in both orders', () => {
    const layout = '((2,2),2):((2,4),1)';
    expect(rows(layout, 'lex')).toEqual(lines('0,1 4,5 2,3 6,7'));
    expect(rows(layout, 'colex')).toEqual(lines('0,1 2,3 4,5 6,7'));
  });
  test('all 1-D offsets, drawn as one dim', () => {
    const layout = '((2,2),2):((2,4),1)';
    expect(rows(layout, 'lex', [8])).toEqual(lines('0,1,4,5,2,3,6,7'));
    expect(rows(layout, 'colex', [8])).toEqual(lines('0,2,4,6,1,3,5,7'));
  });
  test('a layout is drawn as rows and columns', () => {
    expect(rows('(2,(2,2)):(4,(2,1))', 'colex')).toEqual(lines('0,2,1,3 4,6,5,7'));
    expect(rows('((2,2),2):((4,1),2)', 'colex')).toEqual(lines('0,2 4,6 1,3 5,7'));
  });
  test('a shape of another size is refused', () => {
    expect(() => rows('(2,2):(2,1)', 'lex', [8])).toThrow(
      /4 coordinates, but shape \(8\) has 8 elements/,
    );
  });
});

describe('the page', () => {
  const shapes = fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 6 });

  test('is permute(vertical dims, horizontal dims) as a matrix, for any shape', () => {
    fc.assert(
      fc.property(shapes, (shape) => {
        const n = shape.length;
        const down: number[] = [];
        const right: number[] = [];
        for (let d = 0; d < n; d++) ((n - d) % 2 === 0 ? down : right).push(d);
        // Walk the permuted tensor in row-major order and read off where each element lies in
        // memory.
        const expected: string[][] = [];
        const count = (dims: readonly number[]): number => dims.reduce((k, d) => k * shape[d], 1);
        for (let r = 0; r < count(down); r++) {
          const row: string[] = [];
          for (let c = 0; c < count(right); c++) {
            const at = new Array<number>(n).fill(0);
            let rest = r;
            for (const d of [...down].reverse()) {
              at[d] = rest % shape[d];
              rest = (rest - at[d]) / shape[d];
            }
            rest = c;
            for (const d of [...right].reverse()) {
              at[d] = rest % shape[d];
              rest = (rest - at[d]) / shape[d];
            }
            row.push(String(at.reduce((flat, i, d) => flat * shape[d] + i, 0)));
          }
          expected.push(row);
        }
        const drawing = valuesDrawing(shape);
        expect(drawing.cells.map((row) => row.map((cell) => cell.text))).toEqual(expected);
        expect([drawing.rows, drawing.columns]).toEqual([expected.length, expected[0].length]);
        // Every value stands in the text once, and no line ends in a blank.
        const text = drawText(drawing);
        expect(
          text
            .match(/\d+/g)
            ?.map(Number)
            .sort((a, b) => a - b),
        ).toEqual(Array.from({ length: count([...down, ...right]) }, (_, i) => i));
        expect(text).not.toMatch(/ $/m);
      }),
      { numRuns: 200 },
    );
  });

  test('sizes of 2 give Morton order', () => {
    const cells = valuesDrawing([2, 2, 2, 2, 2, 2]).cells;
    // Even bits of the number are the column, odd bits the row.
    cells.forEach((row, r) =>
      row.forEach((cell, c) => {
        let morton = 0;
        for (let bit = 0; bit < 3; bit++)
          morton += (((c >> bit) & 1) << (2 * bit)) + (((r >> bit) & 1) << (2 * bit + 1));
        expect(cell.text).toBe(String(morton));
      }),
    );
  });

  test.each([
    [0, '0,1,2,3,4,5,6,7 8,9,10,11,12,13,14,15'],
    [1, '0,1,2,3,8,9,10,11 4,5,6,7,12,13,14,15'],
    [2, '0,1,4,5,8,9,12,13 2,3,6,7,10,11,14,15'],
    [3, '0,2,4,6,8,10,12,14 1,3,5,7,9,11,13,15'],
  ])('a cut of dim %i of (2,2,2,2) parts the values as torch.split does', (dim, expected) => {
    const { cells, rowGaps, columnGaps } = valuesDrawing([2, 2, 2, 2], all(dim));
    // Crossing a cut changes sides; crossing an uncut gap of a lower level does not, of a higher
    // level goes back.
    const sides: number[][] = [[], []];
    const walk = (gaps: readonly { cut: boolean; level: number }[], i: number): number =>
      gaps.slice(0, i).reduce((s, g) => (g.cut ? 1 - s : g.level > cutLevel(gaps) ? 0 : s), 0);
    const cutLevel = (gaps: readonly { cut: boolean; level: number }[]): number =>
      gaps.find((g) => g.cut)?.level ?? 99;
    cells.forEach((row, r) =>
      row.forEach((cell, c) => sides[walk(rowGaps, r) + walk(columnGaps, c)].push(cell.element)),
    );
    expect(sides.map((s) => s.sort((a, b) => a - b).join()).join(' ')).toBe(expected);
  });

  test('lines stop at what is of a higher level', () => {
    expect(arange([2, 2, 2, 2], all(0, 1, 2, 3)).split('\n')).toEqual([
      '  0 |  1 |  4 |  5',
      '----+--- | ---+----',
      '  2 |  3 |  6 |  7',
      '---------+---------',
      '  8 |  9 | 12 | 13',
      '----+--- | ---+----',
      ' 10 | 11 | 14 | 15',
    ]);
    // Level 3 has two colons between columns and two lines of dots between rows.
    const eight = arange([2, 2, 2, 2, 2, 2, 2, 2]).split('\n');
    expect(eight[0]).toContain('  ::  ');
    const dots = eight.filter((line) => line.includes('::') && /^\.+::\.+$/.test(line));
    expect(dots).toHaveLength(2);
  });
});

describe('refusals', () => {
  test.each<[RegExp, () => unknown]>([
    [/dim 1 of \(2, 0\) has size 0/, () => valuesDrawing([2, 0])],
    [/size 1.5/, () => valuesDrawing([1.5])],
    [/65792 cells, more than 65536/, () => valuesDrawing([257, 256])],
    [/33 dims/, () => valuesDrawing(new Array<number>(33).fill(1))],
    [/cannot cut dim 1 of a 1-D tensor/, () => valuesDrawing([2], all(1))],
    [/cannot cut dim 0 of size 2 at 2/, () => valuesDrawing([2], new Map([[0, [2]]]))],
    [/1 blocks are given for a grid of 2/, () => drawBlocks([{ index: [0], devices: [0] }], [2])],
    [/outside the grid/, () => drawBlocks([{ index: [2], devices: [0] }], [2])],
    [
      /given twice/,
      () =>
        drawBlocks(
          [
            { index: [0], devices: [0] },
            { index: [0], devices: [1] },
          ],
          [2],
        ),
    ],
    [/more than 4194304/, () => drawText(matrixOfMatrices([256, 256], () => 'x'.repeat(100)))],
  ])('%s is what a drawing that cannot be made says', (message, draw) => {
    expect(draw).toThrow(message);
  });
  test('a placement of too many devices, ids or rows, or of a dim that there is not, says so', () => {
    const big = parseMesh('x=1025');
    expect(() => placementDrawing(parseSharding('R', big), big, [2])).toThrow(
      /1025 devices, more than the 1024/,
    );
    const many = parseMesh('x=1024');
    expect(() => placementDrawing(parseSharding('R', many), many, [2048])).toThrow(
      /2097152 device ids/,
    );
    expect(() => placementDrawing(parseSharding('S(0)', many), many, [16384])).toThrow(
      /16384 rows on 1024 devices/,
    );
    const two = parseMesh('x=2');
    expect(() => placementDrawing(parseSharding('S(1)', two), two, [2])).toThrow(
      /cuts dim 1 of a 1-D tensor/,
    );
  });
});
