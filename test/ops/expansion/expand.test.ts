import { describe, expect, it } from 'vitest';

import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { heldRows } from '../../../src/mesh/sharding/sharding.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';
import { expandRules, type StrategySet } from '../../../src/ops/expansion/expand.ts';
import type { TensorMeta } from '../../../src/ops/record/record.ts';
import { P, R, type Rule, rule, S } from '../../../src/ops/record/rule.ts';
import { einsumRules } from '../../../src/ops/rules/einsum.ts';
import { viewRules } from '../../../src/ops/rules/viewgroups.ts';

const f32 = (...shape: number[]): TensorMeta => ({ dtype: 'f32', shape });
const space = (mesh: string): ShardingSpace => new ShardingSpace(parseMesh(mesh));
const ALLOW = { uneven: 'allow' } as const;

function texts(set: StrategySet, s: ShardingSpace): string[] {
  const width = set.inputCount + set.outputCount;
  return Array.from({ length: set.count }, (_, a) =>
    Array.from({ length: width }, (_, t) => s.text(set.specs[a * width + t])).join(' '),
  );
}

describe('expansion to the mesh', () => {
  it('counts of the einsum generator without linearity: mm 4 and 16, bmm 5 and 25', () => {
    const count = (
      equation: string,
      mesh: string,
      inputs: TensorMeta[],
      out: TensorMeta,
    ): number => {
      const rules = einsumRules(equation, { linear: false });
      return expandRules(space(mesh), rules, inputs, [out], ALLOW).count;
    };
    const mm = [f32(64, 64), f32(64, 64)];
    expect(count('mk,kn->mn', 'a=2', mm, f32(64, 64))).toBe(4);
    expect(count('mk,kn->mn', 'a=2,b=2', mm, f32(64, 64))).toBe(16);
    const bmm = [f32(64, 64, 64), f32(64, 64, 64)];
    expect(count('bmk,bkn->bmn', 'a=2', bmm, f32(64, 64, 64))).toBe(5);
    expect(count('bmk,bkn->bmn', 'a=2,b=2', bmm, f32(64, 64, 64))).toBe(25);
  });

  it('keeps rule order, mesh dim 0 slowest, all-replicate first', () => {
    const s = space('a=2,b=2');
    const rules = [rule([S(0)], [S(0)])];
    expect(texts(expandRules(s, rules, [f32(8)], [f32(8)], ALLOW), s)).toEqual([
      'RR RR',
      'RS(0) RS(0)',
      'S(0)R S(0)R',
      'S(0)S(0) S(0)S(0)',
    ]);
  });

  it('filter 1: drops mixed pending reductions, but lets sum stand with avg', () => {
    const s = space('a=2,b=2');
    const rules = [
      rule([P('sum')], [P('sum')]),
      rule([P('avg')], [P('avg')]),
      rule([P('max')], [P('max')]),
    ];
    const found = texts(expandRules(s, rules, [f32(8)], [f32(8)], ALLOW), s);
    expect(found).toContain('P(sum)P(avg) P(sum)P(avg)');
    expect(found).not.toContain('P(sum)P(max) P(sum)P(max)');
    expect(found).toHaveLength(12);
  });

  it('filter 2: a dim needs one row a piece, and even pieces under the even policy', () => {
    const s = space('a=2,b=4');
    const rules = [rule([S(0)], [S(0)])];
    const of = (size: number, uneven: 'allow' | 'forbid'): string[] =>
      texts(expandRules(s, rules, [f32(size)], [f32(size)], { uneven }), s);
    expect(of(6, 'allow')).toEqual(['RR RR', 'RS(0) RS(0)', 'S(0)R S(0)R']);
    expect(of(6, 'forbid')).toEqual(['RR RR', 'S(0)R S(0)R']);
    expect(of(8, 'forbid')).toContain('S(0)S(0) S(0)S(0)');
  });

  it('filter 3: a tie of unequal sizes is dropped unless it is scaled and divides', () => {
    const s = space('a=2');
    const tied = [rule([S(0), S(0)], [S(0)])];
    expect(expandRules(s, tied, [f32(8), f32(6)], [f32(8)], ALLOW).count).toBe(1);
    const scaled = [rule([S(0, { scaled: true })], [S(0, { scaled: true })])];
    expect(expandRules(s, scaled, [f32(4)], [f32(8)], ALLOW).count).toBe(2);
    expect(expandRules(s, scaled, [f32(3)], [f32(6)], ALLOW).count).toBe(1);
  });

  it('filter 4: equal shardings of two rules are one strategy, the first', () => {
    const s = space('a=2');
    const twice: Rule[] = [rule([S(0)], [R]), rule([S(0)], [R], { rewrite: 'mask' })];
    const set = expandRules(s, twice, [f32(8)], [f32(8)], ALLOW);
    expect(set.count).toBe(2);
    expect(set.rules[set.choice[1]].rewrite).toBeUndefined();
  });

  it('a mesh dim of size 1 takes only the all-replicate rule', () => {
    const s = space('a=1,b=2');
    expect(expandRules(s, [rule([S(0)], [S(0)])], [f32(8)], [f32(8)], ALLOW).count).toBe(2);
  });

  it('drops rules whose Partial inputs nobody can leave pending', () => {
    const s = space('a=2');
    const rules = [rule([P('sum')], [P('sum')])];
    const with_ = (reachable: number): number =>
      expandRules(s, rules, [f32(8)], [f32(8)], { uneven: 'allow', reachable: [reachable] }).count;
    expect(with_(0)).toBe(1);
    expect(with_(-1)).toBe(2);
  });
});

describe('a view on several mesh dims moves no element', () => {
  // The truth is element ownership: a view is local iff every rank holds the same elements, in the
  // same order, before and after.
  const held = (s: ShardingSpace, id: number, shape: readonly number[]): number[][] => {
    const sharding = s.get(id);
    const rows = shape.map((size, dim) => heldRows(sharding, s.mesh, dim, size));
    return Array.from({ length: s.mesh.size }, (_, rank) => {
      let cells = [0];
      shape.forEach(
        (size, dim) => (cells = cells.flatMap((c) => rows[dim][rank].map((r) => c * size + r))),
      );
      return cells;
    });
  };
  const cases: [number[], number[]][] = [
    [[8, 4], [32]],
    [[32], [8, 4]],
    [
      [16, 6],
      [16, 2, 3],
    ],
    [
      [4, 6, 5],
      [24, 5],
    ],
    [
      [24, 5],
      [4, 6, 5],
    ],
    [
      [6, 8],
      [12, 4],
    ],
    [
      [4, 4],
      [2, 8],
    ],
    [
      [2, 3, 8],
      [6, 8],
    ],
    [
      [16, 12],
      [4, 4, 12],
    ],
    [
      [1, 8, 4],
      [8, 4],
    ],
    [
      [7, 4],
      [7, 2, 2],
    ],
    [
      [12, 1, 4],
      [12, 4],
    ],
  ];
  for (const mesh of ['a=2', 'a=4', 'a=2,b=2', 'a=2,b=4', 'a=3,b=2', 'a=2,b=2,c=2']) {
    for (const [from, to] of cases) {
      it(`${mesh}: [${from.join(', ')}] -> [${to.join(', ')}]`, () => {
        const s = space(mesh);
        const set = expandRules(s, viewRules(from, to), [f32(...from)], [f32(...to)], ALLOW);
        for (let a = 0; a < set.count; a++) {
          const before = s.get(set.specs[2 * a]);
          if (before.placements.some((p) => p.kind === 'partial')) continue;
          expect(held(s, set.specs[2 * a + 1], to), `${before.text}`).toEqual(
            held(s, set.specs[2 * a], from),
          );
        }
        expect(set.count).toBeGreaterThan(1);
      });
    }
  }
});
