/**
 * Kernels of StableHLO for the bits of numbers, random bits, and matrices (Cholesky factors,
 * triangular systems).
 */

import type { DType } from '../../../graph/types.ts';
import { build, flat, fromFlat, type NDArray } from '../../../ndarray/array.ts';
import { cholesky, solveTriangle } from '../../../ndarray/matrix.ts';
import { streamOf, uniform } from '../../../ndarray/random.ts';
import { transpose } from '../../../ndarray/views.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  resultShape,
  resultType,
  tensor,
  valueError,
} from '../../record/kernel.ts';

/** Reading and writing one number of 32 bits by its type. */
const view = new DataView(new ArrayBuffer(4));
const BITS: Readonly<Record<string, readonly [write: (v: number) => void, read: () => number]>> = {
  f32: [(v) => view.setFloat32(0, v), () => view.getFloat32(0)],
  i32: [(v) => view.setInt32(0, v), () => view.getInt32(0)],
  u32: [(v) => view.setUint32(0, v), () => view.getUint32(0)],
};

/** Floats are rounded to 32 bits first, as the program has them. */
const bitcast: Kernel = one((call) => {
  const x = tensor(call, 'operand');
  const to = resultType(call);
  if (to === x.dtype) return x;
  if (!Object.hasOwn(BITS, x.dtype) || !Object.hasOwn(BITS, to))
    return call.ctx.fail(`is evaluated between types of 32 bits, not from ${x.dtype} to ${to}`);
  const [write] = BITS[x.dtype];
  const [, read] = BITS[to];
  const out = flat(x).map((v) => {
    write(v);
    return read();
  });
  return fromFlat(x.shape, out, to);
});

/** Numbers of our own generator, by a text alone. */
function drawn(from: string, shape: readonly number[], dtype: DType): NDArray {
  const stream = streamOf(from);
  const width = Math.min(32, Number(dtype.slice(1)));
  return build(shape, (i) => Math.floor(uniform({ seed: 0, stream }, i) * 2 ** width));
}

/** By the state, which moves on by one. */
const bits: Kernel = (call) => {
  const state = tensor(call, 'initial_state');
  const dtype = call.ctx.outputs[1]?.dtype ?? 'u32';
  const numbers = drawn(`state ${flat(state).join(' ')}`, resultShape(call, 1), dtype);
  const next = Float64Array.from(flat(state), (v, i) =>
    i === state.size - 1 ? (v + 1) % 2 ** 32 : v,
  );
  return [fromFlat(state.shape, next, state.dtype), numbers];
};

/** By the keys, and by the numbers that are folded in. */
function ofKeys(what: string): Kernel {
  return (call) => {
    const given = call.inputs.map((x) => flat(x).join(' ')).join(' with ');
    return [drawn(`${what} ${given}`, resultShape(call), resultType(call))];
  };
}

/** A function of each matrix of a batch. */
function each(x: NDArray, f: (data: Float64Array, at: number) => Float64Array): NDArray {
  const [n, m] = [x.shape[x.rank - 2], x.shape[x.rank - 1]];
  const data = flat(x);
  const out = new Float64Array(data.length);
  for (let at = 0; at < data.length; at += n * m) out.set(f(data.subarray(at, at + n * m), at), at);
  return fromFlat(x.shape, out, x.dtype);
}

const factor: Kernel = one((call) => {
  const x = tensor(call, 'a');
  const lower = call.ctx.bool('lower');
  const n = x.shape[x.rank - 1];
  const turned = lower ? x : transpose(x, -2, -1);
  const l = each(
    turned,
    (a) => cholesky(a, n) ?? valueError(call, 'a matrix is not positive definite'),
  );
  return lower ? l : transpose(l, -2, -1);
});

/** Tells whether the matrix is read transposed: real matrices, so an adjoint is one. */
function turned(call: KernelCall): boolean {
  const how = call.argument('transpose_a');
  return typeof how === 'string' && how !== 'NO_TRANSPOSE';
}

const triangular: Kernel = one((call) => {
  const { ctx } = call;
  let [a, b] = [tensor(call, 'a'), tensor(call, 'b')];
  let lower = ctx.bool('lower');
  if (turned(call)) [a, lower] = [transpose(a, -2, -1), !lower];
  // X A = B is Aᵀ Xᵀ = Bᵀ.
  const left = ctx.bool('left_side');
  if (!left) [a, b, lower] = [transpose(a, -2, -1), transpose(b, -2, -1), !lower];
  const [n, width] = [b.shape[b.rank - 2], b.shape[b.rank - 1]];
  const matrices = flat(a);
  const x = each(b, (rows, at) => {
    const from = (at / (n * width)) * n * n;
    return solveTriangle(
      matrices.subarray(from, from + n * n),
      rows,
      n,
      width,
      !lower,
      ctx.bool('unit_diagonal'),
    );
  });
  return left ? x : transpose(x, -2, -1);
});

export const stablehloBitKernels: Kernels = {
  'stablehlo.bitcast_convert': bitcast,
  'stablehlo.rng_bit_generator': bits,
  'jax.random_bits': ofKeys('bits'),
  'jax.random_split': ofKeys('keys'),
  'jax.random_fold_in': ofKeys('key'),
  'stablehlo.cholesky': factor,
  'stablehlo.triangular_solve': triangular,
};
