import { describe, expect, test } from 'vitest';

import { build, flat, fromList, type NDArray } from '../../src/ndarray/array.ts';
import { type Geometry, toLarge, toSmall, toWeight } from '../../src/ndarray/convolution.ts';
import { cast, map2, wrapInteger } from '../../src/ndarray/elementwise.ts';
import { gather, index, indexPut, scatter } from '../../src/ndarray/indexing.ts';
import { einsum, matmul } from '../../src/ndarray/matmul.ts';
import { uniform } from '../../src/ndarray/random.ts';
import { along, logSumExpOf, maximumOf, normOf, reduce, sumTo } from '../../src/ndarray/reduce.ts';
import { sort } from '../../src/ndarray/sort.ts';
import { digamma, erf, erfc, lgamma, nextAfter, roundHalfEven } from '../../src/ndarray/special.ts';
import { permute, transpose } from '../../src/ndarray/views.ts';

const draw = (seed: number, ...shape: number[]): NDArray =>
  build(shape, (i) => 2 * uniform({ seed, stream: 0 }, i) - 1);

/** A contraction by its definition: one loop over all letters. */
function naive(equation: string, a: NDArray, b: NDArray): NDArray {
  const [inputs, output] = equation.split('->');
  const [left, right] = inputs.split(',');
  const sizes = new Map<string, number>();
  [...left].forEach((l, d) => sizes.set(l, a.shape[d]));
  [...right].forEach((l, d) => sizes.set(l, b.shape[d]));
  const letters = [...sizes.keys()];
  const shape = [...output].map((l) => sizes.get(l) ?? 0);
  const out = new Float64Array(shape.reduce((p, n) => p * n, 1));
  if ([...sizes.values()].includes(0)) return fromList(shape, [...out]);
  const at = new Map(letters.map((l) => [l, 0]));
  const value = (l: string): number => at.get(l) ?? 0;
  for (;;) {
    let position = 0;
    [...output].forEach((l, d) => (position = position * shape[d] + value(l)));
    out[position] += a.at(...[...left].map(value)) * b.at(...[...right].map(value));
    let d = letters.length - 1;
    for (; d >= 0; d--) {
      at.set(letters[d], value(letters[d]) + 1);
      if (value(letters[d]) < (sizes.get(letters[d]) ?? 0)) break;
      at.set(letters[d], 0);
    }
    if (d < 0) return fromList(shape, [...out]);
  }
}

function close(got: NDArray, want: NDArray): void {
  expect(got.shape).toEqual(want.shape);
  flat(got).forEach((v, i) => expect(Math.abs(v - flat(want)[i])).toBeLessThan(1e-12));
}

describe('products', () => {
  test('matmul is the sum of products, at sizes beside its blocks', () => {
    for (const [m, k, n] of [
      [1, 1, 1],
      [5, 3, 2],
      [4, 64, 8],
      [7, 65, 9],
      [8, 130, 5],
      [3, 0, 2],
      [0, 3, 2],
      [33, 67, 1],
    ])
      close(matmul(draw(1, m, k), draw(2, k, n)), naive('mk,kn->mn', draw(1, m, k), draw(2, k, n)));
    const t = transpose(draw(3, 6, 70), 0, 1);
    close(
      matmul(draw(1, 5, 6), transpose(t, 0, 1)),
      naive('mk,kn->mn', draw(1, 5, 6), draw(3, 6, 70)),
    );
  });

  test.each([
    ['mk,kn->nm', [3, 4], [4, 5]],
    ['bmk,bkn->bmn', [2, 3, 4], [2, 4, 5]],
    ['bhqd,bkhd->bhqk', [2, 3, 4, 5], [2, 6, 3, 5]],
    ['ab,c->cab', [2, 3], [4]],
    ['abx,b->a', [2, 3, 4], [3]],
    ['ab,ab->', [2, 3], [2, 3]],
    ['ab,abz->ba', [2, 3], [2, 3, 4]],
  ])('einsum %s', (equation, a, b) => {
    close(
      einsum(equation, draw(1, ...a), draw(2, ...b)),
      naive(equation, draw(1, ...a), draw(2, ...b)),
    );
  });
});

describe('convolution', () => {
  const cases: readonly (readonly [string, Geometry, number[], number[], number[]])[] = [
    ['one dim', { stride: [2], padding: [1], dilation: [1], groups: 1 }, [2, 3, 8], [4, 3, 3], [4]],
    [
      'groups and dilation',
      { stride: [1, 2], padding: [1, 0], dilation: [2, 1], groups: 2 },
      [2, 4, 6, 7],
      [6, 2, 2, 3],
      [6, 3],
    ],
    [
      'three dims',
      { stride: [1, 1, 2], padding: [0, 1, 0], dilation: [1, 1, 1], groups: 1 },
      [1, 2, 3, 4, 5],
      [2, 2, 2, 3, 2],
      [2, 4, 2],
    ],
  ];

  test.each(cases)('%s: the small image by its definition', (_, g, large, kernel, spatial) => {
    const [x, w] = [draw(1, ...large), draw(2, ...kernel)];
    const per = kernel[1];
    const want = build([large[0], kernel[0], ...spatial], () => 0);
    const data = Float64Array.from(flat(want));
    const each = (shape: readonly number[], f: (at: number[], i: number) => void): void => {
      const count = shape.reduce((p, n) => p * n, 1);
      for (let i = 0; i < count; i++) {
        const at: number[] = [];
        let rest = i;
        for (let d = shape.length - 1; d >= 0; d--) {
          at.unshift(rest % shape[d]);
          rest = Math.floor(rest / shape[d]);
        }
        f(at, i);
      }
    };
    each(want.shape, ([n, o, ...place], i) => {
      each(kernel.slice(1), ([c, ...tap]) => {
        const from = place.map((p, d) => p * g.stride[d] - g.padding[d] + tap[d] * g.dilation[d]);
        if (from.some((p, d) => p < 0 || p >= large[d + 2])) return;
        const channel = Math.floor(o / (kernel[0] / g.groups)) * per + c;
        data[i] += x.at(n, channel, ...from) * w.at(o, c, ...tap);
      });
    });
    close(toSmall(x, w, spatial, g), fromList(want.shape, [...data]));
  });

  test.each(cases)(
    '%s: the large image and the weights are its adjoints',
    (_, g, large, kernel, spatial) => {
      const [x, w] = [draw(1, ...large), draw(2, ...kernel)];
      const y = draw(3, large[0], kernel[0], ...spatial);
      const dot = (a: NDArray, b: NDArray): number =>
        flat(map2(a, b, (u, v) => u * v)).reduce((s, v) => s + v, 0);
      const value = dot(toSmall(x, w, spatial, g), y);
      expect(dot(toLarge(y, w, large.slice(2), g), x)).toBeCloseTo(value, 10);
      expect(dot(toWeight(y, x, kernel, g), w)).toBeCloseTo(value, 10);
    },
  );
});

describe('reductions and order', () => {
  test('reduce keeps or drops dims', () => {
    const x = build([2, 3, 4], (i) => i);
    expect(reduce(x, [1], false, maximumOf).toArray()).toEqual([8, 9, 10, 11, 20, 21, 22, 23]);
    expect(reduce(x, [0, 2], true, maximumOf).shape).toEqual([1, 3, 1]);
    expect(reduce(permute(x, [2, 1, 0]), [0], false, maximumOf).toArray()).toEqual([
      3, 15, 7, 19, 11, 23,
    ]);
    expect(
      sumTo(
        build([2, 3], (i) => i),
        [3],
      ).toArray(),
    ).toEqual([3, 5, 7]);
    expect(
      sumTo(
        build([2, 3], (i) => i),
        [2, 1],
      ).toArray(),
    ).toEqual([3, 12]);
  });

  test('logsumexp neither overflows nor loses infinities', () => {
    const of = (...values: number[]): number =>
      logSumExpOf(Float64Array.from(values), 0, values.length);
    expect(of(1000, 1000)).toBeCloseTo(1000 + Math.LN2, 10);
    expect(of(-Infinity, -Infinity)).toBe(-Infinity);
    expect(of(Infinity, 0)).toBe(Infinity);
    expect(of()).toBe(-Infinity);
  });

  test('norms of orders 0 to infinity are right', () => {
    const v = Float64Array.of(3, -4, 0);
    expect([0, 1, 2, Infinity, -Infinity, 3].map((p) => normOf(p)(v, 0, 3))).toEqual([
      2,
      7,
      5,
      4,
      0,
      91 ** (1 / 3),
    ]);
  });

  test('sort keeps the order of equal values and puts NaN last', () => {
    const [values, order] = sort(fromList([6], [2, NaN, 1, 2, -Infinity, 1]), 0, false);
    expect(values.toArray()).toEqual([-Infinity, 1, 1, 2, 2, NaN]);
    expect(order.toArray()).toEqual([4, 2, 5, 0, 3, 1]);
    expect(sort(fromList([6], [2, NaN, 1, 2, -Infinity, 1]), 0, true)[1].toArray()).toEqual([
      1, 0, 3, 2, 5, 4,
    ]);
  });

  test('along puts runs back where they were', () => {
    const [doubled] = along(
      build([2, 3], (i) => i),
      0,
      ['f64'],
      (input, start, length, [out], at) => {
        for (let i = 0; i < length; i++) out[at + i] = 2 * input[start + i];
      },
    );
    expect(doubled.toArray()).toEqual([0, 2, 4, 6, 8, 10]);
  });
});

describe('indices', () => {
  const x = build([3, 4], (i) => i);
  test('gather and scatter along a dim', () => {
    const at = fromList([2, 2], [0, -1, 2, 1], 'i64');
    expect(gather(x, 1, at).toArray()).toEqual([0, 3, 6, 5]);
    expect(gather(x, 0, at).toArray()).toEqual([0, 9, 8, 5]);
    const added = scatter(
      x,
      0,
      fromList([2, 2], [1, 1, 1, 1], 'i64'),
      fromList([2, 3], [10, 20, 0, 30, 40, 0]),
      (a, b) => a + b,
    );
    expect(added.toArray()).toEqual([0, 1, 2, 3, 44, 65, 6, 7, 8, 9, 10, 11]);
    expect(() => gather(x, 1, fromList([1, 1], [4], 'i64'))).toThrow(
      /index 4 is outside of a dim of 4/,
    );
  });

  test('the block of indices stands where the indexed dims were, or in front', () => {
    const y = build([2, 3, 4, 5], (i) => i);
    const [a, b] = [fromList([2], [0, 1], 'i64'), fromList([2], [2, 3], 'i64')];
    expect(index(y, [null, a, b]).shape).toEqual([2, 2, 5]);
    expect(index(y, [a, null, b]).shape).toEqual([2, 3, 5]);
    expect(index(y, [a, null, b]).at(1, 2, 4)).toBe(y.at(1, 2, 3, 4));
    expect(index(y, [null, a, b]).at(1, 0, 3)).toBe(y.at(1, 0, 2, 3));
  });

  test('the last of several writes to a place wins, sums add up', () => {
    const at = fromList([3], [1, 1, 1], 'i64');
    expect(
      indexPut(fromList([2], [0, 5]), [at], fromList([3], [7, 8, 9]), false).toArray(),
    ).toEqual([0, 9]);
    expect(indexPut(fromList([2], [0, 5]), [at], fromList([3], [7, 8, 9]), true).toArray()).toEqual(
      [0, 29],
    );
  });
});

describe('special functions and integers', () => {
  /** Values from Abramowitz and Stegun and from mpmath with 30 digits. */
  test('error functions and gamma functions to 1e-14', () => {
    const table: readonly (readonly [number, number])[] = [
      [erf(0.5), 0.520499877813046537682746653892],
      [erf(-1), -0.842700792949714869341220635083],
      [erf(2), 0.995322265018952734162069256367],
      [erf(1e-10), 1.12837916709551257388e-10],
      [erfc(0.5), 0.479500122186953462317253346108],
      [erfc(3), 2.20904969985854413727761295823e-5],
      [erfc(5), 1.53745979442803485018834348538e-12],
      [erfc(-1), 1.84270079294971486934122063508],
      [lgamma(0.5), 0.572364942924700087071713675677],
      [lgamma(10), 12.8018274800814696112077178746],
      [lgamma(-0.5), 1.26551212348464539649479281103],
      [digamma(1), -0.577215664901532860606512090082],
      [digamma(0.5), -1.96351002602142347944097633299],
      [digamma(10), 2.25175258906672110764745245371],
      [digamma(-0.5), 0.0364899739785765205590236670165],
    ];
    for (const [got, want] of table)
      expect(Math.abs(got - want) / Math.abs(want)).toBeLessThan(2e-14);
    expect([erf(0), erf(Infinity), erfc(40), lgamma(1), lgamma(2), lgamma(0)]).toEqual([
      0,
      1,
      0,
      0,
      0,
      Infinity,
    ]);
    expect(digamma(-2)).toBeNaN();
  });

  test('halves round to even, and the next number is one step away', () => {
    expect([0.5, 1.5, 2.5, -0.5, -1.5, 2.4, -2.6, 7].map(roundHalfEven)).toEqual([
      0, 2, 2, -0, -2, 2, -3, 7,
    ]);
    expect(nextAfter(1, 2)).toBe(1 + 2 ** -52);
    expect(nextAfter(1, 0)).toBe(1 - 2 ** -53);
    expect(nextAfter(0, -1)).toBe(-Number.MIN_VALUE);
    expect(nextAfter(-1, 0)).toBe(-1 + 2 ** -53);
  });

  test('narrow integers wrap around as two-complement numbers do', () => {
    expect([200, -200, 127, 128].map((v) => wrapInteger(v, 'i8'))).toEqual([
      ...Int8Array.of(200, -200, 127, 128),
    ]);
    expect([-1, 70000].map((v) => wrapInteger(v, 'u16'))).toEqual([...Uint16Array.of(-1, 70000)]);
    expect(wrapInteger(2 ** 31, 'i32')).toBe(-(2 ** 31));
    expect(cast(fromList([3], [-1.9, 2.9, 300], 'f64'), 'u8').toArray()).toEqual([255, 2, 44]);
    expect(() => cast(fromList([1], [2 ** 60]), 'i64')).toThrow(/exactly/);
  });
});
