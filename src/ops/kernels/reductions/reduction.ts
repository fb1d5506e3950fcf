/** Kernels of reductions and scans along dims of arrays. */

import { build, flat, type NDArray } from '../../../ndarray/array.ts';
import { cast, map, map2 } from '../../../ndarray/elementwise.ts';
import {
  along,
  alongOne,
  argmaxOf,
  argminOf,
  logSumExpOf,
  maximumOf,
  meanOf,
  minimumOf,
  normOf,
  productOf,
  reduce,
  reducedDims,
  type RowReduction,
  sumOf,
  varianceOf,
} from '../../../ndarray/reduce.ts';
import { medianAt, modeAt } from '../../../ndarray/sort.ts';
import { concat, dimOf, reshape, slice } from '../../../ndarray/views.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  optional,
  resultShape,
  resultType,
  tensor,
} from '../../record/kernel.ts';
import { logAddExp } from '../elementwise/binary.ts';

/**
 * Reduces over the dims of argument `dim` (a number, a list, or all), in the element type of the
 * result unless asked not to.
 */
function reduceBy(call: KernelCall, reduction: RowReduction, converted = true): NDArray {
  const { ctx } = call;
  const self = tensor(call, 'self');
  const x = converted ? cast(self, resultType(call)) : self;
  const takes = (name: string): boolean => hasArgument(call, name);
  const dims = takes('dim') ? ctx.optionalInts('dim') : undefined;
  return reduce(x, reducedDims(dims, x.rank), takes('keepdim') && ctx.bool('keepdim'), reduction);
}

/** Overloads without dims have no such arguments. */
const WHOLE = new Set(
  ['sum', 'mean', 'prod', 'max', 'min', 'any', 'all', 'median'].map((n) => `aten.${n}.default`),
);
const NO_KEEPDIM = new Set(['aten.count_nonzero.default', 'aten.count_nonzero.dim_IntList']);
function hasArgument(call: KernelCall, name: string): boolean {
  if (WHOLE.has(call.ctx.target)) return false;
  return name !== 'keepdim' || !NO_KEEPDIM.has(call.ctx.target);
}

const fixed = (reduction: RowReduction, converted = true): Kernel =>
  one((call) => reduceBy(call, reduction, converted));

const anyOf: RowReduction = (data, start, end) => {
  for (let i = start; i < end; i++) if (data[i] !== 0) return 1;
  return 0;
};
const allOf: RowReduction = (data, start, end) => {
  for (let i = start; i < end; i++) if (data[i] === 0) return 0;
  return 1;
};
const countOf: RowReduction = (data, start, end) => {
  let n = 0;
  for (let i = start; i < end; i++) if (data[i] !== 0) n++;
  return n;
};
const nanSumOf: RowReduction = (data, start, end) => {
  let total = 0;
  for (let i = start; i < end; i++) if (!Number.isNaN(data[i])) total += data[i];
  return total;
};
const medianOf: RowReduction = (data, start, end) =>
  start === end ? NaN : data[start + medianAt(data, start, end - start)];

/** Degrees of freedom taken off; 1 unless the call says otherwise. */
const variance = (call: KernelCall): RowReduction =>
  varianceOf(call.ctx.optionalNumber('correction') ?? 1);

/** The chosen value of each run and its position. */
function pick(position: (data: Float64Array, start: number, length: number) => number): Kernel {
  return (call) => {
    const x = tensor(call, 'self');
    const dim = call.ctx.int('dim');
    const chosen = along(
      x,
      dim,
      [x.dtype, 'i64'],
      (input, start, length, [values, indices], out) => {
        const at = position(input, start, length);
        values[out] = input[start + at];
        indices[out] = at;
      },
      1,
    );
    return chosen.map((part, k) => reshape(part, resultShape(call, k)));
  };
}

/** Position of the best value, over one dim or over all elements. */
const position = (best: RowReduction): Kernel =>
  one((call) => {
    const x = tensor(call, 'self');
    const dim = call.ctx.optionalInt('dim');
    if (dim === undefined)
      return reshape(reduce(reshape(x, [x.size]), [0], false, best), resultShape(call));
    return reduce(x, x.rank === 0 ? [] : [dimOf(dim, x.rank)], call.ctx.bool('keepdim'), best);
  });

/** Running function along argument `dim`. */
const running = (next: (total: number, value: number) => number): Kernel =>
  one((call) =>
    alongOne(
      cast(tensor(call, 'self'), resultType(call)),
      call.ctx.int('dim'),
      (input, start, length, result, out) => {
        for (let i = 0; i < length; i++)
          result[out + i] = i === 0 ? input[start] : next(result[out + i - 1], input[start + i]);
      },
    ),
  );

/** Running extreme and its position, the later one of equal values; NaN stays once it has come. */
const runningBest =
  (better: (value: number, best: number) => boolean): Kernel =>
  (call) => {
    const x = tensor(call, 'self');
    return along(
      x,
      call.ctx.int('dim'),
      [x.dtype, 'i64'],
      (input, start, length, [values, indices], out) => {
        for (let i = 0, best = 0; i < length; i++) {
          const [value, old] = [input[start + i], input[start + best]];
          if (Number.isNaN(value) || (!Number.isNaN(old) && (better(value, old) || value === old)))
            best = i;
          values[out + i] = input[start + best];
          indices[out + i] = best;
        }
      },
    );
  };

const diff: Kernel = one((call) => {
  const { ctx } = call;
  const self = tensor(call, 'self');
  const dim = dimOf(ctx.int('dim'), self.rank);
  const parts = [optional(call, 'prepend'), self, optional(call, 'append')].filter(
    (p) => p !== undefined,
  );
  let x = parts.length === 1 ? self : concat(parts, dim);
  for (let k = 0; k < ctx.int('n') && x.shape[dim] > 0; k++) {
    const [later, earlier] = [slice(x, dim, 1, undefined), slice(x, dim, 0, -1)];
    x = map2(later, earlier, x.kind === 'bool' ? (a, b) => (a !== b ? 1 : 0) : (a, b) => a - b);
  }
  return x;
});

/**
 * Counts in equal bins between two ends; the last bin takes its upper end too. Ends that are equal
 * mean those of the data.
 */
const histc: Kernel = one((call) => {
  const { ctx } = call;
  const x = tensor(call, 'self');
  const bins = ctx.int('bins');
  const data = flat(x);
  let [low, high] = [ctx.number('min'), ctx.number('max')];
  if (low === high && data.length > 0)
    [low, high] = [minimumOf(data, 0, data.length), maximumOf(data, 0, data.length)];
  if (low === high) [low, high] = [low - 1, high + 1];
  const counts = new Float64Array(bins);
  for (const v of data)
    if (v >= low && v <= high)
      counts[Math.min(bins - 1, Math.floor(((v - low) / (high - low)) * bins))]++;
  return build([bins], (i) => counts[i], x.dtype);
});

const sums = fixed(sumOf);

export const reductionKernels: Kernels = {
  'aten.sum.default': sums,
  'aten.sum.dim_IntList': sums,
  'aten.nansum.default': fixed(nanSumOf),
  'aten.mean.default': fixed(meanOf),
  'aten.mean.dim': fixed(meanOf),
  'aten.prod.default': fixed(productOf),
  'aten.prod.dim_int': fixed(productOf),
  'aten.max.default': fixed(maximumOf),
  'aten.min.default': fixed(minimumOf),
  'aten.amax.default': fixed(maximumOf),
  'aten.amin.default': fixed(minimumOf),
  ...Object.fromEntries(
    ['default', 'dim', 'dims'].flatMap((o) => [
      [`aten.any.${o}`, fixed(anyOf, false)],
      [`aten.all.${o}`, fixed(allOf, false)],
    ]),
  ),
  'aten.count_nonzero.default': fixed(countOf, false),
  'aten.count_nonzero.dim_IntList': fixed(countOf, false),
  'aten.linalg_vector_norm.default': one((call) => reduceBy(call, normOf(call.ctx.number('ord')))),
  'aten.var.correction': one((call) => reduceBy(call, variance(call))),
  'aten.std.correction': one((call) => map(reduceBy(call, variance(call)), Math.sqrt)),
  'aten.var_mean.correction': (call) => [reduceBy(call, variance(call)), reduceBy(call, meanOf)],
  'aten.logsumexp.default': fixed(logSumExpOf),
  'aten.argmax.default': position(argmaxOf),
  'aten.argmin.default': position(argminOf),
  'aten.median.default': fixed(medianOf),
  'aten.max.dim': pick((data, start, length) => argmaxOf(data, start, start + length)),
  'aten.min.dim': pick((data, start, length) => argminOf(data, start, start + length)),
  'aten.median.dim': pick(medianAt),
  'aten.mode.default': pick(modeAt),
  'aten.cumsum.default': running((a, b) => a + b),
  'aten.cumprod.default': running((a, b) => a * b),
  'aten.logcumsumexp.default': running(logAddExp),
  'aten.cummax.default': runningBest((a, b) => a > b),
  'aten.cummin.default': runningBest((a, b) => a < b),
  'aten.diff.default': diff,
  'aten.histc.default': histc,
};
