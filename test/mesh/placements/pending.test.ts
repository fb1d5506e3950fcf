import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import {
  lookupMask,
  maskedRows,
  MaskPartial,
} from '../../../src/mesh/placements/partials/mask-partial.ts';
import { NormPartial } from '../../../src/mesh/placements/partials/norm-partial.ts';
import { Partial, REDUCE_OPS } from '../../../src/mesh/placements/partials/partial.ts';
import { Pending } from '../../../src/mesh/placements/partials/pending.ts';
import type { ReduceOp } from '../../../src/mesh/placements/placement.ts';
import { REPLICATE } from '../../../src/mesh/placements/replicate.ts';
import { Shard } from '../../../src/mesh/placements/shards/shard.ts';
import { parsePlacement } from '../../../src/mesh/sharding/parse.ts';
import { isPending, pendingTogether, Sharding } from '../../../src/mesh/sharding/sharding.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';

describe('laws of pending reductions', () => {
  test.each<[ReduceOp, number, number]>([
    // Of 12, 10 and 6; of the booleans 1, 0 and 1.
    ['sum', 28, 1],
    ['max', 12, 1],
    ['min', 6, 0],
    ['product', 720, 0],
    ['band', 0, 0],
    ['bor', 14, 1],
    ['bxor', 0, 0],
  ])('P(%s) of 12, 10, 6 is %i; of yes, no, yes %i', (op, value, flag) => {
    expect(Partial.of(op).reduce([12, 10, 6])).toBe(value);
    expect(Partial.of(op).reduce([1, 0, 1], 'bool')).toBe(flag);
  });

  test('averages of booleans are refused, and bits beyond 32 are kept', () => {
    expect(Partial.of('avg').reduce([1, 2, 6])).toBe(3);
    expect(() => Partial.of('avg').reduce([1, 0], 'bool')).toThrow(/P\(avg\) of booleans/);
    expect(Partial.of('bor').reduce([2 ** 40, 1])).toBe(2 ** 40 + 1);
    expect(() => Partial.of('band').reduce([0.5, 1])).toThrow(/P\(band\) of 0.5/);
  });

  test.each([
    [2, [3, 4], 5],
    [1, [3, 4], 7],
    [3, [3, 4, 5], 6],
    [Infinity, [3, 4], 4],
    [-Infinity, [3, 4], 3],
    [0, [3, 4], 7],
    [2, [0, 0], 0],
    [2, [3e200, 4e200], 5e200],
  ])('_NormP(%d) of %j is %d', (p, operands, norm) => {
    expect(new NormPartial(p).reduce(operands) / (norm || 1)).toBeCloseTo(norm === 0 ? 0 : 1, 12);
  });

  test('a value taken apart into operands reduces to itself', () => {
    const kinds: Pending[] = [
      ...REDUCE_OPS.map((op) => Partial.of(op)),
      ...[1, 2, 3.5, Infinity].map((p) => new NormPartial(p)),
    ];
    for (const p of kinds) {
      const refused = p.operand(3, 0, 2) === undefined;
      expect(refused, p.text).toBe(['P(product)', 'P(band)', 'P(bor)', 'P(bxor)'].includes(p.text));
      if (refused) continue;
      fc.assert(
        fc.property(
          fc.double({ min: 0, max: 1e6, noNaN: true }),
          fc.integer({ min: 1, max: 9 }),
          (value, n) => {
            const operands = Array.from({ length: n }, (_, r) => p.operand(value, r, n) ?? NaN);
            expect(Math.abs(p.reduce(operands) - value)).toBeLessThanOrEqual(1e-9 * (1 + value));
          },
        ),
      );
    }
    expect(new NormPartial(0).operand(3, 0, 2)).toBeUndefined();
    // Spec: the first rank keeps the value of a sum, the others hold zero.
    expect([0, 1, 2].map((r) => Partial.of('sum').operand(5, r))).toEqual([5, 0, 0]);
  });

  test('the only mix is sum with avg', () => {
    const all = [
      ...REDUCE_OPS.map((op) => `P(${op})`),
      '_NormP(2)',
      '_NormP(1)',
      'MaskP(sum, [16, 8], 0)',
      'MaskP(sum, [8], 0)',
    ];
    for (const a of all) {
      for (const b of all) {
        const legal = a === b || [a, b].sort().join() === 'P(avg),P(sum)';
        const [p, q] = [parsePlacement(a), parsePlacement(b)];
        expect(pendingTogether(p, q), `${a} ${b}`).toBe(legal);
        const make = (): Sharding => new Sharding([p, REPLICATE, q]);
        if (legal) expect(make().text).toBe(`${a}R${b}`);
        else expect(make).toThrow('cannot stand on one tensor');
      }
    }
  });

  test('a pending kind of the user mixes with nothing else', () => {
    class LogSum extends Pending {
      readonly kind = 'log-sum';
      readonly text = 'LogSum';
      reduce(operands: readonly number[]): number {
        return Math.log(operands.reduce((s, x) => s + Math.exp(x), 0));
      }
      operand(value: number, _rank: number, n: number): number {
        return value - Math.log(n);
      }
    }
    const p = new LogSum();
    expect(isPending(p)).toBe(true);
    expect(new Sharding([p, p]).text).toBe('LogSumLogSum');
    expect(() => new Sharding([p, Partial.of('sum')])).toThrow('cannot stand');
    const space = new ShardingSpace(parseMesh('a=2'));
    expect(space.isPartial(space.intern(new Sharding([p])))).toBe(true);
  });
});

describe('masked lookups', () => {
  const table = Array.from({ length: 16 }, (_, i) =>
    Array.from({ length: 8 }, (__, j) => 100 * i + j),
  );

  test('rank 2 of 4 looks up local row 1, the others mask; reading the value twice works', () => {
    const indices = [9, 0, 15, 9];
    const cut = Shard.of(0);
    const ranks = [0, 1, 2, 3].map((r) => {
      const offset = cut.offset(16, 4, r);
      const mask = lookupMask(indices, offset, cut.localSize(16, 4, r));
      const rows = Array.from(mask.local, (i) => table[offset + i]);
      return { mask, rows, placement: new MaskPartial([16, 8], 0, mask) };
    });
    expect(ranks.map(({ mask }) => [mask.masked[0], mask.local[0]])).toEqual([
      [1, 0],
      [1, 0],
      [0, 1],
      [1, 0],
    ]);
    const read = (): number[][] => {
      const operands = ranks.map(({ rows, mask }) => maskedRows(rows, mask));
      return operands[0].map((row, i) =>
        row.map((_, j) => ranks[0].placement.reduce(operands.map((o) => o[i][j]))),
      );
    };
    const plain = indices.map((i) => table[i]);
    expect(read()).toEqual(plain);
    expect(read()).toEqual(plain);
  });

  test('equal only with the same mask object', () => {
    const mask = lookupMask([1], 0, 4);
    const same = lookupMask([1], 0, 4);
    const [a, b, c] = [mask, mask, same].map((m) => new MaskPartial([16, 8], 0, m));
    expect([a.equals(b), a.equals(c), a.equals(new MaskPartial([16, 8], 0))]).toEqual([
      true,
      false,
      false,
    ]);
    expect(
      new MaskPartial([16, 8], 0).equals(parsePlacement('MaskP(sum, torch.Size([16, 8]), 0)')),
    ).toBe(true);
    expect(new MaskPartial([16, 8], 1).equals(new MaskPartial([16, 8], 0))).toBe(false);
    expect(a.text).toBe(c.text);
    expect(pendingTogether(a, b)).toBe(true);
    expect(pendingTogether(a, c)).toBe(false);
    expect(new Sharding([a]).equals(new Sharding([b]))).toBe(true);
    expect(new Sharding([a]).equals(new Sharding([c]))).toBe(false);
    const space = new ShardingSpace(parseMesh('a=4'));
    const ids = [a, b, c].map((p) => space.intern(new Sharding([p])));
    expect(ids[0]).toBe(ids[1]);
    expect(ids[2]).not.toBe(ids[0]);
    expect(space.kindAt(ids[2], 0)).not.toBe(space.kindAt(ids[0], 0));
  });
});
