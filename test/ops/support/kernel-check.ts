import type { NDArray } from '../../../src/ndarray/array.ts';
import { evaluateCall } from '../../../src/ops/kernels/evaluate.ts';
import { operators } from '../../engines/samples/all.ts';
import { ABSENT } from '../../engines/support/not-run.ts';
import { evaluatedArgs, type KernelSample } from './kernel-calls.ts';
import { decode, difference, type RecordedResult } from './kernel-record.ts';

/** Operators whose values PyTorch draws or leaves unset: their own tests judge them. */
export const UNCOMPARED: ReadonlySet<string> = new Set(
  [
    ...[
      'empty.memory_format',
      'empty_like.default',
      'new_empty.default',
      'empty_strided.default',
      'new_empty_strided.default',
    ],
    ...[
      'bernoulli.default',
      'bernoulli.p',
      'bernoulli_.float',
      'normal_.default',
      'uniform_.default',
    ],
    // Eigenvectors and singular vectors have no sign of their own.
    ...['linalg_eigh.default', '_linalg_eigh.default'],
    ...['linalg_svd.default', '_linalg_svd.default', 'svd.default'],
    ...['cauchy_.default', 'cauchy.default', 'normal_functional.default', 'uniform.default'],
    ...['exponential.default', 'log_normal.default', 'geometric.default', 'normal.float_float'],
    ...['randint.default', 'randint.low', 'randint_like.default', 'randint_like.low_dtype'],
    ...['log_normal_.default', 'geometric_.default', 'randperm.default', 'multinomial.default'],
    ...['poisson.default', 'normal.Tensor_Tensor', 'normal.Tensor_float', 'normal.float_Tensor'],
    ...[
      'exponential_.default',
      'rand.default',
      'randn.default',
      'rand_like.default',
      'randn_like.default',
    ],
  ].map((n) => `aten.${n}`),
);

/** PyTorch multiplies by a sixth that it rounded to float32, whatever the type of the tensors. */
const ROUNDED: Readonly<Record<string, number>> = {
  'aten.hardsigmoid_backward.default': 1e-7,
  // PyTorch's Bessel and Airy functions lose digits beyond an argument of 5.
  ...Object.fromEntries(
    ['j0', 'j1', 'y0', 'y1'].map((name) => [`aten.special_bessel_${name}.default`, 1e-4]),
  ),
  'aten.special_airy_ai.default': 1e-4,
};

/** Results of our kernel as a list. */
export function evaluateSample(s: KernelSample): readonly (NDArray | null)[] {
  const { args, kwargs } = evaluatedArgs(s);
  const result = evaluateCall(operators, s.call.target, args, kwargs);
  return result === null
    ? [null]
    : Array.isArray(result)
      ? (result as readonly (NDArray | null)[])
      : [result as NDArray];
}

/** Differences of a kernel from what PyTorch gave; undefined for none. */
export function compareSample(s: KernelSample, recorded: RecordedResult): string[] | undefined {
  if (UNCOMPARED.has(s.call.target)) return undefined;
  if ('refused' in recorded)
    return ABSENT.includes(s.call.target)
      ? undefined
      : [`${s.text}: PyTorch refuses: ${recorded.refused}`];
  let got: readonly (NDArray | null)[];
  try {
    got = evaluateSample(s);
  } catch (error) {
    return [`${s.text}: ${error instanceof Error ? error.message : String(error)}`];
  }
  const wrong: string[] = [];
  if (got.length > recorded.results.length)
    wrong.push(`${s.text}: ${got.length} results, PyTorch has ${recorded.results.length}`);
  recorded.results.forEach((want, k) => {
    const ours = got[k];
    // A result that the call masks off is whatever PyTorch leaves there.
    if (want === null || ours === null || ours === undefined) return;
    const why = difference(ours, decode(want), ROUNDED[s.call.target]);
    if (why !== undefined) wrong.push(`${s.text}: result ${k}: ${why}`);
  });
  return wrong.length > 0 ? wrong : undefined;
}
