/**
 * Lowers the random operators that draw nothing to HLO: dropout that is off, and the gradient of
 * dropout. No other engine draws PyTorch's numbers, so a call that draws is refused.
 */
import type { HloCall, Lowering, Lowerings } from '../call.ts';
import type { Val } from '../code.ts';

/** Tells whether a dropout keeps everything. */
function isOff(call: HloCall): boolean {
  return call.ctx.number('p') === 0 || (call.ctx.has('train') && !call.ctx.bool('train'));
}

const DRAWS = 'draws random numbers, which no other engine draws the same way';

const dropout: Lowering = (call) => (isOff(call) ? call.first : call.unsupported(DRAWS));

const nativeDropout: Lowering = (call): (Val | null)[] => {
  if (!isOff(call)) return call.unsupported(DRAWS);
  return [
    call.first,
    call.ctx.outputs[1] === null ? null : call.hlo.constant(true, 'b8', call.first.shape),
  ];
};

const nativeDropoutBackward: Lowering = (call) => {
  const { hlo } = call;
  const grad = call.tensor('grad_output');
  const kept = hlo.convert(hlo.convert(call.tensor('mask'), 'b8'), grad.dtype);
  return hlo.scaled(hlo.multiply(grad, kept), call.ctx.number('scale'));
};

export const randomLowerings: Lowerings = {
  'aten.dropout.default': dropout,
  'aten.native_dropout.default': nativeDropout,
  'aten.native_dropout_backward.default': nativeDropoutBackward,
};
