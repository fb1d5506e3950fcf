/**
 * HiGHS 1.15 (npm `highs`, WASM, MIT) as a backend: a good mixed-integer solver that computes in
 * floating point.
 */
import type { Backend } from './verdict.ts';

/**
 * Size guard and scales of HiGHS. Its memory is wasm32 with a ceiling of 2,048 MiB at 1.5-2 KB a
 * nonzero at peak (measured: 535k columns ran at 1.6 GiB, 714k aborted); costs about 1e4 suit its
 * tolerances of 1e-6 and 1e-7.
 */
export const HIGHS: Backend = {
  library: 'highs',
  most: { binaries: Infinity, columns: 350_000, nonzeros: 800_000 },
  costTarget: 1e4,
  rowTarget: 1e6,
};
