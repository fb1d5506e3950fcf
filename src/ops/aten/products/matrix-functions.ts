/**
 * Determinants, which come with their LU factors, and exponentials of matrices. Matrices of a batch
 * are independent (see `linalg.ts`).
 */
import { determinant, luFactor } from '../../../ndarray/matrix.ts';
import type { OperatorRecord } from '../../record/record.ts';
import { counted } from './factorisation.ts';
import { decomposition, identity, transposed } from './linalg.ts';

const times = (a: Float64Array, b: Float64Array, n: number): Float64Array =>
  Float64Array.from({ length: n * n }, (_, at) => {
    let sum = 0;
    for (let k = 0; k < n; k++) sum += a[Math.floor(at / n) * n + k] * b[k * n + (at % n)];
    return sum;
  });

/** The exponential of a matrix: the series of a small part of it, squared up again. */
function exponential(a: Float64Array, n: number): Float64Array {
  const size = Math.max(1e-300, ...a.map(Math.abs)) * n;
  const halvings = Math.max(0, Math.ceil(Math.log2(size)) + 4);
  const part = a.map((v) => v / 2 ** halvings);
  let [sum, term] = [identity(n), identity(n)];
  for (let k = 1; k < 20; k++) {
    term = times(term, part, n).map((v) => v / k);
    sum = sum.map((v, i) => v + term[i]);
  }
  for (let k = 0; k < halvings; k++) sum = times(sum, sum, n);
  return sum;
}

export const matrixFunctionOps: readonly OperatorRecord[] = [
  ...(['aten._linalg_det.default', 'aten._linalg_slogdet.default'] as const).map((name) => {
    const logs = name.includes('slog');
    return decomposition(name, {
      schema: 'Tensor A',
      input: 'A',
      tuple: true,
      results: (n) => [[], ...(logs ? [[]] : []), [n, n], [n]],
      dtypes: [undefined, undefined, ...(logs ? [undefined] : []), 'i32'],
      // PyTorch factors the transpose of a matrix that lies row by row.
      each: (a, n) => {
        const [lu, pivots] = luFactor(transposed(a, n, n), n, n);
        const value = determinant(a, n);
        const values = logs ? [[Math.sign(value)], [Math.log(Math.abs(value))]] : [[value]];
        return [...values, lu, counted(pivots)];
      },
    });
  }),
  decomposition('aten.linalg_matrix_exp.default', {
    schema: 'Tensor self',
    input: 'self',
    results: (n) => [[n, n]],
    each: (a, n) => [exponential(a, n)],
  }),
];

export const matrixFunctionSamples: readonly string[] = [
  '_linalg_det(x[6,3,3])',
  '_linalg_slogdet(x[5,4,4])',
  'linalg_matrix_exp(x[6,3,3])',
];
