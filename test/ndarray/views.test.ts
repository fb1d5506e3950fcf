import fc from 'fast-check';
import { describe, expect, test } from 'vitest';

import { ShardwrightError } from '../../src/errors.ts';
import {
  build,
  contiguous,
  copyFlat,
  flat,
  fromList,
  full,
  isContiguous,
  MAX_ELEMENTS,
  type NDArray,
  scalar,
} from '../../src/ndarray/array.ts';
import {
  broadcastShape,
  concat,
  diagonal,
  dimOf,
  expand,
  flip,
  liesIn,
  moveDim,
  overwrite,
  permute,
  reshape,
  rows,
  select,
  slice,
  squeeze,
  transpose,
  unsqueeze,
} from '../../src/ndarray/views.ts';

/** All index tuples of a shape. */
function indices(shape: readonly number[]): number[][] {
  return shape.reduce<number[][]>(
    (list, n) => list.flatMap((at) => Array.from({ length: n }, (_, i) => [...at, i])),
    [[]],
  );
}
const iota = (...shape: number[]): NDArray => build(shape, (i) => i, 'i64');

/** A view element by element, against the elements of its source that it should show. */
function shows(view: NDArray, source: NDArray, from: (at: number[]) => number[]): void {
  const want = indices(view.shape).map((at) => source.at(...from(at)));
  expect(view.toArray()).toEqual(want);
  expect(Array.from(copyFlat(view))).toEqual(want);
  expect(view.storage).toBe(source.storage);
}

const shapes = fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 4 });

describe('views', () => {
  test('each shows the elements that it names, over the same storage', () => {
    const x = iota(3, 4, 5);
    shows(permute(x, [2, 0, 1]), x, ([a, b, c]) => [b, c, a]);
    shows(transpose(x, 0, -1), x, ([a, b, c]) => [c, b, a]);
    shows(moveDim(x, 0, 2), x, ([a, b, c]) => [c, a, b]);
    shows(rows(x, 1, 1, 2, 2), x, ([a, b, c]) => [a, 1 + 2 * b, c]);
    shows(slice(x, 2, -4, -1), x, ([a, b, c]) => [a, b, c + 1]);
    shows(slice(x, 2, 0, 100, 3), x, ([a, b, c]) => [a, b, 3 * c]);
    shows(select(x, 1, -1), x, ([a, c]) => [a, 3, c]);
    shows(unsqueeze(x, 1), x, ([a, , b, c]) => [a, b, c]);
    shows(squeeze(unsqueeze(x, 0)), x, (at) => at);
    shows(expand(select(x, 0, 1), [2, 4, 5]), x, ([, b, c]) => [1, b, c]);
    shows(diagonal(x, 1, 1, 2), x, ([a, i]) => [a, i, i + 1]);
    shows(diagonal(x, -1, 0, 1), x, ([c, i]) => [i + 1, i, c]);
    shows(flip(x, [0, 2]), x, ([a, b, c]) => [2 - a, b, 4 - c]);
    shows(reshape(x, [6, -1]), x, ([a, b]) => [
      Math.floor((a * 10 + b) / 20),
      Math.floor((a * 10 + b) / 5) % 4,
      (a * 10 + b) % 5,
    ]);
  });

  test('any chain of permutations, flips and reshapes keeps the elements that indices name', () => {
    fc.assert(
      fc.property(shapes, fc.integer({ min: 0, max: 1e6 }), (shape, seed) => {
        const x = iota(...shape);
        const order = shape
          .map((_, d) => d)
          .sort((a, b) => ((a * 7 + seed) % 5) - ((b * 7 + seed) % 5));
        const turned = flip(permute(x, order), [seed % shape.length]);
        const d = seed % shape.length;
        const want = indices(turned.shape).map((at) => {
          const back = at.map((i, k) => (k === d ? turned.shape[k] - 1 - i : i));
          return x.at(...shape.map((_, k) => back[order.indexOf(k)]));
        });
        expect(Array.from(flat(turned))).toEqual(want);
        expect(reshape(turned, [-1]).toArray()).toEqual(want);
        expect(isContiguous(contiguous(turned))).toBe(true);
      }),
      { numRuns: 300, seed: 4 },
    );
  });

  test('a reshape shares storage where the elements stand in order, and copies where they do not', () => {
    const x = iota(4, 6);
    expect(reshape(x, [2, 12]).storage).toBe(x.storage);
    expect(reshape(rows(x, 0, 1, 2), [12]).storage).toBe(x.storage);
    expect(reshape(transpose(x, 0, 1), [24]).storage).not.toBe(x.storage);
    expect(full([1000, 1000, 100], 2).storage.length).toBe(1);
  });

  test('large transposed matrices are copied right across tile borders', () => {
    const x = iota(70, 45);
    const t = transpose(x, 0, 1);
    expect(Array.from(copyFlat(t))).toEqual(indices([45, 70]).map(([a, b]) => x.at(b, a)));
  });

  test('broadcasting follows the last dims', () => {
    expect(broadcastShape([[3, 1], [4], []])).toEqual([3, 4]);
    expect(
      broadcastShape([
        [0, 1],
        [1, 5],
      ]),
    ).toEqual([0, 5]);
    expect(() => broadcastShape([[3], [4]])).toThrow(/\[3\] and \[4\] do not broadcast/);
    expect(() => expand(iota(3), [4])).toThrow(/does not expand/);
    expect(() => expand(iota(3, 4), [4])).toThrow(/does not expand/);
  });

  test('concat and overwrite make new arrays', () => {
    const [a, b] = [iota(2, 3), transpose(iota(3, 2), 0, 1)];
    expect(concat([a, b], 1).toArray()).toEqual([0, 1, 2, 0, 2, 4, 3, 4, 5, 1, 3, 5]);
    expect(concat([a, b], 0).shape).toEqual([4, 3]);
    const written = overwrite(a, (x) => select(x, 1, 1), fromList([2], [8, 9]));
    expect(written.toArray()).toEqual([0, 8, 2, 3, 9, 5]);
    expect(a.toArray()).toEqual([0, 1, 2, 3, 4, 5]);
  });

  test('impossible shapes, dims and values are refused', () => {
    expect(() => dimOf(3, 3)).toThrow(ShardwrightError);
    expect(dimOf(-1, 0)).toBe(0);
    expect(() => reshape(iota(6), [4])).toThrow(/does not become/);
    expect(() => reshape(iota(6), [4, -1])).toThrow(/is not a shape/);
    expect(() => full([MAX_ELEMENTS, 2], 0)).toThrow(/more than/);
    expect(() => full([2, -1], 0)).toThrow(/is not a shape/);
    expect(() => select(iota(3), 0, 3)).toThrow(/index 3 is outside/);
    expect(() => select(scalar(1), 0, 0)).toThrow(ShardwrightError);
    expect(() => iota(2).item()).toThrow(/no single value/);
  });
});

test('the order of dims in memory leaves out dims of one element and repeated ones', () => {
  expect(liesIn(iota(4, 2), [0, 1])).toBe(true);
  expect(liesIn(iota(4, 2), [1, 0])).toBe(false);
  expect(liesIn(transpose(iota(1, 4), 0, 1), [0, 1])).toBe(true);
  expect(liesIn(expand(iota(1, 4), [3, 4]), [1, 0])).toBe(true);
});
