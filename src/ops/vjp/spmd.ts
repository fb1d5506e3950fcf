/**
 * Derivatives of the verbs of typed per-device code: each is another verb, read off the table of
 * primitives. In a global program a redistribution is undone by the one between the types of the
 * gradients.
 */
import { PRIMITIVE_NAMES, transposeOf } from '../../mesh/local-types/primitives.ts';
import { type AxisType, gradientType, isAxisType } from '../../mesh/local-types/types.ts';
import { spmdTarget } from '../spmd/operators.ts';
import { type Vjp, type VjpCall, type Vjps } from './vjp.ts';

function types(call: VjpCall): [AxisType, AxisType] {
  const [src, dst] = [call.ctx.text('src'), call.ctx.text('dst')];
  return isAxisType(src) && isAxisType(dst) ? [src, dst] : call.ctx.fail('names no types');
}

const verb =
  (op: (typeof PRIMITIVE_NAMES)[number]): Vjp =>
  (call) => ({
    x: () => {
      const [src, dst] = types(call);
      const { ctx, b } = call;
      return transposeOf({ op, src, dst }).reduce(
        (g, p) => b.call(spmdTarget(p.op), [g, ctx.text('axis'), ctx.int('size'), p.src, p.dst]),
        call.g(),
      );
    },
  });

export const spmdVjps: Vjps = {
  ...Object.fromEntries(PRIMITIVE_NAMES.map((op) => [spmdTarget(op), verb(op)])),
  [spmdTarget('permute')]: (call) => ({
    x: () => {
      const targets = call.ctx.ints('targets');
      const back = targets.map((_, i) => targets.indexOf(i));
      return call.b.call(spmdTarget('permute'), [
        call.g(),
        call.ctx.text('axis'),
        call.ctx.int('size'),
        back,
      ]);
    },
  }),
  [spmdTarget('redistribute')]: (call) => ({
    x: () => {
      const [src, dst] = types(call).map(gradientType);
      return call.b.call(spmdTarget('redistribute'), [
        call.g(),
        call.ctx.text('axis'),
        call.ctx.int('size'),
        dst,
        src,
      ]);
    },
  }),
  // A value that is left to a later sum is R in the gradient, because every addend's gradient is.
  [spmdTarget('out_partial')]: (call) => ({ x: () => call.g() }),
  [spmdTarget('assert_type')]: (call) => ({ x: () => call.g() }),
};
