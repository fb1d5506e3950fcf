/**
 * Normalisations. All are one computation: subtract a mean and multiply by an inverse deviation
 * over some dims (RMS norm takes the mean as zero), then scale and shift by weights that broadcast.
 */

import { fromFlat, type NDArray, sizeOf } from '../../../ndarray/array.ts';
import { add, map, map2, map3, multiply, subtract } from '../../../ndarray/elementwise.ts';
import { meanOf, reduce, sum, varianceOf } from '../../../ndarray/reduce.ts';
import { reshape } from '../../../ndarray/views.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  optional,
  tensor,
} from '../../record/kernel.ts';

const inverseDeviation =
  (eps: number) =>
  (v: number): number =>
    1 / Math.sqrt(v + eps);

function affine(x: NDArray, weight: NDArray | undefined, bias: NDArray | undefined): NDArray {
  const scaled = weight === undefined ? x : multiply(x, weight);
  return bias === undefined ? scaled : add(scaled, bias);
}

/** (x - mean) * rstd with statistics that broadcast. */
function standardised(x: NDArray, mean: NDArray, rstd: NDArray): NDArray {
  return map3(x, mean, rstd, (v, m, r) => (v - m) * r);
}

/**
 * Gradient through the statistics: rstd * (g - mean(g) - y * mean(g * y)) with y the standardised
 * input and means over the normalised dims. Without a mean in the norm its term is absent.
 */
function throughStatistics(
  g: NDArray,
  y: NDArray,
  rstd: NDArray,
  dims: readonly number[],
  centred: boolean,
): NDArray {
  const along = reduce(multiply(g, y), dims, true, meanOf);
  const rest = subtract(g, multiply(y, along));
  const moved = centred ? subtract(rest, reduce(g, dims, true, meanOf)) : rest;
  return multiply(moved, rstd);
}

// ---- rows: layer norm, RMS norm
// -----------------------------------------------------------------------------

/** Dims that `normalized_shape` names, and the others. */
function rowDims(call: KernelCall, x: NDArray): { inner: number[]; outer: number[] } {
  const count = call.ctx.ints('normalized_shape').length;
  const dims = x.shape.map((_, d) => d);
  return { inner: dims.slice(x.rank - count), outer: dims.slice(0, x.rank - count) };
}

function layerNorm(call: KernelCall): NDArray[] {
  const x = tensor(call, 'input');
  const { inner } = rowDims(call, x);
  const mean = reduce(x, inner, true, meanOf);
  const rstd = map(reduce(x, inner, true, varianceOf(0)), inverseDeviation(call.ctx.number('eps')));
  return [
    affine(standardised(x, mean, rstd), optional(call, 'weight'), optional(call, 'bias')),
    mean,
    rstd,
  ];
}

/**
 * Distance from 1 to the next number: what PyTorch takes where no eps is given, by the declared
 * type.
 */
const EPSILON: Readonly<Partial<Record<string, number>>> = {
  f64: 2 ** -52,
  f32: 2 ** -23,
  bf16: 2 ** -7,
  f16: 2 ** -10,
};

function rmsNorm(call: KernelCall): NDArray[] {
  const x = tensor(call, 'input');
  const { inner } = rowDims(call, x);
  const eps =
    call.ctx.optionalNumber('eps') ??
    EPSILON[x.dtype] ??
    call.ctx.fail(`has no eps for ${x.dtype}`);
  const rstd = map(
    reduce(
      map(x, (v) => v * v),
      inner,
      true,
      meanOf,
    ),
    inverseDeviation(eps),
  );
  return [affine(multiply(x, rstd), optional(call, 'weight'), undefined), rstd];
}

/** A masked-off gradient is null. */
function wanted(call: KernelCall, grads: readonly (() => NDArray)[]): (NDArray | null)[] {
  const mask = call.ctx.bools('output_mask');
  return grads.map((grad, i) => (mask[i] && call.ctx.outputs[i] !== null ? grad() : null));
}

const layerNormBackward: Kernel = (call) => {
  const [grad, x, rstd, weight] = [
    tensor(call, 'grad_out'),
    tensor(call, 'input'),
    tensor(call, 'rstd'),
    optional(call, 'weight'),
  ];
  const { inner, outer } = rowDims(call, x);
  const y = standardised(x, tensor(call, 'mean'), rstd);
  return wanted(call, [
    () =>
      throughStatistics(weight === undefined ? grad : multiply(grad, weight), y, rstd, inner, true),
    () => sum(multiply(grad, y), outer),
    () => sum(grad, outer),
  ]);
};

const rmsNormBackward: Kernel = (call) => {
  const [grad, x, rstd, weight] = [
    tensor(call, 'grad_out'),
    tensor(call, 'input'),
    tensor(call, 'rstd'),
    optional(call, 'weight'),
  ];
  const { inner, outer } = rowDims(call, x);
  const y = multiply(x, rstd);
  return wanted(call, [
    () =>
      throughStatistics(
        weight === undefined ? grad : multiply(grad, weight),
        y,
        rstd,
        inner,
        false,
      ),
    () => sum(multiply(grad, y), outer),
  ]);
};

// ---- groups of channels
// -----------------------------------------------------------------------------

/** [batch, groups, channels of a group, positions]. */
function grouped(x: NDArray, groups: number): NDArray {
  const [batch, channels] = x.shape;
  return reshape(x, [batch, groups, channels / groups, sizeOf(x.shape.slice(2))]);
}

const byGroup = (vector: NDArray | undefined, groups: number): NDArray | undefined =>
  vector === undefined ? undefined : reshape(vector, [1, groups, vector.size / groups, 1]);

function groupNorm(call: KernelCall, groups: number): NDArray[] {
  const x = tensor(call, 'input');
  const parts = grouped(x, groups);
  const mean = reduce(parts, [2, 3], true, meanOf);
  const rstd = map(
    reduce(parts, [2, 3], true, varianceOf(0)),
    inverseDeviation(call.ctx.number('eps')),
  );
  const [weight, bias] = [
    byGroup(optional(call, 'weight'), groups),
    byGroup(optional(call, 'bias'), groups),
  ];
  const out = affine(standardised(parts, mean, rstd), weight, bias);
  const statistic = [x.shape[0], groups];
  return [reshape(out, x.shape), reshape(mean, statistic), reshape(rstd, statistic)];
}

const groupNormBackward: Kernel = (call) => {
  const x = tensor(call, 'input');
  const groups = call.ctx.int('group');
  const [grad, parts] = [grouped(tensor(call, 'grad_out'), groups), grouped(x, groups)];
  const statistic = [x.shape[0], groups, 1, 1];
  const [mean, rstd] = [
    reshape(tensor(call, 'mean'), statistic),
    reshape(tensor(call, 'rstd'), statistic),
  ];
  const weight = byGroup(optional(call, 'weight'), groups);
  const y = standardised(parts, mean, rstd);
  const channels = [x.shape[1]];
  return wanted(call, [
    () =>
      reshape(
        throughStatistics(
          weight === undefined ? grad : multiply(grad, weight),
          y,
          rstd,
          [2, 3],
          true,
        ),
        x.shape,
      ),
    () => reshape(sum(multiply(grad, y), [0, 3]), channels),
    () => reshape(sum(grad, [0, 3]), channels),
  ]);
};

// ---- batch
// -----------------------------------------------------------------------------

/** A vector per channel, shaped to broadcast over [batch, channels, ..]. */
function perChannel(vector: NDArray, x: NDArray): NDArray {
  return reshape(
    vector,
    x.shape.map((n, d) => (d === 1 ? n : 1)),
  );
}

const channelDims = (x: NDArray): number[] => x.shape.flatMap((_, d) => (d === 1 ? [] : [d]));

interface BatchNorm {
  readonly out: NDArray;
  readonly mean: NDArray;
  readonly rstd: NDArray;
  readonly runningMean: NDArray | undefined;
  readonly runningVar: NDArray | undefined;
}

/**
 * Training uses the statistics of the batch and moves the running ones, whose variance is the
 * unbiased one.
 */
function batchNorm(call: KernelCall, training: boolean): BatchNorm {
  const x = tensor(call, 'input');
  const [oldMean, oldVar] = [optional(call, 'running_mean'), optional(call, 'running_var')];
  const eps = call.ctx.number('eps');
  const given = (v: NDArray | undefined): NDArray =>
    v ?? call.ctx.fail('needs running statistics in evaluation');
  const dims = channelDims(x);
  const mean = training ? reduce(x, dims, false, meanOf) : given(oldMean);
  const rstd = map(
    training ? reduce(x, dims, false, varianceOf(0)) : given(oldVar),
    inverseDeviation(eps),
  );
  const [weight, bias] = ['weight', 'bias'].map((name) => {
    const vector = optional(call, name);
    return vector === undefined ? undefined : perChannel(vector, x);
  });
  const out = affine(standardised(x, perChannel(mean, x), perChannel(rstd, x)), weight, bias);
  if (!training) {
    const none = fromFlat([0], new Float64Array(0));
    return { out, mean: none, rstd: none, runningMean: oldMean, runningVar: oldVar };
  }
  const momentum = call.ctx.number('momentum');
  const moved = (old: NDArray | undefined, now: NDArray): NDArray | undefined =>
    old === undefined ? undefined : map2(old, now, (a, b) => (1 - momentum) * a + momentum * b);
  return {
    out,
    mean,
    rstd,
    runningMean: moved(oldMean, mean),
    runningVar: moved(oldVar, reduce(x, dims, false, varianceOf(1))),
  };
}

type Field = keyof BatchNorm | 'reserve';

const batch =
  (fields: readonly Field[], training: (call: KernelCall) => boolean): Kernel =>
  (call) => {
    const result = batchNorm(call, training(call));
    return fields.map((field) =>
      field === 'reserve' ? fromFlat([0], new Float64Array(0)) : (result[field] ?? null),
    );
  };

const asked = (call: KernelCall): boolean => call.ctx.bool('training');

const batchNormBackward: Kernel = (call) => {
  const [grad, x, weight] = [
    tensor(call, 'grad_out'),
    tensor(call, 'input'),
    optional(call, 'weight'),
  ];
  const train = call.ctx.bool('train');
  const dims = channelDims(x);
  const mean = perChannel(tensor(call, train ? 'save_mean' : 'running_mean'), x);
  const rstd = perChannel(
    train
      ? tensor(call, 'save_invstd')
      : map(tensor(call, 'running_var'), inverseDeviation(call.ctx.number('eps'))),
    x,
  );
  const y = standardised(x, mean, rstd);
  const scaled = weight === undefined ? grad : multiply(grad, perChannel(weight, x));
  return wanted(call, [
    () => (train ? throughStatistics(scaled, y, rstd, dims, true) : multiply(scaled, rstd)),
    () => sum(multiply(grad, y), dims),
    () => sum(grad, dims),
  ]);
};

export const normKernels: Kernels = {
  'aten.native_layer_norm.default': layerNorm,
  'aten.layer_norm.default': one((call) => layerNorm(call)[0]),
  'aten.native_layer_norm_backward.default': layerNormBackward,
  'aten._fused_rms_norm.default': rmsNorm,
  'aten.rms_norm.default': one((call) => rmsNorm(call)[0]),
  'aten._fused_rms_norm_backward.default': rmsNormBackward,
  'aten.native_group_norm.default': (call) => groupNorm(call, call.ctx.int('group')),
  'aten.group_norm.default': one((call) => groupNorm(call, call.ctx.int('num_groups'))[0]),
  'aten.native_group_norm_backward.default': groupNormBackward,
  'aten.batch_norm.default': batch(['out'], asked),
  'aten.native_batch_norm.default': batch(['out', 'mean', 'rstd'], asked),
  'aten._native_batch_norm_legit.default': batch(['out', 'mean', 'rstd'], asked),
  'aten._native_batch_norm_legit.no_stats': batch(['out', 'mean', 'rstd'], asked),
  'aten._native_batch_norm_legit_no_training.default': batch(['out', 'mean', 'rstd'], () => false),
  'aten._native_batch_norm_legit_functional.default': batch(
    ['out', 'mean', 'rstd', 'runningMean', 'runningVar'],
    asked,
  ),
  'aten._batch_norm_with_update_functional.default': batch(
    ['out', 'mean', 'rstd', 'reserve', 'runningMean', 'runningVar'],
    () => true,
  ),
  'aten.native_batch_norm_backward.default': batchNormBackward,
};
