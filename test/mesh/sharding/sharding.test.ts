import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { MaskPartial } from '../../../src/mesh/placements/partials/mask-partial.ts';
import { Partial, REDUCE_OPS } from '../../../src/mesh/placements/partials/partial.ts';
import { REPLICATE } from '../../../src/mesh/placements/replicate.ts';
import { ceilChunks, Shard } from '../../../src/mesh/placements/shards/shard.ts';
import { StridedShard } from '../../../src/mesh/placements/shards/strided.ts';
import { decodeOrder, fromMeshView, toMeshView } from '../../../src/mesh/sharding/mesh-view.ts';
import { parsePlacement, parseSharding } from '../../../src/mesh/sharding/parse.ts';
import {
  evenlyShardable,
  heldRows,
  localShape,
  shardable,
  Sharding,
} from '../../../src/mesh/sharding/sharding.ts';
import { permutations } from '../../../src/mesh/sharding/space.ts';

describe('cuts', () => {
  test.each([
    [10, 4, '(3,0)(3,3)(3,6)(1,9)'],
    [9, 4, '(3,0)(3,3)(3,6)(0,9)'],
    [5, 4, '(2,0)(2,2)(1,4)(0,5)'],
    [3, 4, '(1,0)(1,1)(1,2)(0,3)'],
    [1, 4, '(1,0)(0,1)(0,1)(0,1)'],
    [13, 8, '(2,0)(2,2)(2,4)(2,6)(2,8)(2,10)(1,12)(0,13)'],
    [17, 8, '(3,0)(3,3)(3,6)(3,9)(3,12)(2,15)(0,17)(0,17)'],
  ])('ceil chunks of %i on %i', (size, n, expected) => {
    const chunks = ceilChunks(size, n);
    expect(chunks.map((c) => `(${c.length},${c.offset})`).join('')).toBe(expected);
    expect(Shard.of(0).localSize(size, n)).toBe(chunks[0].length);
    expect(Shard.of(0).split(size, n).flat()).toEqual(Array.from({ length: size }, (_, i) => i));
  });

  test.each([
    [2, 9, 4, [[0, 1, 5], [2, 3, 6], [4, 7], [8]]],
    [
      2,
      10,
      2,
      [
        [0, 1, 2, 5, 6, 7],
        [3, 4, 8, 9],
      ],
    ],
    [
      3,
      12,
      2,
      [
        [0, 1, 4, 5, 8, 9],
        [2, 3, 6, 7, 10, 11],
      ],
    ],
    [
      2,
      16,
      2,
      [
        [0, 1, 2, 3, 8, 9, 10, 11],
        [4, 5, 6, 7, 12, 13, 14, 15],
      ],
    ],
  ])('strided shard, factor %i, %i on %i', (factor, size, n, expected) => {
    const p = new StridedShard(0, factor);
    expect(p.split(size, n)).toEqual(expected);
    expect(p.localSize(size, n)).toBe(Math.max(...expected.map((rows) => rows.length)));
  });

  test('which pending reductions go together', () => {
    const sum = Partial.of('sum');
    expect(() => new Sharding([sum, Partial.of('max')])).toThrow(/P\(sum\) and P\(max\) cannot/);
    expect(() => new Sharding([sum, new MaskPartial([16, 8], 0)])).toThrow(
      /cannot stand on one tensor/,
    );
    expect(new Sharding([sum, Partial.of('avg')]).text).toBe('P(sum)P(avg)');
  });
});

describe('texts', () => {
  const mesh = parseMesh('dp=2,tp=2');
  test.each([
    'S(0)R',
    'S(0)S(0)',
    'S(0)[1]S(0)[0]',
    'RP(sum)',
    'MaskP(sum, [16, 8], 0)S(1)',
    '_S(0, 3)R',
    '_S(0, 4)_S(0, 8)',
    ...REDUCE_OPS.map((op) => `P(${op})R`),
  ])('%s is read and written as it is', (text) => {
    const parsed = parseSharding(text, mesh);
    expect(parsed.text).toBe(text);
    expect(parseSharding(parsed.orderedText, mesh).text).toBe(text);
  });

  test.each([
    ['Shard(dim=0)Replicate()', 'S(0)R'],
    ['[Shard(0), Partial(sum)]', 'S(0)P(sum)'],
    ['(R, P)', 'RP(sum)'],
    ['S0 R', 'S(0)R'],
    ['Shard(dim=-1), Replicate()', 'S(2)R'],
    ['_StridedShard(dim=0, sf=2)Shard(dim=0)', 'S(0)[1]S(0)[0]'],
    ['_MaskPartial(sum, torch.Size([16, 8]), 0)R', 'MaskP(sum, [16, 8], 0)R'],
    ['Partial(avg)Partial()', 'P(avg)P(sum)'],
    ['Partial("sum")Replicate()', 'P(sum)R'],
    ["Partial('max')R", 'P(max)R'],
    ['[Partial(reduce_op="avg"), Shard(1)]', 'P(avg)S(1)'],
  ])('long form %s', (text, short) => {
    expect(parseSharding(text, mesh, { rank: 3 }).text).toBe(short);
  });

  test('Shard(-1) of a 3-D tensor; two shards with order (1, 0)', () => {
    expect(parsePlacement('Shard(-1)', { rank: 3 }).text).toBe('S(2)');
    expect(new Sharding([Shard.of(0), Shard.of(0)], new Map([[0, [1, 0]]])).text).toBe(
      'S(0)[1]S(0)[0]',
    );
    expect(new Sharding([Shard.of(0), Shard.of(0)]).orderedText).toBe('S(0)[0]S(0)[1]');
  });

  test.each([
    ['S(0)', /has 1 placement, but the mesh dp=2,tp=2 has 2 dims/],
    ['S(0)X', /expected a placement at column 5/],
    ['S(0R', /expected '\)' at column 4/],
    ['P("sum)R', /expected a reduction at column 3/],
    ['P(summ)R', /expected a reduction at column 3/],
    ['S(-1)R', /rank of the tensor is not known/],
    ['S(0)[0]S(0)[0]', /positions on tensor dim 0 must be 0..1/],
    ['S(0)[0]S(0)', /positions on tensor dim 0/],
    ['_S(0, 0)R', /stride factor of at least 1/],
    ['[S(0), R', /expected '\]'/],
    ['Shrad(0)R', /expected a placement at column 1/],
  ])('refuses %s', (text, message) => {
    expect(() => parseSharding(text, mesh)).toThrow(message);
  });

  test('a dim that the tensor lacks', () => {
    expect(() => parseSharding('S(2)R', mesh, { rank: 2 })).toThrow(/2-D tensor/);
  });
});

describe('orders and strides', () => {
  const two = parseMesh('dp=2,tp=2');

  test('S(0)S(0) cuts the outer mesh dim first', () => {
    expect(heldRows(parseSharding('S(0)S(0)', two), two, 0, 8)).toEqual([
      [0, 1],
      [2, 3],
      [4, 5],
      [6, 7],
    ]);
  });

  test('an order of mesh dims cuts tp before dp', () => {
    const ordered = parseSharding('S(0)[1]S(0)[0]', two);
    const rows = [
      [0, 1],
      [4, 5],
      [2, 3],
      [6, 7],
    ];
    expect(heldRows(ordered, two, 0, 8)).toEqual(rows);
    const view = toMeshView(ordered, two, [8]);
    if ('refused' in view) throw new Error(view.refused);
    expect(view.placements.map((p) => p.text).join('')).toBe('_S(0, 2)S(0)');
    expect(heldRows(new Sharding(view.placements), two, 0, 8)).toEqual(rows);
    expect(fromMeshView(view.placements, two).text).toBe('S(0)[1]S(0)[0]');
  });

  const three = parseMesh('a=2,b=3,c=4');
  const FACTORS: [string, number[]][] = [
    ['abc', [1, 1, 1]],
    ['acb', [1, 4, 1]],
    ['bac', [3, 1, 1]],
    ['bca', [12, 1, 1]],
    ['cab', [4, 4, 1]],
    ['cba', [12, 4, 1]],
  ];
  test.each(FACTORS)('order %s has factors %j', (order, factors) => {
    const dims = [...order].map((c) => 'abc'.indexOf(c));
    const sharding = new Sharding([Shard.of(0), Shard.of(0), Shard.of(0)], new Map([[0, dims]]));
    const view = toMeshView(sharding, three);
    if ('refused' in view) throw new Error(view.refused);
    expect(view.placements.map((p) => (p instanceof StridedShard ? p.factor : 1))).toEqual(factors);
    expect(decodeOrder(factors, three.sizes)).toEqual(dims);
  });

  test('factors that are not an order', () => {
    expect(decodeOrder([2, 1, 1], three.sizes)).toBeUndefined();
    expect(fromMeshView([new StridedShard(0, 2), Shard.of(0), Shard.of(0)], three).text).toBe(
      '_S(0, 2)S(0)S(0)',
    );
  });

  test('every order of one to three mesh dims survives the mesh view, element for element', () => {
    for (const sizes of [[2], [4], [2, 3], [4, 2], [3, 4], [2, 3, 4], [4, 4, 2], [3, 2, 3]]) {
      const mesh = parseMesh(sizes.map((n, i) => `m${i}=${n}`).join(','));
      const size = 2 * mesh.size;
      for (let mask = 1; mask < 1 << sizes.length; mask++) {
        const dims = sizes.map((_, i) => i).filter((i) => mask & (1 << i));
        for (const order of permutations(dims)) {
          const placements = sizes.map((_, i) => (dims.includes(i) ? Shard.of(0) : REPLICATE));
          const sharding = new Sharding(placements, new Map([[0, order]]));
          const view = toMeshView(sharding, mesh, [size]);
          if ('refused' in view) throw new Error(view.refused);
          expect(fromMeshView(view.placements, mesh).text).toBe(sharding.text);
          expect(heldRows(new Sharding(view.placements), mesh, 0, size)).toEqual(
            heldRows(sharding, mesh, 0, size),
          );
        }
      }
    }
  });

  test('uneven: the order is kept, strides are refused', () => {
    const mesh = parseMesh('dp=3,tp=2');
    const ordered = parseSharding('S(0)[1]S(0)[0]', mesh);
    expect(heldRows(ordered, mesh, 0, 7)).toEqual([[0, 1], [4], [2, 3], [5], [], [6]]);
    expect(
      heldRows(new Sharding([new StridedShard(0, 2), Shard.of(0)]), mesh, 0, 7).slice(4),
    ).toEqual([[6], []]);
    expect(toMeshView(ordered, mesh, [7])).toHaveProperty('refused');
  });
});

describe('sizes', () => {
  const mesh = parseMesh('dp=4,tp=2');
  test.each([
    ['S(0)S(0)', [8, 3], true, true],
    ['S(0)S(0)', [9, 3], true, false],
    ['S(0)S(0)', [7, 3], false, false],
    ['S(0)S(1)', [4, 3], true, false],
    ['_S(0, 3)R', [12, 1], true, true],
    ['_S(0, 3)R', [11, 1], false, false],
    ['S(2)R', [8, 8], false, false],
    ['RR', [1], true, true],
  ])('%s of %j', (text, shape, can, even) => {
    const sharding = parseSharding(text, mesh);
    expect(shardable(sharding, mesh, shape)).toBe(can);
    expect(evenlyShardable(sharding, mesh, shape)).toBe(even);
  });

  test('the local shape is that of the rank with most rows', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(
          'S(0)S(0)',
          'S(0)[1]S(0)[0]',
          '_S(0, 3)S(0)',
          'S(0)R',
          'RP(sum)',
          'S(0)S(1)',
        ),
        fc.integer({ min: 1, max: 40 }),
        fc.integer({ min: 1, max: 9 }),
        (text, a, b) => {
          const sharding = parseSharding(text, mesh);
          const most = (dim: number, size: number): number =>
            Math.max(...heldRows(sharding, mesh, dim, size).map((rows) => rows.length));
          expect(localShape(sharding, mesh, [a, b])).toEqual([most(0, a), most(1, b)]);
        },
      ),
    );
  });
});
