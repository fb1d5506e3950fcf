/** Derivatives of resampling, of pads that repeat values, and of samples on a grid. */

import type { Arg } from '../../../graph/types.ts';
import { type Gradients, named, together, type VjpCall, type Vjps } from '../vjp.ts';

/** Arguments behind the sizes of each resampling, as the call wrote them. */
const RESAMPLED: Readonly<Record<string, readonly string[]>> = {
  upsample_nearest1d: ['scales'],
  upsample_nearest2d: ['scales_h', 'scales_w'],
  upsample_nearest3d: ['scales_d', 'scales_h', 'scales_w'],
  upsample_linear1d: ['align_corners', 'scales'],
  upsample_bilinear2d: ['align_corners', 'scales_h', 'scales_w'],
  upsample_trilinear3d: ['align_corners', 'scales_d', 'scales_h', 'scales_w'],
  upsample_bicubic2d: ['align_corners', 'scales_h', 'scales_w'],
};

const resampled = Object.entries(RESAMPLED).map(([name, rest]) =>
  named(`${name}.default`, (c) => ({
    self: () =>
      c.b.call(`aten.${name}_backward.default`, [
        c.g(),
        c.arg('output_size') ?? [],
        [...c.shape('self')],
        ...rest.map((key): Arg => c.arg(key) ?? null),
      ]),
  })),
);

const padded = ['reflection', 'replication'].flatMap((kind) =>
  [1, 2, 3].map((dims) =>
    named(`${kind}_pad${dims}d.default`, (c) => ({
      self: () =>
        c.b.call(`aten.${kind}_pad${dims}d_backward.default`, [
          c.g(),
          c.x('self'),
          c.arg('padding') ?? [],
        ]),
    })),
  ),
);

/** Gradients of the image and of the grid, of which one call gives what is wanted. */
function gridSample(c: VjpCall): Gradients {
  const names = ['input', 'grid'];
  return together(c.b, names, () =>
    c.b.call('aten.grid_sampler_2d_backward.default', [
      c.g(),
      c.x('input'),
      c.x('grid'),
      c.ctx.int('interpolation_mode'),
      c.ctx.int('padding_mode'),
      c.ctx.bool('align_corners'),
      names.map((name) => c.wants(name)),
    ]),
  );
}

export const resizingVjps: Vjps = Object.fromEntries(
  [...resampled, ...padded, named('grid_sampler_2d.default', gridSample)].flatMap((vjps) =>
    Object.entries(vjps),
  ),
);
