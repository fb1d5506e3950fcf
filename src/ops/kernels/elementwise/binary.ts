/** Elementwise functions of several operands: arithmetic, comparison, logic, selection. */

import { kindOf, type NDArray } from '../../../ndarray/array.ts';
import { bitsOf, map, map2, map3 } from '../../../ndarray/elementwise.ts';
import { nextAfter } from '../../../ndarray/special.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  operand,
  optional,
  resultType,
  tensor,
  valueError,
} from '../../record/kernel.ts';
import { bothForms, integerPow, pow } from './unary.ts';

type Pair = (a: number, b: number) => number;

/** A kernel of `self` and `other`, whichever of them is a tensor. */
const pair = (f: Pair, names: readonly [string, string] = ['self', 'other']): Kernel =>
  pairOf(() => f, names);

/** The same with a function that depends on further arguments of the call. */
function pairOf(
  f: (call: KernelCall) => Pair,
  names: readonly [string, string] = ['self', 'other'],
): Kernel {
  return one((call) =>
    map2(operand(call, names[0]), operand(call, names[1]), f(call), resultType(call)),
  );
}

/** `base.Tensor`, `base.Scalar` and their in-place forms. */
const overloads = (
  name: string,
  kernel: Kernel,
  suffixes = ['Tensor', 'Scalar'],
): [string, Kernel][] => suffixes.flatMap((s) => bothForms(`${name}.${s}`, kernel));

// ---- division
// -----------------------------------------------------------------------------

const remainder: Pair = (a, b) => {
  // By C's remainder, as torch: an infinite divisor leaves a number of its sign as it is.
  const r = a % b;
  return r !== 0 && r < 0 !== b < 0 ? r + b : r;
};

/** Quotient rounded down, from the exact remainder as C libraries and Python compute it. */
const floorQuotient: Pair = (a, b) => {
  if (b === 0) return a / b;
  const r = a % b;
  let q = (a - r) / b;
  if (r !== 0 && b < 0 !== r < 0) q -= 1;
  if (q === 0) return a / b < 0 ? -0 : 0;
  const floor = Math.floor(q);
  return q - floor > 0.5 ? floor + 1 : floor;
};

const truncatedQuotient: Pair = (a, b) => Math.trunc(a / b);
const integerQuotient: Pair = (a, b) => (a - (a % b)) / b + 0;

/** The function on integers refuses a divisor of zero. */
const dividing =
  (f: Pair, whole: Pair = f): ((call: KernelCall) => Pair) =>
  (call) => {
    const integers = (['self', 'other'] as const).every(
      (name) => operand(call, name).kind !== 'float',
    );
    if (!integers) return f;
    return (a, b) => (b === 0 ? valueError(call, 'integer division by zero') : whole(a, b) + 0);
  };

const wholeFloor: Pair = (a, b) => {
  const r = remainder(a, b);
  return (a - r) / b;
};

const rounding = (call: KernelCall): Pair => {
  const mode = call.ctx.has('rounding_mode') ? call.ctx.text('rounding_mode') : undefined;
  if (mode === undefined) return (a, b) => a / b;
  if (mode === 'floor') return dividing(floorQuotient, wholeFloor)(call);
  if (mode === 'trunc') return dividing(truncatedQuotient, integerQuotient)(call);
  return call.ctx.fail(`rounding_mode '${mode}' is neither 'floor' nor 'trunc'`);
};

// ---- bits
// -----------------------------------------------------------------------------

const small = (v: number): boolean => v >= -0x80000000 && v <= 0x7fffffff;

/** A bitwise function of integers, in 32 bits where they fit and in 64 where they do not. */
const bits =
  (narrow: Pair, wide: (a: bigint, b: bigint) => bigint): Pair =>
  (a, b) =>
    small(a) && small(b) ? narrow(a, b) : Number(BigInt.asIntN(64, wide(BigInt(a), BigInt(b))));

/** On bools these are the logical functions. */
export const bitwise = {
  and: bits(
    (a, b) => a & b,
    (a, b) => a & b,
  ),
  or: bits(
    (a, b) => a | b,
    (a, b) => a | b,
  ),
  xor: bits(
    (a, b) => a ^ b,
    (a, b) => a ^ b,
  ),
};

/** Bits shifted past the end of the type are gone; a negative shift moves all of them. */
const leftShift = (call: KernelCall): Pair => {
  const width = bitsOf(resultType(call));
  return (a, b) => (b < 0 || b >= width ? 0 : Number(BigInt.asIntN(64, BigInt(a) << BigInt(b))));
};
const rightShift = (call: KernelCall): Pair => {
  const width = bitsOf(resultType(call));
  return (a, b) => (b < 0 || b >= width ? (a < 0 ? -1 : 0) : Math.floor(a / 2 ** b));
};

// ---- extremes
// -----------------------------------------------------------------------------

/** The one that is a number wins over NaN. */
const fmax: Pair = (a, b) => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.max(a, b));
const fmin: Pair = (a, b) => (Number.isNaN(a) ? b : Number.isNaN(b) ? a : Math.min(a, b));

export const logAddExp: Pair = (a, b) => {
  if (a === b && !Number.isFinite(a)) return a;
  const high = Math.max(a, b);
  return high + Math.log1p(Math.exp(-Math.abs(a - b)));
};
const logAddExp2: Pair = (a, b) => {
  if (a === b && !Number.isFinite(a)) return a;
  return Math.max(a, b) + Math.log1p(Math.pow(2, -Math.abs(a - b))) / Math.LN2;
};

const xLog =
  (f: (y: number) => number): Pair =>
  (x, y) =>
    Number.isNaN(y) ? y : x === 0 ? 0 : x * f(y);

// ---- selection
// -----------------------------------------------------------------------------

const where: Kernel = one((call) =>
  map3(
    tensor(call, 'condition'),
    operand(call, 'self'),
    operand(call, 'other'),
    (c, a, b) => (c !== 0 ? a : b),
    resultType(call),
  ),
);

const maskedFill: Kernel = one((call) =>
  map3(
    tensor(call, 'mask'),
    operand(call, 'value'),
    tensor(call, 'self'),
    (m, v, x) => (m !== 0 ? v : x),
    resultType(call),
  ),
);

/** From the nearer end, so that both ends are exact. */
const lerp: Kernel = one((call) =>
  map3(tensor(call, 'self'), tensor(call, 'end'), operand(call, 'weight'), (a, b, w) =>
    Math.abs(w) < 0.5 ? a + w * (b - a) : b - (b - a) * (1 - w),
  ),
);

const clampTensor: Kernel = one((call) => {
  let x: NDArray = tensor(call, 'self');
  const [low, high] = [optional(call, 'min'), optional(call, 'max')];
  if (low !== undefined) x = map2(x, low, maximum);
  return high === undefined ? x : map2(x, high, minimum);
});
const maximum: Pair = (a, b) => Math.max(a, b);
const minimum: Pair = (a, b) => Math.min(a, b);

const fused = (f: (x: number, a: number, b: number, value: number) => number): Kernel =>
  one((call) => {
    const value = call.ctx.number('value');
    return map3(
      tensor(call, 'self'),
      tensor(call, 'tensor1'),
      tensor(call, 'tensor2'),
      (x, a, b) => f(x, a, b, value),
      resultType(call),
    );
  });

const alphaOf = (call: KernelCall): number => call.ctx.number('alpha');
const truth =
  (f: (a: number, b: number) => boolean): Pair =>
  (a, b) =>
    f(a, b) ? 1 : 0;

const addition = pairOf((call) => {
  const alpha = alphaOf(call);
  return alpha === 1 ? plus : (a, b) => a + alpha * b;
});
const plus: Pair = (a, b) => a + b;
const subtraction = pairOf((call) => {
  const alpha = alphaOf(call);
  return (a, b) => a - alpha * b;
});
const reversed = pairOf((call) => {
  const alpha = alphaOf(call);
  return (a, b) => b - alpha * a;
});
const BOTH = ['Tensor', 'Scalar'];

/** Bools add up as or, and multiply as and. */
const boolAware = (kernel: Kernel): Kernel => {
  return (call) =>
    resultType(call) === 'b8'
      ? kernel(call).map((x) => x && map(x, (v) => (v !== 0 ? 1 : 0)))
      : kernel(call);
};

export const binaryKernels: Kernels = Object.fromEntries([
  ...overloads('add', boolAware(addition)),
  ...overloads('sub', subtraction),
  ...BOTH.map((s): [string, Kernel] => [`aten.rsub.${s}`, reversed]),
  ...overloads(
    'mul',
    pair((a, b) => a * b),
  ),
  ...overloads(
    'div',
    pair((a, b) => a / b),
  ),
  ...BOTH.map((s): [string, Kernel] => [`aten.div.${s}_mode`, pairOf(rounding)]),
  ...['default', 'Scalar'].map((s): [string, Kernel] => [
    `aten.floor_divide.${s}`,
    pairOf(dividing(floorQuotient, wholeFloor)),
  ]),
  ...overloads('remainder', pairOf(dividing(remainder))),
  ...overloads('fmod', pairOf(dividing((a, b) => a % b))),
  ['aten.atan2.default', pair(Math.atan2)],
  ['aten.hypot.default', pair((a, b) => Math.hypot(a, b))],
  ['aten.nextafter.default', pair(nextAfter)],
  [
    'aten.heaviside.default',
    pair((x, v) => (Number.isNaN(x) ? x : x === 0 ? v : x < 0 ? 0 : 1), ['self', 'values']),
  ],
  [
    'aten.copysign.Tensor',
    pair((a, b) => (b < 0 || Object.is(b, -0) ? -Math.abs(a) : Math.abs(a))),
  ],
  [
    'aten.pow.Tensor_Tensor',
    pairOf(
      (call) => (kindOf(resultType(call)) === 'integer' ? integerPow : pow),
      ['self', 'exponent'],
    ),
  ],
  ['aten.maximum.default', pair(maximum)],
  ['aten.minimum.default', pair(minimum)],
  ['aten.fmax.default', pair(fmax)],
  ['aten.fmin.default', pair(fmin)],
  ['aten.clamp_min.Tensor', pair(maximum, ['self', 'min'])],
  ['aten.clamp_max.Tensor', pair(minimum, ['self', 'max'])],
  ['aten.clamp.Tensor', clampTensor],
  ['aten.logaddexp.default', pair(logAddExp)],
  ['aten.logaddexp2.default', pair(logAddExp2)],
  ['aten.special_xlog1py.default', pair(xLog(Math.log1p))],
  ['aten.xlogy.Tensor', pair(xLog(Math.log))],
  ...overloads('eq', pair(truth((a, b) => a === b))),
  ...overloads('ne', pair(truth((a, b) => a !== b))),
  ...overloads('lt', pair(truth((a, b) => a < b))),
  ...overloads('le', pair(truth((a, b) => a <= b))),
  ...overloads('gt', pair(truth((a, b) => a > b))),
  ...overloads('ge', pair(truth((a, b) => a >= b))),
  ['aten.logical_and.default', pair(truth((a, b) => a !== 0 && b !== 0))],
  ['aten.logical_or.default', pair(truth((a, b) => a !== 0 || b !== 0))],
  ['aten.logical_xor.default', pair(truth((a, b) => (a !== 0) !== (b !== 0)))],
  ...['bitwise_and', '__and__'].flatMap((n) => overloads(n, pair(bitwise.and))),
  ...['bitwise_or', '__or__'].flatMap((n) => overloads(n, pair(bitwise.or))),
  ...['bitwise_xor', '__xor__'].flatMap((n) => overloads(n, pair(bitwise.xor))),
  ...overloads('bitwise_left_shift', pairOf(leftShift), ['Tensor', 'Tensor_Scalar']),
  ...overloads('bitwise_right_shift', pairOf(rightShift), ['Tensor', 'Tensor_Scalar']),
  ['aten.where.self', where],
  ...overloads('masked_fill', maskedFill),
  ['aten.lerp.Scalar', lerp],
  ['aten.lerp.Tensor', lerp],
  ...bothForms(
    'addcmul.default',
    fused((x, a, b, v) => x + v * a * b),
  ),
  ...bothForms(
    'addcdiv.default',
    fused((x, a, b, v) => x + (v * a) / b),
  ),
]);
