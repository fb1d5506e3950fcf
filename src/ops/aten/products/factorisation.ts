/**
 * Factors of matrices: singular values, eigenvalues, LU, Cholesky and QR. Matrices of a batch are
 * independent (see `linalg.ts`).
 */
import { luFactor, luParts, singularValues, symmetricEigen } from '../../../ndarray/matrix.ts';
import type { OpContext, OperatorRecord } from '../../record/record.ts';
import { batched } from './batched-matrices.ts';
import { decomposition, lowerFactor, singular, transposed } from './linalg.ts';

const wantsAll = (ctx: OpContext): boolean => ctx.bool('full_matrices');

/** Shapes of U, S and Vᵀ. */
function singularShapes(m: number, n: number, full: boolean): number[][] {
  const k = Math.min(m, n);
  return full ? [[m, m], [k], [n, n]] : [[m, k], [k], [k, n]];
}

/** Half of the symmetric matrix that the call names. */
function symmetric(a: Float64Array, n: number, upper: boolean): Float64Array {
  return a.map((_, at) => {
    const [i, j] = [Math.floor(at / n), at % n];
    return i >= j === !upper ? a[i * n + j] : a[j * n + i];
  });
}

const svd = (name: string, schema: string): OperatorRecord =>
  decomposition(name, {
    schema,
    input: 'A',
    square: false,
    tuple: true,
    results: (m, n, ctx) => {
      if (name.includes('_linalg_svd') && ctx.has('compute_uv') && !ctx.bool('compute_uv'))
        ctx.fail('compute_uv=False is not modelled: linalg_svdvals gives the values');
      return singularShapes(m, n, wantsAll(ctx));
    },
    each: (a, m, n, call) => singularValues(a, m, n, wantsAll(call.ctx)),
  });

/** One-based numbers of the rows that were exchanged, as LAPACK counts. */
export const counted = (pivots: readonly number[]): number[] => pivots.map((p) => p + 1);

function pivoting(ctx: OpContext): void {
  if (!ctx.bool('pivot')) ctx.fail('pivot=False is not modelled');
}

/** Q of the reflections I - tau v v', whose vectors lie below the diagonal. */
function reflections(a: Float64Array, tau: Float64Array, m: number, n: number): Float64Array {
  const q = Float64Array.from({ length: m * n }, (_, at) =>
    Math.floor(at / n) === at % n ? 1 : 0,
  );
  for (let k = tau.length - 1; k >= 0; k--) {
    const v = Array.from({ length: m }, (_, i) => (i < k ? 0 : i === k ? 1 : a[i * n + k]));
    for (let c = 0; c < n; c++) {
      let dot = 0;
      for (let i = 0; i < m; i++) dot += v[i] * q[i * n + c];
      for (let i = 0; i < m; i++) q[i * n + c] -= tau[k] * dot * v[i];
    }
  }
  return q;
}

export const factorisationOps: readonly OperatorRecord[] = [
  svd('aten.linalg_svd.default', 'Tensor A, bool full_matrices=True, *, str? driver=None'),
  svd(
    'aten._linalg_svd.default',
    'Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None',
  ),
  decomposition('aten.svd.default', {
    schema: 'Tensor self, bool some=True, bool compute_uv=True',
    input: 'self',
    square: false,
    tuple: true,
    results: (m, n, ctx) => {
      if (ctx.has('compute_uv') && !ctx.bool('compute_uv'))
        ctx.fail('compute_uv=False is not modelled: linalg_svdvals gives the values');
      const [u, s, [rows, columns]] = singularShapes(m, n, !ctx.bool('some'));
      return [u, s, [columns, rows]];
    },
    each: (a, m, n, { ctx }) => {
      const full = !ctx.bool('some');
      const [u, s, vt] = singularValues(a, m, n, full);
      return [u, s, transposed(vt, full ? n : Math.min(m, n), n)];
    },
  }),
  decomposition('aten.linalg_svdvals.default', {
    schema: 'Tensor A, *, str? driver=None',
    input: 'A',
    square: false,
    results: (m, n) => [[Math.min(m, n)]],
    each: (a, m, n) => [singularValues(a, m, n, false)[1]],
  }),
  decomposition('aten.linalg_eigvalsh.default', {
    schema: "Tensor self, str UPLO='L'",
    input: 'self',
    results: (n) => [[n]],
    each: (a, n, _, call) => [
      symmetricEigen(symmetric(a, n, call.ctx.text('UPLO').toUpperCase() === 'U'), n)[0],
    ],
  }),
  decomposition('aten._linalg_eigh.default', {
    schema: "Tensor A, str UPLO='L', bool compute_v=True",
    input: 'A',
    tuple: true,
    results: (n, _, ctx) => {
      if (ctx.has('compute_v') && !ctx.bool('compute_v'))
        ctx.fail('compute_v=False is not modelled: linalg_eigvalsh gives the values');
      return [[n], [n, n]];
    },
    each: (a, n, _, call) =>
      symmetricEigen(symmetric(a, n, call.ctx.text('UPLO').toUpperCase() === 'U'), n),
  }),
  decomposition('aten.linalg_lu.default', {
    schema: 'Tensor A, *, bool pivot=True',
    input: 'A',
    square: false,
    tuple: true,
    results: (m, n, ctx) => {
      if (ctx.has('pivot')) pivoting(ctx);
      const k = Math.min(m, n);
      return [
        [m, m],
        [m, k],
        [k, n],
      ];
    },
    each: (a, m, n) => luParts(...luFactor(a, m, n), m, n),
  }),
  ...(['aten.linalg_lu_factor.default', 'aten.linalg_lu_factor_ex.default'] as const).map(
    (name) => {
      const told = name.includes('_ex'); // whether a pivot was zero is told, not thrown
      return decomposition(name, {
        schema: `Tensor A, *, bool pivot=True${told ? ', bool check_errors=False' : ''}`,
        input: 'A',
        square: false,
        tuple: true,
        results: (m, n, ctx) => {
          if (ctx.has('pivot')) pivoting(ctx);
          return [[m, n], [Math.min(m, n)], ...(told ? [[]] : [])];
        },
        dtypes: [undefined, 'i32', 'i32'],
        each: (a, m, n, call) => {
          const [lu, pivots] = luFactor(a, m, n);
          const zero = pivots.findIndex((_, i) => lu[i * n + i] === 0);
          if (zero >= 0 && !told) singular(call);
          return [lu, counted(pivots), ...(told ? [[zero + 1]] : [])];
        },
      });
    },
  ),
  decomposition('aten.linalg_cholesky_ex.default', {
    schema: 'Tensor self, *, bool upper=False, bool check_errors=False',
    input: 'self',
    tuple: true,
    results: (n) => [[n, n], []],
    dtypes: [undefined, 'i32'],
    each: (a, n, _, call) => {
      if (!call.ctx.bool('upper')) return [lowerFactor(a, n, call), [0]];
      return [transposed(lowerFactor(transposed(a, n, n), n, call), n, n), [0]];
    },
  }),
  batched('aten.lu_unpack.default', {
    schema: 'Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True',
    inputs: { LU_data: 2, LU_pivots: 1 },
    tuple: true,
    results: ([[m, n]], ctx) => {
      if (!ctx.bool('unpack_data') || !ctx.bool('unpack_pivots'))
        ctx.fail('parts that are not unpacked are not modelled');
      const k = Math.min(m, n);
      return [
        [m, m],
        [m, k],
        [k, n],
      ];
    },
    each: ([lu, pivots], [[m, n]]) =>
      luParts(
        lu,
        Array.from(pivots, (p) => p - 1),
        m,
        n,
      ),
  }),
  batched('aten.linalg_householder_product.default', {
    schema: 'Tensor input, Tensor tau',
    inputs: { input: 2, tau: 1 },
    results: ([a]) => [a],
    each: ([a, tau], [[m, n]]) => [reflections(a, tau, m, n)],
  }),
];

export const factorisationSamples: readonly string[] = [
  'linalg_svd(x[5,6,4])',
  'linalg_svd(x[6,3,5], False)',
  '_linalg_svd(x[6,4,3])',
  'svd(x[5,6,3])',
  'svd(x[6,3,4], False)',
  'linalg_svdvals(x[5,6,4])',
  'linalg_svdvals(x[6,3,5])',
  'linalg_eigvalsh(x[5,4,4])',
  "linalg_eigvalsh(x[6,3,3], 'U')",
  '_linalg_eigh(x[6,3,3])',
  'linalg_lu(x[5,6,4])',
  'linalg_lu(x[6,3,5])',
  'linalg_lu_factor(x[6,4,3])',
  'linalg_lu_factor(x[5,4,4])',
  'linalg_lu_factor_ex(x[6,3,4])',
  'linalg_cholesky_ex(definite3[6,3,3])',
  'lu_unpack(x[6,4,3], pivots3[6,3])',
  'lu_unpack(x[5,3,4], pivots3[5,3])',
  'linalg_householder_product(x[6,4,3], x[6,2])',
];
