import { describe, expect, test } from 'vitest';

import type { Redistributor } from '../../../src/cost/redistribution/redistribute.ts';
import { parseMesh } from '../../../src/mesh/devices/mesh.ts';
import { MaskPartial } from '../../../src/mesh/placements/partials/mask-partial.ts';
import { Partial } from '../../../src/mesh/placements/partials/partial.ts';
import { Shard } from '../../../src/mesh/placements/shards/shard.ts';
import { StridedShard } from '../../../src/mesh/placements/shards/strided.ts';
import { parseSharding } from '../../../src/mesh/sharding/parse.ts';
import { heldRows, pendingTogether } from '../../../src/mesh/sharding/sharding.ts';
import { ShardingSpace } from '../../../src/mesh/sharding/space.ts';
import { expandRules } from '../../../src/ops/expansion/expand.ts';
import { P, type Rule, rule } from '../../../src/ops/record/rule.ts';
import type { PropagateOptions } from '../../../src/strategy/propagate.ts';
import { COMPAT, setup, spec } from '../../strategy/support.ts';

/**
 * Rows of the spec's table, from DTensor 2.13: what comes out of given placements on two mesh dims,
 * and at what price.
 */

describe('pending reductions of two mesh dims', () => {
  const meta = { dtype: 'f32', shape: [8, 8] } as const;
  const through = (kind: 'sum' | 'avg' | 'max'): Rule => rule([P(kind), P(kind)], [P(kind)]);
  const inputs = (kinds: readonly ('sum' | 'avg' | 'max')[]): string[] => {
    const space = new ShardingSpace(parseMesh('a=2,b=2'));
    const set = expandRules(space, kinds.map(through), [meta, meta], [meta], { uneven: 'allow' });
    return Array.from({ length: set.count }, (_, s) => space.text(set.specs[3 * s]));
  };

  test('sum and max never stand together, each alone does', () => {
    expect(inputs(['sum', 'max']).sort()).toEqual(
      ['RR', 'RPs', 'PsR', 'PsPs', 'RPmax', 'PmaxR', 'PmaxPmax'].map(spec).sort(),
    );
  });

  test('sum and avg do', () => {
    expect(inputs(['sum', 'avg'])).toEqual(
      expect.arrayContaining(['PsPa', 'PaPs', 'PsPs', 'PaPa'].map(spec)),
    );
    expect(inputs(['sum', 'avg'])).toHaveLength(9);
  });

  test('a masked lookup stands with no sum, not even that of another lookup', () => {
    const lookup = new MaskPartial([16, 8], 0);
    expect(pendingTogether(lookup, Partial.of('sum'))).toBe(false);
    expect(pendingTogether(Partial.of('sum'), lookup)).toBe(false);
    expect(pendingTogether(lookup, new MaskPartial([32, 8], 0))).toBe(false);
    expect(() => parseSharding('MaskP(sum, [16, 8], 0)P(sum)', parseMesh('a=2,b=2'))).toThrow(
      /cannot stand on one tensor/,
    );
  });
});

describe('which rows a rank holds', () => {
  test.each([
    [10, 4, [3, 3, 3, 1]],
    [9, 4, [3, 3, 3, 0]],
    [5, 4, [2, 2, 1, 0]],
    [3, 4, [1, 1, 1, 0]],
    [1, 4, [1, 0, 0, 0]],
    [13, 8, [2, 2, 2, 2, 2, 2, 1, 0]],
    [17, 8, [3, 3, 3, 3, 3, 2, 0, 0]],
  ])('S(0): %i rows on %i ranks', (size, n, expected) => {
    const rows = Shard.of(0).split(size, n);
    expect(rows.map((r) => r.length)).toEqual(expected);
    expect(rows.flat()).toEqual(Array.from({ length: size }, (_, i) => i));
    expected.forEach((count, rank) => {
      expect(Shard.of(0).localSize(size, n, rank)).toBe(count);
      if (count === 0) expect(Shard.of(0).offset(size, n, rank)).toBe(size);
    });
  });

  test.each([
    [2, 9, 4, '0 1 5|2 3 6|4 7|8'],
    [2, 10, 2, '0 1 2 5 6 7|3 4 8 9'],
    [3, 12, 2, '0 1 4 5 8 9|2 3 6 7 10 11'],
  ])('_S(0, %i): %i rows on %i ranks', (factor, size, n, expected) => {
    const held = new StridedShard(0, factor).split(size, n).map((rows) => rows.join(' '));
    expect(held.join('|')).toBe(expected);
  });

  test('_S(0, 2)S(0) on (2,2): pairs of rows 0, 2, 1, 3', () => {
    const mesh = parseMesh('a=2,b=2');
    const pairs = heldRows(parseSharding('_S(0, 2)S(0)', mesh), mesh, 0, 8);
    expect(pairs).toEqual([0, 2, 1, 3].map((pair) => [2 * pair, 2 * pair + 1]));
  });
});

const ENUMERATE: PropagateOptions = { ...COMPAT, search: 'enumerate' };
/** All rules, with plain shards to choose from: not more expensive than the row, and sound. */
const OURS: PropagateOptions = { search: 'enumerate', fill: 'all' };
const LAYER_NORM = 'native_layer_norm(f32[4,8,16], [16], f32[16], f32[16], 1e-5)';
const LAYER_NORM_BACKWARD =
  'native_layer_norm_backward(f32[4,8,16], f32[4,8,16], [16], f32[4,8,1], f32[4,8,1], f32[16], f32[16], [True,True,True])';
const FLASH =
  '_scaled_dot_product_flash_attention_for_cpu(f32[4,8,16,8], f32[4,8,16,8], f32[4,8,16,8])';

describe('rows on (2,2) with the rules of DTensor', () => {
  test.each([
    ['sum.dim_IntList(f32[8,8], [1])', ['S0S1'], 'S0S1->S0Ps', 0],
    ['sum.dim_IntList(f32[8,8], [0])', ['S0S0'], 'S0S0->PsPs', 0],
    [LAYER_NORM, ['S0S1', 'RR', 'RR'], 'S0S1,RR,RR->S0S1,S0S1,S0S1', 0],
    [LAYER_NORM, ['S0S2', 'RR', 'RR'], 'S0R,RR,RR->S0R,S0R,S0R', 7.2054],
    [
      LAYER_NORM_BACKWARD,
      ['S0S1', 'S0S1', 'S0S1', 'S0S1', 'RR', 'RR'],
      'S0S1,S0S1,S0S1,S0S1,RR,RR->S0S1,PsPs,PsPs',
      0,
    ],
    [
      'embedding_dense_backward(f32[4,8,8], i64[4,8], 16, -1, False)',
      ['S0R', 'S0R'],
      'S0R,S0R->PsR',
      0,
    ],
    [FLASH, ['S0S1', 'S0S1', 'S0S1'], 'S0S1,S0S1,S0S1->S0S1,S0S1', 0],
    [FLASH, ['S0S2', 'S0S2', 'S0S2'], 'S0R,S0R,S0R->S0R,S0R', 21.7305],
    ['dropout(f32[8,8], 0.5, True)', ['S0Ps'], 'S0S0->S0S0', 7.2007],
    ['bmm(f32[4,8,8], f32[4,8,8])', ['S0S2', 'S0S1'], 'S0S2,S0S1->S0Ps', 0],
    ['sum.dim_IntList(f32[8,8,8], [0,1])', ['S0S1'], 'S0S1->PsPs', 0],
    ['sum.dim_IntList(f32[8,8,8], [0,1])', ['S2S2'], 'S2S2->S0S0', 0],
    ['sum.dim_IntList(f32[8,8,8], [0,1])', ['S0S2'], 'S0S2->PsS0', 0],
    ['mean.dim(f32[8,8,8], [0,1])', ['S0S1'], 'S0S1->PaPa', 0],
  ] as [string, string[], string, number][])('%s from %j: %s', (call, given, text, micro) => {
    const found = setup([2, 2], call).run(given, ENUMERATE);
    expect(found.text).toBe(spec(text));
    expect(Math.abs(found.micro - micro)).toBeLessThan(1e-3);
  });

  // Where our rules go beyond those of DTensor: sound by execution (`rules --check`), and no more
  // expensive.
  test.each([
    ['embedding(f32[16,8], i64[4,8])', ['RS0', 'S0R'], 'RS0,S0R->S0Ps', 0],
    [FLASH, ['S0S2', 'S0S2', 'S0S2'], 'S0S2,S0R,S0R->S0S2,S0S2', 14.487],
    ['nll_loss_forward(f32[8,8], i64[8], None, 1, -100)', ['S0R', 'S0R'], 'S0R,S0R->PsR,RR', 0],
    ['dropout(f32[8,8], 0.5, True)', ['S0Ps'], 'S0Ps->S0Ps', 0],
    ['new_zeros(f32[8,8], [4,6])', ['S0S1'], 'S0S1->RR', 0],
  ] as [string, string[], string, number][])(
    'with our own rules %s from %j: %s',
    (call, given, text, micro) => {
      const found = setup([2, 2], call).run(given, OURS);
      expect(found.text).toBe(spec(text));
      expect(Math.abs(found.micro - micro)).toBeLessThan(1e-3);
    },
  );
});

describe('products of what is pending on every mesh dim', () => {
  const MM = 'mm(f32[64,64], f32[64,64])';
  test.each([
    ['Ps', [4]],
    ['Ps', [2, 2]],
    ['Ps', [2, 2, 1]],
    ['Pa', [4]],
    ['Pa', [2, 2]],
    ['Pa', [2, 2, 1]],
  ])('%s on %j: one side is reduced, once for each mesh dim of several ranks', (word, sizes) => {
    const all = word.repeat(sizes.length);
    const mm = setup(sizes, MM, 'least');
    const found = mm.run([all, all], ENUMERATE);
    expect(mm.space.text(found.outputs[0])).toBe(spec(all));
    const prices = mm.prices as Redistributor;
    const [from] = mm.ids([all]);
    const steps = found.inputs.flatMap(
      (to) => prices.plan({ shape: [64, 64], itemBytes: 4 }, from, to)?.steps ?? [],
    );
    const real = steps.filter((step) => step.groupSize > 1);
    expect(real.map((step) => step.kind)).toEqual(
      sizes.filter((n) => n > 1).map(() => 'all_reduce'),
    );
  });

  test('pending on different mesh dims: nothing is reduced', () => {
    for (const kind of ['Ps', 'Pa']) {
      const found = setup([2, 2], MM).run([`${kind}R`, `R${kind}`], ENUMERATE);
      expect([found.text, found.cost]).toEqual([spec(`${kind}R,R${kind}->${kind}${kind}`), 0]);
    }
  });
});

describe('grouped products', () => {
  test('columns of the first weight, rows of the second: one pending sum and no communication', () => {
    const first = setup([4], '_grouped_mm(bf16[32,64], bf16[4,64,32], i32[4])').run(
      ['R', 'S2', 'R'],
      ENUMERATE,
    );
    expect([first.text, first.cost]).toEqual([spec('R,S2,R->S1'), 0]);
    const second = setup([4], '_grouped_mm(bf16[32,32], bf16[4,32,64], i32[4])').run(
      ['S1', 'S1', 'R'],
      ENUMERATE,
    );
    expect([second.text, second.cost]).toEqual([spec('S1,S1,R->Ps'), 0]);
  });

  test('four columns of 2 bytes are not 16: both weights are gathered', () => {
    const call = '_grouped_mm(bf16[2,16,16], bf16[2,16,16])';
    const first = setup([4], call).run(['R', 'S2'], ENUMERATE);
    const second = setup([4], call).run(['R', 'S1'], ENUMERATE);
    expect([first.text, second.text]).toEqual(['R,R->R', 'R,R->R']);
    for (const found of [first, second])
      expect(found.costs.map((c) => c > 0)).toEqual([false, true]);
  });
});

describe('what DTensor derives from decompositions, by rules of our own', () => {
  test.each([
    ['unsafe_chunk(f32[8,8,8], 2, 1)', [4], ['S2'], 'S2->S2,S2', 0],
    ['unsafe_chunk(f32[8,8,8], 2, 2)', [4], ['S2'], 'R->R,R', 8.4163],
    ['index_add(f32[8,8], 0, i64[4], f32[4,8])', [4], ['S1', 'R', 'S1'], 'S1,R,S1->S1', 0],
    ['roll(f32[8,8], [1])', [4], ['S0'], 'R->R', 8.402],
  ] as [string, number[], string[], string, number][])(
    '%s on %j from %j: %s',
    (call, mesh, given, text, micro) => {
      const found = setup(mesh, call, 'least').run(given, ENUMERATE);
      expect(found.text).toBe(spec(text));
      expect(Math.abs(found.micro - micro)).toBeLessThan(1e-3);
    },
  );

  test.each([
    [[8, 8], 'SS(0,2)S0'],
    [[16, 8], 'SS(0,4)S0'],
  ] as [number[], string][])(
    'the mean of smooth_l1 over %j cut %s stays pending: an order of mesh dims is filled like any cut',
    (shape, given) => {
      const text = `smooth_l1_loss(f32[${shape.join()}], f32[${shape.join()}], 1)`;
      const found = setup([2, 2], text, 'least').run([given, given], ENUMERATE);
      expect([found.text.split('->')[1], found.cost]).toEqual([spec('PaPa'), 0]);
    },
  );
});
