import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { DeviceMesh, parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { complement } from '../../../src/notations/layout/complement.ts';
import { offsets } from '../../../src/notations/layout/coordinates.ts';
import {
  deviceLayout,
  layoutGroups,
  meshLayout,
  stridedShardLayout,
  unflattenLayout,
} from '../../../src/notations/layout/mesh-layout.ts';
import { parseLayout } from '../../../src/notations/layout/parse.ts';

const sets = (groups: readonly (readonly number[])[]): string =>
  groups.map((g) => `{${g.join(',')}}`).join('');

describe('mesh dims as layouts', () => {
  const mesh = parseMesh('a=2,b=2,c=2');

  test.each([
    [[0], '2:4'],
    [[1], '2:2'],
    [[2], '2:1'],
    [[1, 2], '4:1'],
    [[0, 1], '4:2'],
    [[0, 2], '(2,2):(4,1)'],
    [[2, 0], '(2,2):(1,4)'],
    [[0, 1, 2], '8:1'],
    [[], '1:0'],
  ])('dims %j are %s', (dims, expected) => {
    expect(meshLayout(mesh, dims).text).toBe(expected);
  });

  test('groups of an axis by its complement', () => {
    const axis = parseLayout('2:2', 'lex');
    expect(complement(axis, 8, 'colex').text).toBe('(2,2):(1,4)');
    expect(offsets(complement(axis, 8, 'colex'), 'colex')).toEqual([0, 1, 4, 5]);
    expect(offsets(complement(axis, 8, 'lex'), 'lex')).toEqual([0, 1, 4, 5]);
    expect(sets(layoutGroups(axis, 8))).toBe('{0,2}{1,3}{4,6}{5,7}');
    expect(() => layoutGroups(axis, 7)).toThrow(/does not divide 7 ranks/);
    expect(() => layoutGroups(parseLayout('3:1', 'lex'), 8)).toThrow(
      /axis 3:1 does not divide 8 ranks/,
    );
  });

  test('on random meshes the groups of the layout are the groups of the mesh', () => {
    const sizes = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(sizes, fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }), (list, pick) => {
        const random = new DeviceMesh(list.map((size, i) => ({ name: `d${i}`, size })));
        const dims = list.map((_, i) => i).filter((i) => pick[i]);
        expect(layoutGroups(meshLayout(random, dims), random.size)).toEqual(
          random.orderedGroups(dims),
        );
        const back = dims.slice().reverse();
        expect(layoutGroups(meshLayout(random, back), random.size)).toEqual(
          random.orderedGroups(back),
        );
      }),
    );
  });

  test('unflattening is the inverse of flattening, also of an axis with two modes', () => {
    const texts = (axis: string, sizes: number[]): string[] =>
      unflattenLayout(parseLayout(axis, 'lex'), sizes).map((l) => l.text);
    expect(texts('8:1', [2, 2, 2])).toEqual(['2:4', '2:2', '2:1']);
    expect(texts('(2,2):(4,1)', [2, 2])).toEqual(['2:4', '2:1']);
    expect(texts('(2,4):(8,1)', [4, 2])).toEqual(['(2,2):(8,2)', '2:1']);
    expect(texts('6:1', [1, 6])).toEqual(['1:0', '6:1']);
    expect(() => texts('8:1', [3, 2])).toThrow(/sizes 3 x 2 make 6/);
    expect(() => texts('(2,3):(10,1)', [3, 2])).toThrow(/cut its modes unevenly/);
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 2, maxLength: 4 }),
        (list) => {
          const random = new DeviceMesh(list.map((size, i) => ({ name: `d${i}`, size })));
          const dims = list.map((_, i) => i).filter((i) => i !== 1);
          const parts = unflattenLayout(
            meshLayout(random, dims),
            dims.map((d) => list[d]),
          );
          expect(parts.map((p) => p.text)).toEqual(dims.map((d) => meshLayout(random, [d]).text));
        },
      ),
    );
  });

  test('device ids of a table that is not a layout', () => {
    const dims = parseMesh('x=2,y=2').dims;
    expect(deviceLayout(new DeviceMesh(dims, [0, 4, 1, 5]), ['y'])?.text).toBe('2:4');
    expect(deviceLayout(new DeviceMesh(dims, [0, 4, 1, 5]), ['x', 'y'])?.text).toBe('(2,2):(1,4)');
    expect(deviceLayout(new DeviceMesh(dims, [3, 5, 10, 12]), ['y'])?.text).toBe('2:2');
    expect(deviceLayout(new DeviceMesh(dims, [0, 1, 2, 4]), ['y'])).toBeUndefined();
    expect(deviceLayout(new DeviceMesh(dims, [3, 2, 1, 0]), ['y'])).toBeUndefined();
  });
});

describe('strided shards as layouts', () => {
  test('sf 2, 16 on 2 and sf 3, 12 on 2', () => {
    const rows = (size: number, factor: number, n: number): number[][] =>
      stridedShardLayout(size, factor, n).map(({ offset, layout }) =>
        offsets(layout, 'lex').map((o) => offset + o),
      );
    expect(rows(16, 2, 2)).toEqual([
      [0, 1, 2, 3, 8, 9, 10, 11],
      [4, 5, 6, 7, 12, 13, 14, 15],
    ]);
    expect(rows(12, 3, 2)).toEqual([
      [0, 1, 4, 5, 8, 9],
      [2, 3, 6, 7, 10, 11],
    ]);
    expect(stridedShardLayout(16, 2, 2).map((r) => `${r.offset}+${r.layout.text}`)).toEqual([
      '0+(2,4):(8,1)',
      '4+(2,4):(8,1)',
    ]);
  });

  test('every rank holds pieces r, r + n, r + 2n ... of factor * n equal pieces', () => {
    const n = fc.integer({ min: 1, max: 5 });
    fc.assert(
      fc.property(n, n, n, (factor, ranks, piece) => {
        const size = factor * ranks * piece;
        stridedShardLayout(size, factor, ranks).forEach(({ offset, layout }, r) => {
          const want = Array.from({ length: size }, (_, row) => row).filter(
            (row) => Math.floor(row / piece) % ranks === r,
          );
          expect(offsets(layout, 'lex').map((o) => o + offset)).toEqual(want);
        });
      }),
    );
  });

  test('uneven dims and wrong numbers are refused', () => {
    expect(() => stridedShardLayout(9, 2, 4)).toThrow(/9 rows in 2 chunks of 4 pieces are uneven/);
    expect(() => stridedShardLayout(8, 0, 2)).toThrow(/the factor of a strided shard is 0/);
  });
});
