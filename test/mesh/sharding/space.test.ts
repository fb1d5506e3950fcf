import { describe, expect, test } from 'vitest';

import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { parseSharding } from '../../../src/mesh/sharding/parse.ts';
import { localShape } from '../../../src/mesh/sharding/sharding.ts';
import {
  partialCode,
  REPLICATE_CODE,
  shardCode,
  ShardingSpace,
} from '../../../src/mesh/sharding/space.ts';

describe('ShardingSpace', () => {
  const mesh = parseMesh('dp=4,tp=2');

  test('equal shardings have one id, the replicated one is 0', () => {
    const space = new ShardingSpace(mesh);
    expect(space.replicated).toBe(0);
    expect(space.parse('RR')).toBe(0);
    const id = space.parse('S(0)R');
    expect(space.intern(parseSharding('Shard(dim=0), Replicate()', mesh))).toBe(id);
    expect(space.internCodes([shardCode(0), REPLICATE_CODE])).toBe(id);
    expect(space.text(id)).toBe('S(0)R');
    expect(space.size).toBe(2);
  });

  test('a space gives codes, positions and pieces of a sharding', () => {
    const space = new ShardingSpace(mesh);
    const id = space.parse('S(1)[1]S(1)[0]');
    expect([space.kindAt(id, 0), space.kindAt(id, 1)]).toEqual([shardCode(1), shardCode(1)]);
    expect([space.positionAt(id, 0), space.positionAt(id, 1)]).toEqual([1, 0]);
    expect([space.pieces(id, 0), space.pieces(id, 1)]).toEqual([1, 8]);
    const pending = space.parse('P(max)S(0)');
    expect(space.kindAt(pending, 0)).toBe(partialCode('max'));
    expect(space.isPartial(pending)).toBe(true);
    expect(space.isPartial(id)).toBe(false);
    const strided = space.parse('_S(0, 3)R');
    expect(space.dimAt(strided, 0)).toBe(0);
    expect(space.placementOf(space.kindAt(strided, 0)).text).toBe('_S(0, 3)');
  });

  test('a pending reduction over one device is none', () => {
    const space = new ShardingSpace(parseMesh('dp=4,one=1'));
    expect(space.isPartial(space.parse('RP(sum)'))).toBe(false);
  });

  test('local shapes of the table equal those of the sharding', () => {
    const space = new ShardingSpace(mesh);
    for (const id of space.enumerate(3, { partialOps: ['sum', 'max'], orders: true }))
      expect(space.localShape(id, [7, 16, 3])).toEqual(localShape(space.get(id), mesh, [7, 16, 3]));
    expect(space.localShape(space.parse('_S(0, 3)R'), [12])).toEqual([3]);
    expect(() => space.localShape(space.parse('S(2)R'), [4, 4])).toThrow(
      /cuts dim 2 of a 2-D tensor/,
    );
  });

  test.each([
    // (R, sum, S0, S1) squared; with max too, less the two mixes; orders add one state for each
    // dim.
    [2, ['sum'] as const, false, 16],
    [2, ['sum', 'max'] as const, false, 25 - 2],
    [2, ['sum', 'avg'] as const, false, 25],
    [2, ['sum'] as const, true, 18],
  ])('enumerate rank %i, pending %j, orders %j: %i', (rank, partialOps, orders, count) => {
    const ids = new ShardingSpace(mesh).enumerate(rank, { partialOps, orders });
    expect(ids.length).toBe(count);
    expect(new Set(ids).size).toBe(count);
  });

  test('enumerate is deterministic and grows past the first tables', () => {
    const texts = (): string[] => {
      const space = new ShardingSpace(parseMesh('a=2,b=2,c=2'));
      return space.enumerate(4, { partialOps: ['sum'], orders: true }).map((id) => space.text(id));
    };
    expect(texts()).toEqual(texts());
    // 6^3 lists; pairs on one dim have 2 orders, triples 6: 4 dims * (3 pairs * 5 others) + 4 * 5
    // more.
    expect(texts().length).toBe(216 + 60 + 20);
  });
});
