/** Derivative of dropout: the backward pass uses the mask of the forward pass. */

import { literal } from '../build.ts';
import { named, type Vjps } from '../vjp.ts';

/** Dropout: the mask that the forward pass drew serves the backward pass. */
export const randomVjps: Vjps = {
  ...named('native_dropout.default', (c) => ({
    input: () => {
      const p = c.ctx.number('p');
      // Outside of training nothing is dropped, and the mask is all ones.
      const keeps = !c.ctx.has('train') || c.ctx.bool('train');
      const scale = !keeps ? 1 : p === 1 ? 0 : 1 / (1 - p);
      return c.b.call('aten.native_dropout_backward.default', [c.g(), c.y(1), literal(scale)]);
    },
  })),
};
