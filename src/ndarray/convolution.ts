/** Convolutions on arrays, and their gradients, as one incidence of small and large image. */

import { ShardwrightError } from '../errors.ts';
import { flat, fromFlat, type NDArray, sizeOf } from './array.ts';

/**
 * Convolution as one incidence: a point of the small image meets points of the large one, `large =
 * small * stride - padding + tap * dilation`, through one tap of the kernel. Forward reads the
 * large image and writes the small one, a transposed convolution the other way round, and a weight
 * gradient sums over both. One to three spatial dims.
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
  /** Points of one channel of an image. */
  readonly smallImage: number;
  readonly largeImage: number;
  /** By tap of the kernel: places in a channel's images of the points that meet. */
  readonly taps: readonly Meetings[];
}

interface Meetings {
  readonly small: Int32Array;
  readonly large: Int32Array;
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
  if (
    small[0] !== large[0] ||
    weight[0] !== small[1] ||
    weight[1] * g.groups !== large[1] ||
    small[1] % g.groups !== 0
  )
    throw new ShardwrightError(
      'E_VALUE',
      `images [${small.join(', ')}] and [${large.join(', ')}] do not meet in weights ` +
        `[${weight.join(', ')}] of ${g.groups} groups`,
    );
  const [s, l, kernel] = [
    three(small.slice(2), 1),
    three(large.slice(2), 1),
    three(weight.slice(2), 1),
  ];
  const [stride, padding, dilation] = [
    three(g.stride, 1),
    three(g.padding, 0),
    three(g.dilation, 1),
  ];
  const pairs = [0, 1, 2].map((d) =>
    Array.from({ length: kernel[d] }, (_, tap) =>
      rowsThatMeet(s[d], l[d], stride[d], tap * dilation[d] - padding[d]),
    ),
  );
  return {
    batch: small[0],
    groups: g.groups,
    smallChannels: small[1] / g.groups,
    largeChannels: large[1] / g.groups,
    smallImage: sizeOf(s),
    largeImage: sizeOf(l),
    taps: meetingsOf(s, l, pairs),
  };
}

type Pairs = readonly (readonly [small: number, large: number])[];

/** Rows of the small image and the rows of the large one that they meet. */
function rowsThatMeet(small: number, large: number, stride: number, offset: number): Pairs {
  const list: (readonly [number, number])[] = [];
  for (let row = 0; row < small; row++) {
    const other = row * stride + offset;
    if (other >= 0 && other < large) list.push([row, other]);
  }
  return list;
}

/** @param pairs rows that meet, by spatial dim and tap */
function meetingsOf(
  s: readonly number[],
  l: readonly number[],
  pairs: readonly (readonly Pairs[])[],
): Meetings[] {
  const taps: Meetings[] = [];
  for (const p0 of pairs[0])
    for (const p1 of pairs[1])
      for (const p2 of pairs[2]) {
        const met: Meetings = {
          small: new Int32Array(p0.length * p1.length * p2.length),
          large: new Int32Array(p0.length * p1.length * p2.length),
        };
        let i = 0;
        for (const [s0, l0] of p0)
          for (const [s1, l1] of p1)
            for (const [s2, l2] of p2) {
              met.small[i] = (s0 * s[1] + s1) * s[2] + s2;
              met.large[i++] = (l0 * l[1] + l1) * l[2] + l2;
            }
        taps.push(met);
      }
  return taps;
}

/**
 * Calls back for every pair of channels that a tap joins: starts of their images, place of the
 * weight, and what meets.
 */
function forTaps(
  shape: Incidence,
  visit: (small: number, large: number, weight: number, met: Meetings) => void,
): void {
  const { batch, groups, smallChannels, largeChannels, smallImage, largeImage, taps } = shape;
  for (let n = 0; n < batch; n++)
    for (let g = 0; g < groups; g++)
      for (let a = 0; a < smallChannels; a++) {
        const channel = g * smallChannels + a;
        const small = (n * groups * smallChannels + channel) * smallImage;
        for (let b = 0; b < largeChannels; b++) {
          const large = (n * groups * largeChannels + g * largeChannels + b) * largeImage;
          const weight = (channel * largeChannels + b) * taps.length;
          for (let t = 0; t < taps.length; t++) visit(small, large, weight + t, taps[t]);
        }
      }
}

/**
 * The small image: [batch, small channels, ..] from the large one and weights [small, large /
 * groups, ..].
 */
export function toSmall(
  large: NDArray,
  weight: NDArray,
  spatial: readonly number[],
  g: Geometry,
): NDArray {
  const shape = [large.shape[0], weight.shape[0], ...spatial];
  const [x, w, out] = [flat(large), flat(weight), new Float64Array(sizeOf(shape))];
  forTaps(incidence(shape, large.shape, weight.shape, g), (s, l, k, met) => {
    const v = w[k];
    for (let i = 0; i < met.small.length; i++) out[s + met.small[i]] += x[l + met.large[i]] * v;
  });
  return fromFlat(shape, out, large.dtype);
}

/**
 * The large image: [batch, large channels, ..] from the small one and weights [small, large /
 * groups, ..].
 */
export function toLarge(
  small: NDArray,
  weight: NDArray,
  spatial: readonly number[],
  g: Geometry,
): NDArray {
  const shape = [small.shape[0], weight.shape[1] * g.groups, ...spatial];
  const [x, w, out] = [flat(small), flat(weight), new Float64Array(sizeOf(shape))];
  forTaps(incidence(small.shape, shape, weight.shape, g), (s, l, k, met) => {
    const v = w[k];
    for (let i = 0; i < met.small.length; i++) out[l + met.large[i]] += x[s + met.small[i]] * v;
  });
  return fromFlat(shape, out, small.dtype);
}

/** Sum over all meetings of a tap: the gradient of the weights, of shape `weight`. */
export function toWeight(
  small: NDArray,
  large: NDArray,
  weight: readonly number[],
  g: Geometry,
): NDArray {
  const [x, y, out] = [flat(small), flat(large), new Float64Array(sizeOf(weight))];
  forTaps(incidence(small.shape, large.shape, weight, g), (s, l, k, met) => {
    let total = 0;
    for (let i = 0; i < met.small.length; i++) total += x[s + met.small[i]] * y[l + met.large[i]];
    out[k] += total;
  });
  return fromFlat(weight, out, small.dtype);
}
