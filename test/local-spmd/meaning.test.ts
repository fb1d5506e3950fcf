import { describe, expect, test } from 'vitest';

import {
  type Primitive,
  PRIMITIVES,
  primitiveText,
  transposeOf,
} from '../../src/mesh/local-types/primitives.ts';
import { type AxisType, gradientType } from '../../src/mesh/local-types/types.ts';
import { flat, fromFlat, type NDArray } from '../../src/ndarray/array.ts';
import { apply } from './support/apply-verbs.ts';

const rows = (...list: number[][]): NDArray[] =>
  list.map((data) => fromFlat([data.length], Float64Array.from(data), 'f64'));
const lists = (ranks: readonly NDArray[]): number[][] => ranks.map((x) => [...flat(x)]);
const one = (text: string): Pick<Primitive, 'op' | 'src' | 'dst'>[] => {
  const [op, types] = text.split(' ');
  const [src, dst] = types.split('→') as AxisType[];
  return [{ op: op as Primitive['op'], src, dst }];
};
const gradient = (text: string): readonly Primitive[] => transposeOf(one(text)[0]);
const scalars = (...list: number[]): NDArray[] =>
  list.map((n) => fromFlat([], Float64Array.of(n), 'f64'));
const [A, B, C] = [2, 3, 5];

describe('what verbs mean on three ranks', () => {
  test('all_gather gives every rank all pieces', () => {
    const pieces = rows([A], [B], [C]);
    expect(lists(apply(one('all_gather S(0)→R'), pieces))).toEqual([
      [A, B, C],
      [A, B, C],
      [A, B, C],
    ]);
    const stacked = apply(one('all_gather V→I'), scalars(A, B, C));
    expect(stacked[1].shape).toEqual([3]);
    expect(lists(stacked)).toEqual([
      [A, B, C],
      [A, B, C],
      [A, B, C],
    ]);
  });
  test('all_reduce gives every rank the sum of the addends', () => {
    expect(lists(apply(one('all_reduce P→R'), rows([A], [B], [C])))).toEqual([[10], [10], [10]]);
  });
  test('reduce_scatter gives every rank its piece of the sum', () => {
    const addends = rows([1, 2, 3], [10, 20, 30], [100, 200, 300]);
    expect(lists(apply(one('reduce_scatter P→S(0)'), addends))).toEqual([[111], [222], [333]]);
    expect(apply(one('reduce_scatter P→V'), addends)[0].shape).toEqual([]);
    expect(lists(apply(one('reduce_scatter P→V'), addends))).toEqual([[111], [222], [333]]);
  });
  test('all_to_all transposes the parts of the ranks', () => {
    const parts = rows([1, 2, 3], [4, 5, 6], [7, 8, 9]);
    expect(lists(apply(one('all_to_all V→V'), parts))).toEqual([
      [1, 4, 7],
      [2, 5, 8],
      [3, 6, 9],
    ]);
  });
  test('convert R→S(0) and its gradient', () => {
    expect(lists(apply(one('convert R→S(0)'), rows([A, B, C], [A, B, C], [A, B, C])))).toEqual([
      [A],
      [B],
      [C],
    ]);
    expect(lists(apply(gradient('convert R→S(0)'), rows([7], [8], [9])))).toEqual([
      [7, 0, 0],
      [0, 8, 0],
      [0, 0, 9],
    ]);
  });
  test('convert R→P; convert I→R and its gradient', () => {
    expect(lists(apply(one('convert R→P'), rows([A], [A], [A])))).toEqual([[A], [0], [0]]);
    expect(lists(apply(one('convert I→R'), rows([A], [A], [A])))).toEqual([[A], [A], [A]]);
    expect(lists(apply(gradient('convert I→R'), rows([1], [10], [100])))).toEqual([
      [111],
      [111],
      [111],
    ]);
  });
  test('reinterpret V→P and its gradient', () => {
    expect(
      lists(apply([...one('reinterpret V→P'), ...one('all_reduce P→R')], rows([A], [B], [C]))),
    ).toEqual([[10], [10], [10]]);
    expect(lists(apply(gradient('reinterpret V→P'), rows([7], [7], [7])))).toEqual([[7], [7], [7]]);
  });
  test('reinterpret R→P means the value times the size', () => {
    expect(
      lists(apply([...one('reinterpret R→P'), ...one('all_reduce P→R')], rows([A], [A], [A]))),
    ).toEqual([[3 * A], [3 * A], [3 * A]]);
  });
  test('convert I→S(0) and its gradient; convert V→P', () => {
    expect(lists(apply(one('convert I→S(0)'), rows([A, B, C], [A, B, C], [A, B, C])))).toEqual([
      [A],
      [B],
      [C],
    ]);
    expect(lists(apply(gradient('convert I→S(0)'), rows([7], [8], [9])))).toEqual([
      [7, 8, 9],
      [7, 8, 9],
      [7, 8, 9],
    ]);
    expect(lists(apply(one('convert S(0)→P'), rows([A], [B], [C])))).toEqual([
      [A, 0, 0],
      [0, B, 0],
      [0, 0, C],
    ]);
    expect(lists(apply(one('convert V→P'), scalars(A, B, C)))).toEqual([
      [A, 0, 0],
      [0, B, 0],
      [0, 0, C],
    ]);
  });
});

/** A value of a type on n ranks: equal ones for R and I. */
function value(type: AxisType, n: number, shape: readonly number[], seed: number): NDArray[] {
  const equal = type === 'R' || type === 'I';
  return Array.from({ length: n }, (_, rank) => {
    const size = shape.reduce((m, d) => m * d, 1);
    const data = Float64Array.from({ length: size }, (_x, i) =>
      Math.cos(2.1 * i + seed + (equal ? 0 : 1.9 * rank)),
    );
    return fromFlat(shape, data, 'f64');
  });
}

/** ⟨x, g⟩: x·Σg for R, (Σx)·g for P, x·g once for I, Σ x·g for V. */
function pairing(type: AxisType, x: readonly NDArray[], g: readonly NDArray[]): number {
  const dot = (a: NDArray, b: NDArray): number =>
    flat(a).reduce((sum, v, i) => sum + v * flat(b)[i], 0);
  if (type === 'I') return dot(x[0], g[0]);
  return x.reduce((sum, own, rank) => sum + dot(own, g[rank]), 0);
}

describe('transposes', () => {
  const cut = (dim: number, type: AxisType): AxisType => (type === 'V' ? `S(${dim})` : type);
  const cells = PRIMITIVES.flatMap((p) =>
    p.op === 'reinterpret'
      ? [p]
      : [
          p,
          ...[0, 1].map((d) => ({
            ...p,
            src: cut(d, p.src),
            dst: cut(p.op === 'all_to_all' ? 1 - d : d, p.dst),
          })),
        ],
  );
  test.each(cells.map((p) => [primitiveText(p), p] as const))(
    '%s preserves the pairing',
    (_text, p) => {
      for (const n of [2, 3]) {
        const x = value(p.src, n, [n, n * 2], 0.3);
        const y = apply([p], x);
        const g = value(gradientType(p.dst), n, y[0].shape, 0.7);
        const back = apply(transposeOf(p), g);
        expect(back[0].shape).toEqual(x[0].shape);
        expect(Math.abs(pairing(p.dst, y, g) - pairing(p.src, x, back))).toBeLessThan(1e-9);
        // What is claimed to be equal on all ranks is.
        for (const [type, ranks] of [
          [p.dst, y],
          [gradientType(p.src), back],
        ] as const)
          if (type === 'R' || type === 'I')
            for (const own of ranks) expect([...flat(own)]).toEqual([...flat(ranks[0])]);
      }
    },
  );
});

test('the product of addends is not the addends of the product', () => {
  const x = scalars(1, 1);
  const products = x.map((own) => flat(own)[0] * flat(own)[0]);
  expect(products.reduce((a, b) => a + b)).toBe(2);
  const [sum] = apply(one('all_reduce P→R'), x).map((own) => flat(own)[0]);
  expect(sum * sum).toBe(4);
});

test('sums of pieces are addends of the sum; means of pieces only average to the mean', () => {
  const pieces = rows([1, 2], [3, 4]);
  const sums = pieces.map((x) => flat(x).reduce((a, b) => a + b));
  expect(sums).toEqual([3, 7]);
  expect(lists(apply(one('all_reduce P→R'), scalars(...sums)))[0]).toEqual([10]);
  const means = sums.map((s) => s / 2);
  expect(means).toEqual([1.5, 3.5]);
  expect(lists(apply(one('all_reduce P→R'), scalars(...means)))[0]).toEqual([5]);
  expect((means[0] + means[1]) / 2).toBe(2.5);
});
