/**
 * Look-ups and writes by index: what was read is added back where it was read, what was overwritten
 * gets nothing.
 */

import type { Arg, ValueRef } from '../../../graph/types.ts';
import { named, type VjpCall, type Vjps } from '../vjp.ts';

const index = (c: VjpCall): Arg => c.arg('indices') ?? [];
const dim = (c: VjpCall): Arg => c.arg('dim') ?? 0;

/**
 * The gradient of a source that is larger than its index: only the corner that the index covers was
 * read.
 */
function corner(c: VjpCall, gathered: ValueRef): ValueRef {
  const [from, to] = [c.b.shape(gathered), c.shape('src')];
  if (from.every((size, d) => size === to[d])) return gathered;
  const pad = to.flatMap((_, i): Arg[] => [0, to[to.length - 1 - i] - from[to.length - 1 - i]]);
  return c.b.call('aten.constant_pad_nd.default', [gathered, pad]);
}

const gathered = (c: VjpCall): ValueRef =>
  corner(c, c.b.call('aten.gather.default', [c.g(), dim(c), c.x('index')]));

/** The gradient with the overwritten places at zero. */
const scatteredOver = (c: VjpCall): ValueRef =>
  c.b.call('aten.scatter.value', [c.g(), dim(c), c.x('index'), 0]);

const filledOver = (c: VjpCall): ValueRef =>
  c.b.call('aten.index_fill.int_Scalar', [c.g(), dim(c), c.x('index'), 0]);

const selected = (c: VjpCall): ValueRef =>
  c.b.call('aten.index_select.default', [c.g(), dim(c), c.x('index')]);

export const indexingVjps: Vjps = {
  ...named('embedding.default', (c) => ({
    weight: () =>
      c.b.call('aten.embedding_dense_backward.default', [
        c.g(),
        c.x('indices'),
        c.shape('weight')[0],
        c.arg('padding_idx') ?? -1,
        c.arg('scale_grad_by_freq') ?? false,
      ]),
  })),
  ...named('index.Tensor', (c) => ({
    self: () => {
      const zeros = c.b.newZeros(c.g(), c.shape('self'));
      return c.b.call('aten.index_put.default', [zeros, index(c), c.g(), true]);
    },
  })),
  ...named('index_put.default', (c) => ({
    self: () => {
      if (c.ctx.bool('accumulate')) return c.g();
      const zero = c.b.full([], 0, c.b.dtype(c.g()));
      return c.b.call('aten.index_put.default', [c.g(), index(c), zero]);
    },
    values: () => c.b.call('aten.index.Tensor', [c.g(), index(c)]),
  })),
  ...named('gather.default', (c) => ({
    self: () => {
      const zeros = c.b.newZeros(c.g(), c.shape('self'));
      return c.b.call('aten.scatter_add.default', [zeros, dim(c), c.x('index'), c.g()]);
    },
  })),
  ...named('scatter.src', (c) => ({ self: () => scatteredOver(c), src: () => gathered(c) })),
  ...named('scatter.value', (c) => ({ self: () => scatteredOver(c) })),
  ...named('scatter_add.default', (c) => ({ self: () => c.g(), src: () => gathered(c) })),
  ...named('index_select.default', (c) => ({
    self: () => {
      const zeros = c.b.newZeros(c.g(), c.shape('self'));
      return c.b.call('aten.index_add.default', [zeros, dim(c), c.x('index'), c.g()]);
    },
  })),
  ...named('index_add.default', (c) => ({
    self: () => c.g(),
    source: () => c.b.scaled(selected(c), c.ctx.number('alpha')),
  })),
  ...named('index_copy.default', (c) => ({ self: () => filledOver(c), source: () => selected(c) })),
  ...named('index_fill.int_Scalar', (c) => ({ self: () => filledOver(c) })),
};
