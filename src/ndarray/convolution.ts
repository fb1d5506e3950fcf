import type { NDArray } from './array.ts';
import { flat, fromFlat, sizeOf } from './array.ts';

/**
 * Convolution as one incidence: a point of the small image meets points of the large one, `large = small * stride -
 * padding + tap * dilation`, through one tap of the kernel. Forward reads the large image and writes the small one, a
 * transposed convolution the other way round, and a weight gradient sums over both. One to three spatial dims.
 */
export interface Geometry {
  readonly stride: readonly number[];
  readonly padding: readonly number[];
  readonly dilation: readonly number[];
  readonly groups: number;
}

interface Incidence {
  readonly batch: number;
  readonly groups: number;
  /** Channels of one group on either side. */
  readonly smallChannels: number;
  readonly largeChannels: number;
  readonly small: readonly number[];
  readonly large: readonly number[];
  readonly kernel: readonly number[];
  /** By spatial dim and tap: pairs of small and large rows that meet. */
  readonly pairs: readonly (readonly (readonly [number, number])[][])[];
}

function three(list: readonly number[], fill: number): number[] {
  return [...new Array<number>(3 - list.length).fill(fill), ...list];
}

function incidence(
  small: readonly number[],
  large: readonly number[],
  weight: readonly number[],
  g: Geometry,
): Incidence {
  const spatial = {
    small: three(small.slice(2), 1),
    large: three(large.slice(2), 1),
    kernel: three(weight.slice(2), 1),
  };
  const [stride, padding, dilation] = [three(g.stride, 1), three(g.padding, 0), three(g.dilation, 1)];
  const pairs = [0, 1, 2].map((d) =>
    Array.from({ length: spatial.kernel[d] }, (_, tap) => {
      const list: (readonly [number, number])[] = [];
      for (let s = 0; s < spatial.small[d]; s++) {
        const l = s * stride[d] - padding[d] + tap * dilation[d];
        if (l >= 0 && l < spatial.large[d]) list.push([s, l]);
      }
      return list;
    }),
  );
  return {
    batch: small[0],
    groups: g.groups,
    smallChannels: small[1] / g.groups,
    largeChannels: large[1] / g.groups,
    ...spatial,
    pairs,
  };
}

/** Calls back for every row of the last spatial dim: starts of the row in each array, and the pairs that meet on it. */
function rowsOf(
  shape: Incidence,
  visit: (small: number, large: number, weight: number, meets: readonly (readonly [number, number])[]) => void,
): void {
  const [s0, s1, s2] = shape.small;
  const [l0, l1, l2] = shape.large;
  const [k0, k1, k2] = shape.kernel;
  const smallImage = s0 * s1 * s2;
  const largeImage = l0 * l1 * l2;
  const taps = k0 * k1 * k2;
  const { batch, groups, smallChannels, largeChannels, pairs } = shape;
  for (let n = 0; n < batch; n++)
    for (let g = 0; g < groups; g++)
      for (let a = 0; a < smallChannels; a++) {
        const smallChannel = g * smallChannels + a;
        const small = (n * groups * smallChannels + smallChannel) * smallImage;
        for (let b = 0; b < largeChannels; b++) {
          const large = (n * groups * largeChannels + g * largeChannels + b) * largeImage;
          const weight = (smallChannel * largeChannels + b) * taps;
          for (let t0 = 0; t0 < k0; t0++)
            for (let t1 = 0; t1 < k1; t1++)
              for (let t2 = 0; t2 < k2; t2++) {
                const tap = weight + (t0 * k1 + t1) * k2 + t2;
                const meets = pairs[2][t2];
                for (const [p0, q0] of pairs[0][t0])
                  for (const [p1, q1] of pairs[1][t1])
                    visit(small + (p0 * s1 + p1) * s2, large + (q0 * l1 + q1) * l2, tap, meets);
              }
        }
      }
}

/** The small image: [batch, small channels, ..] from the large one and weights [small, large / groups, ..]. */
export function toSmall(large: NDArray, weight: NDArray, spatial: readonly number[], g: Geometry): NDArray {
  const shape = [large.shape[0], weight.shape[0], ...spatial];
  const [x, w, out] = [flat(large), flat(weight), new Float64Array(sizeOf(shape))];
  rowsOf(incidence(shape, large.shape, weight.shape, g), (s, l, k, meets) => {
    const v = w[k];
    for (const [i, j] of meets) out[s + i] += x[l + j] * v;
  });
  return fromFlat(shape, out, large.dtype);
}

/** The large image: [batch, large channels, ..] from the small one and weights [small, large / groups, ..]. */
export function toLarge(small: NDArray, weight: NDArray, spatial: readonly number[], g: Geometry): NDArray {
  const shape = [small.shape[0], weight.shape[1] * g.groups, ...spatial];
  const [x, w, out] = [flat(small), flat(weight), new Float64Array(sizeOf(shape))];
  rowsOf(incidence(small.shape, shape, weight.shape, g), (s, l, k, meets) => {
    const v = w[k];
    for (const [i, j] of meets) out[l + j] += x[s + i] * v;
  });
  return fromFlat(shape, out, small.dtype);
}

/** Sum over all meetings of a tap: the gradient of the weights, of shape `weight`. */
export function toWeight(small: NDArray, large: NDArray, weight: readonly number[], g: Geometry): NDArray {
  const [x, y, out] = [flat(small), flat(large), new Float64Array(sizeOf(weight))];
  rowsOf(incidence(small.shape, large.shape, weight, g), (s, l, k, meets) => {
    let total = 0;
    for (const [i, j] of meets) total += x[s + i] * y[l + j];
    out[k] += total;
  });
  return fromFlat(weight, out, small.dtype);
}
