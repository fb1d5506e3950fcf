/**
 * Elementwise functions of one tensor, with their parameters. NaN stays NaN unless the function
 * says otherwise.
 */

import { kindOf, type NDArray } from '../../../ndarray/array.ts';
import { map } from '../../../ndarray/elementwise.ts';
import {
  besselI,
  besselKScaled,
  digamma,
  erf,
  erfc,
  erfcx,
  lgamma,
  roundHalfEven,
} from '../../../ndarray/special.ts';
import { inPlaceName } from '../../record/in-place.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  operand,
  resultType,
  tensor,
} from '../../record/kernel.ts';

type Real = (x: number) => number;

const SQRT_HALF = Math.SQRT1_2;
const SELU_ALPHA = 1.6732632423543772848170429916717;
const SELU_SCALE = 1.0507009873554804934193349852946;

export const sigmoid: Real = (x) =>
  x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x));
/** log(1 + exp(x)) without overflow. */
export const softplusOf: Real = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
/** Between two bounds; the lower one loses where they cross. */
const clampTo = (x: number, low: number, high: number): number =>
  Number.isNaN(x) ? x : Math.min(Math.max(x, low), high);

const FUNCTIONS: Readonly<Record<string, Real>> = {
  ceil: Math.ceil,
  floor: Math.floor,
  round: roundHalfEven,
  trunc: Math.trunc,
  sgn: (x) => (x > 0 ? 1 : x < 0 ? -1 : 0),
  sign: (x) => (x > 0 ? 1 : x < 0 ? -1 : 0),
  relu: (x) => (x <= 0 ? 0 : x),
  asinh: Math.asinh,
  atan: Math.atan,
  erf,
  exp: Math.exp,
  exp2: (x) => Math.pow(2, x),
  expm1: Math.expm1,
  sigmoid,
  sinh: Math.sinh,
  tanh: Math.tanh,
  deg2rad: (x) => (x * Math.PI) / 180,
  rad2deg: (x) => (x * 180) / Math.PI,
  relu6: (x) => clampTo(x, 0, 6),
  hardsigmoid: (x) => clampTo(x + 3, 0, 6) / 6,
  selu: (x) => SELU_SCALE * (x <= 0 ? SELU_ALPHA * Math.expm1(x) : x),
  erfc,
  log_sigmoid: (x) => -softplusOf(-x),
  positive: (x) => x,
  neg: (x) => -x,
  abs: Math.abs,
  hardswish: (x) => (x * clampTo(x + 3, 0, 6)) / 6,
  square: (x) => x * x,
  sin: Math.sin,
  cos: Math.cos,
  tan: Math.tan,
  asin: Math.asin,
  acos: Math.acos,
  acosh: Math.acosh,
  atanh: Math.atanh,
  cosh: Math.cosh,
  silu: (x) => x * sigmoid(x),
  mish: (x) => x * Math.tanh(softplusOf(x)),
  lgamma,
  digamma,
  sinc: (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x)),
  frac: (x) => x - Math.trunc(x),
  log: Math.log,
  log2: Math.log2,
  log10: Math.log10,
  log1p: Math.log1p,
  sqrt: Math.sqrt,
  rsqrt: (x) => 1 / Math.sqrt(x),
  reciprocal: (x) => 1 / x,
  logical_not: (x) => (x === 0 ? 1 : 0),
  special_erfcx: erfcx,
  special_i0: (x) => besselI(0, x),
  special_i1: (x) => besselI(1, x),
  special_modified_bessel_k0: (x) => Math.exp(-x) * besselKScaled(0, x),
  special_modified_bessel_k1: (x) => Math.exp(-x) * besselKScaled(1, x),
  special_scaled_modified_bessel_k0: (x) => besselKScaled(0, x),
  special_scaled_modified_bessel_k1: (x) => besselKScaled(1, x),
};

const TESTS: Readonly<Record<string, (x: number) => boolean>> = {
  isnan: Number.isNaN,
  isinf: (x) => x === Infinity || x === -Infinity,
  isfinite: Number.isFinite,
  isposinf: (x) => x === Infinity,
  isneginf: (x) => x === -Infinity,
  signbit: (x) => x < 0 || Object.is(x, -0),
};

const geluTanh: Real = (x) =>
  0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)));
const geluErf: Real = (x) => 0.5 * x * (1 + erf(x * SQRT_HALF));

/**
 * Functions with parameters: the call gives the parameters, the result is the function of one
 * value.
 */
const PARAMETRIC: Readonly<Record<string, (call: KernelCall) => Real>> = {
  'gelu.default': ({ ctx }) => (ctx.text('approximate') === 'tanh' ? geluTanh : geluErf),
  'nan_to_num.default': ({ ctx }) => {
    const [nan, high, low] = ['nan', 'posinf', 'neginf'].map((n) => ctx.optionalNumber(n));
    return (x) => {
      if (Number.isNaN(x)) return nan ?? 0;
      if (x === Infinity) return high ?? LARGEST[ctx.inputs[0].dtype] ?? Number.MAX_VALUE;
      return x === -Infinity ? (low ?? -(LARGEST[ctx.inputs[0].dtype] ?? Number.MAX_VALUE)) : x;
    };
  },
  'clamp.default': ({ ctx }) => {
    const [low, high] = [
      ctx.optionalNumber('min') ?? -Infinity,
      ctx.optionalNumber('max') ?? Infinity,
    ];
    return (x) => clampTo(x, low, high);
  },
  'clamp_min.default': ({ ctx }) => {
    const low = ctx.number('min');
    return (x) => clampTo(x, low, Infinity);
  },
  'clamp_max.default': ({ ctx }) => {
    const high = ctx.number('max');
    return (x) => clampTo(x, -Infinity, high);
  },
  'hardtanh.default': ({ ctx }) => {
    const [low, high] = [ctx.number('min_val'), ctx.number('max_val')];
    return (x) => clampTo(x, low, high);
  },
  'leaky_relu.default': ({ ctx }) => {
    const slope = ctx.number('negative_slope');
    return (x) => (x > 0 ? x : x * slope);
  },
  'elu.default': ({ ctx }) => {
    const [alpha, scale, inner] = ['alpha', 'scale', 'input_scale'].map((n) => ctx.number(n));
    return (x) => (x > 0 ? scale * x : scale * alpha * Math.expm1(x * inner));
  },
  'celu.default': ({ ctx }) => {
    const alpha = ctx.number('alpha');
    return (x) => (x > 0 ? x : alpha * Math.expm1(x / alpha));
  },
  'softplus.default': ({ ctx }) => {
    const [beta, threshold] = [ctx.number('beta'), ctx.number('threshold')];
    return (x) => (x * beta > threshold ? x : softplusOf(x * beta) / beta);
  },
  'hardshrink.default': ({ ctx }) => {
    const edge = ctx.number('lambd');
    return (x) => (x >= -edge && x <= edge ? 0 : x);
  },
  'softshrink.default': ({ ctx }) => {
    const edge = ctx.number('lambd');
    return (x) => (x > edge ? x - edge : x < -edge ? x + edge : Number.isNaN(x) ? x : 0);
  },
  'threshold.default': ({ ctx }) => {
    const [edge, value] = [ctx.number('threshold'), ctx.number('value')];
    return (x) => (x <= edge ? value : x);
  },
};

/** Largest finite numbers of the narrower types, which nan_to_num puts for infinity. */
const LARGEST: Readonly<Partial<Record<string, number>>> = {
  f32: (2 - 2 ** -23) * 2 ** 127,
  bf16: (2 - 2 ** -7) * 2 ** 127,
  f16: 65504,
};

/** A kernel under the name of an operator and of its in-place form, which gives the new value. */
export function bothForms(name: string, kernel: Kernel): [string, Kernel][] {
  return [
    [`aten.${name}`, kernel],
    [inPlaceName(`aten.${name}`), kernel],
  ];
}

const first = (call: KernelCall): NDArray => call.inputs[0];

const bitwiseNot: Kernel = one((call) => {
  const x = first(call);
  return map(x, kindOf(x.dtype) === 'bool' ? (v) => 1 - v : (v) => -v - 1);
});

/** Integer powers stay integers; a negative exponent has no integer result. */
const power: Kernel = one((call) => {
  const [base, exponent] = [operand(call, 'self'), operand(call, 'exponent')];
  const e = exponent.item();
  if (base.kind !== 'float' && exponent.kind !== 'float' && e < 0)
    call.ctx.fail('integers to negative integer powers are not allowed');
  return map(base, powerOf(e));
});

/** x to a fixed exponent; the common ones without `Math.pow`. */
function powerOf(e: number): Real {
  if (e === 2) return (x) => x * x;
  if (e === 3) return (x) => x * x * x;
  if (e === 0.5) return Math.sqrt;
  if (e === -0.5) return (x) => 1 / Math.sqrt(x);
  return (x) => pow(x, e);
}

/**
 * A power as C computes it: 1 to any power is 1, where JavaScript gives NaN for an infinite or
 * undefined exponent.
 */
export function pow(base: number, exponent: number): number {
  if (base === 1 || exponent === 0) return 1;
  if (base === -1 && (exponent === Infinity || exponent === -Infinity)) return 1;
  return Math.pow(base, exponent);
}

/** Names without an in-place form among the records. */
const OUT_OF_PLACE = new Set(
  ['log_sigmoid', 'positive', 'nan_to_num', 'softplus', 'hardshrink', 'softshrink'].map(
    (n) => `${n}.default`,
  ),
);
const forms = (name: string, kernel: Kernel): [string, Kernel][] =>
  OUT_OF_PLACE.has(name) || name.startsWith('special_')
    ? [[`aten.${name}`, kernel]]
    : bothForms(name, kernel);

/** Integer powers: what a negative exponent leaves of a whole number. */
export function integerPow(base: number, exponent: number): number {
  if (exponent >= 0) return pow(base, exponent);
  if (base === 1) return 1;
  return base === -1 ? (exponent % 2 === 0 ? 1 : -1) : 0;
}

function scalarPower(call: KernelCall): NDArray {
  const base = call.ctx.number('self');
  const f = kindOf(resultType(call)) === 'integer' ? integerPow : pow;
  return map(tensor(call, 'exponent'), (e) => f(base, e));
}

export const unaryKernels: Kernels = Object.fromEntries([
  ...Object.entries(FUNCTIONS).flatMap(([name, f]) =>
    forms(
      `${name}.default`,
      one((call) => map(first(call), f)),
    ),
  ),
  ...Object.entries(TESTS).map(([name, f]): [string, Kernel] => [
    `aten.${name}.default`,
    one((call) => map(first(call), (x) => (f(x) ? 1 : 0), 'b8')),
  ]),
  ...Object.entries(PARAMETRIC).flatMap(([name, f]) =>
    forms(
      name,
      one((call) => map(first(call), f(call))),
    ),
  ),
  ...bothForms('bitwise_not.default', bitwiseNot),
  ['aten.pow.Tensor_Scalar', power],
  ['aten.pow_.Scalar', power],
  ['aten.pow.Scalar', one(scalarPower)],
]);
