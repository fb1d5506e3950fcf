/**
 * Normalisations of rows and of groups of channels. Rows and groups that are normalised on their
 * own may be cut, and the positions of groups of channels: the ranks combine their statistics. The
 * normalised dims of rows must be whole; a rule with two values per row inside the operator is not
 * offered yet.
 */

import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../../record/record.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../../record/rule.ts';
import { cuttable, need, sameShape, slotsByName } from '../../rules/dims.ts';
import {
  gatheredStatistics,
  named,
  normWork,
  outputsOf,
  pendingAffine,
  pendingGrad,
  pendingWeight,
  statisticType,
  summedStatistics,
  withOwnStatistics,
} from './norm-common.ts';

// ---- layer norm, RMS norm
// -----------------------------------------------------------------------------

/** First normalised dim; the shape must end in `normalized_shape`. */
function normAxis(ctx: OpContext): number {
  const { shape } = need(ctx, 'input');
  const inner = ctx.ints('normalized_shape');
  const axis = shape.length - inner.length;
  if (axis < 0 || inner.length === 0 || !sameShape(shape.slice(axis), inner))
    return ctx.fail(
      `input of shape [${shape.join(', ')}] does not end in normalized_shape [${inner.join(', ')}]`,
    );
  for (const name of ['weight', 'bias']) {
    const meta = ctx.tensor(name);
    if (meta !== undefined && !sameShape(meta.shape, inner))
      ctx.fail(`${name} has shape [${meta.shape.join(', ')}], expected [${inner.join(', ')}]`);
  }
  return axis;
}

function rowStatistic(ctx: OpContext): TensorMeta {
  const { dtype, shape } = need(ctx, 'input');
  const axis = normAxis(ctx);
  return { dtype: statisticType(dtype), shape: shape.map((n, d) => (d < axis ? n : 1)) };
}

/** Rows before the normalised dims are cut: `along` are the inputs that have them. */
function rowRules(
  ctx: TypedContext,
  along: readonly string[],
  results: (cut: RuleSlot) => readonly RuleSlot[],
): Rule[] {
  const axis = normAxis(ctx);
  return cuttable(need(ctx, 'input').shape.slice(0, axis)).map((d) => {
    const cut = S(d, along.length > 1 ? {} : { slicing: 'any' });
    return rule(slotsByName(ctx, named(along, cut)), outputsOf(ctx, results(cut)));
  });
  // The normalised dim itself: `S(last), S(0), S(0)` with an all-reduce of two values per row
  // belongs here.
}

function rowResults(ctx: OpContext, statistics: number): TensorMeta[] {
  const row = rowStatistic(ctx);
  const { dtype, shape } = need(ctx, 'input');
  return [{ dtype, shape }, ...new Array<TensorMeta>(statistics).fill(row)];
}

/** A forward over the last dims with `statistics` further results. */
function rowNorm(name: string, schema: string, statistics: 0 | 1 | 2): OperatorRecord {
  return defineOp(name, {
    schema,
    cls: 'norm',
    results: statistics === 0 ? 'single' : 'tuple',
    infer: (ctx) => rowResults(ctx, statistics),
    variants: (ctx) => withOwnStatistics(ctx, rowResults(ctx, statistics)),
    shard: (ctx) => [
      ...rowRules(ctx, ['input'], (cut) => [cut, cut, cut]),
      ...pendingAffine(ctx, statistics),
    ],
    flops: normWork,
  });
}

/**
 * A backward over the last dims; results are gradients of input, weight and (layer norm) bias, by
 * `output_mask`.
 */
function rowNormBackward(
  name: string,
  schema: string,
  statistics: readonly string[],
  results: 2 | 3,
): OperatorRecord {
  const gradients = (ctx: OpContext): (TensorMeta | null)[] => {
    const input = need(ctx, 'input');
    const mask = ctx.bools('output_mask');
    if (mask.length !== results)
      ctx.fail(`output_mask has ${mask.length} entries, expected ${results}`);
    const weight = ctx.tensor('weight') ?? null;
    const bias = results === 3 ? (ctx.tensor('bias') ?? null) : null;
    return [input, weight, bias].slice(0, results).map((meta, i) => (mask[i] ? meta : null));
  };
  return defineOp(name, {
    schema,
    cls: 'norm',
    results: 'tuple',
    infer: (ctx) => {
      normAxis(ctx);
      const { shape } = need(ctx, 'input');
      const grad = need(ctx, 'grad_out').shape;
      if (!sameShape(grad, shape))
        ctx.fail(`grad_out has shape [${grad.join(', ')}], expected [${shape.join(', ')}]`);
      return gradients(ctx);
    },
    shard: (ctx) => [
      ...rowRules(ctx, ['grad_out', 'input', ...statistics], (cut) => [cut, P(), P()]),
      ...pendingGrad(ctx),
      ...pendingWeight(ctx),
    ],
    flops: normWork,
  });
}

const rowNorms: readonly OperatorRecord[] = [
  rowNorm(
    'aten.native_layer_norm.default',
    'Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps',
    2,
  ),
  rowNormBackward(
    'aten.native_layer_norm_backward.default',
    'Tensor grad_out, Tensor input, int[] normalized_shape, Tensor mean, Tensor rstd, ' +
      'Tensor? weight, Tensor? bias, ' +
      'bool[] output_mask',
    ['mean', 'rstd'],
    3,
  ),
  rowNorm(
    'aten.layer_norm.default',
    'Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float ' +
      'eps=1e-05, ' +
      'bool cudnn_enable=True',
    0,
  ),
  rowNorm(
    'aten._fused_rms_norm.default',
    'Tensor input, int[] normalized_shape, Tensor? weight, float? eps',
    1,
  ),
  rowNormBackward(
    'aten._fused_rms_norm_backward.default',
    'Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight, ' +
      'bool[] output_mask',
    ['rstd'],
    2,
  ),
  rowNorm(
    'aten.rms_norm.default',
    'Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None',
    0,
  ),
];

// ---- group norm
// -----------------------------------------------------------------------------

const BATCH_CUT = S(0, { slicing: 'any' });

/** Dims of positions that can be cut. */
const positions = (shape: readonly number[]): number[] => cuttable(shape).filter((d) => d > 1);

/** Positions cut: mean and variance of every group of channels are of all ranks. */
function positionRules(ctx: TypedContext): Rule[] {
  const groups = (local: TypedContext): number => {
    const [rows, channels] = need(local, 'input').shape;
    return (rows * local.int('group') * channels) / local.int('C');
  };
  return positions(need(ctx, 'input').shape).map((d) => {
    const cut = S(d, { slicing: 'any', filled: true });
    return rule(
      slotsByName(ctx, { input: cut }),
      outputsOf(ctx, [cut, R, R]),
      gatheredStatistics(groups, 10),
    );
  });
}

/** Positions cut: the gradients of weight and bias need the sums of every channel of all ranks. */
function positionGradients(ctx: TypedContext): Rule[] {
  if (ctx.outputs[0] === null) return [];
  const channels = (local: TypedContext): number => {
    const [rows, own] = need(local, 'input').shape;
    return rows * own;
  };
  return positions(need(ctx, 'input').shape).map((d) => {
    const cut = S(d, { filled: true });
    return rule(
      slotsByName(ctx, { grad_out: cut, input: cut }),
      outputsOf(ctx, [cut, R, R]),
      summedStatistics(channels, 12),
    );
  });
}

/**
 * Channels cut in whole groups of `unit`, with the per-channel vectors and the per-group
 * statistics.
 */
function groupCut(unit: number): { channel: RuleSlot; vector: RuleSlot; statistic: RuleSlot } {
  const tie = { even: true, scaled: true } as const;
  return { channel: S(1, { ...tie, unit }), vector: S(0, { ...tie, unit }), statistic: S(1, tie) };
}

/** Batch rows, whole groups of channels, and pending weights. */
function groupRules(
  ctx: TypedContext,
  group: number,
  rewritten: boolean,
  statistics: number,
): Rule[] {
  const { shape } = need(ctx, 'input');
  const rewrite = rewritten ? { rewrite: 'local-shape' } : {};
  const rules: Rule[] = [];
  if (shape[0] > 1)
    rules.push(
      rule(
        slotsByName(ctx, { input: BATCH_CUT }),
        outputsOf(ctx, [BATCH_CUT, BATCH_CUT, BATCH_CUT]),
        rewrite,
      ),
    );
  if (group > 1) {
    const { channel, vector, statistic } = groupCut(shape[1] / group);
    rules.push(
      rule(
        slotsByName(ctx, { input: channel, weight: vector, bias: vector }),
        outputsOf(ctx, [channel, statistic, statistic]),
        { origin: 'ext', rewrite: 'local-shape' },
      ),
    );
  }
  return [...rules, ...pendingAffine(ctx, statistics)];
}

function checkGroups(ctx: OpContext, channels: number, group: number): void {
  if (group <= 0 || channels % group !== 0)
    ctx.fail(`${channels} channels do not divide into ${group} groups`);
}

const nativeGroupNorm = defineOp('aten.native_group_norm.default', {
  schema: 'Tensor input, Tensor? weight, Tensor? bias, int N, int C, int HxW, int group, float eps',
  cls: 'norm',
  results: 'tuple',
  infer: (ctx) => {
    const input = need(ctx, 'input');
    const [n, c, group] = [ctx.int('N'), ctx.int('C'), ctx.int('group')];
    checkGroups(ctx, c, group);
    if (n * c * ctx.int('HxW') !== elements(input.shape))
      ctx.fail(
        `N=${n}, C=${c}, HxW=${ctx.int('HxW')} do not fit an input of shape ` +
          `[${input.shape.join(', ')}]`,
      );
    // Unlike the other norms: 16-bit input keeps 16-bit statistics, unless the weights are f32
    // (ATen `param_scalar_type`).
    const dtype = ctx.tensor('weight')?.dtype ?? ctx.tensor('bias')?.dtype ?? input.dtype;
    const statistic: TensorMeta = {
      dtype: dtype === 'f32' ? 'f32' : input.dtype,
      shape: [n, group],
    };
    return [input, statistic, statistic];
  },
  shard: (ctx) => [...groupRules(ctx, ctx.int('group'), true, 2), ...positionRules(ctx)],
  flops: normWork,
});

const groupNorm = defineOp('aten.group_norm.default', {
  schema:
    'Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, ' +
    'bool cudnn_enabled=True',
  cls: 'norm',
  infer: (ctx) => {
    const input = need(ctx, 'input');
    if (input.shape.length < 2)
      ctx.fail(`input has ${input.shape.length} dims, expected at least 2`);
    checkGroups(ctx, input.shape[1], ctx.int('num_groups'));
    return [input];
  },
  shard: (ctx) => groupRules(ctx, ctx.int('num_groups'), false, 0),
  flops: normWork,
});

/** Results are the gradients of input, weight and bias; `mean` and `rstd` are [batch, groups]. */
const groupNormBackward = defineOp('aten.native_group_norm_backward.default', {
  schema:
    'Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, int N, int C, ' +
    'int HxW, int group, ' +
    'bool[] output_mask',
  cls: 'norm',
  results: 'tuple',
  infer: (ctx) => {
    const input = need(ctx, 'input');
    const [c, group, mask] = [ctx.int('C'), ctx.int('group'), ctx.bools('output_mask')];
    checkGroups(ctx, c, group);
    if (mask.length !== 3) ctx.fail(`output_mask has ${mask.length} entries, expected 3`);
    const vector: TensorMeta = { dtype: input.dtype, shape: [c] };
    return [input, vector, vector].map((meta, i) => (mask[i] ? meta : null));
  },
  shard: (ctx) => {
    const { shape } = need(ctx, 'input');
    const group = ctx.int('group');
    const rules: Rule[] = [];
    if (shape[0] > 1) {
      const inputs = slotsByName(ctx, named(['grad_out', 'input', 'mean', 'rstd'], S(0)));
      rules.push(rule(inputs, outputsOf(ctx, [S(0), P(), P()]), { rewrite: 'local-shape' }));
    }
    if (group > 1) {
      const { channel, vector, statistic } = groupCut(shape[1] / group);
      const inputs = slotsByName(ctx, {
        ...named(['grad_out', 'input'], channel),
        ...named(['mean', 'rstd'], statistic),
        weight: vector,
      });
      rules.push(
        rule(inputs, outputsOf(ctx, [channel, vector, vector]), {
          origin: 'ext',
          rewrite: 'local-shape',
        }),
      );
    }
    return [...rules, ...positionGradients(ctx), ...pendingGrad(ctx), ...pendingWeight(ctx)];
  },
  flops: normWork,
});

export const normOps: readonly OperatorRecord[] = [
  ...rowNorms,
  nativeGroupNorm,
  groupNorm,
  groupNormBackward,
];
