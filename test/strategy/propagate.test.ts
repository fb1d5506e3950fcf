import { describe, expect, test } from 'vitest';

import { expandRows } from '../../src/ops/expansion/expand.ts';
import { cutsAmong, fillRules } from '../../src/strategy/fill.ts';
import { MovePrices } from '../../src/strategy/prices.ts';
import { cheapestFew } from '../../src/strategy/search.ts';
import { COMPAT, setup, spec } from './support.ts';

const MM = 'mm(f32[64,64], f32[64,64])';
const repeat = (word: string, n: number): string => word.repeat(n);

describe('filling', () => {
  test('from replicated inputs: rules without shards only', () => {
    expect(setup([4], MM).filled(['R', 'R'])).toEqual([
      '[R, R, R]',
      '[P(sum), P(sum), R]',
      '[P(sum), R, P(sum)]',
      '[P(avg), P(avg), R]',
      '[P(avg), R, P(avg)]',
    ]);
  });

  test('from plain shards, from strided ones, from both: plain first, then by split factor', () => {
    const mm = setup([4], MM);
    expect(mm.filled(['S0', 'S1']).slice(1, 4)).toEqual([
      '[P(sum), S(1), S(0)]',
      '[S(0), S(0), R]',
      '[S(1), R, S(1)]',
    ]);
    const strided = mm.filled(['SS(0,4)', 'SS(0,2)']);
    expect(strided).toHaveLength(11);
    expect(strided.filter((row) => row.includes('_S(')).slice(0, 2)).toEqual([
      '[P(sum), _S(1, 2), _S(0, 2)]',
      '[P(sum), _S(1, 4), _S(0, 4)]',
    ]);
    const both = mm.filled(['S0', 'SS(0,2)']);
    expect(both).toHaveLength(11);
    expect(both.slice(1, 3)).toEqual(['[P(sum), S(1), S(0)]', '[P(sum), _S(1, 2), _S(0, 2)]']);
  });

  test('each strided copy keeps its own factor (PyTorch issue 171942)', () => {
    const { space, ids } = setup([4], MM);
    const cuts = cutsAmong(ids(['SS(0,4)', 'SS(1,2)']).map((id) => space.get(id).placements));
    expect(cuts.map((c) => c.text)).toEqual(['_S(0, 2)', '_S(0, 4)']);
  });
});

describe('counts of candidates', () => {
  test.each([
    ['mm(f32[64,64], f32[64,64])', 2, [8, 64, 512, 4096], [5, 25, 125]],
    ['bmm(f32[64,64,64], f32[64,64,64])', 2, [9, 81, 729], [5, 25, 125]],
    ['addmm(f32[64], f32[64,64], f32[64,64])', 3, [8, 64, 512], [5, 25, 125]],
    ['add.Tensor(f32[64,64], f32[64,64])', 2, [9, 63, 417], []],
  ])('%s', (call, inputs, withShards, without) => {
    withShards.forEach((count, k) => {
      const given = Array.from({ length: inputs }, () => repeat('S0', k + 1));
      expect(setup(Array<number>(k + 1).fill(2), call).count(given)).toBe(count);
    });
    without.forEach((count, k) => {
      const given = Array.from({ length: inputs }, () => repeat('R', k + 1));
      expect(setup(Array<number>(k + 1).fill(2), call).count(given)).toBe(count);
    });
  });

  test('the sizes of the mesh do not matter', () => {
    expect(setup([2, 4], MM).count(['S0R', 'RR'])).toBe(setup([2, 2], MM).count(['S0R', 'RR']));
  });

  test('add of (8,8,8) on (2,2,2): sums and averages mix, nothing else; in place one is left', () => {
    const add = setup([2, 2, 2], 'add.Tensor(f32[8,8,8], f32[8,8,8])');
    expect(add.count(['S0RR', 'RRR'])).toBe(634);
    expect(add.count(['RRR', 'RRR'])).toBe(139);
    expect(
      setup([2, 2, 2], 'add_.Tensor(f32[8,8,8], f32[8,8,8])').run(['S0RR', 'S0RR']).candidates,
    ).toBe(1);
  });

  test('cat: dims that are too short drop out; the length of the list does not matter', () => {
    const cat = (shape: string, n = 2): number => {
      const call = `cat([${Array<string>(n).fill(`f32[${shape}]`).join(', ')}])`;
      return setup([2, 2, 2], call).count(['S2RR', ...Array<string>(n - 1).fill('RRR')]);
    };
    expect(cat('8,8,8')).toBe(64);
    expect(cat('8,4,8')).toBe(63);
    expect(cat('8,8,8', 100)).toBe(64);
  });

  test('cat takes what is cut the same way, and sums that are all pending', () => {
    const cat = (second: string) => setup([2, 2, 2], `cat([f32[8,8,8], f32[${second}]])`, 'least');
    expect(cat('8,8,8').run(['RRS1', 'S1S1S1']).outputs).toHaveLength(1);
    expect(cat('8,8,8').run(['RRS1', 'S1S1S1']).text).toBe(spec('S1S1S1,S1S1S1->S1S1S1'));
    expect(cat('8,8,8').run(['PsRS1', 'PsS1S1']).text).toBe(spec('PsS1S1,PsS1S1->PsS1S1'));
    const short = setup([2, 2, 2], 'cat([f32[8,4,8], f32[8,4,8]])', 'least').run(['RRS1', 'S1S1R']);
    expect(short.text).toBe(spec('S1S1R,S1S1R->S1S1R'));
  });

  test('mm of 3 x 4 on four ranks: cuts of three rows drop out', () => {
    const mm = setup([4], 'mm(f32[3,4], f32[4,4])');
    expect(mm.count(['S0', 'R'])).toBe(7);
    const found = mm.run(['R', 'R']);
    expect(found.text).toBe('R,R->R');
    // A shard that cannot stand is not given; from S(1) the gather costs what the table says.
    expect(mm.run(['R', 'R']).micro).toBe(0);
  });
});

describe('choices and their costs are those of DTensor', () => {
  const table: [number[], string, string[], string, number][] = [
    ...(['S0', 'S1', 'R', 'Ps'] as const).map(
      (rhs, i): [number[], string, string[], string, number] => [
        [4],
        'mm(f32[64,32], f32[32,64])',
        ['S0', rhs],
        ['S0,R->S0', 'S0,R->S0', 'S0,R->S0', 'R,Ps->Ps'][i],
        [8.4652, 8.4652, 0, 8.4652][i],
      ],
    ),
    ...(['S0', 'S1', 'R', 'Ps'] as const).map(
      (rhs, i): [number[], string, string[], string, number] => [
        [4],
        'mm(f32[64,32], f32[32,64])',
        ['S1', rhs],
        ['S1,S0->Ps', 'R,S1->S1', 'S1,S0->Ps', 'S1,S0->Ps'][i],
        [0, 8.4652, 0, 8.4652][i],
      ],
    ),
    ...(['S0', 'S1', 'R', 'Ps'] as const).map(
      (rhs, i): [number[], string, string[], string, number] => [
        [4],
        'mm(f32[64,32], f32[32,64])',
        ['R', rhs],
        ['S1,S0->Ps', 'R,S1->S1', 'R,R->R', 'R,Ps->Ps'][i],
        0,
      ],
    ),
    ...(['S0', 'S1', 'R', 'Ps'] as const).map(
      (rhs, i): [number[], string, string[], string, number] => [
        [4],
        'mm(f32[64,32], f32[32,64])',
        ['Ps', rhs],
        ['S1,S0->Ps', 'Ps,R->Ps', 'Ps,R->Ps', 'Ps,R->Ps'][i],
        [8.4652, 8.4652, 0, 10.3305][i],
      ],
    ),
    [[8], 'mm(f32[4096,4096], f32[4096,11008])', ['S0', 'S0'], 'S1,S0->Ps', 89.7468],
    [[8], 'mm(f32[4096,4096], f32[4096,11008])', ['Ps', 'Ps'], 'R,Ps->Ps', 1262.149],
    [[2, 4], 'mm(f32[4096,4096], f32[4096,11008])', ['S0R', 'RS1'], 'S0R,RS1->S0S1', 0],
    [[2, 4], 'mm(f32[4096,4096], f32[4096,11008])', ['S0S1', 'RS0'], 'S0S1,RS0->S0Ps', 0],
    [[2, 4], 'mm(f32[4096,4096], f32[4096,11008])', ['S0R', 'S0R'], 'S1R,S0R->PsR', 186.364],
    [[2, 4], 'mm(f32[4096,4096], f32[4096,11008])', ['S0S0', 'RS1'], 'S0R,RS1->S0S1', 275.646],
    [[2, 4], 'mm(f32[4096,4096], f32[4096,11008])', ['PsR', 'RPs'], 'PsR,RPs->PsPs', 0],
    [[4], 'addmm(f32[8], f32[50,6], f32[6,8])', ['S0', 'Ps', 'S1'], 'S0,R,S1->S1', 10.2191],
  ];
  test.each(table)('on %j %s from %j: %s', (mesh, call, given, text, micro) => {
    for (const search of ['enumerate', 'priority'] as const) {
      const found = setup(mesh, call).run(given, { ...COMPAT, search });
      expect(found.text, search).toBe(spec(text));
      expect(Math.abs(found.micro - micro), search).toBeLessThan(1e-3);
    }
  });

  test.each([
    [['S0', 'S1'], 311.029],
    [['S1', 'S1'], 221.2821],
  ])('on 8 ranks from %j costs %d', (given, micro) => {
    const found = setup([8], 'mm(f32[4096,4096], f32[4096,11008])').run(given);
    expect(Math.abs(found.micro - micro)).toBeLessThan(1e-2);
  });
});

describe('refusals', () => {
  test('an in-place operator keeps its argument where it is', () => {
    const clamp = setup([4], 'clamp_(f32[8,8], 0)');
    expect(() => clamp.run(['Ps'])).toThrow(
      /clamp_.*in-place operations that require placement changes are not supported.*P\(sum\)/,
    );
    expect(() => clamp.run(['Ps'], { ...COMPAT, search: 'priority' })).toThrow(
      /in-place operations/,
    );
    expect(clamp.run(['S0']).text).toBe('S(0)->S(0)');
  });

  test('results: several, and as many placements as inputs', () => {
    expect(setup([4], 'topk(f32[8,8], 2)').run(['S0']).outputs).toHaveLength(2);
    const mm = setup([4], MM);
    expect(() => mm.run(['S0'])).toThrow(/has 2 tensor inputs, got 1/);
  });
});

describe('the search', () => {
  test('nothing to do takes no step; one local cut is one change', () => {
    const three = setup([2, 2, 2], 'mm(f32[64,32], f32[32,64])', 'least').run(
      ['S0RR', 'RRR'],
      COMPAT,
    );
    expect([three.pops, three.changes.length, three.cost]).toEqual([0, 0, 0]);
    const two = setup([2, 2], 'mm(f32[64,32], f32[32,64])', 'least').run(['S0R', 'RS0'], COMPAT);
    expect(two.text).toBe(spec('S0S1,RS0->S0Ps'));
    expect(two.changes.map((c) => [c.input, c.meshDim, c.from.text, c.to.text])).toEqual([
      [0, 1, 'R', 'S(1)'],
    ]);
    expect(two.cost).toBe(0);
    const both = setup([2, 2], 'mm(f32[64,32], f32[32,64])', 'least').run(['PsPs', 'PsPs'], COMPAT);
    expect(both.micro).toBeCloseTo(15.774, 3);
  });

  test('strided shards are left to the enumeration', () => {
    expect(setup([4], MM).run(['SS(0,2)', 'R'], COMPAT).how).toBe('enumerate');
    expect(setup([4], MM).run(['S0', 'R'], COMPAT).how).toBe('priority');
  });

  const words = ['S0', 'S1', 'R', 'Ps'];
  const tuples = (n: number): string[] =>
    n === 0 ? [''] : tuples(n - 1).flatMap((rest) => words.map((w) => `${rest}${w}`));
  test.each([[[4]], [[2, 4]], [[2, 2, 2]]])(
    'on %j the cost is the least of the enumeration, and the choice the same',
    (sizes) => {
      const mm = setup(sizes, 'mm(f32[64,32], f32[32,64])', 'least');
      const all = tuples(sizes.length);
      // All pairs on one and two mesh dims; on three every seventh.
      const step = sizes.length < 3 ? 1 : 7;
      let tried = 0;
      for (let k = 0; k < all.length * all.length; k += step) {
        const given = [all[Math.floor(k / all.length)], all[k % all.length]];
        const one = mm.run(given, { ...COMPAT, search: 'priority' });
        const other = mm.run(given, { ...COMPAT, search: 'enumerate' });
        expect(one.how).toBe('priority');
        expect(Math.abs(one.micro - other.micro), given.join()).toBeLessThan(1e-9);
        expect(one.text, given.join()).toBe(other.text);
        one.costs.forEach((cost, i) =>
          expect(cost).toBeGreaterThanOrEqual(
            mm.prices.seconds(
              { shape: mm.ctx.inputs[i].shape, itemBytes: 4 },
              mm.ids(given)[i],
              one.inputs[i],
            ) - 1e-15,
          ),
        );
        tried++;
      }
      expect(tried).toBeGreaterThanOrEqual(16);
    },
  );

  test('asked for all, it gives every candidate of the enumeration that can be reached, cheapest first', () => {
    const { space, record, ctx, ids, prices } = setup(
      [2, 2],
      'mm(f32[64,32], f32[32,64])',
      'least',
    );
    const given = ids(['S0R', 'RS1']);
    const filled = fillRules(
      space,
      record.shard(ctx),
      ctx.inputs,
      ctx.outputs,
      given.map((id) => space.get(id)),
      COMPAT,
    );
    const moves = ctx.inputs.map((meta, i) => new MovePrices(prices, meta, given[i]));
    const expansion = { uneven: 'allow' } as const;
    const found = cheapestFew(1000, { space, filled, call: ctx, given, moves, expansion }) ?? [];
    const set = expandRows(space, filled.rules, filled.rows, ctx.inputs, ctx.outputs, {
      uneven: 'allow',
    });
    const reachable = new Set<string>();
    for (let s = 0; s < set.count; s++) {
      const row = Array.from(set.specs.subarray(3 * s, 3 * s + 3));
      if (moves.every((move, i) => move.seconds(row[i]) < Infinity)) reachable.add(row.join());
    }
    expect(new Set(found.map((f) => [...f.inputs, ...f.outputs].join()))).toEqual(reachable);
    found.slice(1).forEach((f, k) => expect(f.cost).toBeGreaterThanOrEqual(found[k].cost - 1e-18));
    expect(reachable.size).toBeGreaterThan(20);
  });
});

describe('strided shards', () => {
  test('pass where the index is carried on, and never against another order', () => {
    const rows = setup([4], 'mm(f32[8,3], f32[3,8])', 'least').run(['SS(0,2)', 'R']);
    expect([rows.text, rows.cost]).toEqual(['_S(0, 2),R->_S(0, 2)', 0]);
    // Factors that no order of these mesh dims has, so that the placements stay what they are.
    const both = setup([2, 2], 'mm(f32[96,8], f32[8,8])', 'least').run(['SS(0,4)SS(0,8)', 'RR']);
    expect([both.text, both.cost]).toEqual(['_S(0, 4)_S(0, 8),RR->_S(0, 4)_S(0, 8)', 0]);
    const odd = setup([2, 2], 'mm(f32[8,8], f32[8,8])', 'least').run(['S1S1', 'SS(0,2)S0']);
    expect(odd.cost).toBeGreaterThan(0);
  });
});
