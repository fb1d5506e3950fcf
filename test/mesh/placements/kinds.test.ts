import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { builtinKinds } from '../../../src/mesh/placements/builtin-kinds.ts';
import type { PlacementKinds } from '../../../src/mesh/placements/kinds.ts';
import { MaskPartial } from '../../../src/mesh/placements/partials/mask-partial.ts';
import { NormPartial } from '../../../src/mesh/placements/partials/norm-partial.ts';
import { Partial, REDUCE_OPS } from '../../../src/mesh/placements/partials/partial.ts';
import type { Placement } from '../../../src/mesh/placements/placement.ts';
import { REPLICATE } from '../../../src/mesh/placements/replicate.ts';
import { Cut } from '../../../src/mesh/placements/shards/cut.ts';
import { Interleaved } from '../../../src/mesh/placements/shards/interleaved.ts';
import { Ragged } from '../../../src/mesh/placements/shards/ragged.ts';
import { Shard } from '../../../src/mesh/placements/shards/shard.ts';
import { StridedShard } from '../../../src/mesh/placements/shards/strided.ts';
import { sliceKind } from '../../../src/mesh/placements/slice-kind.ts';
import { fromMeshView } from '../../../src/mesh/sharding/mesh-view.ts';
import { parsePlacement, parseSharding } from '../../../src/mesh/sharding/parse.ts';
import { placementFaults } from '../../../src/mesh/sharding/placement-faults.ts';
import {
  cutFurther,
  evenlyShardable,
  heldRows,
  localShape,
  localShapeAt,
  refusedCut,
  shardable,
  Sharding,
} from '../../../src/mesh/sharding/sharding.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';

const sizes = (p: Placement, size: number, n: number): number[] =>
  Array.from({ length: n }, (_, r) => p.localSize(size, n, r));

describe('cuts of a dim', () => {
  test.each([
    [10, 4, [3, 3, 3, 1], [0, 3, 6, 9]],
    [9, 4, [3, 3, 3, 0], [0, 3, 6, 9]],
    [5, 4, [2, 2, 1, 0], [0, 2, 4, 5]],
    [3, 4, [1, 1, 1, 0], [0, 1, 2, 3]],
    [1, 4, [1, 0, 0, 0], [0, 1, 1, 1]],
    [13, 8, [2, 2, 2, 2, 2, 2, 1, 0], [0, 2, 4, 6, 8, 10, 12, 13]],
    [17, 8, [3, 3, 3, 3, 3, 2, 0, 0], [0, 3, 6, 9, 12, 15, 17, 17]],
  ])('sizes and offsets of each rank, %i on %i', (size, n, rows, offsets) => {
    const p = Shard.of(0);
    expect(sizes(p, size, n)).toEqual(rows);
    expect(rows.map((__, r) => p.offset(size, n, r))).toEqual(offsets);
  });

  test('ragged: sizes, offsets, a rank that owns all, and what is refused', () => {
    const p = new Ragged(0, [2, 1, 0, 1], 3);
    expect(p.text).toBe('Ragged(0, [2, 1, 0, 1], 3)');
    expect(sizes(p, 12, 4)).toEqual([6, 3, 0, 3]);
    expect([0, 1, 2, 3].map((r) => p.offset(12, 4, r))).toEqual([0, 6, 9, 9]);
    expect(p.split(12, 4)).toEqual([[0, 1, 2, 3, 4, 5], [6, 7, 8], [], [9, 10, 11]]);
    expect(new Ragged(0, [0, 4, 0, 0], 3).split(12, 4)).toEqual([
      [],
      Array.from({ length: 12 }, (_, i) => i),
      [],
      [],
    ]);
    expect(() => p.split(13, 4)).toThrow(
      'Ragged(0, [2, 1, 0, 1], 3) has 12 rows in all, the dim has 13',
    );
    expect(() => p.localSize(12, 3)).toThrow('has units for 4 ranks, the mesh dim has 3');
    expect([p.isEven(12, 4), new Ragged(0, [1, 1, 1, 1], 3).isEven(12, 4)]).toEqual([false, true]);
  });

  test('interleaved sections: a fused query-key-value weight, each part cut by itself', () => {
    const p = new Interleaved(0, [8, 4, 4]);
    expect(p.split(16, 4)).toEqual([
      [0, 1, 8, 12],
      [2, 3, 9, 13],
      [4, 5, 10, 14],
      [6, 7, 11, 15],
    ]);
    expect([p.isEven(16, 4), p.isEven(16, 8)]).toEqual([true, false]);
    expect(sizes(p, 16, 8)).toEqual([3, 3, 3, 3, 1, 1, 1, 1]);
    expect(p.refusal(15)).toBe(
      'Interleaved(0, [8, 4, 4]) has sections of 16 rows in all, the dim has 15',
    );
    // Equal sections are a StridedShard, in the text too.
    expect(new Interleaved(0, [4, 4, 4]).split(12, 2)).toEqual(new StridedShard(0, 3).split(12, 2));
    expect(parsePlacement('Interleaved(0, 3)').text).toBe('_S(0, 3)');
    expect(parsePlacement('Interleaved(1, 1)').text).toBe('S(1)');
  });

  test('every kind keeps the promises of the interface', () => {
    const trials = Array.from({ length: 14 }, (_, size) =>
      [1, 2, 3, 4, 5].map((n) => ({ size, n })),
    ).flat();
    const texts = [
      'S(0)',
      'S(2)',
      '_S(0, 2)',
      '_S(1, 5)',
      '_S(0, 100)',
      'R',
      'P(sum)',
      'P(bxor)',
      '_NormP(2)',
    ];
    texts.push('MaskP(sum, [16, 8], 0)', 'Interleaved(0, [6, 3, 3])', 'Ragged(0, [2, 1, 0, 1], 3)');
    for (const text of texts)
      expect(placementFaults(parsePlacement(text), trials), text).toEqual([]);
    // Nested chunks and pieces agree with the definition for any factor, size and count.
    fc.assert(
      fc.property(
        fc.nat(40),
        fc.integer({ min: 1, max: 9 }),
        fc.integer({ min: 2, max: 9 }),
        (size, n, factor) => {
          const rows: number[][] = Array.from({ length: n }, () => []);
          const chunk = Math.ceil(size / factor);
          for (let i = 0; i < size; i++) {
            const start = Math.floor(i / chunk) * chunk;
            const piece = Math.ceil(Math.min(chunk, size - start) / n);
            rows[Math.floor((i - start) / piece)].push(i);
          }
          const p = new StridedShard(0, factor);
          expect(p.split(size, n)).toEqual(rows);
          expect(sizes(p, size, n)).toEqual(rows.map((r) => r.length));
        },
      ),
    );
  });

  test('broken kinds are found out', () => {
    const broken = (split: (size: number, n: number) => number[][]): string[] =>
      placementFaults(
        sliceKind({ kind: 'broken', word: 'Broken', split }).of(0),
        [{ size: 6, n: 2 }],
        known(),
      );
    const known = (): PlacementKinds =>
      builtinKinds().register(sliceKind({ kind: 'broken', word: 'Broken', split: () => [] }));
    expect(broken(() => [[0, 1, 2]])).toEqual([
      'Broken(0) of 6 rows on 2 ranks is split for 1 ranks',
    ]);
    expect(
      broken(() => [
        [0, 1, 2],
        [3, 4],
      ])[0],
    ).toMatch(/row 5 is held by 0 ranks/);
    expect(
      broken(() => [
        [0, 1, 2, 3],
        [3, 4, 5],
      ])[0],
    ).toMatch(/row 3 is held by 2 ranks/);
    expect(
      broken(() => [
        [0, 1, 2],
        [3, 4, 5, 6],
      ])[0],
    ).toMatch(/1 rows are outside 0..5/);
    class Liar extends Cut {
      readonly kind = 'broken';
      readonly text = 'Broken(0)';
      split(size: number): number[][] {
        return [Array.from({ length: size }, (_, i) => i), []];
      }
      override localSize(): number {
        return 1;
      }
      override isEven(): boolean {
        return true;
      }
      withDim(): Cut {
        return this;
      }
    }
    expect(placementFaults(new Liar(0), [{ size: 6, n: 2 }], known()).join('\n')).toMatch(
      /rank 0 holds 6 rows, localSize says 1[^]*called even[^]*withDim\(1\) has dim 0/,
    );
  });

  test('negative dims are counted from the end', () => {
    expect(Shard.of(-1, 3).text).toBe('S(2)');
    expect(parsePlacement('Shard(-1)', { rank: 3 })).toBe(Shard.of(2));
    expect(parsePlacement('_S(-2, 4)', { rank: 3 }).text).toBe('_S(1, 4)');
    expect(parsePlacement('Ragged(-1, [1, 2], 2)', { rank: 2 }).text).toBe('Ragged(1, [1, 2], 2)');
    expect(() => Shard.of(3, 3)).toThrow('a 3-D tensor has no dim 3');
    expect(() => parsePlacement('S(-4)', { rank: 3 })).toThrow(
      /expected a dim of a 3-D tensor at column 3/,
    );
    expect(() => Shard.of(-1)).toThrow(expect.objectContaining({ code: 'E_USAGE' }));
  });
});

describe('the table of kinds', () => {
  // Rank r holds rows r, r + n, ...: a kind that no file of the library knows.
  const interleaved2 = sliceKind({
    kind: 'interleaved2',
    word: 'Interleaved2',
    split: (size, n) =>
      Array.from({ length: n }, (_, r) =>
        Array.from({ length: size }, (__, i) => i).filter((i) => i % n === r),
      ),
    join: (parts, size) =>
      Array.from({ length: size }, (_, i) => parts[i % parts.length][Math.floor(i / parts.length)]),
  });

  test('a user kind: register, list, parse, remove', () => {
    const kinds = builtinKinds().register(interleaved2);
    expect(kinds.list().map((k) => k.kind)).toEqual([
      ...[
        'replicate',
        'shard',
        'strided',
        'partial',
        'norm-partial',
        'mask-partial',
        'interleaved',
        'ragged',
      ],
      'interleaved2',
    ]);
    const mesh = parseMesh('dp=2,tp=2');
    const sharding = parseSharding('Interleaved2(0)S(0)', mesh, { kinds });
    expect(sharding.text).toBe('Interleaved2(0)S(0)');
    expect(heldRows(sharding, mesh, 0, 6)).toEqual([[0, 2], [4], [1, 3], [5]]);
    expect(
      placementFaults(
        sharding.placements[0],
        [
          { size: 7, n: 3 },
          { size: 0, n: 2 },
        ],
        kinds,
      ),
    ).toEqual([]);
    expect(kinds.remove('interleaved2')).toBe(true);
    expect(kinds.remove('interleaved2')).toBe(false);
    expect(() => parseSharding('Interleaved2(0)S(0)', mesh, { kinds })).toThrow(/expected/);
    // Another table, and the one that is used by default, never knew it.
    expect(() => parsePlacement('Interleaved2(0)')).toThrow(/expected/);
  });

  test.each([
    ['shard', 'Else', /'shard' is registered twice/],
    ['x', 'Shard', /word 'Shard' is taken/],
    ['x', 'RS', /reads as several placements/],
    ['x', 'R_S', /cannot start the text/],
    ['x', 'lower', /cannot start the text/],
  ])('refuses kind %s with word %s', (kind, word, message) => {
    expect(() => builtinKinds().register({ ...interleaved2, kind, words: [word] })).toThrow(
      message,
    );
  });

  test('Ragged and Interleaved are known to the list of kinds only', () => {
    const src = fileURLToPath(new URL('../../../src', import.meta.url));
    const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter((f) =>
      f.endsWith('.ts'),
    );
    const users = (file: string): string[] =>
      files
        .filter((f) => readFileSync(join(src, f), 'utf8').includes(`/${file}.ts'`))
        .map((f) => f.replaceAll('\\', '/'));
    for (const file of ['ragged', 'interleaved'])
      expect(users(file).sort()).toEqual([
        'entries/notations.ts',
        'mesh/placements/builtin-kinds.ts',
      ]);
    expect(users('cut').length).toBeGreaterThan(3);
  });

  test('a space of shardings takes any kind', () => {
    const mesh = parseMesh('dp=2,tp=2');
    const space = new ShardingSpace(mesh);
    const id = space.intern(new Sharding([interleaved2.of(0), new Ragged(1, [1, 3], 2)]));
    expect(space.text(id)).toBe('Interleaved2(0)Ragged(1, [1, 3], 2)');
    expect([space.dimAt(id, 0), space.dimAt(id, 1)]).toEqual([0, 1]);
    expect(space.localShape(id, [5, 8])).toEqual([3, 6]);
    expect(space.isPartial(id)).toBe(false);
  });
});

describe('sizes of shardings', () => {
  const mesh = parseMesh('dp=2,tp=2');
  test.each([
    // size >= product of the mesh dims times the factor of each strided cut; divides by it for even
    // ones.
    ['_S(0, 4)_S(0, 8)', [96, 8], true, true],
    ['_S(0, 4)_S(0, 8)', [80, 8], true, false],
    ['_S(0, 6)_S(0, 18)', [216, 3], true, true],
    ['_S(0, 6)_S(0, 12)', [144, 3], true, true],
    ['_S(0, 4)_S(0, 8)', [32, 8], true, true],
    ['_S(0, 4)_S(0, 8)', [31, 8], false, false],
    ['Ragged(0, [1, 2], 4)R', [12, 1], true, false],
    ['Ragged(0, [2, 2], 4)R', [16, 1], true, true],
    ['Ragged(0, [1, 2], 4)R', [16, 1], false, false],
    ['Ragged(0, [1, 2], 4)S(0)', [12, 1], true, false],
    ['S(0)Ragged(0, [1, 2], 2)', [12, 1], true, false],
    // The ranks of dp hold 6 and 5 rows: units for 6 do not fit both.
    ['S(0)Ragged(0, [1, 2], 2)', [11, 1], false, false],
    ['Interleaved(0, [4, 2])R', [6, 1], true, true],
    ['Interleaved(0, [3, 3])R', [6, 1], true, false],
  ])('%s of %j', (text, shape, can, even) => {
    const sharding = parseSharding(text, mesh);
    expect(shardable(sharding, mesh, shape)).toBe(can);
    expect(evenlyShardable(sharding, mesh, shape)).toBe(even);
  });

  test('even means what it says: all ranks hold equally many rows', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(
          '_S(0, 2)_S(0, 3)',
          '_S(0, 4)S(0)',
          'Ragged(0, [1, 2], 4)S(0)',
          'Interleaved(0, [4, 8])S(0)',
        ),
        fc.integer({ min: 1, max: 60 }),
        (text, size) => {
          const sharding = new Sharding(parseSharding(text, parseMesh('dp=2,tp=2')).placements);
          if (!evenlyShardable(sharding, mesh, [size])) return;
          const rows = heldRows(sharding, mesh, 0, size).map((r) => r.length);
          expect(new Set(rows)).toEqual(new Set([size / 4]));
        },
      ),
    );
  });

  test('the local shape of every rank is what it holds', () => {
    for (const text of [
      'S(0)S(0)',
      'S(0)[1]S(0)[0]',
      '_S(0, 3)S(1)',
      'Ragged(0, [1, 2], 3)S(0)',
      'RP(sum)',
    ]) {
      const sharding = parseSharding(text, mesh);
      const [rows, columns] = [0, 1].map((dim) => heldRows(sharding, mesh, dim, [9, 5][dim]));
      const local = rows.map((r, rank) => [r.length, columns[rank].length]);
      expect(local.map((_, rank) => localShapeAt(sharding, mesh, [9, 5], rank))).toEqual(local);
      expect(localShape(sharding, mesh, [9, 5])).toEqual(
        [0, 1].map((d) => Math.max(...local.map((s) => s[d]))),
      );
    }
  });

  test('which cut is refused, and on which mesh dim', () => {
    const sharding = parseSharding('S(0)Ragged(0, [1, 2], 2)', mesh);
    expect(refusedCut(sharding, mesh, 0, 11)).toBe(
      "mesh dim 'tp': Ragged(0, [1, 2], 2) has 6 rows in all, the dim has 5",
    );
    expect(refusedCut(sharding, mesh, 0, 12)).toBeUndefined();
  });

  test('FSDP over tensor parallelism cuts last', () => {
    const weight = parseSharding('RS(0)', mesh);
    expect(cutFurther(weight, 0, Shard.of(0)).text).toBe('S(0)[1]S(0)[0]');
    expect(() => cutFurther(weight, 1, Shard.of(0))).toThrow('RS(0): mesh dim 1 is S(0) already');
  });
});

describe('texts', () => {
  const mesh = parseMesh('dp=2,tp=2');
  test.each([
    ...[
      'R_S(0, 2)',
      'P(sum)_S(0, 2)',
      '_NormP(2)R',
      '_NormP(inf)_NormP(inf)',
      '_NormP(-inf)R',
      '_NormP(0.5)R',
    ],
    ...[
      'Ragged(0, [2, 1], 3)S(0)',
      'RRagged(1, [0, 4], 1)',
      'Interleaved(0, [8, 4, 4])Interleaved(1, [3, 1])',
    ],
    ...[
      'MaskP(sum, [16, 8], 0)MaskP(sum, [16, 8], 0)',
      'Ragged(0, [2, 1], 3)[1]S(0)[0]',
      'Ragged(0, [], 1)R',
    ],
  ])('%s is read and written as it is', (text) => {
    expect(parseSharding(text, mesh).text).toBe(text);
  });

  test.each([
    ['MaskPartial(sum, torch.Size([16, 8]), 0)R', 'MaskP(sum, [16, 8], 0)R'],
    ['MaskP(sum, torch.Size([16, 8]), 1), Replicate()', 'MaskP(sum, [16, 8], 1)R'],
    ['_NormPartial(norm_type=2)R', '_NormP(2)R'],
    ['Ragged(dim=-1, units=[1, 2,], block=4) Shard(dim=0)', 'Ragged(2, [1, 2], 4)S(0)'],
    ['Interleaved(dim=0, sections=[3,3])R', 'Interleaved(0, [3, 3])R'],
  ])('%s is %s', (text, short) => {
    expect(parseSharding(text, mesh, { rank: 3 }).text).toBe(short);
  });

  test.each([
    ['Ragged(0, [1, -2], 3)R', /expected a number of blocks at column 15, got '-2\], 3\)R'/],
    ['Ragged(0, [1 2], 3)R', /expected ',' at column 14/],
    ['Ragged(0, [1, 2], 0)R', /a block of at least 1 row at column 19/],
    ['Ragged(0, [99999999999999999999], 1)R', /at most 1099511627776 at column 12/],
    ['Interleaved(0, 0)R', /sections of at least 1/],
    ['_NormP(two)R', /expected the p of a norm at column 8/],
    ['MaskP(sum, [16, 8], 2)R', /a dim of the 2-D table/],
    ['Raged(0, [1], 1)R', /expected a placement at column 1/],
    ['Shar', /expected a placement at column 1/],
  ])('refuses %s', (text, message) => {
    expect(() => parseSharding(text, mesh)).toThrow(message);
  });

  test('print and parse are inverse for any placements and any order', () => {
    const nat = fc.integer({ min: 0, max: 40 });
    const dim = fc.integer({ min: 0, max: 3 });
    const cut: fc.Arbitrary<Placement> = fc.oneof(
      dim.map((d) => Shard.of(d)),
      fc.tuple(dim, fc.integer({ min: 2, max: 99 })).map(([d, f]) => new StridedShard(d, f)),
      fc.tuple(dim, fc.array(nat, { maxLength: 5 })).map(([d, s]) => new Interleaved(d, s)),
      fc
        .tuple(dim, fc.array(nat, { maxLength: 5 }), nat)
        .map(([d, u, b]) => new Ragged(d, u, b + 1)),
    );
    const pending: fc.Arbitrary<Placement> = fc.oneof(
      fc.constantFrom(...REDUCE_OPS).map((op) => Partial.of(op)),
      fc.double({ noNaN: true }).map((p) => new NormPartial(p + 0)),
      fc
        .array(nat, { minLength: 1, maxLength: 4 })
        .map((shape) => new MaskPartial(shape, shape.length - 1)),
    );
    const four = parseMesh('a=2,b=3,c=2,d=5');
    fc.assert(
      fc.property(
        fc.array(fc.oneof(cut, fc.constant(REPLICATE)), { minLength: 3, maxLength: 3 }),
        fc.oneof(pending, cut),
        fc.boolean(),
        (cuts, last, backwards) => {
          const placements = [...cuts, last];
          for (const p of placements) expect(parsePlacement(p.text).equals(p)).toBe(true);
          const orders = new Map<number, number[]>();
          placements.forEach((p, m) => {
            if (backwards && p.dim !== undefined)
              orders.set(p.dim, [m, ...(orders.get(p.dim) ?? [])]);
          });
          // Strides in mesh order that are an order of mesh dims are read as that order.
          const sharding =
            fromMeshView(placements, four).inMeshOrder || backwards
              ? new Sharding(placements, orders)
              : null;
          if (sharding === null) return;
          const read = parseSharding(sharding.text, four);
          expect(read.equals(sharding), sharding.text).toBe(true);
          expect(
            parseSharding(sharding.orderedText, four).equals(sharding),
            sharding.orderedText,
          ).toBe(true);
        },
      ),
      { numRuns: 500 },
    );
  });

  test('hostile texts are refused at once', () => {
    expect(() => parsePlacement('R'.repeat(1 << 20))).toThrow(/characters, more than/);
    expect(() => parsePlacement(`Ragged(0, [${'1,'.repeat(20000)}], 1)`)).toThrow(
      /at most 16384 numbers/,
    );
    expect(() => parseSharding('S(0)'.repeat(1000), mesh)).toThrow(/has 1000 placements/);
  });
});
