import { describe, expect, test } from 'vitest';

import { coalesce, coalesceModes } from '../../../src/notations/layout/coalesce.ts';
import { complement } from '../../../src/notations/layout/complement.ts';
import { composition } from '../../../src/notations/layout/composition.ts';
import { crd2idx, idx2crd, offsetAt, offsets } from '../../../src/notations/layout/coordinates.ts';
import {
  flatDivide,
  logicalDivide,
  tiledDivide,
  zippedDivide,
} from '../../../src/notations/layout/divide.ts';
import {
  type IntTree,
  leaves,
  type Order,
  treeModes,
  treeProduct,
  treeText,
} from '../../../src/notations/layout/int-tree.ts';
import { leftInverse, rightInverse } from '../../../src/notations/layout/inverse.ts';
import {
  compact,
  compatible,
  concat,
  flatten,
  Layout,
} from '../../../src/notations/layout/layout.ts';
import { LayoutScanner, parseLayout } from '../../../src/notations/layout/parse.ts';
import {
  blockedProduct,
  flatProduct,
  logicalProduct,
  rakedProduct,
  tiledProduct,
  zippedProduct,
} from '../../../src/notations/layout/product.ts';
import type { Tiler } from '../../../src/notations/layout/tiler.ts';
import {
  checkCoalesced,
  checkComplement,
  checkComposed,
  checkDivided,
  checkLeftInverse,
  checkProduct,
  checkRightInverse,
} from '../../support/layout-properties.ts';

/** Coordinates of an index, one integer for each top-level mode. */
const topCoordinate = (index: number, shape: IntTree, order: Order): number[] =>
  leaves(idx2crd(index, treeModes(shape).map(treeProduct), order));

/** Offsets of a layout of two modes as rows and columns. */
function offsetTable(layout: Layout, order: Order): number[][] {
  const [rows, columns] = layout.modes.map((mode) => offsets(mode, order));
  return rows.map((r) => columns.map((c) => r + c));
}

/**
 * The figures of the specification; strides are always written, so the order of parsing does not
 * matter.
 */
const L = (text: string): Layout => parseLayout(text, 'colex');
const treeOf = (text: string): IntTree => new LayoutScanner(text).tree();
const T = (text: string): Tiler => new LayoutScanner(text).tiler();

describe('layouts as functions', () => {
  const nested = L('((2,2),2):((2,4),1)');

  test('one integer is unfolded inside a tree', () => {
    expect(offsetAt(nested, [2, 0], 'lex')).toBe(2);
    expect(offsetAt(nested, [2, 0], 'colex')).toBe(4);
    expect(treeText(idx2crd(2, [2, 2], 'lex'))).toBe('(1,0)');
    expect(treeText(idx2crd(2, [2, 2], 'colex'))).toBe('(0,1)');
  });

  test('a nested layout has four rows of offsets', () => {
    expect(offsetTable(nested, 'lex')).toEqual([
      [0, 1],
      [4, 5],
      [2, 3],
      [6, 7],
    ]);
    expect(offsetTable(nested, 'colex')).toEqual([
      [0, 1],
      [2, 3],
      [4, 5],
      [6, 7],
    ]);
  });

  test('the offsets of all indices follow the order', () => {
    expect(offsets(nested, 'lex')).toEqual([0, 1, 4, 5, 2, 3, 6, 7]);
    expect(offsets(nested, 'colex')).toEqual([0, 2, 4, 6, 1, 3, 5, 7]);
  });

  test('a nested mode makes a table of offsets in colexicographic order', () => {
    const layout = L('(2,(2,2)):(4,(2,1))');
    expect(offsetTable(layout, 'colex')).toEqual([
      [0, 2, 1, 3],
      [4, 6, 5, 7],
    ]);
    expect(offsets(layout, 'colex')).toEqual([0, 4, 2, 6, 1, 5, 3, 7]);
    expect(offsets(layout, 'lex')).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  test('natural and 2-D coordinates of an index', () => {
    const layout = L('(3,(2,3)):(3,(12,1))');
    expect(treeText(idx2crd(16, layout.shape, 'colex'))).toBe('(1,(1,2))');
    expect(topCoordinate(16, layout.shape, 'colex')).toEqual([1, 5]);
    expect(crd2idx([1, 5], layout.shape, 'colex')).toBe(16);
    expect(crd2idx([1, [1, 2]], layout.shape, 'colex')).toBe(16);
    expect(treeText(idx2crd(crd2idx([1, 5], [3, 6], 'colex'), layout.shape, 'colex'))).toBe(
      '(1,(1,2))',
    );
    expect(offsetAt(layout, 16, 'colex')).toBe(17);
    expect(offsetAt(layout, [1, 5], 'colex')).toBe(17);
    expect(offsetAt(layout, [1, [1, 2]], 'colex')).toBe(17);
    expect(layout.cosize).toBe(21);
    expect([layout.size, layout.rank, layout.depth]).toEqual([18, 2, 2]);
  });

  test('a nested first mode makes the rows of the table', () => {
    expect(offsetTable(L('((2,2),2):((4,1),2)'), 'colex')).toEqual([
      [0, 2],
      [4, 6],
      [1, 3],
      [5, 7],
    ]);
    expect(offsets(L('((4,2)):((2,1))'), 'colex')).toEqual([0, 2, 4, 6, 1, 3, 5, 7]);
  });

  test.each([
    ['(2,4)', 'colex', '(2,4):(1,2)'],
    ['(2,4)', 'lex', '(2,4):(4,1)'],
    ['(2,(2,2))', 'colex', '(2,(2,2)):(1,(2,4))'],
    ['(2,(2,2))', 'lex', '(2,(2,2)):(4,(2,1))'],
  ] as const)('default strides of %s, %s', (shape, order, expected) => {
    expect(compact(treeOf(shape), order).text).toBe(expected);
    expect(parseLayout(shape, order).text).toBe(expected);
  });

  test.each([
    ['24', '32', false],
    ['24', '(4,6)', true],
    ['(4,6)', '((2,2),6)', true],
    ['((2,2),6)', '((2,2),(3,2))', true],
    ['24', '((2,3),4)', true],
    ['((2,3),4)', '((2,2),(3,2))', false],
    ['((2,2),(3,2))', '((2,3),4)', false],
    ['24', '(24)', true],
    ['(24)', '24', false],
    ['(24)', '(4,6)', false],
  ])('%s compatible with %s: %s', (a, b, expected) => {
    expect(compatible(treeOf(a), treeOf(b))).toBe(expected);
  });

  test('coordinates outside the shape are refused', () => {
    expect(() => idx2crd(4, 4, 'lex')).toThrow(/index 4 is outside 0\.\.3/);
    expect(() => offsetAt(nested, [0, 0, 0], 'lex')).toThrow(/does not fit shape \(\(2,2\),2\)/);
    expect(() => offsetAt(nested, [4, 0], 'lex')).toThrow(
      /index 4 is outside 0\.\.3 of shape \(2,2\)/,
    );
  });

  test('layouts that are none are refused', () => {
    expect(() => new Layout([2, 2], [1])).toThrow(/nested differently/);
    expect(() => new Layout(0, 1)).toThrow(/holds 0/);
    expect(() => new Layout(2, -1)).toThrow(/holds -1/);
    expect(() => new Layout([], [])).toThrow(/empty list/);
    expect(() => new Layout(2 ** 30, 2 ** 30)).toThrow(/largest offset/);
    let deep: Layout['shape'] = 2;
    for (let i = 0; i < 50000; i++) deep = [deep];
    expect(() => new Layout(deep, deep)).toThrow(/deeper than 32/);
    expect(() => compact(new Array<number>(5000).fill(1), 'lex')).toThrow(/more than 4096/);
  });
});

describe('coalesce', () => {
  test.each([
    ['(2,(1,6)):(1,(6,2))', 'colex', '12:1'],
    ['(2,2):(2,1)', 'lex', '4:1'],
    ['(2,2):(4,2)', 'lex', '4:2'],
    ['(2,2):(4,1)', 'lex', '(2,2):(4,1)'],
    ['(3,2):(4,1)', 'lex', '(3,2):(4,1)'],
    ['(1,1):(5,7)', 'lex', '1:0'],
  ] as const)('%s %s → %s', (a, order, expected) => {
    expect(coalesce(L(a), order).text).toBe(expected);
    checkCoalesced(L(a), coalesce(L(a), order), order);
  });

  test('by mode', () => {
    expect(coalesceModes(L('(2,(1,6)):(1,(6,2))'), 'colex').text).toBe('(2,6):(1,2)');
  });
});

describe('composition', () => {
  test.each([
    ['(6,2):(8,2)', '(4,3):(3,1)', '((2,2),3):((24,2),8)'],
    ['20:2', '(5,4):(4,1)', '(5,4):(8,2)'],
    ['(10,2):(16,4)', '(5,4):(1,5)', '(5,(2,2)):(16,(80,4))'],
    ['(3,6,2,8):(1,10,100,1000)', '16:9', '(2,2,4):(30,100,1000)'],
  ])('%s o %s = %s', (a, b, expected) => {
    const result = composition(L(a), L(b), 'colex');
    expect(result.text).toBe(expected);
    checkComposed(L(a), L(b), result, 'colex');
  });

  test('the offsets of a composition are those of the composed functions', () => {
    const result = composition(L('(6,2):(8,2)'), L('(4,3):(3,1)'), 'colex');
    expect(offsets(result, 'colex')).toEqual([0, 24, 2, 26, 8, 32, 10, 34, 16, 40, 18, 42]);
  });

  test.each([
    ['<3:4, 8:2>', '(3,(2,4)):(236,(26,1))'],
    ['(3,8)', '(3,(4,2)):(59,(13,1))'],
    ['<_, 8:2>', '(12,(2,4)):(59,(26,1))'],
    ['<3:4>', '(3,(4,8)):(236,(13,1))'],
  ])('by mode with %s', (tiler, expected) => {
    expect(composition(L('(12,(4,8)):(59,(13,1))'), T(tiler), 'colex').text).toBe(expected);
  });

  test('in lex order a list names every mode', () => {
    const a = L('(12,(4,8)):(59,(13,1))');
    expect(() => composition(a, T('<3:4>'), 'lex')).toThrow(/1 parts for 2 modes/);
    // By hand: in lex, 8:2 in (4,8):(13,1) takes every second of the inner 8 (4 of them, stride 2),
    // then 2 of the outer 4.
    expect(composition(a, T('<3:4,8:2>'), 'lex').text).toBe('(3,(2,4)):(236,(13,2))');
    expect(() => composition(a, T('<1:1,1:1,1:1>'), 'lex')).toThrow(/3 parts, but .* has 2 modes/);
  });

  test.each([
    ['(4,3):(1,100)', '6:1', /size 6 is not divisible by 4/],
    ['(4,3):(1,100)', '3:3', /size 4 is not divisible by stride 3/],
    ['(6,2):(1,100)', '4:4', /size 6 is not divisible by stride 4/],
    ['8:1', '4:3', /reaches outside/],
    ['(2,4):(1,8)', '5:2', /reaches outside/],
  ])('%s o %s is refused', (a, b, message) => {
    expect(() => composition(L(a), L(b), 'colex')).toThrow(message);
    // The refusal in lex speaks of the layouts as they were given.
    const [ra, rb] = [a, b].map((t) => coalesceMirror(L(t)));
    expect(() => composition(ra, rb, 'lex')).toThrow(message);
    expect(() => composition(ra, rb, 'lex')).toThrow(`${ra.text} o ${rb.text}`);
  });
});

function coalesceMirror(a: Layout): Layout {
  const shape = Array.isArray(a.shape) ? [...(a.shape as number[])].reverse() : a.shape;
  const stride = Array.isArray(a.stride) ? [...(a.stride as number[])].reverse() : a.stride;
  return new Layout(shape, stride);
}

describe('complement', () => {
  test.each([
    ['4:1', '6:4'],
    ['6:4', '4:1'],
    ['(4,6):(1,4)', '1:0'],
    ['4:2', '(2,3):(1,8)'],
    ['(2,4):(1,6)', '3:2'],
    ['(2,2):(1,6)', '(3,2):(2,12)'],
    ['4:0', '24:1'],
  ])('of %s up to 24 is %s', (a, expected) => {
    expect(complement(L(a), 24, 'colex').text).toBe(expected);
    if (a !== '4:0') checkComplement(L(a), 24, complement(L(a), 24, 'colex'), 'colex');
  });

  test('a gap that copies do not fill may lie beyond the bound', () => {
    expect(complement(L('(6,2):(1,16)'), 12, 'colex').text).toBe('2:6');
    expect(() => complement(L('(2,6):(16,1)'), 13, 'lex')).toThrow(
      '(2,6):(16,1) has no complement up to 13',
    );
  });

  test('overlap and gaps that nothing fills are refused', () => {
    expect(() => complement(L('(2,2):(1,1)'), 24, 'colex')).toThrow(/mode 2:1 overlaps/);
    expect(() => complement(L('(2,2):(1,3)'), 24, 'colex')).toThrow(
      /stride 3 is not a multiple of 2/,
    );
    expect(() => complement(L('2:1'), 0, 'colex')).toThrow(/expected at least 1/);
  });
});

describe('divides', () => {
  const a = L('(9,(4,8)):(59,(13,1))');
  const tiler = T('<3:3, (2,4):(1,8)>');

  test('a logical division by a layout keeps the remaining modes in one group', () => {
    const result = logicalDivide(L('(4,2,3):(2,1,8)'), L('4:2'));
    expect(result.text).toBe('((2,2),(2,3)):((4,1),(2,8))');
    checkDivided(L('(4,2,3):(2,1,8)'), L('4:2'), result);
  });

  test('by mode', () => {
    expect(logicalDivide(a, tiler).text).toBe('((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))');
  });

  test('zipped, tiled and flat divisions nest the modes differently', () => {
    expect(zippedDivide(a, tiler).text).toBe('((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))');
    expect(tiledDivide(a, tiler).text).toBe('((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))');
    expect(flatDivide(a, tiler).text).toBe('(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))');
  });

  test('modes beyond the list and modes left alone are rests', () => {
    expect(zippedDivide(L('(4,6):(1,4)'), T('<2:1>')).text).toBe('((2),(2,6)):((1),(2,4))');
    expect(zippedDivide(L('(4,6):(1,4)'), T('<_,2:1>')).text).toBe('((1,2),(4,3)):((0,4),(1,8))');
  });

  test('a zipped division by a tiler gathers the tiles in the first mode', () => {
    const four = L('(4,4):(1,4)');
    expect(zippedDivide(four, T('<2:1, 2:2>')).text).toBe('((2,2),(2,2)):((1,8),(2,4))');
    expect(zippedDivide(four, T('<2:1, 2:2>')).modes[0].text).toBe(
      composition(four, T('<2:1, 2:2>'), 'colex').text,
    );
  });

  // As PyTorch 2.13 has them (torch.distributed._pycute).
  test.each([
    ['10:1', '4:1', '(4,3):(1,4)'],
    ['10:3', '4:1', '(4,3):(3,12)'],
    ['10:1', '16:1', '(16,1):(1,0)'],
    ['7:1', '2:1', '(2,4):(1,2)'],
    ['(2,5):(1,2)', '4:1', '(4,3):(1,4)'],
    ['(3,5):(1,3)', '6:1', '(6,3):(1,6)'],
  ])('the last tile of %s by %s may reach beyond it', (a, b, expected) => {
    expect(logicalDivide(L(a), L(b)).text).toBe(expected);
  });

  test('a composition does not reach beyond its first layout', () => {
    expect(() => composition(L('10:1'), L('(4,3):(1,4)'), 'colex')).toThrow(
      /reaches offset 11 of the first layout, which has 10/,
    );
  });

  test('more parts than modes are refused', () => {
    expect(() => logicalDivide(L('4:1'), T('<2:1,2:1>'))).toThrow(/2 parts, but 4:1 has 1 mode/);
  });
});

describe('products', () => {
  test.each([
    ['(2,2):(4,1)', '6:1', '((2,2),(2,3)):((4,1),(2,8))'],
    ['(2,2):(4,1)', '(4,2):(2,1)', '((2,2),(4,2)):((4,1),(8,2))'],
  ])('%s by %s', (a, b, expected) => {
    expect(logicalProduct(L(a), L(b)).text).toBe(expected);
    checkProduct(L(a), L(b), logicalProduct(L(a), L(b)));
  });

  test('logical, blocked and raked products order the modes differently', () => {
    const [a, b] = [L('(2,5):(5,1)'), L('(3,4):(1,3)')];
    expect(logicalProduct(a, b).text).toBe('((2,5),(3,4)):((5,1),(10,30))');
    expect(blockedProduct(a, b).text).toBe('(6,(5,4)):(5,(1,30))');
    expect(rakedProduct(a, b).text).toBe('((3,2),(4,5)):((10,5),(30,1))');
    expect(blockedProduct(L('(2,2):(1,2)'), L('3:1')).text).toBe('((2,3),2):((1,4),2)');
  });

  test('by mode: logical, zipped, tiled, flat', () => {
    const [a, tiler] = [L('(2,5):(5,1)'), T('<3:5, 4:6>')];
    expect(logicalProduct(a, tiler).text).toBe('((2,3),(5,4)):((5,10),(1,30))');
    expect(zippedProduct(a, tiler).text).toBe('((2,5),(3,4)):((5,1),(10,30))');
    expect(tiledProduct(a, tiler).text).toBe('((2,5),3,4):((5,1),10,30)');
    expect(flatProduct(a, tiler).text).toBe('(2,5,3,4):(5,1,10,30)');
  });
});

describe('inverses', () => {
  test.each([
    ['(4,8):(8,1)', '(8,4):(4,1)'],
    ['(2,4,6):(4,1,8)', '(4,2,6):(2,1,8)'],
    ['4:2', '1:0'],
    ['(4,2):(1,16)', '4:1'],
    ['(3,2):(4,1)', '2:3'],
    ['(2,4):(0,1)', '4:2'],
  ])('right inverse of %s is %s', (a, expected) => {
    expect(rightInverse(L(a), 'colex').text).toBe(expected);
    checkRightInverse(L(a), rightInverse(L(a), 'colex'), 'colex');
  });

  test.each([
    ['4:2', '(2,4):(4,1)'],
    ['(4,2):(1,16)', '(4,4,2):(1,8,4)'],
    ['(3,2):(4,1)', '(4,3):(3,1)'],
    ['(4,8):(8,1)', '(8,4):(4,1)'],
    // The gap between the modes is not a whole number of copies: the first mode is widened instead.
    ['(2,2):(1,3)', '(3,2):(1,2)'],
  ])('left inverse of %s is %s', (a, expected) => {
    expect(leftInverse(L(a), 'colex').text).toBe(expected);
    checkLeftInverse(L(a), leftInverse(L(a), 'colex'), 'colex');
  });

  test('a layout that is not injective has no left inverse, and the two coordinates are named', () => {
    expect(() => leftInverse(L('(2,2):(1,1)'), 'colex')).toThrow(
      /coordinates 1 and 2 \(colex\) have one offset, 1/,
    );
    expect(() => leftInverse(L('(2,3):(1,1)'), 'lex')).toThrow(
      '(2,3):(1,1) has no left inverse: its coordinates 1 and 3 (lex) have one offset, 1',
    );
    expect(() => leftInverse(L('4:0'), 'colex')).toThrow(
      /coordinates 0 and 1 \(colex\) have one offset, 0/,
    );
    expect(() => leftInverse(L('(2,2):(2,3)'), 'colex')).toThrow(
      /no left inverse that is a layout/,
    );
  });
});

describe('text', () => {
  test.each(['4:1', '(24):(1)', '((2,2),3):((24,2),8)', '(3,(2,(4,5),1)):(0,(1,(2,3),9))'])(
    '%s is parsed and printed',
    (text) => {
      for (const order of ['lex', 'colex'] as Order[])
        expect(parseLayout(text, order).text).toBe(text);
    },
  );

  test('blanks and the commas of Python are read', () => {
    expect(L(' ( (2, 2) , 3 ) : ( (24, 2), 8 ) ').text).toBe('((2,2),3):((24,2),8)');
    expect(L('(24,):(1,)').text).toBe('(24):(1)');
    expect(flatten(L('((2,2),3):((24,2),8)')).text).toBe('(2,2,3):(24,2,8)');
    expect(concat(L('2:1'), L('(2,3):(4,5)')).text).toBe('(2,(2,3)):(1,(4,5))');
  });

  test.each([
    ['', /got the end at column 1/],
    ['()', /expected an integer or '\(', got '\)' at column 2/],
    ['(2,3', /expected ',' or '\)', got the end at column 5/],
    ['(2 3):1', /expected ',' or '\)', got '3' at column 4/],
    ['2:1:1', /expected nothing more, got ':' at column 4/],
    ['-2:1', /got '-' at column 1/],
    ['2:(1)', /not nested as the shape 2 is, at column 3/],
    ['__proto__:1', /got '_' at column 1/],
  ])('refuses %j', (text, message) => {
    expect(() => parseLayout(text, 'lex')).toThrow(message);
  });
});

test('a layout without strides and without an order is LayoutLeft, as in CuTe', () => {
  expect(parseLayout('(2,3)').text).toBe('(2,3):(1,2)');
  expect(parseLayout('(2,3)', 'lex').text).toBe('(2,3):(3,1)');
});
