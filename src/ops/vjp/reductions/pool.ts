/** Derivatives of pooling, by PyTorch's backward operators. */

import type { Arg } from '../../../graph/types.ts';
import { named, type VjpCall, type Vjps } from '../vjp.ts';

/** Arguments as the call wrote them; a left-out one is the operator's default. */
const settings = (c: VjpCall, defaults: Readonly<Record<string, Arg>>): Arg[] =>
  Object.entries(defaults).map(([name, value]) => c.arg(name) ?? value);

/** Max pooling of several dims, whose second result says where the values came from. */
const maxPool = (dims: number): Vjps =>
  named(`max_pool${dims}d_with_indices.default`, (c) => ({
    self: () =>
      c.b.call(`aten.max_pool${dims}d_with_indices_backward.default`, [
        c.g(),
        c.x('self'),
        ...settings(c, {
          kernel_size: [],
          stride: [],
          padding: Array<number>(dims).fill(0),
          dilation: Array<number>(dims).fill(1),
          ceil_mode: false,
        }),
        c.y(1),
      ]),
  }));

const averagePool = (dims: number): Vjps => ({
  ...named(`avg_pool${dims}d.default`, (c) => ({
    self: () =>
      c.b.call(`aten.avg_pool${dims}d_backward.default`, [
        c.g(),
        c.x('self'),
        ...settings(c, {
          kernel_size: [],
          stride: [],
          padding: Array<number>(dims).fill(0),
          ceil_mode: false,
          count_include_pad: true,
          divisor_override: null,
        }),
      ]),
  })),
  ...named(`_adaptive_avg_pool${dims}d.default`, (c) => ({
    self: () => c.b.call(`aten._adaptive_avg_pool${dims}d_backward.default`, [c.g(), c.x('self')]),
  })),
});

/** Max pooling to given sizes, in windows that the sizes or random numbers place. */
const placedPool = (dims: number): Vjps => ({
  ...named(`adaptive_max_pool${dims}d.default`, (c) => ({
    self: () =>
      c.b.call(`aten.adaptive_max_pool${dims}d_backward.default`, [c.g(), c.x('self'), c.y(1)]),
  })),
  ...named(`fractional_max_pool${dims}d.default`, (c) => ({
    self: () =>
      c.b.call(`aten.fractional_max_pool${dims}d_backward.default`, [
        c.g(),
        c.x('self'),
        ...settings(c, { kernel_size: [], output_size: [] }),
        c.y(1),
      ]),
  })),
});

export const poolVjps: Vjps = {
  ...maxPool(2),
  ...maxPool(3),
  ...averagePool(2),
  ...averagePool(3),
  ...placedPool(2),
  ...placedPool(3),
};
