/**
 * Matrix products. A product whose two operands are differentiated costs twice its forward work in
 * the backward pass.
 */

import type { Arg, ValueRef } from '../../../graph/types.ts';
import { letters as einsumLetters } from '../../rules/einsum-letters.ts';
import { type CallBuilder, literal } from '../build.ts';
import { type Gradients, named, together, type VjpCall, type Vjps } from '../vjp.ts';

/**
 * Gradient of the right operand of `a @ b`. A right operand that is a transposed matrix gets a
 * transposed gradient, so that the gradient of the matrix itself is row-major (PyTorch's
 * `mm_mat2_backward`).
 */
function rightGradient(b: CallBuilder, g: ValueRef, left: ValueRef, right: ValueRef): ValueRef {
  return b.isStrided(right) ? b.t(b.mm(b.t(g), left)) : b.mm(b.t(left), g);
}

const transposed = (b: CallBuilder, x: ValueRef): ValueRef => b.transpose(x, 1, 2);
const number = (c: VjpCall, name: string): number => c.ctx.number(name);

/** `x y^T` of two vectors. */
const outer = (b: CallBuilder, x: ValueRef, y: ValueRef): ValueRef => b.mul(b.unsqueeze(x, 1), y);

/** Distances of rows: those of the second side are the first's, turned over. */
function distances(c: VjpCall): Gradients {
  const { b } = c;
  const p = literal(c.ctx.number('p'));
  const of = (...args: readonly Arg[]): ValueRef => b.call('aten._cdist_backward.default', args);
  const turned = (x: ValueRef): ValueRef => b.rowMajor(b.transpose(x, -2, -1));
  return {
    x1: () => of(c.g(), c.x('x1'), c.x('x2'), p, c.y()),
    x2: () => of(turned(c.g()), c.x('x2'), c.x('x1'), p, turned(c.y())),
  };
}

export const productVjps: Vjps = {
  ...named('_cdist_forward.default', distances),
  ...named('_pdist_forward.default', (c) => ({
    self: () =>
      c.b.call('aten._pdist_backward.default', [
        c.g(),
        c.x('self'),
        literal(c.ctx.number('p')),
        c.y(),
      ]),
  })),
  ...named('_weight_norm_interface.default', (c) =>
    together(c.b, ['v', 'g'], () =>
      c.b.call('aten._weight_norm_interface_backward.default', [
        ...[c.g(), c.x('v'), c.x('g'), c.y(1)],
        c.ctx.int('dim'),
      ]),
    ),
  ),
  ...named('mm.default', (c) => ({
    mat2: () => rightGradient(c.b, c.g(), c.x('self'), c.x('mat2')),
    self: () => c.b.mm(c.g(), c.b.t(c.x('mat2'))),
  })),
  ...named('bmm.default', (c) => ({
    mat2: () => c.b.bmm(transposed(c.b, c.x('self')), c.g()),
    self: () => c.b.bmm(c.g(), transposed(c.b, c.x('mat2'))),
  })),
  ...named('addmm.default', (c) => ({
    mat1: () => c.b.scaled(c.b.mm(c.g(), c.b.t(c.x('mat2'))), number(c, 'alpha')),
    mat2: () => c.b.scaled(rightGradient(c.b, c.g(), c.x('mat1'), c.x('mat2')), number(c, 'alpha')),
    self: () => c.b.scaled(c.g(), number(c, 'beta')),
  })),
  ...named('baddbmm.default', (c) => ({
    batch1: () => c.b.scaled(c.b.bmm(c.g(), transposed(c.b, c.x('batch2'))), number(c, 'alpha')),
    batch2: () => c.b.scaled(c.b.bmm(transposed(c.b, c.x('batch1')), c.g()), number(c, 'alpha')),
    self: () => c.b.scaled(c.g(), number(c, 'beta')),
  })),
  ...named('addbmm.default', (c) => {
    const [batch, n] = c.shape('batch1');
    const [, , p] = c.shape('batch2');
    const spread = (): ValueRef => c.b.expand(c.b.unsqueeze(c.g(), 0), [batch, n, p]);
    return {
      batch1: () =>
        c.b.scaled(c.b.bmm(spread(), transposed(c.b, c.x('batch2'))), number(c, 'alpha')),
      batch2: () =>
        c.b.scaled(c.b.bmm(transposed(c.b, c.x('batch1')), spread()), number(c, 'alpha')),
      self: () => c.b.scaled(c.g(), number(c, 'beta')),
    };
  }),
  ...named('addmv.default', (c) => ({
    mat: () => c.b.scaled(outer(c.b, c.g(), c.x('vec')), number(c, 'alpha')),
    vec: () =>
      c.b.scaled(c.b.call('aten.mv.default', [c.b.t(c.x('mat')), c.g()]), number(c, 'alpha')),
    self: () => c.b.scaled(c.g(), number(c, 'beta')),
  })),
  ...named('mv.default', (c) => ({
    self: () => outer(c.b, c.g(), c.x('vec')),
    vec: () => c.b.call('aten.mv.default', [c.b.t(c.x('self')), c.g()]),
  })),
  ...named('dot.default', (c) => ({
    self: () => c.b.mul(c.g(), c.x('tensor')),
    tensor: () => c.b.mul(c.g(), c.x('self')),
  })),
  ...named('vdot.default', (c) => ({
    self: () => c.b.mul(c.g(), c.x('other')),
    other: () => c.b.mul(c.g(), c.x('self')),
  })),
  ...named('outer.default', (c) => ({
    self: () => c.b.call('aten.mv.default', [c.g(), c.x('vec2')]),
    vec2: () => c.b.call('aten.mv.default', [c.b.t(c.g()), c.x('self')]),
  })),
  ...named('_grouped_mm.default', (c) => {
    const offsets = c.optional('offs');
    const product = (a: ValueRef, b: ValueRef): ValueRef =>
      c.b.call('aten._grouped_mm.default', offsets === null ? [a, b] : [a, b, offsets]);
    const turned = (x: ValueRef): ValueRef => c.b.transpose(x, -2, -1);
    return {
      // Transposed like the weight, which groups hold as the transpose of what the program stores.
      mat2: () =>
        c.b.isStrided(c.x('mat2'))
          ? turned(product(turned(c.g()), c.x('self')))
          : product(turned(c.x('self')), c.g()),
      self: () => product(c.g(), turned(c.x('mat2'))),
    };
  }),
  ...named('einsum.default', (c) => ({
    tensors: () => c.list('tensors').map((_, k) => throughEinsum(c, k)),
  })),
};

/**
 * The same equation with the letters of an operand and of the result changed. A letter that only
 * the operand has is spread; of one that it repeats, the diagonal alone has a gradient.
 */
function throughEinsum(c: VjpCall, k: number): ValueRef {
  const { operands, output } = einsumLetters(c.ctx);
  const own = [...operands[k]];
  const unique = [...new Set(own)];
  const others = operands.filter((_, i) => i !== k);
  const given = unique.filter(
    (letter) => output.includes(letter) || others.some((o) => o.includes(letter)),
  );
  const list = c
    .list('tensors')
    .map((x, i) => (i === k ? c.g() : (x ?? c.ctx.fail(`operand ${i} is missing`))));
  const letters = operands.map((o, i) => (i === k ? output : o));
  const product = c.b.call('aten.einsum.default', [
    `${letters.join(',')}->${given.join('')}`,
    list,
  ]);
  if (given.length === own.length) return product;
  const { shape } = c.ctx.list('tensors')[k]?.meta ?? c.ctx.fail(`operand ${k} is missing`);
  // Each letter at its first place; the other places of a repeated one, and letters that are not
  // given, are new dims.
  const spread = own.reduce(
    (x, letter, d) =>
      given.includes(letter) && own.indexOf(letter) === d ? x : c.b.unsqueeze(x, d),
    product,
  );
  return own.reduce(
    (x, letter, d) => {
      const first = own.indexOf(letter);
      if (first === d) return x;
      const along = (dim: number): ValueRef =>
        c.b.reshape(
          c.b.iota(shape[d]),
          own.map((_, i) => (i === dim ? shape[d] : 1)),
        );
      return c.b.where(c.b.compare('eq', along(first), along(d)), x, 0);
    },
    c.b.expand(spread, shape),
  );
}
