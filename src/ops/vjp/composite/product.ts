/** Decomposes `matmul` of any ranks into matrix products. */

import type { ValueRef } from '../../../graph/types.ts';
import { elements } from '../../record/record.ts';
import type { CallBuilder } from '../build.ts';

/**
 * Matrix product of any ranks: folded into one matrix product where the right operand is a matrix,
 * else batched.
 */
export function matmulOf(b: CallBuilder, x: ValueRef, y: ValueRef): ValueRef {
  const [sx, sy] = [b.shape(x), b.shape(y)];
  const vector = (a: ValueRef, v: ValueRef): ValueRef => b.call('aten.mv.default', [a, v]);
  if (sx.length === 1 && sy.length === 1) return b.call('aten.dot.default', [x, y]);
  if (sx.length === 2 && sy.length === 1) return vector(x, y);
  if (sx.length === 1 && sy.length === 2) return vector(b.t(y), x);
  if (sx.length === 2 && sy.length === 2) return b.mm(x, y);
  if (sy.length <= 2) {
    const rows = b.reshape(x, [elements(sx.slice(0, -1)), sx[sx.length - 1]]);
    const product = sy.length === 1 ? vector(rows, y) : b.mm(rows, y);
    return b.call('aten._unsafe_view.default', [product, [...sx.slice(0, -1), ...sy.slice(1)]]);
  }
  // A vector is a matrix of one row or column, which goes again at the end.
  const left = sx.length === 1 ? b.unsqueeze(x, 0) : x;
  const [la, lb] = [b.shape(left), sy];
  const rank = Math.max(la.length, lb.length) - 2;
  const batch = Array.from({ length: rank }, (_, d) => {
    const size = (s: readonly number[]): number => s[s.length - 2 - rank + d] ?? 1;
    return size(la) === 1 ? size(lb) : size(la);
  });
  const folded = (v: ValueRef, s: readonly number[]): ValueRef =>
    b.reshape(b.expand(v, [...batch, ...s.slice(-2)]), [elements(batch), ...s.slice(-2)]);
  const product = b.bmm(folded(left, la), folded(y, lb));
  const rows = sx.length === 1 ? [] : [la[la.length - 2]];
  return b.reshape(product, [...batch, ...rows, lb[lb.length - 1]]);
}
