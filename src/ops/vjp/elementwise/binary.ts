/**
 * Elementwise functions of several operands. A tie of maximum, minimum or clamp goes to the first
 * argument.
 */

import type { ValueRef } from '../../../graph/types.ts';
import { categoryOf } from '../../record/dtypes.ts';
import { type CallBuilder, literal, type Operand } from '../build.ts';
import { named, type VjpCall, type Vjps } from '../vjp.ts';

/** A tensor argument, or the number in its place. */
function operand(c: VjpCall, name: string): Operand {
  return c.optional(name) ?? c.ctx.number(name);
}

/** A number stays in the operator's form for tensors, if the forward call has it there. */
function like(c: VjpCall, name: 'mul' | 'div', a: ValueRef, x: Operand): ValueRef {
  if (typeof x !== 'number') return c.b[name](a, x);
  return c.b.call(`aten.${name}.${c.node.target.endsWith('.Scalar') ? 'Scalar' : 'Tensor'}`, [
    a,
    literal(x),
  ]);
}

/** Gradients of complex numbers are conjugate, as PyTorch has them. */
function conjugated(c: VjpCall, x: Operand): Operand {
  return typeof x === 'number' || categoryOf(c.b.dtype(x)) !== 3
    ? x
    : c.b.call('aten._conj.default', [x]);
}

const both = ['Tensor', 'Scalar'];
const overloads = (name: string): string => both.map((o) => `${name}.${o}`).join(' ');

/** `x^(e-1) e g`, zero where the exponent is. */
function powerBase(c: VjpCall): ValueRef {
  const { b } = c;
  const [x, e] = [c.x('self'), c.x('exponent')];
  const raised = b.call('aten.pow.Tensor_Tensor', [x, b.sub(e, 1)]);
  return b.zeroed(b.mul(c.g(), b.mul(e, raised)), b.compare('eq', e, 0));
}

/** `y log(x) g`, zero where x is zero and the exponent is not negative. */
function powerExponent(c: VjpCall): ValueRef {
  const { b } = c;
  const [x, e] = [c.x('self'), c.x('exponent')];
  const flat = b.call('aten.logical_and.default', [b.compare('eq', x, 0), b.compare('ge', e, 0)]);
  return b.mul(c.g(), b.zeroed(b.mul(c.y(), b.unary('log', x)), flat));
}

/**
 * Gradients of a choice between two operands: all of it where `first` holds, none elsewhere; and
 * the other way round.
 */
function choice(c: VjpCall, names: readonly [string, string], first: () => ValueRef) {
  const { b } = c;
  let taken: ValueRef | undefined;
  return {
    [names[0]]: () => b.where((taken ??= first()), c.g(), 0),
    [names[1]]: () => b.zeroed(c.g(), (taken ??= first())),
  };
}

const SELF_OTHER = ['self', 'other'] as const;

/** The larger or smaller of two that is a number. */
const nanAware = (compare: string) => (c: VjpCall) =>
  choice(c, SELF_OTHER, () =>
    c.b.call('aten.logical_or.default', [
      c.b.compare(compare, c.x('self'), c.x('other')),
      c.b.unary('isnan', c.x('other')),
    ]),
  );

/** Divisions with a remainder: the quotient is constant where it is smooth. */
const modulo = (rounding: string) => (c: VjpCall) => ({
  self: () => c.g(),
  other: () => {
    const quotient = c.b.call('aten.div.Tensor_mode', [c.arg('self') ?? null, c.x('other')], {
      rounding_mode: rounding,
    });
    return c.b.neg(c.b.mul(c.g(), quotient));
  },
});

function quotient(c: VjpCall) {
  const { b } = c;
  return {
    self: () => like(c, 'div', c.g(), conjugated(c, operand(c, 'other'))),
    other: () => {
      const other = c.x('other');
      const ratio = b.call('aten.div.Tensor', [c.arg('self') ?? null, other]);
      const slope = b.div(ratio, other);
      return b.mul(
        b.neg(c.g()),
        categoryOf(b.dtype(slope)) === 3 ? b.call('aten._conj.default', [slope]) : slope,
      );
    },
  };
}

/** A quotient that is rounded is constant almost everywhere. */
const roundedQuotient = (c: VjpCall) =>
  c.ctx.has('rounding_mode') ? { self: () => null, other: () => null } : quotient(c);

const logTimes =
  (
    log: (b: CallBuilder, y: Operand) => Operand,
    derivative: (b: CallBuilder, y: ValueRef) => ValueRef,
  ) =>
  (c: VjpCall) => {
    const { b } = c;
    return {
      self: () => {
        const other = operand(c, 'other');
        const scaled = b.mul(c.g(), log(b, other));
        return b.zeroed(scaled, b.compare('eq', c.x('self'), 0));
      },
      other: () => b.mul(c.g(), b.div(asTensor(c, 'self'), derivative(b, c.x('other')))),
    };
  };

/** The operand as a tensor; a number becomes one without dims. */
function asTensor(c: VjpCall, name: string): ValueRef {
  const value = operand(c, name);
  return typeof value === 'number' ? c.b.full([], value, c.ctx.outputs[0]?.dtype ?? 'f32') : value;
}

/** `g x / (x^2 + y^2)` for either operand. */
function overSquares(c: VjpCall, numerator: string): ValueRef {
  const { b } = c;
  const [x, y] = [asTensor(c, 'self'), asTensor(c, 'other')];
  const squares = b.add(b.mul(x, x), b.mul(y, y));
  return b.mul(c.g(), b.div(asTensor(c, numerator), squares));
}

const bound = (name: 'min' | 'max', compare: string, tensor: boolean) => (c: VjpCall) => {
  const inside = (): ValueRef => c.b.compare(compare, c.x('self'), operand(c, name));
  return tensor ? choice(c, ['self', name], inside) : { self: () => c.b.where(inside(), c.g(), 0) };
};

function clampBetween(c: VjpCall): ValueRef {
  const { b } = c;
  const parts: ValueRef[] = [];
  if (c.ctx.has('min')) parts.push(b.compare('ge', c.x('self'), operand(c, 'min')));
  if (c.ctx.has('max')) parts.push(b.compare('le', c.x('self'), operand(c, 'max')));
  if (parts.length === 0) return c.g();
  const inside = parts.length === 1 ? parts[0] : b.call('aten.logical_and.default', parts);
  return b.where(inside, c.g(), 0);
}

/**
 * With both bounds, the lower one counts only where it is below the upper one: the upper is applied
 * last.
 */
function clampTensors(c: VjpCall) {
  const { b } = c;
  const x = c.x('self');
  const [low, high] = [c.optional('min'), c.optional('max')];
  return {
    self: () => clampBetween(c),
    min: () => {
      const below = b.compare('lt', x, c.x('min'));
      const counts =
        high === null
          ? below
          : b.call('aten.logical_and.default', [below, b.compare('lt', c.x('min'), high)]);
      return b.where(counts, c.g(), 0);
    },
    max: () => {
      const above = b.compare('gt', x, c.x('max'));
      const counts =
        low === null
          ? above
          : b.call('aten.logical_or.default', [above, b.compare('lt', c.x('max'), low)]);
      return b.where(counts, c.g(), 0);
    },
  };
}

const alpha = (c: VjpCall): number => c.ctx.number('alpha');
const value = (c: VjpCall): number => c.ctx.number('value');

export const binaryVjps: Vjps = {
  ...named(overloads('add'), (c) => ({
    self: () => c.g(),
    other: () => c.b.scaled(c.g(), alpha(c)),
  })),
  ...named(overloads('sub'), (c) => ({
    self: () => c.g(),
    other: () => c.b.scaled(c.g(), -alpha(c)),
  })),
  ...named(overloads('rsub'), (c) => ({
    self: () => c.b.scaled(c.g(), -alpha(c)),
    other: () => c.g(),
  })),
  ...named(overloads('mul'), (c) => ({
    self: () => like(c, 'mul', c.g(), conjugated(c, operand(c, 'other'))),
    other: () => like(c, 'mul', c.g(), conjugated(c, operand(c, 'self'))),
  })),
  ...named(overloads('div'), quotient),
  ...named('div.Tensor_mode div.Scalar_mode', roundedQuotient),
  ...named(overloads('remainder'), modulo('floor')),
  ...named(overloads('fmod'), modulo('trunc')),
  ...named('pow.Tensor_Tensor', (c) => ({
    self: () => powerBase(c),
    exponent: () => powerExponent(c),
  })),
  ...named('maximum.default', (c) =>
    choice(c, SELF_OTHER, () => c.b.compare('ge', c.x('self'), c.x('other'))),
  ),
  ...named('minimum.default', (c) =>
    choice(c, SELF_OTHER, () => c.b.compare('le', c.x('self'), c.x('other'))),
  ),
  ...named('fmax.default', nanAware('ge')),
  ...named('fmin.default', nanAware('le')),
  ...named('clamp.default', (c) => ({ self: () => clampBetween(c) })),
  ...named('clamp_min.default', bound('min', 'ge', false)),
  ...named('clamp_max.default', bound('max', 'le', false)),
  ...named('clamp_min.Tensor', bound('min', 'ge', true)),
  ...named('clamp_max.Tensor', bound('max', 'le', true)),
  ...named('clamp.Tensor', clampTensors),
  ...named('atan2.default', (c) => ({
    self: () => overSquares(c, 'other'),
    other: () => c.b.neg(overSquares(c, 'self')),
  })),
  ...named('hypot.default', (c) => ({
    self: () => c.b.mul(c.g(), c.b.div(c.x('self'), c.y())),
    other: () => c.b.mul(c.g(), c.b.div(c.x('other'), c.y())),
  })),
  ...named('copysign.Tensor', (c) => ({
    self: () =>
      c.b.zeroed(c.b.mul(c.g(), c.b.div(c.y(), c.x('self'))), c.b.compare('eq', c.x('self'), 0)),
    other: () => null,
  })),
  ...named('logaddexp.default', (c) => ({
    self: () => c.b.mul(c.g(), c.b.unary('sigmoid', c.b.sub(c.x('self'), c.x('other')))),
    other: () => c.b.mul(c.g(), c.b.unary('sigmoid', c.b.sub(c.x('other'), c.x('self')))),
  })),
  ...named('logaddexp2.default', (c) => {
    const share = (x: string, y: string): ValueRef =>
      c.b.mul(c.g(), c.b.unary('sigmoid', c.b.mul(c.b.sub(c.x(x), c.x(y)), Math.LN2)));
    return { self: () => share('self', 'other'), other: () => share('other', 'self') };
  }),
  ...named(
    'xlogy.Tensor',
    logTimes(
      (b, y) => (typeof y === 'number' ? Math.log(y) : b.unary('log', y)),
      (_b, y) => y,
    ),
  ),
  ...named(
    'special_xlog1py.default',
    logTimes(
      (b, y) => (typeof y === 'number' ? Math.log1p(y) : b.unary('log1p', y)),
      (b, y) => b.add(y, 1),
    ),
  ),
  ...named('where.self', (c) => ({
    self: () => c.b.where(c.x('condition'), c.g(), 0),
    other: () => c.b.where(c.x('condition'), 0, c.g()),
  })),
  ...named('masked_fill.Scalar masked_fill.Tensor', (c) => ({
    self: () => c.b.zeroed(c.g(), c.x('mask')),
    value: () => c.b.where(c.x('mask'), c.g(), 0),
  })),
  ...named('lerp.Scalar', (c) => ({
    self: () => c.b.scaled(c.g(), 1 - c.ctx.number('weight')),
    end: () => c.b.scaled(c.g(), c.ctx.number('weight')),
  })),
  ...named('lerp.Tensor', (c) => ({
    self: () => c.b.mul(c.g(), c.b.rsub(c.x('weight'), 1)),
    end: () => c.b.mul(c.g(), c.x('weight')),
    weight: () => c.b.mul(c.g(), c.b.sub(c.x('end'), c.x('self'))),
  })),
  ...named('addcmul.default', (c) => ({
    self: () => c.g(),
    tensor1: () => c.b.mul(c.g(), c.b.scaled(c.x('tensor2'), value(c))),
    tensor2: () => c.b.mul(c.g(), c.b.scaled(c.x('tensor1'), value(c))),
  })),
  ...named('addcdiv.default', (c) => ({
    self: () => c.g(),
    tensor1: () =>
      c.b.mul(
        c.g(),
        c.b.div(c.b.full([], value(c), c.ctx.outputs[0]?.dtype ?? 'f32'), c.x('tensor2')),
      ),
    tensor2: () => {
      const { b } = c;
      const ratio = b.div(
        c.b.scaled(c.x('tensor1'), value(c)),
        b.mul(c.x('tensor2'), c.x('tensor2')),
      );
      return b.neg(b.mul(c.g(), ratio));
    },
  })),
};
