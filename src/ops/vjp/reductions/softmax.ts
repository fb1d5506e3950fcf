/** Softmax and its logarithm, by PyTorch's backward operators of gradient and result. */

import type { DType } from '../../../graph/types.ts';
import { named, type VjpCall, type Vjps } from '../vjp.ts';

function inputType(c: VjpCall): DType {
  return c.ctx.tensor('self')?.dtype ?? 'f32';
}

const backward = (target: string) => (c: VjpCall) => ({
  self: () =>
    c.b.call(target, [c.g(), c.y(), c.arg('dim') ?? -1, { kind: 'dtype', dtype: inputType(c) }]),
});

export const softmaxVjps: Vjps = {
  ...named('_softmax.default', backward('aten._softmax_backward_data.default')),
  ...named('_log_softmax.default', backward('aten._log_softmax_backward_data.default')),
  // Rows that are masked off whole are zero, and get no gradient.
  ...named('_safe_softmax.default', (c) => ({
    self: () => {
      const dtype = c.ctx.outputs[0]?.dtype ?? inputType(c);
      const args = [c.g(), c.y(), c.arg('dim') ?? -1, { kind: 'dtype', dtype } as const];
      return c.b.call('aten._softmax_backward_data.default', args);
    },
  })),
};
