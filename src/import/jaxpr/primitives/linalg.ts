/**
 * Writes JAX's Fourier transforms and operations on triangular matrices, which act on the last
 * dims, as calls of StableHLO.
 */

import { type Lower, operand } from '../equation.ts';

const FOURIER = ['FFT', 'IFFT', 'RFFT', 'IRFFT'];

/** The kind is printed as a number, or as `FftType.RFFT`. */
const fourier: Lower = (b, e) => {
  const { text } = b.parameter(e, 'fft_type');
  const kind = FOURIER.find((name, i) => text === String(i) || text.split('.').at(-1) === name);
  if (kind === undefined)
    throw b.error(
      'E_TYPE',
      `fft_type is '${text}', expected 0 to 3 for ${FOURIER.join(', ')}`,
      b.at(e, 'fft_type'),
    );
  b.emit(e, 'stablehlo.fft', [b.value(operand(b, e))], {
    fft_type: kind,
    fft_length: [...b.ints(e, 'fft_lengths')],
  });
};

const cholesky: Lower = (b, e) => {
  b.emit(e, 'stablehlo.cholesky', [b.value(operand(b, e))], { lower: true });
};

const triangularSolve: Lower = (b, e) => {
  const turned = !b.bool(e, 'transpose_a')
    ? 'NO_TRANSPOSE'
    : b.bool(e, 'conjugate_a')
      ? 'ADJOINT'
      : 'TRANSPOSE';
  b.emit(e, 'stablehlo.triangular_solve', [b.value(operand(b, e)), b.value(operand(b, e, 1))], {
    left_side: b.bool(e, 'left_side'),
    lower: b.bool(e, 'lower'),
    unit_diagonal: b.bool(e, 'unit_diagonal'),
    transpose_a: turned,
  });
};

/** The primitives by name. */
export const MATRICES: readonly (readonly [string, Lower])[] = [
  ['fft', fourier],
  ['cholesky', cholesky],
  ['triangular_solve', triangularSolve],
];
