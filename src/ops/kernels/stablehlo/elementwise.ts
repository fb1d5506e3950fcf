/** Elementwise operations of StableHLO and CHLO. Sums of bools are `or`, products `and`. */

import type { NDArray } from '../../../ndarray/array.ts';
import { bitsOf, cast, map, map2, map3 } from '../../../ndarray/elementwise.ts';
import {
  digamma,
  erf,
  erfc,
  erfinv,
  lgamma,
  nextAfter,
  roundHalfEven,
} from '../../../ndarray/special.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  resultType,
  tensor,
  valueError,
} from '../../record/kernel.ts';
import { bitwise } from '../elementwise/binary.ts';
import { integerPow, pow, sigmoid } from '../elementwise/unary.ts';

type Real = (x: number) => number;
type Pair = (a: number, b: number) => number;

const FUNCTIONS: Readonly<Record<string, Real>> = {
  'stablehlo.ceil': Math.ceil,
  'stablehlo.floor': Math.floor,
  'stablehlo.sign': Math.sign,
  'stablehlo.round_nearest_afz': (x) => Math.sign(x) * Math.floor(Math.abs(x) + 0.5),
  'stablehlo.round_nearest_even': roundHalfEven,
  'stablehlo.exponential': Math.exp,
  'stablehlo.exponential_minus_one': Math.expm1,
  'stablehlo.tanh': Math.tanh,
  'stablehlo.logistic': sigmoid,
  'stablehlo.cbrt': Math.cbrt,
  'stablehlo.negate': (x) => -x,
  'stablehlo.cosine': Math.cos,
  'stablehlo.sine': Math.sin,
  'stablehlo.tan': Math.tan,
  'stablehlo.log': Math.log,
  'stablehlo.log_plus_one': Math.log1p,
  'stablehlo.sqrt': Math.sqrt,
  'stablehlo.rsqrt': (x) => 1 / Math.sqrt(x),
  'stablehlo.abs': Math.abs,
  // Rounds to fewer bits; like conversions to narrower types, it keeps the value here.
  'stablehlo.reduce_precision': (x) => x,
  'chlo.erf': erf,
  'chlo.erfc': erfc,
  'chlo.erf_inv': erfinv,
  'chlo.asinh': Math.asinh,
  'chlo.sinh': Math.sinh,
  'chlo.atan': Math.atan,
  'chlo.square': (x) => x * x,
  'chlo.lgamma': lgamma,
  'chlo.digamma': digamma,
  'chlo.acos': Math.acos,
  'chlo.asin': Math.asin,
  'chlo.acosh': Math.acosh,
  'chlo.atanh': Math.atanh,
  'chlo.cosh': Math.cosh,
  'chlo.tan': Math.tan,
};

const TESTS: Readonly<Record<string, (x: number) => boolean>> = {
  'stablehlo.is_finite': Number.isFinite,
  'chlo.is_inf': (x) => x === Infinity || x === -Infinity,
  'chlo.is_neg_inf': (x) => x === -Infinity,
  'chlo.is_pos_inf': (x) => x === Infinity,
};

const operand = (call: KernelCall): NDArray => tensor(call, 'operand');
const unsigned = (x: number, width: number): bigint => BigInt.asUintN(width, BigInt(x));

/** Set bits; leading zeros of an integer of the type's width. */
const population: Kernel = one((call) => {
  const width = bitsOf(resultType(call));
  return map(operand(call), (x) => unsigned(x, width).toString(2).replaceAll('0', '').length);
});
const leadingZeros: Kernel = one((call) => {
  const width = bitsOf(resultType(call));
  return map(operand(call), (x) =>
    x === 0 ? width : width - unsigned(x, width).toString(2).length,
  );
});

type PairOf = (call: KernelCall) => Pair;
const always =
  (f: Pair): PairOf =>
  () =>
    f;

/** The function on floats and on integers. */
const byKind =
  (float: Pair, integer: (call: KernelCall) => Pair, bool: Pair = float): PairOf =>
  (call) => {
    const { kind } = tensor(call, 'lhs');
    return kind === 'float' ? float : kind === 'bool' ? bool : integer(call);
  };

const dividing =
  (f: Pair) =>
  (call: KernelCall): Pair =>
  (a, b) =>
    b === 0 ? valueError(call, 'integer division by zero') : f(a, b);

const shift =
  (f: (a: number, by: number, width: number) => number, past: (a: number) => number): PairOf =>
  (call) => {
    const width = bitsOf(resultType(call));
    return (a, b) => (b < 0 || b >= width ? past(a) : f(a, b, width));
  };

const PAIRS: Readonly<Record<string, PairOf>> = {
  add: byKind(
    (a, b) => a + b,
    always((a, b) => a + b),
    Math.max,
  ),
  subtract: always((a, b) => a - b),
  multiply: always((a, b) => a * b),
  divide: byKind(
    (a, b) => a / b,
    dividing((a, b) => (a - (a % b)) / b),
  ),
  remainder: byKind(
    (a, b) => a % b,
    dividing((a, b) => a % b),
  ),
  maximum: always(Math.max),
  minimum: always(Math.min),
  power: byKind(pow, always(integerPow)),
  atan2: always(Math.atan2),
  and: always(bitwise.and),
  or: always(bitwise.or),
  xor: always(bitwise.xor),
  shift_left: shift(
    (a, b, width) => Number(BigInt.asIntN(width, BigInt(a) << BigInt(b))),
    () => 0,
  ),
  shift_right_arithmetic: shift(
    (a, b) => Math.floor(a / 2 ** b),
    (a) => (a < 0 ? -1 : 0),
  ),
  shift_right_logical: shift(
    (a, b, width) => Number(unsigned(a, width) >> BigInt(b)),
    () => 0,
  ),
};
const BROADCAST =
  'add subtract multiply divide maximum minimum and or xor power remainder atan2'.split(' ');

const pair = (f: PairOf): Kernel =>
  one((call) => map2(tensor(call, 'lhs'), tensor(call, 'rhs'), f(call), resultType(call)));

const DIRECTIONS: Readonly<Record<string, (a: number, b: number) => boolean>> = {
  EQ: (a, b) => a === b,
  NE: (a, b) => a !== b,
  LT: (a, b) => a < b,
  LE: (a, b) => a <= b,
  GT: (a, b) => a > b,
  GE: (a, b) => a >= b,
};

/**
 * The place of a float in the total order: -0 before 0, and NaN, whose sign is not held, after
 * every number.
 */
function total(a: number, b: number): number {
  if (Object.is(a, b)) return 0;
  if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) ? 1 : -1;
  return a === b ? (Object.is(a, -0) ? -1 : 1) : a - b;
}

const compare: Kernel = one((call) => {
  const { ctx } = call;
  const f = DIRECTIONS[ctx.text('comparison_direction')];
  const ordered = ctx.has('compare_type') && ctx.text('compare_type') === 'TOTALORDER';
  const holds = ordered ? (a: number, b: number): boolean => f(total(a, b), 0) : f;
  return map2(tensor(call, 'lhs'), tensor(call, 'rhs'), (a, b) => (holds(a, b) ? 1 : 0), 'b8');
});

export const stablehloElementwiseKernels: Kernels = {
  ...Object.fromEntries(
    Object.entries(FUNCTIONS).map(([name, f]) => [name, one((call) => map(operand(call), f))]),
  ),
  ...Object.fromEntries(
    Object.entries(TESTS).map(([name, f]) => [
      name,
      one((call) => map(operand(call), (x) => (f(x) ? 1 : 0), 'b8')),
    ]),
  ),
  ...Object.fromEntries(Object.entries(PAIRS).map(([name, f]) => [`stablehlo.${name}`, pair(f)])),
  ...Object.fromEntries(BROADCAST.map((name) => [`chlo.broadcast_${name}`, pair(PAIRS[name])])),
  'chlo.next_after': pair(always(nextAfter)),
  'stablehlo.popcnt': population,
  'stablehlo.count_leading_zeros': leadingZeros,
  'stablehlo.not': one((call) =>
    map(operand(call), operand(call).kind === 'bool' ? (x) => 1 - x : (x) => -x - 1),
  ),
  'stablehlo.compare': compare,
  'chlo.broadcast_compare': compare,
  'stablehlo.select': one((call) =>
    map3(tensor(call, 'pred'), tensor(call, 'on_true'), tensor(call, 'on_false'), (p, a, b) =>
      p !== 0 ? a : b,
    ),
  ),
  'stablehlo.clamp': one((call) =>
    map3(operand(call), tensor(call, 'min'), tensor(call, 'max'), (x, low, high) =>
      Math.min(Math.max(x, low), high),
    ),
  ),
  'stablehlo.convert': one((call) => cast(operand(call), resultType(call))),
};
