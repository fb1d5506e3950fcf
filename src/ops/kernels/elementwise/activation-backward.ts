/**
 * Gradients of activations: the incoming gradient times the derivative at the input, or at the
 * result where that is saved.
 */

import { map, map2, map3 } from '../../../ndarray/elementwise.ts';
import { erf } from '../../../ndarray/special.ts';
import { type Kernel, type KernelCall, type Kernels, one, tensor } from '../../record/kernel.ts';
import { sigmoid, softplusOf } from './unary.ts';

type Derivative = (x: number) => number;

const backward = (
  saved: string,
  derivative: (call: KernelCall) => Derivative,
  grad = 'grad_output',
): Kernel =>
  one((call) => {
    const f = derivative(call);
    return map2(tensor(call, grad), tensor(call, saved), (g, x) => g * f(x));
  });

/** The gradient passes where the condition holds and is zero elsewhere, whatever it is. */
const gate = (
  passes: (call: KernelCall) => (x: number) => boolean,
  grad = 'grad_output',
  scale = 1,
): Kernel =>
  one((call) => {
    const f = passes(call);
    return map2(tensor(call, grad), tensor(call, 'self'), (g, x) => (f(x) ? g * scale : 0));
  });

const geluErf: Derivative = (x) =>
  0.5 * (1 + erf(x * Math.SQRT1_2)) + (x * Math.exp(-0.5 * x * x)) / Math.sqrt(2 * Math.PI);

const geluTanh: Derivative = (x) => {
  const beta = Math.sqrt(2 / Math.PI);
  const t = Math.tanh(beta * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * beta * (1 + 3 * 0.044715 * x * x);
};

const mish: Derivative = (x) => {
  const t = Math.tanh(softplusOf(x));
  return t + x * sigmoid(x) * (1 - t * t);
};

const elu = ({ ctx }: KernelCall): Derivative => {
  const [alpha, scale, inner] = ['alpha', 'scale', 'input_scale'].map((n) => ctx.number(n));
  const negative: Derivative = ctx.bool('is_result')
    ? (y) => inner * (y + scale * alpha)
    : (x) => inner * scale * alpha * Math.exp(x * inner);
  return (x) => (x <= 0 ? negative(x) : scale);
};

/** Reads exp(-|x|) from the buffer, as the CPU kernel does; a GPU leaves the buffer empty. */
const logSigmoidBackward: Kernel = one((call) => {
  const [x, saved] = [tensor(call, 'self'), tensor(call, 'buffer')];
  const z = saved.size === 0 && x.size > 0 ? map(x, (v) => Math.exp(-Math.abs(v))) : saved;
  return map3(
    tensor(call, 'grad_output'),
    x,
    z,
    (g, v, e) => g * (v < 0 ? 1 - e / (1 + e) : e / (1 + e)),
  );
});

export const activationBackwardKernels: Kernels = {
  'aten.gelu_backward.default': backward('self', ({ ctx }) =>
    ctx.text('approximate') === 'tanh' ? geluTanh : geluErf,
  ),
  'aten.silu_backward.default': backward(
    'self',
    () => (x) => sigmoid(x) * (1 + x * (1 - sigmoid(x))),
  ),
  'aten.mish_backward.default': backward('self', () => mish),
  'aten.sigmoid_backward.default': backward('output', () => (y) => y * (1 - y)),
  'aten.tanh_backward.default': backward('output', () => (y) => 1 - y * y),
  'aten.threshold_backward.default': gate(({ ctx }) => {
    const edge = ctx.number('threshold');
    return (x) => !(x <= edge);
  }),
  'aten.hardtanh_backward.default': gate(({ ctx }) => {
    const [low, high] = [ctx.number('min_val'), ctx.number('max_val')];
    return (x) => !(x <= low || x >= high);
  }),
  'aten.hardswish_backward.default': backward(
    'self',
    () => (x) => (x < -3 ? 0 : x <= 3 ? x / 3 + 0.5 : 1),
  ),
  'aten.hardsigmoid_backward.default': gate(() => (x) => x > -3 && x < 3, 'grad_output', 1 / 6),
  'aten.leaky_relu_backward.default': backward('self', ({ ctx }) => {
    const slope = ctx.number('negative_slope');
    return (x) => (x > 0 ? 1 : slope);
  }),
  'aten.elu_backward.default': backward('self_or_result', elu),
  'aten.softplus_backward.default': backward('self', ({ ctx }) => {
    const [beta, threshold] = [ctx.number('beta'), ctx.number('threshold')];
    return (x) => (x * beta > threshold ? 1 : sigmoid(x * beta));
  }),
  'aten.log_sigmoid_backward.default': logSigmoidBackward,
  'aten.hardshrink_backward.default': gate(({ ctx }) => {
    const edge = ctx.number('lambd');
    return (x) => !(x >= -edge && x <= edge);
  }, 'grad_out'),
  'aten.softshrink_backward.default': gate(({ ctx }) => {
    const edge = ctx.number('lambd');
    return (x) => !(x >= -edge && x <= edge);
  }),
};
