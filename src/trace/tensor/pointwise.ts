/** Pointwise methods of traced tensors, with broadcasting and PyTorch's type promotion. */

import type { DType } from '../../graph/types.ts';
import type { Size } from '../sizes/sizes.ts';
import { TensorCore, tracedValue } from './core.ts';

/** The other side of a pointwise operator. */
export type Operand = TensorCore | Size;

function isScalar(operand: Operand): operand is Size {
  return tracedValue(operand) === undefined;
}

/**
 * Pointwise operators. Shapes broadcast; dtypes promote as in PyTorch, where a whole number is an
 * integer.
 */
export abstract class PointwiseTensor extends TensorCore {
  add(other: Operand): this {
    return this.op('aten.add.Tensor', [this, other]);
  }
  sub(other: Operand): this {
    return this.op('aten.sub.Tensor', [this, other]);
  }
  /** `other - this`. */
  rsub(other: Operand): this {
    return this.op(isScalar(other) ? 'aten.rsub.Scalar' : 'aten.rsub.Tensor', [this, other]);
  }
  mul(other: Operand): this {
    return this.op('aten.mul.Tensor', [this, other]);
  }
  div(other: Operand): this {
    return this.op('aten.div.Tensor', [this, other]);
  }
  /** Quotient rounded towards minus infinity. */
  floordiv(other: Operand): this {
    return this.op('aten.div.Tensor_mode', [this, other], { rounding_mode: 'floor' });
  }
  /** Remainder with the sign of the divisor. */
  remainder(other: Operand): this {
    return this.op(isScalar(other) ? 'aten.remainder.Scalar' : 'aten.remainder.Tensor', [
      this,
      other,
    ]);
  }
  pow(exponent: Operand): this {
    return this.op(isScalar(exponent) ? 'aten.pow.Tensor_Scalar' : 'aten.pow.Tensor_Tensor', [
      this,
      exponent,
    ]);
  }
  maximum(other: Operand): this {
    return isScalar(other)
      ? this.op('aten.clamp_min.default', [this, other])
      : this.op('aten.maximum.default', [this, other]);
  }
  minimum(other: Operand): this {
    return isScalar(other)
      ? this.op('aten.clamp_max.default', [this, other])
      : this.op('aten.minimum.default', [this, other]);
  }
  clamp(min: number | null, max: number | null = null): this {
    return this.op('aten.clamp.default', [this, min, max]);
  }
  atan2(other: TensorCore): this {
    return this.op('aten.atan2.default', [this, other]);
  }
  /** `this + weight * (end - this)`. */
  lerp(end: TensorCore, weight: Operand): this {
    return this.op(isScalar(weight) ? 'aten.lerp.Scalar' : 'aten.lerp.Tensor', [this, end, weight]);
  }

  neg(): this {
    return this.op('aten.neg.default', [this]);
  }
  abs(): this {
    return this.op('aten.abs.default', [this]);
  }
  sign(): this {
    return this.op('aten.sign.default', [this]);
  }
  exp(): this {
    return this.op('aten.exp.default', [this]);
  }
  expm1(): this {
    return this.op('aten.expm1.default', [this]);
  }
  log(): this {
    return this.op('aten.log.default', [this]);
  }
  log2(): this {
    return this.op('aten.log2.default', [this]);
  }
  log1p(): this {
    return this.op('aten.log1p.default', [this]);
  }
  sqrt(): this {
    return this.op('aten.sqrt.default', [this]);
  }
  rsqrt(): this {
    return this.op('aten.rsqrt.default', [this]);
  }
  square(): this {
    return this.op('aten.square.default', [this]);
  }
  reciprocal(): this {
    return this.op('aten.reciprocal.default', [this]);
  }
  sin(): this {
    return this.op('aten.sin.default', [this]);
  }
  cos(): this {
    return this.op('aten.cos.default', [this]);
  }
  tan(): this {
    return this.op('aten.tan.default', [this]);
  }
  tanh(): this {
    return this.op('aten.tanh.default', [this]);
  }
  erf(): this {
    return this.op('aten.erf.default', [this]);
  }
  floor(): this {
    return this.op('aten.floor.default', [this]);
  }
  ceil(): this {
    return this.op('aten.ceil.default', [this]);
  }
  round(): this {
    return this.op('aten.round.default', [this]);
  }
  trunc(): this {
    return this.op('aten.trunc.default', [this]);
  }

  relu(): this {
    return this.op('aten.relu.default', [this]);
  }
  leakyRelu(slope = 0.01): this {
    return this.op('aten.leaky_relu.default', [this, slope]);
  }
  elu(alpha = 1): this {
    return this.op('aten.elu.default', [this, alpha]);
  }
  /** @param approximate `tanh` for the approximation that GPT-2 uses */
  gelu(approximate: 'none' | 'tanh' = 'none'): this {
    return this.op('aten.gelu.default', [this], approximate === 'none' ? {} : { approximate });
  }
  silu(): this {
    return this.op('aten.silu.default', [this]);
  }
  sigmoid(): this {
    return this.op('aten.sigmoid.default', [this]);
  }
  softplus(): this {
    return this.op('aten.softplus.default', [this]);
  }
  hardtanh(min = -1, max = 1): this {
    return this.op('aten.hardtanh.default', [this, min, max]);
  }

  eq(other: Operand): this {
    return this.op(isScalar(other) ? 'aten.eq.Scalar' : 'aten.eq.Tensor', [this, other]);
  }
  ne(other: Operand): this {
    return this.op(isScalar(other) ? 'aten.ne.Scalar' : 'aten.ne.Tensor', [this, other]);
  }
  lt(other: Operand): this {
    return this.op(isScalar(other) ? 'aten.lt.Scalar' : 'aten.lt.Tensor', [this, other]);
  }
  le(other: Operand): this {
    return this.op(isScalar(other) ? 'aten.le.Scalar' : 'aten.le.Tensor', [this, other]);
  }
  gt(other: Operand): this {
    return this.op(isScalar(other) ? 'aten.gt.Scalar' : 'aten.gt.Tensor', [this, other]);
  }
  ge(other: Operand): this {
    return this.op(isScalar(other) ? 'aten.ge.Scalar' : 'aten.ge.Tensor', [this, other]);
  }
  logicalAnd(other: TensorCore): this {
    return this.op('aten.logical_and.default', [this, other]);
  }
  logicalOr(other: TensorCore): this {
    return this.op('aten.logical_or.default', [this, other]);
  }
  logicalXor(other: TensorCore): this {
    return this.op('aten.logical_xor.default', [this, other]);
  }
  logicalNot(): this {
    return this.op('aten.logical_not.default', [this]);
  }
  bitwiseAnd(other: Operand): this {
    return this.op(isScalar(other) ? 'aten.bitwise_and.Scalar' : 'aten.bitwise_and.Tensor', [
      this,
      other,
    ]);
  }
  bitwiseOr(other: Operand): this {
    return this.op(isScalar(other) ? 'aten.bitwise_or.Scalar' : 'aten.bitwise_or.Tensor', [
      this,
      other,
    ]);
  }
  isnan(): this {
    return this.op('aten.isnan.default', [this]);
  }
  isfinite(): this {
    return this.op('aten.isfinite.default', [this]);
  }

  /** `a` where this bool tensor holds, else `b`. */
  where(a: Operand, b: Operand): this {
    const kind = `${isScalar(a) ? 'Scalar' : 'Tensor'}${isScalar(b) ? 'Scalar' : 'Tensor'}`;
    const overload =
      { ScalarScalar: 'Scalar', ScalarTensor: 'ScalarSelf', TensorScalar: 'ScalarOther' }[kind] ??
      'self';
    return this.op(`aten.where.${overload}`, [this, a, b]);
  }
  /** `value` where the bool tensor `mask` holds. */
  maskedFill(mask: TensorCore, value: Operand): this {
    return this.op(isScalar(value) ? 'aten.masked_fill.Scalar' : 'aten.masked_fill.Tensor', [
      this,
      mask,
      value,
    ]);
  }

  /** The tensor in another dtype; the same node if it has it already. */
  to(dtype: DType): this {
    return dtype === this.dtype ? this : this.op('aten.to.dtype', [this, { kind: 'dtype', dtype }]);
  }
  /** The tensor without its gradient. */
  detach(): this {
    return this.op('aten.detach.default', [this]);
  }
}
