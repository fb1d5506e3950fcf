import { describe, expect, it } from 'vitest';

import { loadCluster } from '../../src/cost/hardware/load-cluster.ts';
import { collectiveModel } from '../../src/cost/presets/presets.ts';
import { Redistributor } from '../../src/cost/redistribution/redistribute.ts';
import {
  builtinKinds,
  parseMesh,
  parseSharding,
  type Sharding,
  sliceKind,
} from '../../src/entries/notations.ts';
import {
  type Admission,
  admit,
  builtinOperators,
  defineOp,
  expandRules,
  operatorCall,
  propagate,
  rule,
  S,
  type Strategy,
} from '../../src/entries/ops.ts';
import { ShardingSpace } from '../../src/mesh/sharding/space.ts';
import { refusal } from '../support/thrown.ts';

/**
 * The calls of `shardwright/ops` about one operator, used as from outside; the price of a move
 * alone is the judge.
 */

const texts = (s: Strategy): string =>
  `${s.inputs.map((x) => x.text).join(', ')} -> ${s.outputs.map((x) => x?.text ?? '-').join(', ')}`;
const MM = 'aten.mm.default(f32[64,32], f32[32,16])';

describe('one call of an operator from outside', () => {
  it('expandRules: a matrix product on one mesh dim, by hand', () => {
    const call = operatorCall(MM);
    expect(expandRules(call, 'd=4').map(texts).sort()).toEqual(
      [
        'R, R -> R',
        'S(1), S(0) -> P(sum)',
        'S(0), R -> S(0)',
        'R, S(1) -> S(1)',
        'P(sum), R -> P(sum)',
        'R, P(sum) -> P(sum)',
        'P(avg), R -> P(avg)',
        'R, P(avg) -> P(avg)',
      ].sort(),
    );
    expect(expandRules(call, parseMesh('dp=2,tp=4')).map(texts)).toContain(
      'S(0)R, RS(1) -> S(0)S(1)',
    );
    // 64 x 30 times 30 x 16: 30 rows are not cut into 4 where cuts must be even.
    const uneven = operatorCall('mm(f32[64,30], f32[30,16])');
    expect(expandRules(uneven, 'd=4', { uneven: 'forbid' }).map(texts)).not.toContain(
      'S(1), S(0) -> P(sum)',
    );
    expect(expandRules(uneven, 'd=4').map(texts)).toContain('S(1), S(0) -> P(sum)');
  });

  it('propagate: the cheapest of all strategies, moves priced one by one', () => {
    const mesh = parseMesh('dp=2,tp=4');
    const options = { cluster: 'dgx-h100', cost: 'alpha-beta' };
    const stays = propagate(operatorCall(MM), mesh, ['S(0)S(1)', 'RS(0)'], options);
    expect([texts(stays), stays.seconds]).toEqual(['S(0)S(1), RS(0) -> S(0)P(sum)', 0]);
    expect(stays.moves.every((move) => move.steps.length === 0)).toBe(true);
    const big = operatorCall('mm(f32[8192,64], f32[64,4096])');
    const prices = new Redistributor(
      new ShardingSpace(mesh),
      collectiveModel('alpha-beta', loadCluster('dgx-h100'), mesh),
    );
    const moved = (shape: readonly number[], from: string, to: Sharding): number =>
      prices.seconds({ shape, itemBytes: 4 }, prices.space.parse(from), prices.space.intern(to));
    for (const given of [
      ['S(0)R', 'S(0)R'],
      ['S(1)S(1)', 'RR'],
      ['RS(0)', 'S(0)S(1)'],
      ['S(1)R', 'RS(1)'],
      ['RP(sum)', 'RS(1)'],
    ]) {
      const all = expandRules(big, mesh).map((s) =>
        s.inputs.reduce((sum, to, i) => sum + moved(big.inputs[i].shape, given[i], to), 0),
      );
      const found = propagate(big, mesh, given, options);
      expect(found.seconds).toBeCloseTo(Math.min(...all), 12);
      expect(found.moves.reduce((sum, move) => sum + move.seconds, 0)).toBeCloseTo(
        found.seconds,
        12,
      );
      expect(
        found.moves.map((move) =>
          move.text
            .split('->')
            .at(-1)
            ?.replaceAll(/\[\d\]/g, ''),
        ),
      ).toEqual(found.inputs.map((s) => s.text));
    }
  });

  it('admit: the strict reading, fed by the call', () => {
    const { rules, inputs, outputs } = operatorCall(MM);
    const mesh = parseMesh('d=4');
    const ask = (...given: string[]): Admission =>
      admit(
        mesh,
        rules,
        inputs,
        outputs,
        given.map((text) => parseSharding(text, mesh)),
      );
    const taken = ask('S(1)', 'S(0)');
    expect('accepted' in taken && taken.accepted.map((a) => a.outputs[0]?.text)).toEqual([
      'P(sum)',
    ]);
    expect(ask('S(0)', 'S(0)')).toHaveProperty('refused');
  });

  it('takes operators of the user, and says what it cannot read', () => {
    const half = defineOp('my.half.default', {
      schema: 'Tensor x',
      cls: 'other',
      infer: (ctx) => [ctx.inputs[0]],
      shard: () => [rule([S(0)], [S(0)])],
    });
    const table = builtinOperators().with([half]);
    expect(expandRules(operatorCall('my.half.default(f32[8,8])', table), 'd=2').map(texts)).toEqual(
      ['R -> R', 'S(0) -> S(0)'],
    );
    expect(refusal(() => operatorCall('my.half.default(f32[8,8])')).code).toBe('E_UNKNOWN_OP');
    expect(refusal(() => operatorCall('mm')).code).toBe('E_SAMPLE');
    expect(refusal(() => operatorCall('mm(f32[8,8], f32[8,)')).code).toBe('E_SAMPLE');
    expect(refusal(() => operatorCall('mm(f32[8,8], f32[4,8])')).code).toBe('E_TYPE');
    expect(
      refusal(() => propagate(operatorCall(MM), 'd=2', ['R'], { cluster: 'dgx-h100' })).code,
    ).toBe('E_PLACEMENT');
    expect(
      refusal(() => propagate(operatorCall(MM), 'd=2', ['S(2)', 'R'], { cluster: 'dgx-h100' }))
        .code,
    ).toBe('E_SYNTAX');
  });

  it('plain words name cuts of user-made kinds in expandRules, propagate and admit', () => {
    const zigzag = sliceKind({
      kind: 'zigzag',
      word: 'Zigzag',
      // Rank r holds chunk r from the front and chunk r from the back, as causal attention wants
      // it.
      split: (size, n) => {
        const chunk = size / (2 * n);
        const rows = (c: number): number[] =>
          Array.from({ length: chunk }, (_, i) => c * chunk + i);
        return Array.from({ length: n }, (_, r) => [...rows(r), ...rows(2 * n - 1 - r)]);
      },
    });
    const kinds = builtinKinds().register(zigzag);
    const call = operatorCall('add.Tensor(f32[16,4], f32[16,4])');
    const cuts = [0, 1].map((dim) => zigzag.of(dim));
    expect(expandRules(call, 'd=2', { cuts }).map(texts)).toContain(
      'Zigzag(0), Zigzag(0) -> Zigzag(0)',
    );
    const given = ['Zigzag(0)', 'Zigzag(0)'];
    const found = propagate(call, 'd=2', given, { cluster: 'dgx-h100', kinds });
    expect([texts(found), found.seconds]).toEqual(['Zigzag(0), Zigzag(0) -> Zigzag(0)', 0]);
  });
});
