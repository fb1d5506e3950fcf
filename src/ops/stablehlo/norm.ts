/**
 * Batch normalisation: each feature is its own problem. In training its statistics run over all
 * other dims, which stay whole.
 */

import {
  defineOp,
  elements,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
  type TypedContext,
} from '../record/record.ts';
import { R, type Rule, rule, type RuleSlot, S } from '../record/rule.ts';
import { cuttable, need } from '../rules/dims.ts';

const x = (ctx: OpContext): TensorMeta => need(ctx, 'operand');
const FLAGS = '*, float epsilon, int feature_index';

function feature(ctx: OpContext): number {
  const dim = ctx.int('feature_index');
  return dim in x(ctx).shape
    ? dim
    : ctx.fail(`dim ${dim} does not exist in a tensor of ${x(ctx).shape.length} dims`);
}

/** The statistics are vectors over the features. */
function perFeature(ctx: OpContext): TensorMeta {
  return { dtype: x(ctx).dtype, shape: [x(ctx).shape[feature(ctx)]] };
}

/**
 * Cut by features: tensors of the operand's rank on their feature dim, vectors on their only one.
 */
function featureRule(ctx: TypedContext): Rule[] {
  const dim = feature(ctx);
  if (x(ctx).shape[dim] <= 1) return [];
  const slot = (meta: TensorMeta | null): RuleSlot =>
    S(meta !== null && meta.shape.length > 1 ? dim : 0);
  return [rule(ctx.inputs.map(slot), ctx.outputs.map(slot))];
}

const work = (ctx: TypedContext) => ({ matrix: 0, vector: 8 * elements(ctx.inputs[0].shape) });

export const normOps: readonly OperatorRecord[] = [
  defineOp('stablehlo.batch_norm_training', {
    schema: `Tensor operand, Tensor scale, Tensor offset, ${FLAGS}`,
    cls: 'norm',
    results: 'tuple',
    infer: (ctx) => [x(ctx), perFeature(ctx), perFeature(ctx)],
    shard: featureRule,
    flops: work,
  }),
  defineOp('stablehlo.batch_norm_inference', {
    schema: `Tensor operand, Tensor scale, Tensor offset, Tensor mean, Tensor variance, ${FLAGS}`,
    cls: 'norm',
    infer: (ctx) => {
      feature(ctx);
      return [x(ctx)];
    },
    shard: (ctx) => [
      ...featureRule(ctx),
      // The statistics are given: every other dim is elementwise.
      ...cuttable(x(ctx).shape)
        .filter((d) => d !== feature(ctx))
        .map((d) => rule([S(d), R, R, R, R], [S(d)])),
    ],
    flops: work,
  }),
  defineOp('stablehlo.batch_norm_grad', {
    schema:
      'Tensor operand, Tensor scale, Tensor mean, Tensor variance, Tensor grad_output, ' + FLAGS,
    cls: 'norm',
    results: 'tuple',
    infer: (ctx) => [x(ctx), perFeature(ctx), perFeature(ctx)],
    shard: featureRule,
    flops: work,
  }),
];
