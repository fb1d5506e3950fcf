/**
 * Elementwise functions of one tensor. Formulas are those of PyTorch's `derivatives.yaml`, in the
 * same operators.
 */

import type { ValueRef } from '../../../graph/types.ts';
import type { CallBuilder } from '../build.ts';
import { named, type VjpCall, type Vjps } from '../vjp.ts';

type Formula = (b: CallBuilder, g: ValueRef, c: VjpCall) => ValueRef | null;

const self = (names: string, formula: Formula): Vjps =>
  named(names, (c) => ({ self: () => formula(c.b, c.g(), c) }));

/** `name.default` of one argument `self`, from gradient, input and result. */
const of = (
  name: string,
  formula: (b: CallBuilder, g: ValueRef, x: ValueRef, y: () => ValueRef) => ValueRef,
): Vjps => self(`${name}.default`, (b, g, c) => formula(b, g, c.x('self'), () => c.y()));

/** A backward operator of gradient and input, or of gradient and result. */
const byInput = (name: string): Vjps =>
  of(name, (b, g, x) => b.call(`aten.${name}_backward.default`, [g, x]));
const byResult = (name: string): Vjps =>
  of(name, (b, g, _x, y) => b.call(`aten.${name}_backward.default`, [g, y()]));

const SELU_ALPHA = 1.6732632423543772;
const SELU_SCALE = 1.0507009873554805;

/** `x^(n-1) n g`; the derivative of a constant is not a contribution. */
const power: Formula = (b, g, c) => {
  const n = c.ctx.number('exponent');
  if (n === 0) return null;
  return b.mul(g, b.mul(b.pow(c.x('self'), n - 1), n));
};

const sincGradient = (b: CallBuilder, g: ValueRef, x: ValueRef): ValueRef => {
  const px = b.mul(x, Math.PI);
  const top = b.sub(b.mul(b.unary('cos', px), px), b.unary('sin', px));
  return b.zeroed(b.mul(g, b.div(top, b.mul(px, x))), b.compare('eq', x, 0));
};

export const unaryVjps: Vjps = {
  ...self(
    'clone.default contiguous.default alias.default alias_copy.default lift_fresh.default ' +
      'lift_fresh_copy.default positive.default frac.default',
    (_b, g) => g,
  ),
  ...of('neg', (b, g) => b.neg(g)),
  ...self('_conj.default', (b, g) => b.call('aten._conj.default', [g])),
  ...self('view_as_complex.default', (b, g) => b.call('aten.view_as_real.default', [g])),
  ...self('view_as_real.default', (b, g) => b.call('aten.view_as_complex.default', [g])),
  ...named('complex.default', (c) => ({
    real: () => c.b.call('aten.real.default', [c.g()]),
    imag: () => c.b.call('aten.imag.default', [c.g()]),
  })),
  ...of('abs', (b, g, x) => b.mul(g, b.unary('sgn', x))),
  ...of('square', (b, g, x) => b.mul(g, b.mul(x, 2))),
  ...of('sqrt', (b, g, _x, y) => b.div(g, b.mul(y(), 2))),
  ...of('rsqrt', (b, g, _x, y) => b.mul(b.mul(g, -0.5), b.pow(y(), 3))),
  ...of('reciprocal', (b, g, _x, y) => b.neg(b.mul(g, b.mul(y(), y())))),
  ...of('exp', (b, g, _x, y) => b.mul(g, y())),
  ...of('exp2', (b, g, _x, y) => b.mul(b.mul(g, y()), Math.LN2)),
  ...of('expm1', (b, g, _x, y) => b.mul(g, b.add(y(), 1))),
  ...of('log', (b, g, x) => b.div(g, x)),
  ...of('log2', (b, g, x) => b.div(g, b.mul(x, Math.LN2))),
  ...of('log10', (b, g, x) => b.div(g, b.mul(x, Math.LN10))),
  ...of('log1p', (b, g, x) => b.div(g, b.add(x, 1))),
  ...of('sin', (b, g, x) => b.mul(g, b.unary('cos', x))),
  ...of('cos', (b, g, x) => b.mul(g, b.neg(b.unary('sin', x)))),
  ...of('tan', (b, g, _x, y) => b.mul(g, b.add(b.pow(y(), 2), 1))),
  ...of('asin', (b, g, x) => b.mul(g, b.unary('rsqrt', b.rsub(b.mul(x, x), 1)))),
  ...of('acos', (b, g, x) => b.mul(g, b.neg(b.unary('rsqrt', b.rsub(b.mul(x, x), 1))))),
  ...of('atan', (b, g, x) => b.div(g, b.add(b.mul(x, x), 1))),
  ...of('sinh', (b, g, x) => b.mul(g, b.unary('cosh', x))),
  ...of('cosh', (b, g, x) => b.mul(g, b.unary('sinh', x))),
  ...of('asinh', (b, g, x) => b.mul(g, b.unary('rsqrt', b.add(b.pow(x, 2), 1)))),
  ...of('acosh', (b, g, x) => b.mul(g, b.unary('rsqrt', b.sub(b.pow(x, 2), 1)))),
  ...of('atanh', (b, g, x) => b.div(g, b.rsub(b.pow(x, 2), 1))),
  ...of('erf', (b, g, x) =>
    b.mul(b.mul(g, b.unary('exp', b.neg(b.pow(x, 2)))), 2 / Math.sqrt(Math.PI)),
  ),
  ...of('erfc', (b, g, x) =>
    b.mul(b.mul(g, b.unary('exp', b.neg(b.pow(x, 2)))), -2 / Math.sqrt(Math.PI)),
  ),
  ...of('digamma', (b, g, x) => b.mul(g, b.call('aten.polygamma.default', [1, x]))),
  ...self('polygamma.default', (b, g, c) =>
    b.mul(g, b.call('aten.polygamma.default', [c.ctx.int('n') + 1, c.x('self')])),
  ),
  ...of('erfinv', (b, g, _x, y) =>
    b.mul(g, b.scaled(b.unary('exp', b.unary('square', y())), Math.sqrt(Math.PI) / 2)),
  ),
  ...self('logit.default', (b, g, c) =>
    b.call('aten.logit_backward.default', [g, c.x('self'), c.arg('eps') ?? null]),
  ),
  ...of('special_entr', (b, g, x) => b.mul(g, b.sub(b.neg(b.unary('log', x)), 1))),
  ...self('log_sigmoid_forward.default', (b, g, c) =>
    b.call('aten.log_sigmoid_backward.default', [g, c.x('self'), c.y(1)]),
  ),
  ...of('lgamma', (b, g, x) => b.mul(g, b.unary('digamma', x))),
  ...of('sinc', sincGradient),
  ...of('deg2rad', (b, g) => b.mul(g, Math.PI / 180)),
  ...of('rad2deg', (b, g) => b.mul(g, 180 / Math.PI)),
  ...self('nan_to_num.default', (b, g, c) =>
    b.zeroed(g, b.unary('logical_not', b.unary('isfinite', c.x('self')))),
  ),
  ...self('pow.Tensor_Scalar', power),
  ...named('pow.Scalar', (c) => ({
    exponent: () => c.b.mul(c.b.mul(c.g(), c.y()), Math.log(c.ctx.number('self'))),
  })),

  // ---- activations
  // ---------------------------------------------------------------------------
  ...of('relu', (b, g, _x, y) => b.call('aten.threshold_backward.default', [g, y(), 0])),
  ...byResult('sigmoid'),
  ...byResult('tanh'),
  ...byInput('silu'),
  ...byInput('mish'),
  ...byInput('hardsigmoid'),
  ...byInput('hardswish'),
  ...of('log_sigmoid', (b, g, x) => b.mul(g, b.unary('sigmoid', b.neg(x)))),
  ...self('gelu.default', (b, g, c) =>
    b.call('aten.gelu_backward.default', [g, c.x('self')], {
      approximate: c.ctx.text('approximate'),
    }),
  ),
  ...of('relu6', (b, g, x) => b.call('aten.hardtanh_backward.default', [g, x, 0, 6])),
  ...self('hardtanh.default', (b, g, c) =>
    b.call('aten.hardtanh_backward.default', [
      g,
      c.x('self'),
      c.arg('min_val') ?? -1,
      c.arg('max_val') ?? 1,
    ]),
  ),
  ...self('leaky_relu.default', (b, g, c) =>
    b.call('aten.leaky_relu_backward.default', [
      g,
      c.x('self'),
      { kind: 'float', value: c.ctx.number('negative_slope') },
      false,
    ]),
  ),
  ...self('elu.default', (b, g, c) =>
    eluBackward(
      b,
      g,
      c.x('self'),
      c.ctx.number('alpha'),
      c.ctx.number('scale'),
      c.ctx.number('input_scale'),
    ),
  ),
  ...self('celu.default', (b, g, c) =>
    eluBackward(b, g, c.x('self'), c.ctx.number('alpha'), 1, 1 / c.ctx.number('alpha')),
  ),
  ...of('selu', (b, g, x) => eluBackward(b, g, x, SELU_ALPHA, SELU_SCALE, 1)),
  ...self('softplus.default', (b, g, c) =>
    b.call('aten.softplus_backward.default', [
      g,
      c.x('self'),
      c.arg('beta') ?? 1,
      c.arg('threshold') ?? 20,
    ]),
  ),
  ...self('threshold.default', (b, g, c) =>
    b.call('aten.threshold_backward.default', [g, c.x('self'), c.arg('threshold') ?? 0]),
  ),
  ...self('hardshrink.default', (b, g, c) => shrinkBackward('hardshrink', b, g, c)),
  ...self('softshrink.default', (b, g, c) => shrinkBackward('softshrink', b, g, c)),
};

function eluBackward(
  b: CallBuilder,
  g: ValueRef,
  x: ValueRef,
  alpha: number,
  scale: number,
  inputScale: number,
): ValueRef {
  const numbers = [alpha, scale, inputScale].map((value) => ({ kind: 'float', value }) as const);
  return b.call('aten.elu_backward.default', [g, ...numbers, false, x]);
}

function shrinkBackward(name: string, b: CallBuilder, g: ValueRef, c: VjpCall): ValueRef {
  return b.call(`aten.${name}_backward.default`, [
    g,
    c.x('self'),
    { kind: 'float', value: c.ctx.number('lambd') },
  ]);
}
