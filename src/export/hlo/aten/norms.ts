/**
 * Lowers the normalisations of ATen and their gradients to HLO. All are one computation: subtract a
 * mean, multiply by an inverse deviation, scale and shift by weights; 16-bit numbers are converted
 * to f32 for it.
 */
import type { DType } from '../../../graph/types.ts';
import { product } from '../../../product.ts';
import type { HloCall, Lowering, Lowerings } from '../call.ts';
import type { HloCode, Val } from '../code.ts';
import { meanOf, wide } from './reductions.ts';

interface Normalised {
  readonly out: Val;
  readonly mean: Val;
  readonly rstd: Val;
  readonly variance: Val;
}

/** (x - mean) / sqrt(variance + eps) over some dims, whose statistics keep those dims. */
function normalise(hlo: HloCode, x: Val, dims: readonly number[], eps: number): Normalised {
  const mean = meanOf(hlo, x, dims);
  const away = hlo.subtract(x, hlo.broadcast(mean, x.shape));
  const variance = meanOf(hlo, hlo.multiply(away, away), dims);
  const rstd = hlo.unary('rsqrt', hlo.add(variance, hlo.like(variance, eps)));
  return { out: hlo.multiply(away, hlo.broadcast(rstd, x.shape)), mean, rstd, variance };
}

/**
 * Gradient through the statistics: rstd (g - mean(g) - y mean(g y)); without a mean its term is
 * absent.
 */
function throughStatistics(
  hlo: HloCode,
  g: Val,
  y: Val,
  rstd: Val,
  dims: readonly number[],
  centred: boolean,
): Val {
  const spread = (x: Val): Val => hlo.broadcast(x, g.shape);
  const rest = hlo.subtract(g, hlo.multiply(y, spread(meanOf(hlo, hlo.multiply(g, y), dims))));
  const moved = centred ? hlo.subtract(rest, spread(meanOf(hlo, g, dims))) : rest;
  return hlo.multiply(moved, spread(rstd));
}

/** Types of the results, which inference states. */
function settled(call: HloCall, results: readonly (() => Val)[]): (Val | null)[] {
  return call.ctx.outputs.map((meta, k) =>
    meta === null ? null : call.hlo.reshape(call.hlo.convert(results[k](), meta.dtype), meta.shape),
  );
}

// ---- rows
// -----------------------------------------------------------------------------

interface Rows {
  readonly x: Val;
  readonly inner: readonly number[];
  readonly outer: readonly number[];
  /** A vector of the normalised dims over all rows, in the type of the computation. */
  readonly spread: (name: string) => Val | undefined;
}

function rowsOf(call: HloCall): Rows {
  const { hlo } = call;
  const input = call.tensor('input');
  const x = hlo.convert(input, wide(input.dtype));
  const count = call.ctx.ints('normalized_shape').length;
  const dims = x.shape.map((_, d) => d);
  const spread = (name: string): Val | undefined => {
    const vector = call.optional(name);
    return vector === undefined ? undefined : hlo.broadcast(hlo.convert(vector, x.dtype), x.shape);
  };
  return {
    x,
    inner: dims.slice(dims.length - count),
    outer: dims.slice(0, dims.length - count),
    spread,
  };
}

const layerNorm: Lowering = (call) => {
  const { hlo } = call;
  const { x, inner, spread } = rowsOf(call);
  const { out, mean, rstd } = normalise(hlo, x, inner, call.ctx.number('eps'));
  const results = settled(call, [
    () => affine(hlo, out, spread('weight'), spread('bias')),
    () => mean,
    () => rstd,
  ]);
  return call.record.results === 'tuple' ? results : (results[0] as Val);
};

function affine(hlo: HloCode, x: Val, weight: Val | undefined, bias: Val | undefined): Val {
  const scaled = weight === undefined ? x : hlo.multiply(x, weight);
  return bias === undefined ? scaled : hlo.add(scaled, bias);
}

/** Distance from 1 to the next number of a type: PyTorch's eps where none is given. */
const EPSILON: Readonly<Partial<Record<DType, number>>> = {
  f64: 2 ** -52,
  f32: 2 ** -23,
  bf16: 2 ** -7,
  f16: 2 ** -10,
};

const rmsNorm: Lowering = (call) => {
  const { hlo } = call;
  const { x, inner, spread } = rowsOf(call);
  const eps = call.ctx.optionalNumber('eps') ?? EPSILON[call.tensor('input').dtype];
  if (eps === undefined) return call.unsupported('has no eps for this type');
  const squares = meanOf(hlo, hlo.multiply(x, x), inner);
  const rstd = hlo.unary('rsqrt', hlo.add(squares, hlo.like(squares, eps)));
  const out = hlo.multiply(x, hlo.broadcast(rstd, x.shape));
  const results = settled(call, [() => affine(hlo, out, spread('weight'), undefined), () => rstd]);
  return call.record.results === 'tuple' ? results : (results[0] as Val);
};

const rowNormBackward =
  (centred: boolean): Lowering =>
  (call) => {
    const { hlo } = call;
    const { x, inner, outer, spread } = rowsOf(call);
    const up = (name: string): Val => hlo.convert(call.tensor(name), x.dtype);
    const [grad, rstd] = [up('grad_out'), up('rstd')];
    const away = centred ? hlo.subtract(x, hlo.broadcast(up('mean'), x.shape)) : x;
    const y = hlo.multiply(away, hlo.broadcast(rstd, x.shape));
    const weight = spread('weight');
    return settled(call, [
      () =>
        throughStatistics(
          hlo,
          weight === undefined ? grad : hlo.multiply(grad, weight),
          y,
          rstd,
          inner,
          centred,
        ),
      () => hlo.reduce(hlo.multiply(grad, y), 'add', outer),
      () => hlo.reduce(grad, 'add', outer),
    ]);
  };

// ---- channels
// -----------------------------------------------------------------------------

/** [batch, groups, channels of a group, positions]. */
function grouped(hlo: HloCode, x: Val, groups: number): Val {
  const [batch, channels, ...rest] = x.shape;
  return hlo.reshape(x, [batch, groups, channels / groups, product(rest)]);
}

const groupNorm: Lowering = (call) => {
  const { hlo } = call;
  const input = call.tensor('input');
  const x = hlo.convert(input, wide(input.dtype));
  const groups = call.ctx.int(call.takes('group') ? 'group' : 'num_groups');
  const { out, mean, rstd } = normalise(
    hlo,
    grouped(hlo, x, groups),
    [2, 3],
    call.ctx.number('eps'),
  );
  const vector = (name: string): Val | undefined => {
    const v = call.optional(name);
    return v === undefined ? undefined : hlo.broadcastInDim(hlo.convert(v, x.dtype), x.shape, [1]);
  };
  const whole = hlo.reshape(out, x.shape);
  const results = settled(call, [
    () => affine(hlo, whole, vector('weight'), vector('bias')),
    () => mean,
    () => rstd,
  ]);
  return call.record.results === 'tuple' ? results : (results[0] as Val);
};

const groupNormBackward: Lowering = (call) => {
  const { hlo } = call;
  const input = call.tensor('input');
  const groups = call.ctx.int('group');
  const dtype = wide(input.dtype);
  const parts = (name: string): Val => grouped(hlo, hlo.convert(call.tensor(name), dtype), groups);
  const [grad, x] = [parts('grad_out'), parts('input')];
  const statistic = (name: string): Val =>
    hlo.reshape(hlo.convert(call.tensor(name), dtype), [x.shape[0], groups, 1, 1]);
  const rstd = statistic('rstd');
  const y = hlo.multiply(
    hlo.subtract(x, hlo.broadcast(statistic('mean'), x.shape)),
    hlo.broadcast(rstd, x.shape),
  );
  const weight = call.optional('weight');
  const scaled =
    weight === undefined
      ? grad
      : hlo.multiply(
          grad,
          hlo.broadcast(
            hlo.reshape(hlo.convert(weight, dtype), [1, groups, x.shape[2], 1]),
            x.shape,
          ),
        );
  return settled(call, [
    () => throughStatistics(hlo, scaled, y, rstd, [2, 3], true),
    () => hlo.reduce(hlo.multiply(grad, y), 'add', [0, 3]),
    () => hlo.reduce(grad, 'add', [0, 3]),
  ]);
};

/** Results of the batch norms of PyTorch, by operator. */
type BatchField = 'out' | 'mean' | 'rstd' | 'runningMean' | 'runningVar' | 'reserve';

const batchNorm =
  (fields: readonly BatchField[], training: (call: HloCall) => boolean): Lowering =>
  (call) => {
    const { hlo } = call;
    const input = call.tensor('input');
    const x = hlo.convert(input, wide(input.dtype));
    const channels = (v: Val): Val => hlo.broadcastInDim(hlo.convert(v, x.dtype), x.shape, [1]);
    const dims = x.shape.flatMap((_, d) => (d === 1 ? [] : [d]));
    const eps = call.ctx.number('eps');
    const vector = (name: string): Val | undefined => {
      const v = call.optional(name);
      return v === undefined ? undefined : channels(v);
    };
    const train = training(call);
    const none = (): Val => hlo.constant(0, x.dtype, [0]);
    let results: Record<BatchField, () => Val>;
    if (train) {
      const { out, mean, rstd, variance } = normalise(hlo, x, dims, eps);
      const flat = (v: Val): Val => hlo.reshape(v, [x.shape[1]]);
      const momentum = call.ctx.number('momentum');
      const count = product(dims.map((d) => x.shape[d]));
      const moved = (name: string, now: Val): Val => {
        const old = hlo.convert(call.tensor(name), x.dtype);
        return hlo.add(hlo.scaled(old, 1 - momentum), hlo.scaled(now, momentum));
      };
      results = {
        out: () => affine(hlo, out, vector('weight'), vector('bias')),
        mean: () => flat(mean),
        rstd: () => flat(rstd),
        runningMean: () => moved('running_mean', flat(mean)),
        runningVar: () => moved('running_var', hlo.scaled(flat(variance), count / (count - 1))),
        reserve: none,
      };
    } else {
      const [mean, variance] = ['running_mean', 'running_var'].map((name) =>
        channels(call.tensor(name)),
      );
      const rstd = hlo.unary('rsqrt', hlo.add(variance, hlo.like(variance, eps)));
      const out = hlo.multiply(hlo.subtract(x, mean), rstd);
      const same = (name: string) => () => call.tensor(name);
      results = {
        out: () => affine(hlo, out, vector('weight'), vector('bias')),
        mean: none,
        rstd: none,
        runningMean: same('running_mean'),
        runningVar: same('running_var'),
        reserve: none,
      };
    }
    const made = settled(
      call,
      fields.map((field) => results[field]),
    );
    return call.record.results === 'tuple' ? made : (made[0] as Val);
  };

const asked = (call: HloCall): boolean => call.ctx.bool('training');

const batchNormBackward: Lowering = (call) => {
  const { hlo } = call;
  const input = call.tensor('input');
  const x = hlo.convert(input, wide(input.dtype));
  const dims = x.shape.flatMap((_, d) => (d === 1 ? [] : [d]));
  const up = (name: string): Val => hlo.convert(call.tensor(name), x.dtype);
  const channels = (v: Val): Val => hlo.broadcastInDim(v, x.shape, [1]);
  const train = call.ctx.bool('train');
  const grad = up('grad_out');
  const mean = up(train ? 'save_mean' : 'running_mean');
  const inverse = (v: Val): Val =>
    hlo.unary('rsqrt', hlo.add(v, hlo.like(v, call.ctx.number('eps'))));
  const rstd = train ? up('save_invstd') : inverse(up('running_var'));
  const y = hlo.multiply(hlo.subtract(x, channels(mean)), channels(rstd));
  const weight = call.optional('weight');
  const scaled =
    weight === undefined ? grad : hlo.multiply(grad, channels(hlo.convert(weight, x.dtype)));
  const kept = x.shape.map((n, d) => (d === 1 ? n : 1));
  return settled(call, [
    () =>
      train
        ? throughStatistics(hlo, scaled, y, hlo.reshape(rstd, kept), dims, true)
        : hlo.multiply(scaled, channels(rstd)),
    () => hlo.reduce(hlo.multiply(grad, y), 'add', dims),
    () => hlo.reduce(grad, 'add', dims),
  ]);
};

export const normLowerings: Lowerings = {
  'aten.layer_norm.default': layerNorm,
  'aten.native_layer_norm.default': layerNorm,
  'aten.native_layer_norm_backward.default': rowNormBackward(true),
  'aten.rms_norm.default': rmsNorm,
  'aten._fused_rms_norm.default': rmsNorm,
  'aten._fused_rms_norm_backward.default': rowNormBackward(false),
  'aten.group_norm.default': groupNorm,
  'aten.native_group_norm.default': groupNorm,
  'aten.native_group_norm_backward.default': groupNormBackward,
  'aten.batch_norm.default': batchNorm(['out'], asked),
  'aten.native_batch_norm.default': batchNorm(['out', 'mean', 'rstd'], asked),
  'aten._native_batch_norm_legit.default': batchNorm(['out', 'mean', 'rstd'], asked),
  'aten._native_batch_norm_legit.no_stats': batchNorm(['out', 'mean', 'rstd'], asked),
  'aten._native_batch_norm_legit_no_training.default': batchNorm(
    ['out', 'mean', 'rstd'],
    () => false,
  ),
  'aten._native_batch_norm_legit_functional.default': batchNorm(
    ['out', 'mean', 'rstd', 'runningMean', 'runningVar'],
    asked,
  ),
  'aten.native_batch_norm_backward.default': batchNormBackward,
};
