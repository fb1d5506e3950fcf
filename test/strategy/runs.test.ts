import { describe, expect, it } from 'vitest';

import { parseMesh } from '../../src/mesh/devices/mesh.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { expandRules, type StrategySet } from '../../src/ops/expansion/expand.ts';
import type { TensorMeta } from '../../src/ops/record/record.ts';
import { einsumRules } from '../../src/ops/rules/einsum.ts';
import { runsOf } from '../../src/strategy/runs.ts';

const f32 = (...shape: number[]): TensorMeta => ({ dtype: 'f32', shape });

describe('stretches of neighbouring mesh dims', () => {
  it.each([
    ['RRRR', 1],
    ['S(0)S(0)S(0)R', 2],
    ['S(0)S(0)RS(1)', 3],
    ['S(0)RS(0)R', 4],
    ['S(0)RS(1)P(sum)', 4],
    // Cut in the order d, a, b, c: what a mesh of (abc, d) says by its second order.
    ['S(0)[1]S(0)[2]S(0)[3]S(0)[0]', 2],
    ['S(0)[3]S(0)[2]S(0)[1]S(0)[0]', 4],
  ])('%s has %i', (text, runs) => {
    const space = new ShardingSpace(parseMesh('a=2,b=2,c=2,d=2'));
    expect(runsOf(space, space.parse(text))).toBe(runs);
  });

  it('mesh dims of one device are in nobody’s way', () => {
    const space = new ShardingSpace(parseMesh('a=2,b=1,c=2'));
    expect(runsOf(space, space.parse('S(0)RS(0)'))).toBe(1);
  });

  it.each(['a=2,b=2,c=2,d=2', 'a=2,b=1,c=2,d=2,e=2'])(
    '%s: expansion keeps the strategies with few, in order',
    (text) => {
      const space = new ShardingSpace(parseMesh(text));
      const inputs = [f32(64, 64), f32(64, 64)];
      const rules = einsumRules('mk,kn->mn', { linear: true });
      const expanded = (mostRuns?: number): StrategySet =>
        expandRules(space, rules, inputs, [f32(64, 64)], {
          uneven: 'allow',
          ...(mostRuns === undefined ? {} : { mostRuns }),
        });
      const dims = space.meshRank;
      const lists = (set: StrategySet): number[][] =>
        Array.from({ length: set.count }, (_, s) => [
          ...set.choice.subarray(s * dims, (s + 1) * dims),
        ]);
      const all = lists(expanded());
      for (const most of [1, 2, 3]) {
        const few = all.filter((choice) => {
          const real = choice.filter((_, d) => space.mesh.sizes[d] > 1);
          return 1 + real.filter((rule, d) => d > 0 && rule !== real[d - 1]).length <= most;
        });
        expect(lists(expanded(most))).toEqual(few);
        expect(few.length).toBeLessThan(all.length);
      }
      expect(lists(expanded(4))).toEqual(all);
    },
  );
});
