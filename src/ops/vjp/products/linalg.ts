/**
 * Derivatives of inverses, determinants, solutions and Cholesky factors of square matrices, as
 * Giles (2008, "Collected matrix derivative results for forward and reverse mode") lists them.
 */

import type { ValueRef } from '../../../graph/types.ts';
import type { CallBuilder } from '../build.ts';
import { type Gradients, named, type VjpCall, type VjpEntry, type Vjps } from '../vjp.ts';

const product = (b: CallBuilder, x: ValueRef, y: ValueRef): ValueRef =>
  b.call('aten.matmul.default', [x, y]);
const turned = (b: CallBuilder, x: ValueRef): ValueRef => b.transpose(x, -2, -1);

/** The gradient of a matrix whose inverse is the first result. */
function inverse(name: string): (c: VjpCall) => Gradients {
  return (c) => ({
    [name]: () => {
      const { b } = c;
      const back = turned(b, c.y());
      return b.neg(product(b, back, product(b, c.g(), back)));
    },
  });
}

/** A number for each matrix times the transposed inverse of that matrix. */
function inverseBy(c: VjpCall, name: string, factor: ValueRef): ValueRef {
  const { b } = c;
  const back = turned(b, b.call('aten.linalg_inv.default', [c.x(name)]));
  return b.mul(b.unsqueeze(b.unsqueeze(factor, -1), -1), back);
}

const determinant =
  (name: string) =>
  (c: VjpCall): Gradients => ({ [name]: () => inverseBy(c, name, c.b.mul(c.g(), c.y())) });

/** Sign and logarithm of a determinant; the sign has no gradient. */
const logDeterminant = {
  results: [1],
  vjp: (c: VjpCall): Gradients => ({ A: () => inverseBy(c, 'A', c.g(1)) }),
};

/**
 * The factor of a symmetric matrix, of which kernels read one triangle. Its gradient is symmetric,
 * as PyTorch's is: differences of single elements tell something else.
 */
const cholesky: VjpEntry = {
  surrogate: true,
  vjp: (c) => ({
    self: () => {
      const { b } = c;
      const upper = c.ctx.bool('upper');
      const [factor, g] = [c.y(), c.g()].map((x) => (upper ? turned(b, x) : x));
      const lower = b.call('aten.tril.default', [product(b, turned(b, factor), g)]);
      // The lower triangle with half of the diagonal.
      const half = b.mul(b.add(lower, b.call('aten.tril.default', [lower, -1])), 0.5);
      const solved = (x: ValueRef): ValueRef =>
        b.call('aten.linalg_solve_triangular.default', [turned(b, factor), x], { upper: true });
      const whole = turned(b, solved(turned(b, solved(half))));
      return b.mul(b.add(whole, turned(b, whole)), 0.5);
    },
  }),
};

/** A solution of `A X = B` or, on the other side, of `X A = B`, by matrices or by vectors. */
function solution(c: VjpCall): Gradients {
  const { b } = c;
  const left = c.ctx.bool('left');
  const vectors = b.rank(c.y()) < b.rank(c.x('A'));
  const column = (x: ValueRef): ValueRef => (vectors ? b.unsqueeze(x, -1) : x);
  let made: ValueRef | undefined;
  const ofRight = (): ValueRef =>
    (made ??= b.call('aten.linalg_solve.default', [turned(b, c.x('A')), c.g()], { left }));
  return {
    B: ofRight,
    A: () => {
      const [x, g] = [column(c.y()), column(ofRight())];
      return b.neg(left ? product(b, g, turned(b, x)) : product(b, turned(b, x), g));
    },
  };
}

export const linalgVjps: Vjps = {
  ...named('linalg_inv.default linalg_inv_ex.default', inverse('A')),
  ...named('inverse.default', inverse('self')),
  ...named('linalg_det.default _linalg_det.default', determinant('A')),
  ...named('det.default', determinant('self')),
  ...named('linalg_slogdet.default _linalg_slogdet.default', logDeterminant),
  ...named('linalg_cholesky.default linalg_cholesky_ex.default cholesky.default', cholesky),
  ...named('linalg_solve.default _linalg_solve_ex.default', solution),
  ...named('linalg_cross.default', (c) => ({
    self: () =>
      c.b.call('aten.linalg_cross.default', [c.x('other'), c.g()], { dim: c.ctx.int('dim') }),
    other: () =>
      c.b.call('aten.linalg_cross.default', [c.g(), c.x('self')], { dim: c.ctx.int('dim') }),
  })),
};
