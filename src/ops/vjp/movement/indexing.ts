/**
 * Look-ups and writes by index: what was read is added back where it was read, what was overwritten
 * gets nothing.
 */

import type { Arg, ValueRef } from '../../../graph/types.ts';
import { type Gradients, named, type VjpCall, type Vjps } from '../vjp.ts';

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

/**
 * Gradients of rows that are multiplied where an index puts them: the result divided by each
 * factor. A factor of zero stands aside, and one that is the only zero of its product gets the
 * product of the others.
 */
function multipliedRows(c: VjpCall): Gradients {
  const { b } = c;
  const [own, source] = [c.x('self'), c.x('src')];
  const isZero = (x: ValueRef): ValueRef => b.compare('eq', x, 0);
  const gather = (x: ValueRef): ValueRef =>
    b.call('aten.gather.default', [x, dim(c), c.x('index')]);
  const multiplied = (to: ValueRef, rows: ValueRef): ValueRef =>
    b.call('aten.scatter_reduce.two', [to, dim(c), c.x('index'), rows, 'prod'], {
      include_self: c.ctx.bool('include_self'),
    });
  return {
    self: () => {
      const filled = b.where(isZero(own), 1, own);
      const rest = b.div(b.mul(c.g(), multiplied(filled, source)), filled);
      if (c.ctx.bool('include_self')) return rest;
      return b.call('aten.scatter.value', [rest, dim(c), c.x('index'), 0]);
    },
    src: () => {
      const zeros = b.cast(isZero(source), b.dtype(source));
      const none = b.full(c.shape('self'), 0, b.dtype(source));
      const counted = gather(
        b.call('aten.scatter_add.default', [none, dim(c), c.x('index'), zeros]),
      );
      const single = b.compare('eq', b.mul(counted, zeros), 1);
      const others = gather(b.mul(c.g(), multiplied(own, b.where(single, 1, source))));
      const divided = b.div(gather(b.mul(c.g(), c.y())), b.where(isZero(source), 1, source));
      return b.where(single, others, divided);
    },
  };
}

/**
 * Gradients of rows that are reduced where an index puts them: by sum, by mean, or by the largest
 * or smallest, whose gradient ties share (`scatter_reduce_backward` of PyTorch 2.13).
 */
function reducedRows(c: VjpCall): Gradients {
  const { b } = c;
  const reduce = c.ctx.text('reduce');
  const added = c.ctx.bool('include_self');
  if (reduce === 'prod') return multipliedRows(c);
  const scatter = (to: ValueRef, rows: ValueRef): ValueRef =>
    b.call('aten.scatter_add.default', [to, dim(c), c.x('index'), rows]);
  const gather = (x: ValueRef): ValueRef =>
    b.call('aten.gather.default', [x, dim(c), c.x('index')]);
  const equal = (x: ValueRef, y: ValueRef): ValueRef =>
    b.cast(b.compare('eq', x, y), b.dtype(c.g()));
  const filled = (name: string, value: number): ValueRef =>
    b.full(c.shape(name), value, b.dtype(c.g()));
  const extreme = reduce === 'amax' || reduce === 'amin';
  /** The part of the gradient that each of the elements of a result gets. */
  const share = (): ValueRef => {
    if (extreme) return b.div(c.g(), scatter(equal(c.x('self'), c.y()), hits()));
    if (reduce === 'sum') return c.g();
    const count = scatter(filled('self', added ? 1 : 0), filled('src', 1));
    return b.div(c.g(), b.where(b.compare('eq', count, 0), 1, count));
  };
  const hits = (): ValueRef => equal(c.x('src'), gather(c.y()));
  return {
    self: () => {
      const own = extreme ? b.mul(share(), equal(c.x('self'), c.y())) : share();
      if (added) return own;
      return b.call('aten.scatter.value', [own, dim(c), c.x('index'), 0]);
    },
    src: () => {
      const read = corner(c, gather(share()));
      return extreme ? b.mul(read, hits()) : read;
    },
  };
}

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
  ...named('index_fill.int_Tensor', (c) => ({
    self: () => filledOver(c),
    value: () =>
      c.b.sum(
        selected(c),
        c.shape('self').map((_, d) => d),
      ),
  })),
  ...named('masked_scatter.default', (c) => ({
    self: () => c.b.zeroed(c.g(), c.x('mask')),
    source: () =>
      c.b.call('aten.masked_scatter_backward.default', [
        c.g(),
        c.x('mask'),
        [...c.shape('source')],
      ]),
  })),
  ...named('scatter_reduce.two', reducedRows),
};
