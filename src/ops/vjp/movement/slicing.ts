/** Derivatives of slicing, joining, shifting and padding. */

import type { Arg, ValueRef } from '../../../graph/types.ts';
import { elements } from '../../record/record.ts';
import { frontDim, named, type VjpCall, type Vjps } from '../vjp.ts';

const own = (c: VjpCall): readonly number[] => c.shape('self');

/** The pieces of a cut joined again, zeros for those that no gradient arrives at. */
const joined = (c: VjpCall) => ({
  self: () => {
    const parts = c.ctx.outputs.map((_, i) => c.g(i));
    return c.b.cat(parts, frontDim(c.ctx.int('dim'), own(c).length));
  },
});

/** The gradient with the written part at zero, and that part of the gradient. */
const written =
  (read: (c: VjpCall) => ValueRef, write: (c: VjpCall, zeros: ValueRef) => ValueRef) =>
  (c: VjpCall) => ({
    self: () => write(c, c.b.full(c.shape('src'), 0, c.b.dtype(c.g()))),
    src: () => read(c),
  });

const range = (c: VjpCall): readonly Arg[] => [
  c.arg('dim') ?? 0,
  c.arg('start') ?? null,
  c.arg('end') ?? null,
  c.arg('step') ?? 1,
];

const diagonal = (c: VjpCall): readonly Arg[] => [
  c.arg('offset') ?? 0,
  c.arg('dim1') ?? 0,
  c.arg('dim2') ?? 1,
];

/** `[start, end, step]` of a slice as numbers, as `slice_backward` takes them. */
function slicedBack(c: VjpCall): ValueRef {
  const start = c.arg('start') ?? 0;
  const end = c.arg('end') ?? 9223372036854775807n;
  return c.b.call('aten.slice_backward.default', [
    c.g(),
    [...own(c)],
    c.arg('dim') ?? 0,
    start,
    end,
    c.arg('step') ?? 1,
  ]);
}

/** Sums the copies of each element: the result's dims are cut into copies and elements. */
function repeated(c: VjpCall): ValueRef {
  const { b } = c;
  const repeats = c.ctx.ints('repeats');
  const extra = repeats.length - own(c).length;
  const shape: number[] = [];
  const copies: number[] = [];
  repeats.forEach((times, d) => {
    if (times !== 1 || d < extra) {
      copies.push(shape.length);
      shape.push(times);
    }
    if (d >= extra) shape.push(own(c)[d - extra]);
  });
  return b.sum(b.reshape(c.g(), shape), copies);
}

/** The gradient where the copies of an element are neighbours. */
function interleaved(c: VjpCall): ValueRef {
  const { b } = c;
  const shape = own(c);
  const times = c.ctx.int('repeats');
  const dim = c.ctx.optionalInt('dim');
  if (dim === undefined) {
    const n = elements(shape);
    return b.reshape(b.sum(b.reshape(c.g(), [n, times]), [1]), shape);
  }
  const at = frontDim(dim, shape.length);
  return b.sum(b.reshape(c.g(), [...shape.slice(0, at + 1), times, ...shape.slice(at + 1)]), [
    at + 1,
  ]);
}

/**
 * Slices of the gradient, one for each joined tensor; an empty one-dim tensor has no part in the
 * result.
 */
function parts(c: VjpCall): readonly (ValueRef | null)[] {
  const { b } = c;
  const shape = b.shape(c.g());
  const dim = frontDim(c.ctx.int('dim'), shape.length);
  let start = 0;
  return c.list('tensors').map((member) => {
    if (member === null) return null;
    const size = b.shape(member);
    if (size.length !== shape.length) return b.full(size, 0, b.dtype(member));
    const end = start + size[dim];
    const part = end === start ? b.full(size, 0, b.dtype(member)) : b.slice(c.g(), dim, start, end);
    start = end;
    return part;
  });
}

const constantPad = (c: VjpCall): ValueRef =>
  c.b.call('aten.constant_pad_nd.default', [c.g(), c.ctx.ints('pad').map((n) => -n)]);

export const slicingVjps: Vjps = {
  ...named('cat.default', (c) => ({ tensors: () => parts(c) })),
  ...named('stack.default', (c) => ({
    tensors: () => {
      const cut = c.b.call('aten.unbind.int', [c.g(), c.arg('dim') ?? 0]);
      return c.list('tensors').map((_, i) => c.b.item(cut, i));
    },
  })),
  ...named('split.Tensor split_with_sizes.default split.sizes chunk.default', {
    results: 'all',
    vjp: joined,
  }),
  ...named('unbind.int', {
    results: 'all',
    vjp: (c) => ({
      self: () =>
        c.b.call('aten.stack.default', [c.ctx.outputs.map((_, i) => c.g(i)), c.arg('dim') ?? 0]),
    }),
  }),
  ...named('slice.Tensor', (c) => ({ self: () => slicedBack(c) })),
  ...named('narrow.default', (c) => ({
    self: () => {
      const size = own(c)[frontDim(c.ctx.int('dim'), own(c).length)];
      const start = c.ctx.int('start') + (c.ctx.int('start') < 0 ? size : 0);
      return c.b.call('aten.slice_backward.default', [
        c.g(),
        [...own(c)],
        c.ctx.int('dim'),
        start,
        start + c.ctx.int('length'),
        1,
      ]);
    },
  })),
  ...named('select.int', (c) => ({
    self: () =>
      c.b.call('aten.select_backward.default', [
        c.g(),
        [...own(c)],
        c.arg('dim') ?? 0,
        c.arg('index') ?? 0,
      ]),
  })),
  ...named(
    'slice_scatter.default',
    written(
      (c) => c.b.call('aten.slice.Tensor', [c.g(), ...range(c)]),
      (c, zeros) => c.b.call('aten.slice_scatter.default', [c.g(), zeros, ...range(c)]),
    ),
  ),
  ...named(
    'select_scatter.default',
    written(
      (c) => c.b.call('aten.select.int', [c.g(), c.ctx.int('dim'), c.ctx.int('index')]),
      (c, zeros) =>
        c.b.call('aten.select_scatter.default', [
          c.g(),
          zeros,
          c.ctx.int('dim'),
          c.ctx.int('index'),
        ]),
    ),
  ),
  ...named(
    'diagonal_scatter.default',
    written(
      (c) => c.b.call('aten.diagonal.default', [c.g(), ...diagonal(c)]),
      (c, zeros) => c.b.call('aten.diagonal_scatter.default', [c.g(), zeros, ...diagonal(c)]),
    ),
  ),
  ...named('diag_embed.default', (c) => ({
    self: () =>
      c.b.call('aten.diagonal.default', [
        c.g(),
        c.arg('offset') ?? 0,
        c.arg('dim1') ?? -2,
        c.arg('dim2') ?? -1,
      ]),
  })),
  ...named('unfold.default', (c) => ({
    self: () =>
      c.b.call('aten.unfold_backward.default', [
        c.g(),
        [...own(c)],
        ...['dimension', 'size', 'step'].map((name) => c.ctx.int(name)),
      ]),
  })),
  ...named('flip.default', (c) => ({
    self: () => c.b.call('aten.flip.default', [c.g(), c.arg('dims') ?? []]),
  })),
  ...named('roll.default', (c) => ({
    self: () => {
      const back = c.ctx.ints('shifts').map((n) => -n);
      return c.b.call('aten.roll.default', [c.g(), back, c.arg('dims') ?? []]);
    },
  })),
  ...named('tril.default', (c) => ({
    self: () => c.b.call('aten.tril.default', [c.g(), c.ctx.int('diagonal')]),
  })),
  ...named('triu.default', (c) => ({
    self: () => c.b.call('aten.triu.default', [c.g(), c.ctx.int('diagonal')]),
  })),
  ...named('constant_pad_nd.default', (c) => ({ self: () => constantPad(c) })),
  ...named('repeat.default', (c) => ({ self: () => repeated(c) })),
  ...named('repeat_interleave.self_int', (c) => ({ self: () => interleaved(c) })),
};
