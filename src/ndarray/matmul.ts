/** Matrix products and general contractions on arrays. */

import { internalError } from '../errors.ts';
import { flat, fromFlat, type NDArray, sizeOf } from './array.ts';
import { sum } from './reduce.ts';
import { broadcastShape, expand, permute, reshape } from './views.ts';

/** Rows of `b` that stay in the cache while all rows of `a` meet them. */
const BLOCK = 64;

/**
 * c[m, n] += a[m, k] b[k, n], all row-major from the given starts. Two rows of `a` and four of `b`
 * share each pass, so that an element of `c` is read and written once for four products.
 */
function accumulate(
  c: Float64Array,
  a: Float64Array,
  b: Float64Array,
  c0: number,
  a0: number,
  b0: number,
  m: number,
  k: number,
  n: number,
): void {
  for (let first = 0; first < k; first += BLOCK) {
    const end = Math.min(k, first + BLOCK);
    let i = 0;
    for (; i + 2 <= m; i += 2) {
      const [cr, cs] = [c0 + i * n, c0 + (i + 1) * n];
      const [ar, as] = [a0 + i * k, a0 + (i + 1) * k];
      let p = first;
      for (; p + 4 <= end; p += 4) {
        const r0 = a[ar + p],
          r1 = a[ar + p + 1],
          r2 = a[ar + p + 2],
          r3 = a[ar + p + 3];
        const s0 = a[as + p],
          s1 = a[as + p + 1],
          s2 = a[as + p + 2],
          s3 = a[as + p + 3];
        const q0 = b0 + p * n,
          q1 = q0 + n,
          q2 = q1 + n,
          q3 = q2 + n;
        for (let j = 0; j < n; j++) {
          const w0 = b[q0 + j],
            w1 = b[q1 + j],
            w2 = b[q2 + j],
            w3 = b[q3 + j];
          c[cr + j] += r0 * w0 + r1 * w1 + r2 * w2 + r3 * w3;
          c[cs + j] += s0 * w0 + s1 * w1 + s2 * w2 + s3 * w3;
        }
      }
      for (; p < end; p++) {
        const r = a[ar + p],
          s = a[as + p],
          q = b0 + p * n;
        for (let j = 0; j < n; j++) {
          c[cr + j] += r * b[q + j];
          c[cs + j] += s * b[q + j];
        }
      }
    }
    for (; i < m; i++)
      for (let p = first; p < end; p++) {
        const v = a[a0 + i * k + p],
          q = b0 + p * n;
        for (let j = 0; j < n; j++) c[c0 + i * n + j] += v * b[q + j];
      }
  }
}

/**
 * [.., m, k] by [.., k, n]: leading dims broadcast; a vector counts as a row on the left and a
 * column on the right.
 */
export function matmul(a: NDArray, b: NDArray): NDArray {
  const left = a.rank === 1 ? reshape(a, [1, a.shape[0]]) : a;
  const right = b.rank === 1 ? reshape(b, [b.shape[0], 1]) : b;
  const [m, k] = left.shape.slice(-2);
  const [k2, n] = right.shape.slice(-2);
  if (k !== k2)
    throw internalError(`inner sizes differ: [${a.shape.join(', ')}] by [${b.shape.join(', ')}]`);
  const batch = broadcastShape([left.shape.slice(0, -2), right.shape.slice(0, -2)]);
  const p = flat(expand(left, [...batch, m, k]));
  const q = flat(expand(right, [...batch, k, n]));
  const out = new Float64Array(sizeOf([...batch, m, n]));
  const count = sizeOf(batch);
  for (let i = 0; i < count; i++) accumulate(out, p, q, i * m * n, i * m * k, i * k * n, m, k, n);
  const shape = [...batch, ...(a.rank === 1 ? [] : [m]), ...(b.rank === 1 ? [] : [n])];
  return fromFlat(shape, out, a.dtype);
}

/**
 * `bmk,kn->bmn`: any two operands; a letter is used once in an operand. Letters of one operand only
 * are summed first, the rest is one batched product.
 */
export function einsum(equation: string, a: NDArray, b: NDArray): NDArray {
  const [inputs, output] = equation.split('->');
  const [left, right] = inputs.split(',');
  const alone = (own: string, other: string): number[] =>
    [...own].flatMap((l, d) => (other.includes(l) || output.includes(l) ? [] : [d]));
  const reduced = (x: NDArray, own: string, other: string): { x: NDArray; letters: string[] } => {
    const dims = alone(own, other);
    return {
      x: dims.length > 0 ? sum(x, dims) : x,
      letters: [...own].filter((_, d) => !dims.includes(d)),
    };
  };
  const p = reduced(a, left, right);
  const q = reduced(b, right, left);
  const shared = p.letters.filter((l) => q.letters.includes(l));
  const batch = shared.filter((l) => output.includes(l));
  const inner = shared.filter((l) => !output.includes(l));
  const rows = p.letters.filter((l) => !shared.includes(l));
  const columns = q.letters.filter((l) => !shared.includes(l));
  const arranged = (side: { x: NDArray; letters: string[] }, groups: string[][]): NDArray => {
    const order = groups.flat().map((l) => side.letters.indexOf(l));
    const moved = permute(side.x, order);
    const sizes = groups.map((g) => sizeOf(g.map((l) => side.x.shape[side.letters.indexOf(l)])));
    return reshape(moved, sizes);
  };
  const product = matmul(arranged(p, [batch, rows, inner]), arranged(q, [batch, inner, columns]));
  const sizeOfLetter = (l: string): number =>
    p.letters.includes(l) ? p.x.shape[p.letters.indexOf(l)] : q.x.shape[q.letters.indexOf(l)];
  const letters = [...batch, ...rows, ...columns];
  const whole = reshape(product, letters.map(sizeOfLetter));
  return permute(
    whole,
    [...output].map((l) => letters.indexOf(l)),
  );
}
