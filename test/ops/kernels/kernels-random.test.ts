import { describe, expect, test } from 'vitest';

import { flat, fromList, full, type NDArray } from '../../../src/ndarray/array.ts';
import { philox, type RandomStream } from '../../../src/ndarray/random.ts';
import { slice } from '../../../src/ndarray/views.ts';
import { evaluateCall, type EvaluatedArg } from '../../../src/ops/kernels/evaluate.ts';
import { operators } from '../../engines/samples/all.ts';
import { difference } from '../support/kernel-record.ts';

const float = (value: number): EvaluatedArg => ({ kind: 'float', value });
const SHAPE = [60, 70];
const one = full(SHAPE, 1);
const half = full(SHAPE, 0.5);
const f64 = { dtype: { kind: 'dtype', dtype: 'f64' } } as const;

type DrawnCase = readonly [
  target: string,
  args: (x: NDArray) => readonly EvaluatedArg[],
  mean: number,
  deviation: number,
];

/**
 * Every random operator: arguments for an array of some shape, and mean and deviation of what it
 * draws.
 */
const DRAWS: readonly DrawnCase[] = [
  ['aten.dropout.default', (x) => [x, float(0.25), true], 1, Math.sqrt(1 / 3)],
  ['aten.native_dropout.default', (x) => [x, float(0.25), true], 1, Math.sqrt(1 / 3)],
  ['aten.bernoulli.default', (x) => [full(x.shape, 0.5)], 0.5, 0.5],
  ['aten.bernoulli.p', (x) => [x, float(0.2)], 0.2, 0.4],
  ['aten.bernoulli_.float', (x) => [x, float(0.2)], 0.2, 0.4],
  ['aten.normal_.default', (x) => [x, float(3), float(2)], 3, 2],
  ['aten.uniform_.default', (x) => [x, float(-1), float(3)], 1, 4 / Math.sqrt(12)],
  ['aten.exponential_.default', (x) => [x, float(2)], 0.5, 0.5],
  [
    'aten.log_normal_.default',
    (x) => [x, float(0), float(0.25)],
    Math.exp(1 / 32),
    Math.exp(1 / 32) * Math.sqrt(Math.expm1(1 / 16)),
  ],
  ['aten.geometric_.default', (x) => [x, float(0.25)], 4, Math.sqrt(12)],
  [
    'aten.multinomial.default',
    (x) => [
      fromList(
        [60, 3],
        Array.from({ length: 180 }, (_, i) => [1, 2, 1][i % 3]),
      ),
      x.shape[1],
      true,
    ],
    1,
    Math.sqrt(0.5),
  ],
  ...[0.2, 3, 40.5, 5000].map((rate): DrawnCase => [
    'aten.poisson.default',
    (x) => [full(x.shape, rate)],
    rate,
    Math.sqrt(rate),
  ]),
  ['aten.normal.Tensor_Tensor', (x) => [full(x.shape, 3), full(x.shape, 2)], 3, 2],
  ['aten.normal.Tensor_float', (x) => [full(x.shape, -1), float(0.5)], -1, 0.5],
  ['aten.normal.float_Tensor', (x) => [float(4), full(x.shape, 3)], 4, 3],
  ['aten.rand.default', (x) => [[...x.shape]], 0.5, 1 / Math.sqrt(12)],
  ['aten.randn.default', (x) => [[...x.shape]], 0, 1],
  ['aten.rand_like.default', (x) => [x], 0.5, 1 / Math.sqrt(12)],
  ['aten.randn_like.default', (x) => [x], 0, 1],
];

function draw(target: string, args: readonly EvaluatedArg[], random: RandomStream): NDArray {
  const kwargs = /rand/.test(target) ? f64 : {};
  const result = evaluateCall(operators, target, args, kwargs, random);
  return (Array.isArray(result) ? result[0] : result) as NDArray;
}

describe('random operators', () => {
  test('the generator gives the published vectors of Philox 4x32-10', () => {
    const hex = (words: readonly number[]): string =>
      words.map((w) => w.toString(16).padStart(8, '0')).join(' ');
    const ones = 0xffffffff;
    expect(hex(philox([0, 0, 0, 0], [0, 0]))).toBe('6627e8d5 e169c58d bc57ac4c 9b00dbd8');
    expect(hex(philox([ones, ones, ones, ones], [ones, ones]))).toBe(
      '408f276d 41c83b0e a20bc7c6 6d5451fd',
    );
    expect(
      hex(philox([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0])),
    ).toBe('d16cfe09 94fdcceb 5001e420 24126ea1');
  });

  test.each(DRAWS)('%s has its mean and deviation', (target, args, mean, deviation) => {
    const data = flat(draw(target, args(one), { seed: 11, stream: 3 }));
    const n = data.length;
    const average = data.reduce((a, b) => a + b, 0) / n;
    const spread = Math.sqrt(data.reduce((a, b) => a + (b - average) ** 2, 0) / n);
    // Four standard errors of the mean; deviations to 6 per cent.
    expect(Math.abs(average - mean)).toBeLessThan((4 * deviation) / Math.sqrt(n));
    expect(Math.abs(spread / deviation - 1)).toBeLessThan(0.06);
  });

  test.each(DRAWS)(
    '%s gives the same for the same seed and stream, else something else',
    (target, args) => {
      const first = draw(target, args(one), { seed: 1, stream: 1 });
      expect(difference(draw(target, args(one), { seed: 1, stream: 1 }), first)).toBeUndefined();
      expect(difference(draw(target, args(one), { seed: 2, stream: 1 }), first)).toBeDefined();
      expect(
        difference(draw(target, args(one), { seed: 1 + 2 ** 32, stream: 1 }), first),
      ).toBeDefined();
      expect(difference(draw(target, args(one), { seed: 1, stream: 2 }), first)).toBeDefined();
    },
  );

  test.each(DRAWS)(
    '%s on a part, given the positions in the whole, is that part of the whole',
    (target, args) => {
      const random = { seed: 5, stream: 9 };
      const whole = draw(target, args(one), random);
      const part = full([60, 20], 1);
      const position = (i: number): number => Math.floor(i / 20) * 70 + 30 + (i % 20);
      const got = draw(target, args(part), { ...random, position });
      expect(difference(got, slice(whole, 1, 30, 50))).toBeUndefined();
    },
  );

  test('dropout keeps its input where it keeps, and is nothing in evaluation', () => {
    const x = fromList([4], [1, -2, 3, NaN]);
    expect(
      difference(draw('aten.dropout.default', [x, float(0.5), false], { seed: 1, stream: 1 }), x),
    ).toBeUndefined();
    const [out, mask] = evaluateCall(operators, 'aten.native_dropout.default', [
      half,
      float(0.75),
      true,
    ]) as NDArray[];
    expect(mask.dtype).toBe('b8');
    flat(out).forEach((v, i) => expect(v).toBe(flat(mask)[i] * 2));
    const [zeros] = evaluateCall(operators, 'aten.native_dropout.default', [
      half,
      float(1),
      true,
    ]) as NDArray[];
    expect(new Set(flat(zeros))).toEqual(new Set([0]));
  });
});
