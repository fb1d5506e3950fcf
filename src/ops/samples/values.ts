/** Draws the values of sample tensors from a seed. */

import { fromList, type NDArray } from '../../ndarray/array.ts';
import { complexOf, isComplexType } from '../../ndarray/complex.ts';
import { philox } from '../../ndarray/random.ts';
import { elements } from '../record/record.ts';
import type { TensorSpec } from './call-text.ts';

/**
 * How the values of a sample are drawn: smooth, small integers with ties and zeros, bools that are
 * mostly one value, or smooth and four times as large.
 */
export type Draw = 'plain' | 'ties' | 'sparse' | 'dense' | 'wide';

/** Share of true values among drawn bools. */
const TRUE_SHARE: Readonly<Record<Draw, number>> = {
  plain: 0.4,
  ties: 0.4,
  sparse: 0.03,
  dense: 0.97,
  wide: 0.4,
};

/**
 * Values of a tensor by its `init`; the same for the same seed, whatever else is drawn. Imaginary
 * parts are drawn by a seed of their own.
 */
export function drawValues(spec: TensorSpec, seed: number, draw: Draw = 'plain'): NDArray {
  const { shape, init, hi = 2, dtype } = spec;
  if (isComplexType(dtype)) {
    const part = (k: number): NDArray =>
      drawValues({ ...spec, dtype: 'f64' }, seed + 7919 * k, draw);
    return complexOf(part(0), part(1), dtype);
  }
  const count = elements(shape);
  const u = Array.from({ length: count }, (_, i) => philox([i, 0, 0, 0], [seed, 7])[0] / 2 ** 32);
  return fromList(shape, VALUES[init](u, { hi, seed, count, draw }), dtype);
}

interface Drawing {
  readonly hi: number;
  readonly seed: number;
  readonly count: number;
  readonly draw: Draw;
}

const VALUES: Readonly<Record<TensorSpec['init'], (u: readonly number[], d: Drawing) => number[]>> =
  {
    any: (u, d) => {
      if (d.draw === 'ties') return u.map((v) => Math.floor(5 * v) - 2);
      const range = d.draw === 'wide' ? 8 : 2;
      return u.map((v) => 2 * range * v - range);
    },
    positive: (u) => u.map((v) => v + 0.5),
    unit: (u) => u.map((v) => 0.9 * v + 0.05),
    'above-one': (u) => u.map((v) => v + 1.1),
    large: (u) => u.map((v) => v + 3),
    few: (u, d) =>
      u.map((v) =>
        d.draw === 'sparse'
          ? Number(v < 0.03)
          : d.draw === 'dense'
            ? Number(v < 0.97)
            : Math.floor(5 * v) - 2,
      ),
    index: (u, d) => u.map((v) => Math.floor(d.hi * v)),
    'signed-index': (u, d) => u.map((v) => Math.floor(2 * d.hi * v) - d.hi),
    distinct: (_, d) => order(d.seed, d.hi).slice(0, d.count),
    shuffled: (_, d) => order(d.seed, d.count).map((i) => i / 3 - 2),
    bits: (u, d) => u.map((v) => (v < TRUE_SHARE[d.draw] ? 1 : 0)),
    // Matrices of hi rows whose diagonal outweighs the rest: positive definite by their lower
    // triangle.
    definite: (u, d) => u.map((v, i) => ((i % d.hi ** 2) % (d.hi + 1) === 0 ? d.hi + v : v - 0.5)),
    // Rows of hi numbers that exchange a row with itself or a later one, counted from one.
    pivots: (u, d) => u.map((v, i) => (i % d.hi) + 1 + Math.floor(v * (d.hi - (i % d.hi)))),
    seven: (u) => u.map(() => 7),
    starts: (u, d) => u.map((v, i) => (i === 0 ? 0 : Math.floor(d.hi * v))).sort((a, b) => a - b),
    ends: (u, d) => u.map((v) => Math.floor((d.hi + 1) * v)).sort((a, b) => a - b),
  };

/** A permutation of 0 .. n - 1. */
function order(seed: number, n: number): number[] {
  return Array.from({ length: n }, (_, i) => [philox([i, 1, 0, 0], [seed, 7])[0], i] as const)
    .sort((a, b) => a[0] - b[0] || a[1] - b[1])
    .map(([, i]) => i);
}
