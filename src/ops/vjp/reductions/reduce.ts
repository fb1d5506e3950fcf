/**
 * Reductions: the gradient is spread over what was reduced, weighted by how much each element
 * counts.
 */

import type { ValueRef } from '../../../graph/types.ts';
import { product } from '../../../product.ts';
import { elements } from '../../record/record.ts';
import { type CallBuilder, literal } from '../build.ts';
import { frontDim, named, type VjpCall, type VjpEntry, type Vjps } from '../vjp.ts';

/** Dims that the call reduces, from the front; all where it names none. */
function reduced(c: VjpCall): number[] {
  const rank = c.shape('self').length;
  const hasDims = c.ctx.inputs.length > 0 && names(c).has('dim');
  const dims = hasDims ? (c.ctx.optionalInts('dim') ?? []) : [];
  if (dims.length === 0) return Array.from({ length: rank }, (_, d) => d);
  return dims.map((d) => frontDim(d, rank)).sort((a, b) => a - b);
}

/** Arguments that the operator has. */
function names(c: VjpCall): ReadonlySet<string> {
  return new Set(c.argumentNames);
}

function keeps(c: VjpCall): boolean {
  return names(c).has('keepdim') && c.ctx.bool('keepdim');
}

/** A reduced value with its dims back as size 1. */
function keptDims(c: VjpCall, value: ValueRef): ValueRef {
  const rank = c.shape('self').length;
  if (keeps(c) || rank === 0) return value;
  const dims = reduced(c);
  // A value without dims broadcasts as it is.
  if (dims.length === rank) return value;
  return dims.reduce((x, d) => c.b.unsqueeze(x, d), value);
}

/** The gradient over the shape of the input. */
function spread(c: VjpCall): ValueRef {
  return c.b.expand(keptDims(c, c.g()), c.shape('self'));
}

function count(c: VjpCall): number {
  return product(reduced(c).map((d) => c.shape('self')[d]));
}

const sumOf = (c: VjpCall) => ({ self: () => spread(c) });
const meanOf = (c: VjpCall) => ({ self: () => c.b.div(spread(c), count(c)) });

/** Shares the gradient among the elements that are the extreme one. */
const extreme = (c: VjpCall) => ({
  self: () => {
    const { b } = c;
    const mask = b.compare('eq', c.x('self'), keptDims(c, c.y()));
    const dtype = c.ctx.inputs[0].dtype;
    const ties = b.cast(mask, dtype);
    return b.mul(b.div(keptDims(c, c.g()), b.sum(ties, reduced(c), true)), ties);
  },
});

/** A gradient put back where the values were taken from; the second result holds the positions. */
const selected = (c: VjpCall) => ({
  self: () => {
    const { b } = c;
    const shape = c.shape('self');
    if (shape.length === 0) return c.g();
    const dim = frontDim(c.ctx.int('dim'), shape.length);
    const flat = names(c).has('keepdim') && !c.ctx.bool('keepdim');
    const put = (x: ValueRef): ValueRef => (flat ? b.unsqueeze(x, dim) : x);
    return b.call('aten.scatter.src', [b.newZeros(c.g(), shape), dim, put(c.y(1)), put(c.g())]);
  },
});

/** Running extremes: the same position may be taken many times. */
const accumulated = (c: VjpCall) => ({
  self: () => {
    const shape = c.shape('self');
    if (shape.length === 0) return c.g();
    return c.b.call('aten.scatter_add.default', [
      c.b.newZeros(c.g(), shape),
      c.ctx.int('dim'),
      c.y(1),
      c.g(),
    ]);
  },
});

const corrected = (c: VjpCall): number => {
  const correction = c.ctx.scalar('correction')?.value ?? 1;
  return count(c) - correction;
};

function varianceGradient(c: VjpCall, g: ValueRef): ValueRef {
  const { b } = c;
  const mean = b.call('aten.mean.dim', [c.x('self'), reduced(c), true]);
  return b.mul(b.mul(keptDims(c, g), 2 / corrected(c)), b.sub(c.x('self'), mean));
}

function normGradient(c: VjpCall): ValueRef | null {
  const { b } = c;
  const p = c.ctx.number('ord');
  const x = c.x('self');
  const [g, y] = [(): ValueRef => keptDims(c, c.g()), (): ValueRef => keptDims(c, c.y())];
  const atZero = (v: ValueRef): ValueRef => b.zeroed(v, b.compare('eq', y(), 0));
  if (p === 0) return null;
  if (p === 1) return b.mul(b.unary('sgn', x), g());
  if (p === 2) return b.mul(x, atZero(b.div(g(), y())));
  if (Math.abs(p) === Infinity) {
    const ties = b.cast(b.compare('eq', b.unary('abs', x), y()), b.dtype(x));
    return b.mul(b.mul(b.unary('sgn', x), ties), b.div(g(), b.sum(ties, reduced(c), true)));
  }
  const scale = atZero(b.div(g(), b.pow(y(), p - 1)));
  const powered = b.mul(b.unary('sgn', x), b.pow(b.unary('abs', x), p - 1));
  return b.mul(p < 1 ? b.zeroed(powered, b.compare('eq', x, 0)) : powered, scale);
}

// ---- products and running reductions
// -----------------------------------------------------------------------------

/** For each element the product of all others along `dim`, without dividing by a zero. */
function otherProduct(b: CallBuilder, x: ValueRef, dim: number): ValueRef {
  const shape = b.shape(x);
  const n = shape[dim];
  const ones = b.full(
    shape.map((size, d) => (d === dim ? Math.min(1, size) : size)),
    1,
    b.dtype(x),
  );
  if (n <= 1) return ones;
  const before = (v: ValueRef): ValueRef =>
    b.call('aten.cumprod.default', [b.cat([ones, b.slice(v, dim, 0, n - 1)], dim), dim]);
  return b.mul(before(x), b.flip(before(b.flip(x, dim)), dim));
}

function productAlong(c: VjpCall): ValueRef {
  const shape = c.shape('self');
  if (shape.length === 0) return c.g();
  return c.b.mul(
    keptDims(c, c.g()),
    otherProduct(c.b, c.x('self'), frontDim(c.ctx.int('dim'), shape.length)),
  );
}

function productOfAll(c: VjpCall): ValueRef {
  const { b } = c;
  const shape = c.shape('self');
  const size = elements(shape);
  return b.mul(c.g(), b.reshape(otherProduct(b, b.reshape(c.x('self'), [size]), 0), shape));
}

/** Sum of this and all later elements. */
function sumOfRest(b: CallBuilder, x: ValueRef, dim: number): ValueRef {
  if (b.rank(x) === 0 || b.shape(x)[dim] <= 1) return x;
  return b.flip(b.call('aten.cumsum.default', [b.flip(x, dim), dim]), dim);
}

const alongDim = (c: VjpCall): number => frontDim(c.ctx.int('dim'), c.shape('self').length);

/**
 * `dx_i = sum over j >= i of g_j times the product of x_k, k <= j, k != i`: exact where elements
 * are zero, at the price of n values per element.
 */
function runningProduct(c: VjpCall): ValueRef {
  const { b } = c;
  const shape = c.shape('self');
  if (shape.length === 0) return c.g();
  const dim = alongDim(c);
  const n = shape[dim];
  const last = shape.length - 1;
  const turn = (x: ValueRef): ValueRef => (dim === last ? x : b.transpose(x, dim, last));
  const [x, g] = [turn(c.x('self')), turn(c.g())];
  const lead = b.shape(x).slice(0, -1);
  const index = b.iota(n);
  const row = b.unsqueeze(index, 1);
  // Row i holds the factors with x_i left out, so that its running products are those of the
  // others.
  const own = b.call('aten.eq.Tensor', [row, index]);
  const rows = b.expand(b.unsqueeze(x, -2), [...lead, n, n]);
  const others = b.call('aten.cumprod.default', [
    b.call('aten.masked_fill.Scalar', [rows, own, literal(1)]),
    -1,
  ]);
  const weighted = b.zeroed(
    b.mul(others, b.unsqueeze(g, -2)),
    b.call('aten.lt.Tensor', [index, row]),
  );
  return turn(b.sum(weighted, [shape.length]));
}

/**
 * `exp(x_i) times the sum over j >= i of g_j exp(-y_j)`, positive and negative gradients apart so
 * that neither overflows.
 */
function runningLogSum(c: VjpCall): ValueRef {
  const { b } = c;
  if (c.shape('self').length === 0) return c.g();
  const dim = alongDim(c);
  const part = (g: ValueRef): ValueRef => {
    const logs = b.unary('log', b.where(b.compare('gt', g, 0), g, 0));
    const terms = b.flip(b.sub(logs, c.y()), dim);
    return b.unary(
      'exp',
      b.add(b.flip(b.call('aten.logcumsumexp.default', [terms, dim]), dim), c.x('self')),
    );
  };
  return b.sub(part(c.g()), part(b.neg(c.g())));
}

/**
 * Differences between neighbours, n times: each is undone by adding what the two neighbours gave.
 */
function difference(c: VjpCall) {
  const { b } = c;
  const rank = c.shape('self').length;
  const dim = frontDim(c.ctx.int('dim'), rank);
  const size = (name: string): number => (c.optional(name) === null ? 0 : c.shape(name)[dim]);
  const pad = (x: ValueRef, left: number, right: number): ValueRef =>
    b.call('aten.constant_pad_nd.default', [
      x,
      [...Array.from({ length: 2 * (rank - 1 - dim) }, () => 0), left, right],
    ]);
  let whole: ValueRef | undefined;
  const total = (): ValueRef => {
    let x = c.g();
    for (let i = 0; i < c.ctx.int('n'); i++) x = b.sub(pad(x, 1, 0), pad(x, 0, 1));
    return x;
  };
  const part = (start: number, length: number): ValueRef =>
    b.slice((whole ??= total()), dim, start, start + length);
  const before = size('prepend');
  const own = c.shape('self')[dim];
  return {
    self: () => part(before, own),
    prepend: () => part(0, before),
    append: () => part(before + own, size('append')),
  };
}

/** The gradient of the variance whose root is the first result. */
function ofVariance(c: VjpCall): ValueRef {
  const { b } = c;
  return b.zeroed(b.div(c.g(), b.mul(c.y(), 2)), b.compare('eq', c.y(), 0));
}

/** Variance, or what follows from it, and mean in one call. */
const withMean = (variance: (c: VjpCall) => ValueRef): VjpEntry => ({
  results: [0, 1],
  vjp: (c) => ({
    self: () => {
      const { b } = c;
      const fromMean = (): ValueRef =>
        b.div(b.expand(keptDims(c, c.g(1)), c.shape('self')), count(c));
      if (!c.hasGradient(1)) return varianceGradient(c, variance(c));
      return c.hasGradient(0) ? b.add(varianceGradient(c, variance(c)), fromMean()) : fromMean();
    },
  }),
});

export const reduceVjps: Vjps = {
  ...named('sum.default sum.dim_IntList', sumOf),
  ...named('mean.default mean.dim', meanOf),
  ...named('nansum.default', (c) => ({
    self: () => c.b.zeroed(spread(c), c.b.unary('isnan', c.x('self'))),
  })),
  ...named('prod.default', (c) => ({ self: () => productOfAll(c) })),
  ...named('prod.dim_int', (c) => ({ self: () => productAlong(c) })),
  ...named('max.default min.default amax.default amin.default median.default', extreme),
  ...named(
    'max.dim min.dim median.dim nanmedian.dim kthvalue.default mode.default topk.default ' +
      'sort.default',
    selected,
  ),
  ...named('sort.stable', selected),
  ...named('cummax.default cummin.default', accumulated),
  ...named('linalg_vector_norm.default', (c) => ({ self: () => normGradient(c) })),
  ...named('var.correction', (c) => ({ self: () => varianceGradient(c, c.g()) })),
  ...named('std.correction', (c) => ({
    self: () => varianceGradient(c, ofVariance(c)),
  })),
  ...named(
    'var_mean.correction',
    withMean((c) => c.g(0)),
  ),
  ...named('std_mean.correction', withMean(ofVariance)),
  ...named('logsumexp.default', (c) => ({
    self: () =>
      c.b.mul(keptDims(c, c.g()), c.b.unary('exp', c.b.sub(c.x('self'), keptDims(c, c.y())))),
  })),
  ...named('cumsum.default', (c) => ({ self: () => sumOfRest(c.b, c.g(), alongDim(c)) })),
  ...named('cumprod.default', (c) => ({ self: () => runningProduct(c) })),
  ...named('logcumsumexp.default', (c) => ({ self: () => runningLogSum(c) })),
  ...named('diff.default', difference),
};
