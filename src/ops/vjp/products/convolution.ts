/** Convolution: gradients of input, weight and bias by one call. */

import { named, together, type VjpCall, type Vjps } from '../vjp.ts';

const NAMES = ['input', 'weight', 'bias'];

export const convolutionVjps: Vjps = {
  ...named('convolution.default', (c: VjpCall) =>
    together(c.b, NAMES, () => {
      const bias = c.optional('bias');
      const wanted = NAMES.map((name) => c.optional(name) !== null && c.wants(name));
      const sizes = bias === null ? null : [...c.b.shape(bias)];
      const settings = [
        'stride',
        'padding',
        'dilation',
        'transposed',
        'output_padding',
        'groups',
      ].map((n) => c.arg(n) ?? null);
      const args = [c.g(), c.x('input'), c.x('weight'), sizes, ...settings, wanted];
      return c.b.call('aten.convolution_backward.default', args);
    }),
  ),
};
