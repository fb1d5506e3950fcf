/** Derivatives of pooling, by PyTorch's backward operators. */

import type { Arg } from '../../../graph/types.ts';
import { named, type VjpCall, type Vjps } from '../vjp.ts';

/** Arguments as the call wrote them; a left-out one is the operator's default. */
const settings = (c: VjpCall, defaults: Readonly<Record<string, Arg>>): Arg[] =>
  Object.entries(defaults).map(([name, value]) => c.arg(name) ?? value);

export const poolVjps: Vjps = {
  ...named('max_pool2d_with_indices.default', (c) => ({
    self: () =>
      c.b.call('aten.max_pool2d_with_indices_backward.default', [
        c.g(),
        c.x('self'),
        ...settings(c, {
          kernel_size: [],
          stride: [],
          padding: [0, 0],
          dilation: [1, 1],
          ceil_mode: false,
        }),
        c.y(1),
      ]),
  })),
  ...named('avg_pool2d.default', (c) => ({
    self: () =>
      c.b.call('aten.avg_pool2d_backward.default', [
        c.g(),
        c.x('self'),
        ...settings(c, {
          kernel_size: [],
          stride: [],
          padding: [0, 0],
          ceil_mode: false,
          count_include_pad: true,
          divisor_override: null,
        }),
      ]),
  })),
  ...named('_adaptive_avg_pool2d.default', (c) => ({
    self: () => c.b.call('aten._adaptive_avg_pool2d_backward.default', [c.g(), c.x('self')]),
  })),
};
