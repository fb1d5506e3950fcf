/**
 * Rewrites batch norms in training whose batch or positions are cut: statistics of all ranks, then
 * the norm with given statistics, which every engine has as one kernel.
 */
import type { Arg } from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';
import { directGradients, float, normalised, rowsOf, withTerms } from './given-statistics.ts';
import { cast, reducedOver, widened } from './softmax.ts';
import { type Moments, moments } from './statistics.ts';

/** Values that the statistics of a channel are of, on all ranks. */
function valuesOf(call: LocalCall): number {
  const { shape } = call.global.inputs[call.global.indexOf('input')];
  return shape.reduce((n, size, d) => (d === 1 ? n : n * size), 1);
}

/** A vector by channel in the dtype of the statistics, which mixes with a narrower input. */
const vector = (call: LocalCall, value: string | undefined): Arg =>
  value === undefined ? null : ref(widened(call, value));

type Result = 'out' | 'mean' | 'rstd' | 'runningMean' | 'runningVar' | 'reserve';

/** A running statistic that moves towards one of the batch. */
function moved(call: LocalCall, name: string, now: string): string | null {
  const old = call.optional(name);
  if (old === undefined) return null;
  const end = cast(call, now, call.emit.type(old).dtype);
  const momentum = float(call.global.number('momentum'));
  return call.emit.call('aten.lerp.Scalar', [ref(old), ref(end), momentum]);
}

/** The running variance is the unbiased one. */
function unbiased(call: LocalCall, variance: string): string {
  const count = valuesOf(call);
  return call.emit.call('aten.mul.Tensor', [ref(variance), float(count / (count - 1))]);
}

const RESULTS: Readonly<
  Record<Result, (call: LocalCall, found: Moments, eps: number) => string | null>
> = {
  out: (call, { mean, variance }, eps) => {
    const [weight, bias] = ['weight', 'bias'].map((name) => vector(call, call.optional(name)));
    return normalised(call, { x: call.tensor('input'), mean, variance }, [weight, bias], eps);
  },
  mean: (_, { mean }) => mean,
  rstd: (call, { variance }, eps) => {
    const sum = call.emit.call('aten.add.Tensor', [ref(variance), float(eps)]);
    return call.emit.call('aten.rsqrt.default', [ref(sum)]);
  },
  runningMean: (call, { mean }) => moved(call, 'running_mean', mean),
  runningVar: (call, { variance }) => moved(call, 'running_var', unbiased(call, variance)),
  reserve: (call) =>
    call.emit.call('aten.full.default', [[0], 0], {
      kwargs: { dtype: { kind: 'dtype', dtype: 'u8' } },
    }),
};

const forward =
  (results: readonly Result[]): Rewrite =>
  (call) => {
    const x = call.tensor('input');
    const others = call.emit.type(x).shape.flatMap((_, d) => (d === 1 ? [] : [d]));
    const found = moments(call, x, others, call.meshDims('all-gather-statistics'));
    const eps = call.global.number('eps');
    return results.map((result, k) => {
      const value = RESULTS[result](call, found, eps);
      const type = call.global.outputs[k];
      return value === null || type === null ? null : cast(call, value, type.dtype);
    });
  };

/**
 * With `y` the normalised input, `n` values and `r` the inverse deviation the gradient of the input
 * is `w r (g - sum(g) / n - y sum(g y) / n)`: that of the norm with given statistics, and a norm of
 * the input whose weight and bias are made of the two sums.
 */
const backward: Rewrite = (call) => {
  const { emit } = call;
  const [mean, rstd] = [call.tensor('save_mean'), call.tensor('save_invstd')].map((s) =>
    widened(call, s),
  );
  // 1 / r^2 is variance and epsilon together.
  const variance = emit.call('aten.pow.Tensor_Scalar', [ref(rstd), -2]);
  const { shape, dtype } = emit.type(rstd);
  const own = call.optional('weight');
  const weight =
    own === undefined
      ? emit.call('aten.full.default', [emit.ints(shape), 1], {
          kwargs: { dtype: { kind: 'dtype', dtype } },
        })
      : widened(call, own);
  const of = { x: call.tensor('input'), mean, variance };
  const direct = directGradients(call, of, call.tensor('grad_out'), weight);
  const sums = reducedOver(call, direct.sums, 'sum', call.meshDims('all-reduce-statistics'));
  const slope = emit.call('aten.mul.Tensor', [ref(weight), ref(rstd)]);
  const factor = emit.call('aten.mul.Tensor', [ref(slope), float(-1 / valuesOf(call))]);
  const terms = emit.call('aten.mul.Tensor', [ref(sums), ref(factor)]);
  const input = withTerms(call, of, direct.input, terms);
  const isLast = call.global.outputs.slice(1).every((type) => type === null);
  return [input, ...(isLast ? [null, null] : rowsOf(call, sums))].map((value, k) => {
    const type = call.global.outputs[k];
    return value === null || type === null ? null : cast(call, value, type.dtype);
  });
};

const FUNCTIONAL = ['runningMean', 'runningVar'] as const;
const SAVED = ['out', 'mean', 'rstd'] as const;

export const batchNormRewrites: Rewrites = {
  'aten.batch_norm.default': forward(['out']),
  'aten.native_batch_norm.default': forward(SAVED),
  'aten._native_batch_norm_legit.no_stats': forward(SAVED),
  'aten._native_batch_norm_legit_functional.default': forward([...SAVED, ...FUNCTIONAL]),
  'aten._batch_norm_with_update_functional.default': forward([...SAVED, 'reserve', ...FUNCTIONAL]),
  'aten.native_batch_norm_backward.default': backward,
};
