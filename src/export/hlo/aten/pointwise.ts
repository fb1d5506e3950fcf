/**
 * Lowers elementwise ATen operators to HLO, computed in the type that PyTorch computes in. The
 * formulas are those of the PyTorch documentation.
 */
import type { HloCall, Lowering, Lowerings } from '../call.ts';
import { type Direction, type HloCode, isFloat, type Val } from '../code.ts';

type Unary = (hlo: HloCode, x: Val, call: HloCall) => Val;

/** A lowering of one tensor, in the type of the result. */
const unary =
  (f: Unary): Lowering =>
  (call) =>
    f(call.hlo, call.hlo.convert(call.first, call.out().dtype), call);

const named = (op: string): Lowering => unary((hlo, x) => hlo.unary(op, x));

type Binary = (hlo: HloCode, x: Val, y: Val, call: HloCall) => Val;

/** A lowering of two operands, broadcast, in the type of the result. */
const binary =
  (f: Binary, left = 'self', right = 'other'): Lowering =>
  (call) => {
    const { dtype, shape } = call.out();
    return f(call.hlo, call.operand(left, dtype, shape), call.operand(right, dtype, shape), call);
  };

const namedBinary = (op: string): Lowering => binary((hlo, x, y) => hlo.binary(op, x, y));

/** The second operand times `alpha`. */
const withAlpha = (op: string, swap = false): Lowering =>
  binary((hlo, x, y, call) => {
    const alpha = call.ctx.scalar('alpha')?.value ?? 1;
    const scaled = hlo.scaled(swap ? x : y, alpha);
    return swap ? hlo.binary(op, y, scaled) : hlo.binary(op, x, scaled);
  });

const comparison =
  (direction: Direction): Lowering =>
  (call) =>
    call.hlo.compare(direction, ...call.pair());

const logical =
  (op: string): Lowering =>
  (call) => {
    const { shape } = call.out();
    const bool = (name: string): Val => {
      const x = call.optional(name);
      return x === undefined
        ? call.filled(name, 'b8', shape)
        : call.hlo.broadcast(call.hlo.convert(x, 'b8'), shape);
    };
    return call.hlo.binary(op, bool('self'), bool('other'));
  };

// ---- division
// -----------------------------------------------------------------------------

function floorDivide(hlo: HloCode, x: Val, y: Val): Val {
  if (isFloat(x.dtype)) return hlo.unary('floor', hlo.divide(x, y));
  const quotient = hlo.divide(x, y);
  return hlo.select(roundsDown(hlo, x, y), hlo.subtract(quotient, hlo.like(x, 1)), quotient);
}

/** Tells whether the remainder is not zero and has not the sign of the divisor. */
function roundsDown(hlo: HloCode, x: Val, y: Val): Val {
  const zero = hlo.like(x, 0);
  const rest = hlo.binary('remainder', x, y);
  const differs = hlo.binary('xor', hlo.compare('LT', rest, zero), hlo.compare('LT', y, zero));
  return hlo.binary('and', hlo.compare('NE', rest, zero), differs);
}

function modulo(hlo: HloCode, x: Val, y: Val): Val {
  const rest = hlo.binary('remainder', x, y);
  return hlo.select(roundsDown(hlo, x, y), hlo.add(rest, y), rest);
}

function truncated(hlo: HloCode, x: Val): Val {
  return hlo.select(
    hlo.compare('LT', x, hlo.like(x, 0)),
    hlo.unary('ceil', x),
    hlo.unary('floor', x),
  );
}

const divided: Lowering = binary((hlo, x, y, call) => {
  const mode =
    call.takes('rounding_mode') && call.ctx.has('rounding_mode')
      ? call.ctx.text('rounding_mode')
      : undefined;
  if (mode === 'floor') return floorDivide(hlo, x, y);
  const quotient = hlo.divide(x, y);
  return mode === 'trunc' && isFloat(x.dtype) ? truncated(hlo, quotient) : quotient;
});

// ---- powers
// -----------------------------------------------------------------------------

const power: Lowering = (call) => {
  const { hlo } = call;
  const { dtype, shape } = call.out();
  const x = call.operand('self', dtype, shape);
  const exponent = call.ctx.scalar('exponent')?.value;
  if (call.byRank('exponent') === undefined && exponent !== undefined) {
    if (exponent === 1) return x;
    if (exponent === 2) return hlo.multiply(x, x);
    if (exponent === 3) return hlo.multiply(hlo.multiply(x, x), x);
    if (exponent === 0.5) return hlo.unary('sqrt', x);
    if (exponent === -0.5) return hlo.unary('rsqrt', x);
    if (exponent === -1) return hlo.divide(hlo.like(x, 1), x);
  }
  return hlo.binary('power', x, call.operand('exponent', dtype, shape));
};

// ---- activations
// -----------------------------------------------------------------------------

const BETA = Math.sqrt(2 / Math.PI);
const CUBIC = 0.044715;

function sigmoid(hlo: HloCode, x: Val): Val {
  return hlo.unary('logistic', x);
}

/** log(1 + exp(x)), exact for large x too. */
function softplus(hlo: HloCode, x: Val): Val {
  const small = hlo.unary(
    'log_plus_one',
    hlo.unary('exponential', hlo.unary('negate', hlo.unary('abs', x))),
  );
  return hlo.add(hlo.maximum(x, hlo.like(x, 0)), small);
}

/** The standard normal distribution function. */
function normalCdf(hlo: HloCode, x: Val): Val {
  const erf = hlo.unary('chlo.erf', hlo.scaled(x, Math.SQRT1_2));
  return hlo.scaled(hlo.add(erf, hlo.like(x, 1)), 0.5);
}

/** tanh(sqrt(2 / pi) (x + 0.044715 x^3)). */
function geluTanh(hlo: HloCode, x: Val): Val {
  const cube = hlo.multiply(hlo.multiply(x, x), x);
  return hlo.unary('tanh', hlo.scaled(hlo.add(x, hlo.scaled(cube, CUBIC)), BETA));
}

const isTanh = (call: HloCall): boolean => call.ctx.text('approximate') === 'tanh';

const gelu: Unary = (hlo, x, call) => {
  if (!isTanh(call)) return hlo.multiply(x, normalCdf(hlo, x));
  return hlo.multiply(hlo.scaled(x, 0.5), hlo.add(geluTanh(hlo, x), hlo.like(x, 1)));
};

/** Slope of the gelu. */
const geluSlope: Unary = (hlo, x, call) => {
  if (isTanh(call)) {
    const t = geluTanh(hlo, x);
    const one = hlo.like(x, 1);
    const inner = hlo.scaled(hlo.add(hlo.scaled(hlo.multiply(x, x), 3 * CUBIC), one), BETA);
    const bend = hlo.multiply(
      hlo.multiply(hlo.scaled(x, 0.5), hlo.subtract(one, hlo.multiply(t, t))),
      inner,
    );
    return hlo.add(hlo.scaled(hlo.add(t, one), 0.5), bend);
  }
  const density = hlo.unary('exponential', hlo.scaled(hlo.multiply(x, x), -0.5));
  return hlo.add(
    normalCdf(hlo, x),
    hlo.multiply(x, hlo.scaled(density, 1 / Math.sqrt(2 * Math.PI))),
  );
};

const siluSlope: Unary = (hlo, x) => {
  const s = sigmoid(hlo, x);
  const one = hlo.like(x, 1);
  return hlo.multiply(s, hlo.add(hlo.multiply(x, hlo.subtract(one, s)), one));
};

/** The incoming gradient times a slope. */
const gradient =
  (saved: string, slope: Unary, grad = 'grad_output'): Lowering =>
  (call) => {
    const { dtype, shape } = call.out();
    const g = call.operand(grad, dtype, shape);
    return call.hlo.multiply(g, slope(call.hlo, call.operand(saved, dtype, shape), call));
  };

const clamped: Lowering = (call) => {
  const { dtype, shape } = call.out();
  let x = call.operand('self', dtype, shape);
  if (call.takes('min') && call.ctx.has('min'))
    x = call.hlo.maximum(x, call.operand('min', dtype, shape));
  if (call.takes('max') && call.ctx.has('max'))
    x = call.hlo.minimum(x, call.operand('max', dtype, shape));
  return x;
};

const leaky = (hlo: HloCode, x: Val, slope: number): Val =>
  hlo.select(hlo.compare('GT', x, hlo.like(x, 0)), x, hlo.scaled(x, slope));

const where: Lowering = (call) => {
  const { dtype, shape } = call.out();
  const condition = call.hlo.broadcast(call.hlo.convert(call.tensor('condition'), 'b8'), shape);
  return call.hlo.select(
    condition,
    call.operand('self', dtype, shape),
    call.operand('other', dtype, shape),
  );
};

const maskedFill: Lowering = (call) => {
  const { dtype, shape } = call.out();
  const mask = call.hlo.broadcast(call.hlo.convert(call.tensor('mask'), 'b8'), shape);
  return call.hlo.select(
    mask,
    call.operand('value', dtype, shape),
    call.operand('self', dtype, shape),
  );
};

/** self + value * a * b, or a / b. */
const addedProduct =
  (op: 'multiply' | 'divide'): Lowering =>
  (call) => {
    const { dtype, shape } = call.out();
    const [a, b] = ['tensor1', 'tensor2'].map((name) => call.operand(name, dtype, shape));
    const product = call.hlo.scaled(
      call.hlo.binary(op, a, b),
      call.ctx.scalar('value')?.value ?? 1,
    );
    return call.hlo.add(call.operand('self', dtype, shape), product);
  };

const lerp: Lowering = (call) => {
  const { dtype, shape } = call.out();
  const [x, y, w] = ['self', 'end', 'weight'].map((name) => call.operand(name, dtype, shape));
  return call.hlo.add(x, call.hlo.multiply(w, call.hlo.subtract(y, x)));
};

const isNan: Lowering = ({ hlo, first }) =>
  isFloat(first.dtype) ? hlo.compare('NE', first, first) : hlo.constant(false, 'b8', first.shape);

/** The value as it is, in another type where the call says so. */
const cast: Lowering = (call) => call.hlo.convert(call.first, call.out().dtype);

const SAME = [
  'clone',
  'detach',
  'alias',
  'contiguous',
  'positive',
  'lift_fresh_copy',
  'lift_fresh',
];

export const pointwiseLowerings: Lowerings = {
  ...Object.fromEntries(SAME.map((name) => [`aten.${name}.default`, cast])),
  'aten._to_copy.default': cast,
  'aten.to.dtype': cast,
  'aten.to.dtype_layout': cast,
  'aten.to.device': cast,
  'prims.convert_element_type.default': cast,
  'aten.neg.default': named('negate'),
  'aten.exp.default': named('exponential'),
  'aten.expm1.default': named('exponential_minus_one'),
  'aten.log.default': named('log'),
  'aten.log1p.default': named('log_plus_one'),
  'aten.log2.default': unary((hlo, x) => hlo.scaled(hlo.unary('log', x), Math.LOG2E)),
  'aten.log10.default': unary((hlo, x) => hlo.scaled(hlo.unary('log', x), Math.LOG10E)),
  'aten.exp2.default': unary((hlo, x) => hlo.binary('power', hlo.like(x, 2), x)),
  'aten.sqrt.default': named('sqrt'),
  'aten.rsqrt.default': named('rsqrt'),
  'aten.reciprocal.default': unary((hlo, x) => hlo.divide(hlo.like(x, 1), x)),
  'aten.abs.default': named('abs'),
  'aten.sign.default': named('sign'),
  'aten.sgn.default': named('sign'),
  'aten.sin.default': named('sine'),
  'aten.cos.default': named('cosine'),
  'aten.tan.default': named('tan'),
  'aten.tanh.default': named('tanh'),
  'aten.sigmoid.default': unary(sigmoid),
  'aten.floor.default': named('floor'),
  'aten.ceil.default': named('ceil'),
  'aten.round.default': named('round_nearest_even'),
  'aten.trunc.default': unary(truncated),
  'aten.erf.default': named('chlo.erf'),
  'aten.erfc.default': named('chlo.erfc'),
  'aten.square.default': unary((hlo, x) => hlo.multiply(x, x)),
  'aten.relu.default': unary((hlo, x) => hlo.maximum(x, hlo.like(x, 0))),
  'aten.relu6.default': unary((hlo, x) =>
    hlo.minimum(hlo.maximum(x, hlo.like(x, 0)), hlo.like(x, 6)),
  ),
  'aten.silu.default': unary((hlo, x) => hlo.multiply(x, sigmoid(hlo, x))),
  'aten.gelu.default': unary(gelu),
  'aten.mish.default': unary((hlo, x) => hlo.multiply(x, hlo.unary('tanh', softplus(hlo, x)))),
  'aten.softplus.default': unary((hlo, x, call) => {
    const [beta, threshold] = [call.ctx.number('beta'), call.ctx.number('threshold')];
    const scaled = hlo.scaled(x, beta);
    return hlo.select(
      hlo.compare('GT', scaled, hlo.like(x, threshold)),
      x,
      hlo.scaled(softplus(hlo, scaled), 1 / beta),
    );
  }),
  'aten.log_sigmoid.default': unary((hlo, x) =>
    hlo.unary('negate', softplus(hlo, hlo.unary('negate', x))),
  ),
  'aten.leaky_relu.default': unary((hlo, x, call) =>
    leaky(hlo, x, call.ctx.number('negative_slope')),
  ),
  'aten.hardtanh.default': unary((hlo, x, { ctx }) =>
    hlo.minimum(
      hlo.maximum(x, hlo.like(x, ctx.number('min_val'))),
      hlo.like(x, ctx.number('max_val')),
    ),
  ),
  'aten.logical_not.default': ({ hlo, first }) => hlo.unary('not', hlo.convert(first, 'b8')),
  'aten.bitwise_not.default': named('not'),
  'aten.isnan.default': isNan,
  'aten.isinf.default': ({ hlo, first }) =>
    hlo.compare('EQ', hlo.unary('abs', first), hlo.like(first, Infinity)),
  'aten.isfinite.default': ({ hlo, first }) => hlo.unary('is_finite', first, 'b8'),
  'aten.add.Tensor': withAlpha('add'),
  'aten.add.Scalar': withAlpha('add'),
  'aten.sub.Tensor': withAlpha('subtract'),
  'aten.sub.Scalar': withAlpha('subtract'),
  'aten.rsub.Tensor': withAlpha('subtract', true),
  'aten.rsub.Scalar': withAlpha('subtract', true),
  'aten.mul.Tensor': namedBinary('multiply'),
  'aten.mul.Scalar': namedBinary('multiply'),
  'aten.div.Tensor': divided,
  'aten.div.Scalar': binary((hlo, x, y) => hlo.divide(x, y)),
  'aten.div.Tensor_mode': divided,
  'aten.div.Scalar_mode': divided,
  'aten.floor_divide.default': binary(floorDivide),
  'aten.floor_divide.Scalar': binary(floorDivide),
  'aten.remainder.Tensor': binary(modulo),
  'aten.remainder.Scalar': binary(modulo),
  'aten.fmod.Tensor': namedBinary('remainder'),
  'aten.fmod.Scalar': namedBinary('remainder'),
  'aten.atan2.default': namedBinary('atan2'),
  'aten.maximum.default': namedBinary('maximum'),
  'aten.minimum.default': namedBinary('minimum'),
  'aten.bitwise_and.Tensor': namedBinary('and'),
  'aten.bitwise_or.Tensor': namedBinary('or'),
  'aten.bitwise_xor.Tensor': namedBinary('xor'),
  'aten.bitwise_and.Scalar': namedBinary('and'),
  'aten.bitwise_or.Scalar': namedBinary('or'),
  'aten.logical_and.default': logical('and'),
  'aten.logical_or.default': logical('or'),
  'aten.logical_xor.default': logical('xor'),
  'aten.pow.Tensor_Scalar': power,
  'aten.pow.Tensor_Tensor': power,
  'aten.pow.Scalar': power,
  'aten.clamp.default': clamped,
  'aten.clamp.Tensor': clamped,
  'aten.clamp_min.default': clamped,
  'aten.clamp_max.default': clamped,
  'aten.clamp_min.Tensor': clamped,
  'aten.clamp_max.Tensor': clamped,
  ...Object.fromEntries(
    (['eq', 'ne', 'ge', 'gt', 'le', 'lt'] as const).flatMap((name) =>
      ['Tensor', 'Scalar'].map((form) => [
        `aten.${name}.${form}`,
        comparison(name.toUpperCase() as Direction),
      ]),
    ),
  ),
  'aten.where.self': where,
  'aten.masked_fill.Scalar': maskedFill,
  'aten.masked_fill.Tensor': maskedFill,
  'aten.addcmul.default': addedProduct('multiply'),
  'aten.addcdiv.default': addedProduct('divide'),
  'aten.lerp.Scalar': lerp,
  'aten.lerp.Tensor': lerp,
  'aten.gelu_backward.default': gradient('self', geluSlope),
  'aten.silu_backward.default': gradient('self', siluSlope),
  'aten.sigmoid_backward.default': gradient('output', (hlo, y) =>
    hlo.multiply(y, hlo.subtract(hlo.like(y, 1), y)),
  ),
  'aten.tanh_backward.default': gradient('output', (hlo, y) =>
    hlo.subtract(hlo.like(y, 1), hlo.multiply(y, y)),
  ),
  'aten.threshold_backward.default': (call) => {
    const { dtype, shape } = call.out();
    const [g, x] = ['grad_output', 'self'].map((name) => call.operand(name, dtype, shape));
    const passes = call.hlo.compare('GT', x, call.filled('threshold', dtype, shape));
    return call.hlo.select(passes, g, call.hlo.like(g, 0));
  },
};
