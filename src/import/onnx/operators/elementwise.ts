/** Lowers the element-wise operators of ai.onnx to calls of the graph. */

import type { Arg } from '../../../graph/types.ts';
import { dtypeArg, floatArg, type Lowering, type OnnxCall, type OnnxOperand } from '../call.ts';
import { dtypeOf } from '../file/tensor.ts';

const unary =
  (target: string): Lowering =>
  (c) => [c.build.emit(`aten.${target}.default`, [c.arg(0)])];

/**
 * A scalar known at import is written as a literal, as traced graphs do; torch then keeps the dtype
 * of the tensor.
 */
const binary =
  (target: string): Lowering =>
  (c) => {
    const [a, b] = [c.scalarOrRef(0), c.scalarOrRef(1)];
    return [c.build.emit(target, [c.isLiteral(a) && c.isLiteral(b) ? c.arg(0) : a, b])];
  };

const compare =
  (name: string): Lowering =>
  (c) => {
    const b = c.scalarOrRef(1);
    return [c.build.emit(`aten.${name}.${c.isLiteral(b) ? 'Scalar' : 'Tensor'}`, [c.arg(0), b])];
  };

/** Any number of inputs, folded from the left. */
const variadic =
  (target: string): Lowering =>
  (c) => {
    let result = c.input(0);
    for (let i = 1; i < c.inputCount; i++)
      result = c.build.emit(target, [c.build.ref(result), c.arg(i)]);
    return [result];
  };

const divide: Lowering = (c) => {
  if (!/^[iu]/.test(c.type(0).dtype)) return binary('aten.div.Tensor')(c);
  const b = c.scalarOrRef(1);
  return [c.build.emit('aten.div.Tensor_mode', [c.arg(0), b], { rounding_mode: 'trunc' })];
};

/** The result has the type of the base, whatever that of the exponent is. */
const power: Lowering = (c) => {
  const { dtype } = c.type(0);
  if (c.type(1).dtype !== dtype) {
    const isFloat = (type: string): boolean => /^(f|bf)/.test(type);
    const wide = isFloat(c.type(1).dtype) && !isFloat(dtype) ? c.type(1).dtype : dtype;
    const raised = c.op('pow.Tensor_Tensor', c.cast(c.input(0), wide), c.cast(c.input(1), wide));
    return [c.cast(raised, dtype)];
  }
  const exponent = c.scalarOrRef(1);
  if (!c.isLiteral(exponent)) return [c.build.emit('aten.pow.Tensor_Tensor', [c.arg(0), exponent])];
  return [c.build.emit('aten.pow.Tensor_Scalar', [c.arg(0), exponent])];
};

const clip: Lowering = (c) => {
  const bound = (i: number, name: string): Arg => {
    const stated = c.attribute(name)?.float;
    if (stated !== undefined) return floatArg(stated);
    return c.optional(i) === undefined ? null : c.scalarOrRef(i);
  };
  const [low, high] = [bound(1, 'min'), bound(2, 'max')];
  if (low === null && high === null) return [c.input(0)];
  const literals = (low === null || c.isLiteral(low)) && (high === null || c.isLiteral(high));
  const asRef = (i: number, arg: Arg): Arg => (arg === null ? null : c.arg(i));
  return [
    literals
      ? c.build.emit('aten.clamp.default', [c.arg(0), low, high])
      : c.build.emit('aten.clamp.Tensor', [c.arg(0), asRef(1, low), asRef(2, high)]),
  ];
};

const cast: Lowering = (c) => {
  const dtype = dtypeOf(c.int('to', 0), 'Cast');
  return [c.build.emit('aten.to.dtype', [c.arg(0), dtypeArg(dtype)])];
};

const where: Lowering = (c) => {
  const [a, b] = [c.scalarOrRef(1), c.scalarOrRef(2)];
  // Two literals would lose the dtype.
  return [
    c.build.emit('aten.where.self', [c.arg(0), c.isLiteral(a) && c.isLiteral(b) ? c.arg(1) : a, b]),
  ];
};

const gelu: Lowering = (c) => {
  const approximate = c.text('approximate', 'none');
  return [
    c.build.emit('aten.gelu.default', [c.arg(0)], approximate === 'none' ? {} : { approximate }),
  ];
};

/** alpha x + beta, cut to 0..1; torch's own has alpha 1/6. */
const hardSigmoid: Lowering = (c) => {
  const alpha = c.float('alpha', 0.2);
  const beta = c.float('beta', 0.5);
  if (Math.abs(alpha - 1 / 6) < 1e-6 && beta === 0.5) return unary('hardsigmoid')(c);
  const scaled = c.build.emit('aten.mul.Tensor', [c.arg(0), floatArg(alpha)]);
  const shifted = c.build.emit('aten.add.Tensor', [c.build.ref(scaled), floatArg(beta)]);
  return [c.build.emit('aten.clamp.default', [c.build.ref(shifted), 0, 1])];
};

/** x where positive, slope x elsewhere; the slope is a tensor. */
const prelu: Lowering = (c) => {
  const positive = c.build.emit('aten.relu.default', [c.arg(0)]);
  const negative = c.build.emit('aten.clamp_max.default', [c.arg(0), 0]);
  const scaled = c.build.emit('aten.mul.Tensor', [c.arg(1), c.build.ref(negative)]);
  return [c.build.emit('aten.add.Tensor', [c.build.ref(positive), c.build.ref(scaled)])];
};

const mean: Lowering = (c) => {
  const [sum] = variadic('aten.add.Tensor')(c);
  return [c.build.emit('aten.div.Tensor', [c.build.ref(sum as OnnxOperand), c.inputCount])];
};

const swish = (c: OnnxCall, alpha: number): OnnxOperand => {
  const scaled =
    alpha === 1 ? c.input(0) : c.build.emit('aten.mul.Tensor', [c.arg(0), floatArg(alpha)]);
  const gate = c.build.emit('aten.sigmoid.default', [c.build.ref(scaled)]);
  return c.build.emit('aten.mul.Tensor', [c.arg(0), c.build.ref(gate)]);
};

/** gamma * (max(0, x) + min(0, alpha (exp(x) - 1))); torch's own has the constants of the paper. */
const selu: Lowering = (c) => {
  const [alpha, gamma] = [c.float('alpha', SELU_ALPHA), c.float('gamma', SELU_GAMMA)];
  if (Math.abs(alpha - SELU_ALPHA) < 1e-6 && Math.abs(gamma - SELU_GAMMA) < 1e-6)
    return unary('selu')(c);
  const negative = c.op('clamp_max', c.op('expm1', c.input(0)), 0);
  const scaled = c.op('mul.Tensor', negative, floatArg(alpha));
  const sum = c.op('add.Tensor', c.op('relu', c.input(0)), scaled);
  return [c.op('mul.Tensor', sum, floatArg(gamma))];
};
const SELU_ALPHA = 1.6732631921768188;
const SELU_GAMMA = 1.0507010221481323;

const isInf: Lowering = (c) => {
  const [negative, positive] = [c.int('detect_negative', 1), c.int('detect_positive', 1)];
  const infinite = c.op('isinf', c.input(0));
  if (negative !== 0 && positive !== 0) return [infinite];
  if (negative === 0 && positive === 0)
    return [c.op('logical_and', infinite, c.op('logical_not', infinite))];
  const side = c.op(positive !== 0 ? 'gt.Scalar' : 'lt.Scalar', c.input(0), 0);
  return [c.op('logical_and', infinite, side)];
};

const bitShift: Lowering = (c) => {
  if (c.attribute('direction') === undefined) c.fail('E_TYPE', `attribute 'direction' is missing`);
  const direction = c.word('direction', ['LEFT', 'RIGHT'], 'RIGHT');
  const target = direction === 'LEFT' ? 'bitwise_left_shift' : 'bitwise_right_shift';
  return [c.op(`${target}.Tensor`, c.input(0), c.input(1))];
};

/** x moved towards 0 by the bias where it is beyond lambd, else 0. */
const shrink: Lowering = (c) => {
  const [bias, lambd] = [c.float('bias', 0), c.float('lambd', 0.5)];
  const x = c.input(0);
  const zero = c.op('mul.Tensor', x, 0);
  const above = c.op(
    'where.self',
    c.op('gt.Scalar', x, floatArg(lambd)),
    c.op('sub.Tensor', x, bias),
    zero,
  );
  const below = c.op('lt.Scalar', x, floatArg(-lambd));
  return [c.op('where.self', below, c.op('add.Tensor', x, bias), above)];
};

const UNARY: readonly (readonly [onnx: string, aten: string])[] = [
  ['Relu', 'relu'],
  ['Sigmoid', 'sigmoid'],
  ['Tanh', 'tanh'],
  ['Exp', 'exp'],
  ['Log', 'log'],
  ['Sqrt', 'sqrt'],
  ['Reciprocal', 'reciprocal'],
  ['Neg', 'neg'],
  ['Abs', 'abs'],
  ['Sin', 'sin'],
  ['Cos', 'cos'],
  ['Tan', 'tan'],
  ['Asin', 'asin'],
  ['Acos', 'acos'],
  ['Atan', 'atan'],
  ['Sinh', 'sinh'],
  ['Cosh', 'cosh'],
  ['Asinh', 'asinh'],
  ['Acosh', 'acosh'],
  ['Atanh', 'atanh'],
  ['Erf', 'erf'],
  ['Floor', 'floor'],
  ['Ceil', 'ceil'],
  ['Round', 'round'],
  ['Sign', 'sign'],
  ['Not', 'logical_not'],
  ['BitwiseNot', 'bitwise_not'],
  ['IsNaN', 'isnan'],
  ['HardSwish', 'hardswish'],
  ['Mish', 'mish'],
  ['Softplus', 'softplus'],
];

export const ELEMENTWISE: readonly (readonly [string, Lowering])[] = [
  ...UNARY.map(([name, target]) => [name, unary(target)] as const),
  ['Add', binary('aten.add.Tensor')],
  ['Sub', binary('aten.sub.Tensor')],
  ['Mul', binary('aten.mul.Tensor')],
  ['Div', divide],
  ['Pow', power],
  ['Mod', (c) => binary(c.flag('fmod', false) ? 'aten.fmod.Tensor' : 'aten.remainder.Tensor')(c)],
  ['And', binary('aten.logical_and.default')],
  ['Or', binary('aten.logical_or.default')],
  ['Xor', binary('aten.logical_xor.default')],
  ['BitwiseAnd', binary('aten.bitwise_and.Tensor')],
  ['BitwiseOr', binary('aten.bitwise_or.Tensor')],
  ['BitwiseXor', binary('aten.bitwise_xor.Tensor')],
  ['Equal', compare('eq')],
  ['Greater', compare('gt')],
  ['GreaterOrEqual', compare('ge')],
  ['Less', compare('lt')],
  ['LessOrEqual', compare('le')],
  ['Max', variadic('aten.maximum.default')],
  ['Min', variadic('aten.minimum.default')],
  ['Sum', variadic('aten.add.Tensor')],
  ['Mean', mean],
  ['Where', where],
  ['Clip', clip],
  ['Cast', cast],
  ['CastLike', (c) => [c.build.emit('aten.to.dtype', [c.arg(0), dtypeArg(c.type(1).dtype)])]],
  ['Gelu', gelu],
  ['com.microsoft.Gelu', gelu],
  [
    'com.microsoft.FastGelu',
    (c) => [c.build.emit('aten.gelu.default', [c.arg(0)], { approximate: 'tanh' })],
  ],
  ['com.microsoft.QuickGelu', (c) => [swish(c, c.float('alpha', 1.702))]],
  ['Swish', (c) => [swish(c, c.float('alpha', 1))]],
  [
    'LeakyRelu',
    (c) => [c.build.emit('aten.leaky_relu.default', [c.arg(0), floatArg(c.float('alpha', 0.01))])],
  ],
  ['Elu', (c) => [c.build.emit('aten.elu.default', [c.arg(0), floatArg(c.float('alpha', 1))])]],
  ['Celu', (c) => [c.build.emit('aten.celu.default', [c.arg(0), floatArg(c.float('alpha', 1))])]],
  ['Selu', selu],
  ['IsInf', isInf],
  ['BitShift', bitShift],
  ['Shrink', shrink],
  [
    'Softsign',
    (c) => [c.op('div.Tensor', c.input(0), c.op('add.Tensor', c.op('abs', c.input(0)), 1))],
  ],
  ['HardSigmoid', hardSigmoid],
  ['PRelu', prelu],
  [
    'ThresholdedRelu',
    (c) => [c.build.emit('aten.threshold.default', [c.arg(0), floatArg(c.float('alpha', 1)), 0])],
  ],
];
