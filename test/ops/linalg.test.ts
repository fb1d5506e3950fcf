import { describe, expect, test } from 'vitest';

import { fromFlat, type NDArray } from '../../src/ndarray/array.ts';
import { matmul } from '../../src/ndarray/matmul.ts';
import { transpose } from '../../src/ndarray/views.ts';
import { builtinOperators } from '../../src/ops/builtin.ts';
import { evaluateCall, type EvaluatedArg } from '../../src/ops/kernels/evaluate.ts';
import { drawValues } from '../../src/ops/samples/values.ts';
import { operatorNamed } from '../../src/simulate/rule-check/check.ts';

/**
 * What decompositions must satisfy, whatever their signs; values beside PyTorch are compared in
 * `kernels.test.ts`.
 */
const table = builtinOperators();

function drawn(shape: readonly number[]): NDArray {
  return drawValues({ dtype: 'f64', shape, init: 'any', free: true }, 3);
}

function run(name: string, ...args: readonly EvaluatedArg[]): NDArray[] {
  const result = evaluateCall(table, `aten.${name}.default`, args);
  return (Array.isArray(result) ? [...(result as readonly NDArray[])] : [result]) as NDArray[];
}

function expectClose(a: NDArray, b: NDArray): void {
  expect(a.shape).toEqual(b.shape);
  const want = b.toArray();
  a.toArray().forEach((v, i) => expect(Math.abs(v - want[i])).toBeLessThan(1e-12));
}

const identity = (n: number): NDArray =>
  fromFlat(
    [n, n],
    Float64Array.from({ length: n * n }, (_, i) => (i % (n + 1) === 0 ? 1 : 0)),
  );

describe('decompositions of matrices', () => {
  test.each([[[5, 3]], [[3, 5]], [[4, 4]]])(
    'QR of %j: orthonormal columns, an upper triangle, and their product',
    (shape) => {
      const a = drawn(shape);
      const [q, r] = run('linalg_qr', a);
      expectClose(matmul(transpose(q, 0, 1), q), identity(Math.min(...shape)));
      expectClose(matmul(q, r), a);
      for (let i = 0; i < r.shape[0]; i++)
        for (let j = 0; j < Math.min(i, r.shape[1]); j++) expect(r.at(i, j)).toBe(0);
    },
  );

  test('eigenvalues rise, and eigenvectors are orthonormal and scaled by them', () => {
    const half = drawn([4, 4]);
    const a = matmul(half, transpose(half, 0, 1));
    const [values, vectors] = run('linalg_eigh', a);
    const list = values.toArray();
    expect([...list].sort((x, y) => x - y)).toEqual(list);
    expectClose(matmul(transpose(vectors, 0, 1), vectors), identity(4));
    const diagonal = fromFlat(
      [4, 4],
      Float64Array.from({ length: 16 }, (_, i) => (i % 5 === 0 ? list[i / 5] : 0)),
    );
    expectClose(matmul(matmul(vectors, diagonal), transpose(vectors, 0, 1)), a);
  });

  test.each([[[5, 3]], [[3, 5]], [[4, 4]]])(
    'singular values of %j fall, and their vectors give the matrix',
    (shape) => {
      const a = drawn(shape);
      const k = Math.min(...shape);
      for (const full of [false, true]) {
        const [u, s, vt] = run('linalg_svd', a, full);
        const list = s.toArray();
        expect([...list].sort((x, y) => y - x)).toEqual(list);
        expectClose(matmul(transpose(u, 0, 1), u), identity(full ? shape[0] : k));
        expectClose(matmul(vt, transpose(vt, 0, 1)), identity(full ? shape[1] : k));
        const middle = fromFlat(
          [u.shape[1], vt.shape[0]],
          Float64Array.from({ length: u.shape[1] * vt.shape[0] }, (_, i) => {
            const [row, column] = [Math.floor(i / vt.shape[0]), i % vt.shape[0]];
            return row === column ? list[row] : 0;
          }),
        );
        expectClose(matmul(matmul(u, middle), vt), a);
      }
      const [u, s, v] = run('svd', a);
      expectClose(s, run('linalg_svdvals', a)[0]);
      expectClose(transpose(v, 0, 1), run('linalg_svd', a, false)[2]);
      expectClose(u, run('_linalg_svd', a)[0]);
    },
  );

  test('singular values of a matrix of rank one: the others are zero, their vectors orthonormal all the same', () => {
    const a = fromFlat([3, 3], Float64Array.of(1, 2, 3, 2, 4, 6, 3, 6, 9));
    const [u, s, vt] = run('linalg_svd', a, true);
    expect(s.toArray()[0]).toBeCloseTo(14, 12);
    for (const rest of s.toArray().slice(1)) expect(rest).toBeLessThan(1e-12);
    expectClose(matmul(transpose(u, 0, 1), u), identity(3));
    expectClose(matmul(vt, transpose(vt, 0, 1)), identity(3));
  });

  test.each([[[5, 3]], [[3, 5]], [[4, 4]]])('P L U of %j is the matrix', (shape) => {
    const a = drawn(shape);
    const [p, l, u] = run('linalg_lu', a);
    expectClose(matmul(matmul(p, l), u), a);
    for (const row of p.toArray()) expect([0, 1]).toContain(row);
  });

  test('a step of Adam over two parameters is that of each', () => {
    const float = (value: number): EvaluatedArg => ({ kind: 'float', value });
    const numbers = {
      lr: float(0.1),
      beta1: float(0.9),
      beta2: float(0.99),
      weight_decay: float(0.1),
      eps: float(1e-8),
      amsgrad: false,
      maximize: false,
    };
    const step = (value: number): NDArray => fromFlat([], Float64Array.of(value), 'f32');
    const one = [drawn([3]), drawn([2, 2])];
    const squares = one.map((x) =>
      fromFlat(
        x.shape,
        Float64Array.from(x.toArray(), (v) => v * v),
      ),
    );
    const both = evaluateCall(
      table,
      'aten._fused_adam.default',
      [one, one, one, squares, [], [step(2), step(3)]],
      numbers,
    ) as NDArray[];
    const each = [0, 1].map(
      (i) =>
        evaluateCall(
          table,
          'aten._fused_adam.default',
          [[one[i]], [one[i]], [one[i]], [squares[i]], [], [step(2 + i)]],
          numbers,
        ) as NDArray[],
    );
    both.forEach((got, k) => expectClose(got, each[k % 2][Math.floor(k / 2)]));
    // A gradient that is not finite changes nothing.
    const stopped = evaluateCall(
      table,
      'aten._fused_adam.default',
      [one, one, one, squares, [], [step(2), step(3)]],
      { ...numbers, found_inf: step(1) },
    ) as NDArray[];
    stopped.slice(0, 2).forEach((got, i) => expectClose(got, one[i]));
  });

  test('a singular matrix has no inverse, one that is not positive definite no factor', () => {
    const flat = fromFlat([2, 2], Float64Array.of(1, 2, 2, 4));
    expect(() => run('linalg_inv', flat)).toThrow(/singular/);
    expect(() => run('linalg_cholesky', flat)).toThrow(/positive definite/);
    expect(run('linalg_det', flat)[0].item()).toBeCloseTo(0, 15);
  });
});

describe('names of operators', () => {
  test.each([
    ['mm', 'aten.mm.default'],
    ['aten.mm', 'aten.mm.default'],
    ['topk', 'aten.topk.default'],
    ['bucketize', 'aten.bucketize.Tensor'],
    ['stablehlo.dot_general', 'stablehlo.dot_general'],
  ])('%s is %s', (name, full) => expect(operatorNamed(table, name).name).toBe(full));

  const hint = (name: string): string => {
    try {
      operatorNamed(table, name);
    } catch (error) {
      return String((error as { details: { hint: string } }).details.hint);
    }
    return 'found';
  };
  test('a misspelt name gets the nearest, a name of several overloads all of them', () => {
    expect(hint('aten.mmm.default')).toBe("did you mean 'bmm' or 'mm'?");
    expect(hint('softmaxx')).toContain("'_softmax'");
    expect(hint('aten.add')).toBe('name one of aten.add.Scalar, aten.add.Tensor');
    expect(hint('quite_another_thing')).toContain('`shardwright rules` lists all');
  });
});

/** Operators that the rules tables of the specification name, beside those of the fixtures. */
const NAMED =
  'searchsorted.Tensor searchsorted.Scalar poisson normal.Tensor_Tensor bucketize.Tensor bincount kthvalue nanmedian unfold linalg__powsum norm.Scalar einsum tile ' +
  'index_fill.int_Tensor upsample_nearest2d upsample_bilinear2d upsample_bicubic2d upsample_nearest2d_backward ' +
  'linalg_cholesky linalg_inv linalg_det linalg_solve linalg_qr linalg_eigh linalg_cross special_i1 special_erfcx ' +
  'special_modified_bessel_k0 special_modified_bessel_k1 avg_pool1d adaptive_avg_pool1d logcumsumexp cummax histc ' +
  '_scaled_mm equal is_same_size index_reduce diagonal_scatter scatter.reduce scatter_reduce.two grid_sampler_2d ' +
  'grid_sampler_2d_backward max_unpool2d max_unpool3d avg_pool3d max_pool3d_with_indices adaptive_avg_pool3d ' +
  'fractional_max_pool2d eye randperm multinomial log_normal_ geometric_ svd linalg_svd linalg_lu _fused_adam _fused_adamw ' +
  'native_group_norm convolution_backward embedding_dense_backward index_add scatter_add roll flip tril triu diagonal';

test('operators of the rules tables have records', () => {
  const missing = NAMED.split(' ').filter(
    (name) =>
      table.get(`aten.${name}`) === undefined && table.get(`aten.${name}.default`) === undefined,
  );
  expect(missing).toEqual([]);
});

test('a convolution whose groups do not divide the weight is refused, not computed at fractions of channels', () => {
  const [x, w] = [drawn([2, 6, 5]), drawn([4, 2, 3])];
  expect(() => run('conv1d', x, w, null, [1], [0], [1], 3)).toThrow(/not divisible in 3 groups/);
});
