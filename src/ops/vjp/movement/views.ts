/** Derivatives of views: the gradient takes the inverse view. */

import type { ValueRef } from '../../../graph/types.ts';
import { frontDim, named, type VjpCall, type Vjps } from '../vjp.ts';

const own = (c: VjpCall): readonly number[] => c.shape('self');
const rank = (c: VjpCall): number => own(c).length;

/** The inverse of a permutation of dims. */
function inverse(dims: readonly number[]): number[] {
  const out = new Array<number>(dims.length);
  dims.forEach((d, i) => (out[d] = i));
  return out;
}

/** Order of the input dims in the result of `movedim`. */
function moved(from: readonly number[], to: readonly number[], n: number): number[] {
  const order = new Array<number>(n).fill(-1);
  const sources = from.map((d) => frontDim(d, n));
  to.forEach((d, i) => (order[frontDim(d, n)] = sources[i]));
  const rest = Array.from({ length: n }, (_, d) => d).filter((d) => !sources.includes(d));
  return order.map((d) => (d >= 0 ? d : (rest.shift() ?? 0)));
}

const reshaped = (c: VjpCall) => ({ self: () => c.b.reshape(c.g(), own(c)) });

/**
 * The gradient of the source of a diagonal: the incoming gradient on the diagonal, zero elsewhere.
 */
function diagonal(c: VjpCall): ValueRef {
  const { b } = c;
  const n = rank(c);
  const [d1, d2] = [frontDim(c.ctx.int('dim1'), n), frontDim(c.ctx.int('dim2'), n)];
  const [rows, columns, offset] = [own(c)[d1], own(c)[d2], c.ctx.int('offset')];
  const length = b.shape(c.g()).at(-1) ?? 0;
  const above = Math.max(0, -offset);
  const padded = b.call('aten.constant_pad_nd.default', [c.g(), [above, rows - above - length]]);
  const lead = b.shape(padded).slice(0, -1);
  const spread = b.expand(b.unsqueeze(padded, -1), [...lead, rows, columns]);
  const distance = b.call('aten.sub.Tensor', [b.iota(columns), b.unsqueeze(b.iota(rows), 1)]);
  const square = b.where(b.call('aten.eq.Scalar', [distance, offset]), spread, 0);
  // The two dims are last: put them back.
  const rest = Array.from({ length: n }, (_, d) => d).filter((d) => d !== d1 && d !== d2);
  return b.permute(square, inverse([...rest, d1, d2]));
}

export const viewVjps: Vjps = {
  ...named('t.default', (c) => ({ self: () => c.b.t(c.g()) })),
  ...named('transpose.int', (c) => ({
    self: () => c.b.transpose(c.g(), c.ctx.int('dim0'), c.ctx.int('dim1')),
  })),
  ...named('permute.default', (c) => ({
    self: () => c.b.permute(c.g(), inverse(c.ctx.ints('dims').map((d) => frontDim(d, rank(c))))),
  })),
  ...named('movedim.int movedim.intlist', (c) => ({
    self: () =>
      c.b.permute(c.g(), inverse(moved(c.ctx.ints('source'), c.ctx.ints('destination'), rank(c)))),
  })),
  ...named('numpy_T.default', (c) => ({
    self: () =>
      c.b.permute(
        c.g(),
        Array.from({ length: rank(c) }, (_, d) => rank(c) - 1 - d),
      ),
  })),
  ...named('mT.default', (c) => ({ self: () => c.b.transpose(c.g(), -2, -1) })),
  ...named(
    'view.default _unsafe_view.default reshape.default flatten.using_ints unflatten.int',
    reshaped,
  ),
  ...named('squeeze.default squeeze.dims', reshaped),
  ...named('squeeze.dim', (c) => ({
    self: () => {
      const dim = frontDim(c.ctx.int('dim'), rank(c));
      return own(c)[dim] === 1 ? c.b.unsqueeze(c.g(), dim) : c.g();
    },
  })),
  ...named('unsqueeze.default', (c) => ({
    self: () => c.b.squeeze(c.g(), frontDim(c.ctx.int('dim'), rank(c) + 1)),
  })),
  // Whoever asks sums over the broadcast dims.
  ...named('expand.default', (c) => ({ self: () => c.g() })),
  ...named('expand_as.default', (c) => ({ self: () => c.g(), other: () => null })),
  ...named('broadcast_tensors.default', {
    results: 'all',
    vjp: (c) => ({
      tensors: () => c.list('tensors').map((_, i) => (c.hasGradient(i) ? c.g(i) : null)),
    }),
  }),
  ...named('diagonal.default', (c) => ({ self: () => diagonal(c) })),
};
