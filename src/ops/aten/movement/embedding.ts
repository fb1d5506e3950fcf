/**
 * Lookup tables. A table cut by columns gives cut columns, cut indices give cut results, and a
 * table cut by rows is looked up with masked and shifted indices, each rank giving zeros for the
 * rows of others, so that the results add up.
 */

import { DTYPE_BYTES } from '../../../graph/types.ts';
import { isIntegral } from '../../record/dtypes.ts';
import {
  defineOp,
  elements,
  metaBytes,
  type OpContext,
  type OperatorRecord,
  type TensorMeta,
} from '../../record/record.ts';
import { P, R, type Rule, rule, S } from '../../record/rule.ts';
import { cuttable, linearKinds, movedKinds, need, pendingRules } from '../../rules/dims.ts';

const MASK = { origin: 'ext', rewrite: 'mask' } as const;

function indicesOf(ctx: OpContext): TensorMeta {
  const meta = need(ctx, 'indices');
  return isIntegral(meta.dtype) && meta.dtype !== 'b8'
    ? meta
    : ctx.fail(`indices have dtype ${meta.dtype}, expected integers`);
}

const embedding = defineOp('aten.embedding.default', {
  schema:
    'Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False, bool ' +
    'sparse=False',
  cls: 'other',
  infer: (ctx) => {
    const weight = need(ctx, 'weight');
    if (weight.shape.length !== 2) ctx.fail(`weight has ${weight.shape.length} dims, expected 2`);
    return [{ dtype: weight.dtype, shape: [...indicesOf(ctx).shape, weight.shape[1]] }];
  },
  shard: (ctx) => {
    const weight = need(ctx, 'weight');
    const { shape } = indicesOf(ctx);
    const rules: Rule[] = [];
    if (weight.shape[1] > 1)
      rules.push(rule([S(1, { slicing: 'any' }), R], [S(shape.length, { slicing: 'any' })]));
    for (const d of cuttable(shape))
      rules.push(rule([R, S(d, { slicing: 'any' })], [S(d, { slicing: 'any' })]));
    if (weight.shape[0] > 1) rules.push(rule([S(0, { slicing: 'contiguous' }), R], [P()], MASK));
    rules.push(...pendingRules(2, [0], ['pending'], movedKinds(weight.dtype), 'ext'));
    return rules;
  },
  flops: () => ({ matrix: 0, vector: 0 }),
  // The rows looked up are read, not the table.
  bytes: (ctx) => {
    const indices = need(ctx, 'indices');
    return metaBytes(indices) + 2 * elements(indices.shape) * rowBytes(need(ctx, 'weight'));
  },
});

function rowBytes(weight: TensorMeta): number {
  return weight.shape[1] * DTYPE_BYTES[weight.dtype];
}

const embeddingBackward = defineOp('aten.embedding_dense_backward.default', {
  schema:
    'Tensor grad_output, Tensor indices, int num_weights, int padding_idx, bool scale_grad_by_freq',
  cls: 'other',
  infer: (ctx) => {
    const grad = need(ctx, 'grad_output');
    const { shape } = indicesOf(ctx);
    const fits =
      grad.shape.length === shape.length + 1 && shape.every((n, i) => grad.shape[i] === n);
    if (!fits)
      ctx.fail(
        `grad_output of shape [${grad.shape.join(', ')}] does not fit indices ` +
          `[${shape.join(', ')}]`,
      );
    return [{ dtype: grad.dtype, shape: [ctx.int('num_weights'), grad.shape[shape.length]] }];
  },
  shard: (ctx) => {
    const { dtype, shape } = need(ctx, 'grad_output');
    const last = shape.length - 1;
    const rules: Rule[] = [];
    if (shape[last] > 1)
      rules.push(rule([S(last, { slicing: 'any' }), R], [S(1, { slicing: 'any' })]));
    // Scaling by frequency counts the indices of all ranks, which a rank with some of them cannot.
    if (!ctx.bool('scale_grad_by_freq'))
      for (const d of cuttable(indicesOf(ctx).shape)) rules.push(rule([S(d), S(d)], [P()]));
    rules.push(...pendingRules(2, [0], ['pending'], linearKinds(dtype)));
    if (ctx.int('num_weights') > 1)
      rules.push(rule([R, R], [S(0, { slicing: 'contiguous' })], MASK));
    return rules;
  },
  flops: (ctx) => ({ matrix: 0, vector: elements(need(ctx, 'grad_output').shape) }),
});

const oneHot = defineOp('aten.one_hot.default', {
  schema: 'Tensor self, int num_classes=-1',
  cls: 'other',
  infer: (ctx) => {
    const { dtype, shape } = need(ctx, 'self');
    if (dtype !== 'i64') ctx.fail(`self has dtype ${dtype}, expected i64`);
    const classes = ctx.int('num_classes');
    if (classes < 0)
      ctx.fail(
        'num_classes is found from the values; write it as a number so that the shape is known',
      );
    return [{ dtype: 'i64', shape: [...shape, classes] }];
  },
  shard: (ctx) => {
    const { shape } = need(ctx, 'self');
    const rules = cuttable(shape).map((d) =>
      rule([S(d, { slicing: 'any' })], [S(d, { slicing: 'any' })]),
    );
    if (ctx.int('num_classes') > 1)
      rules.push(rule([R], [S(shape.length, { slicing: 'contiguous' })], MASK));
    return rules;
  },
});

export const embeddingOps: readonly OperatorRecord[] = [embedding, embeddingBackward, oneHot];
