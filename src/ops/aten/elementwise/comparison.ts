/**
 * The plan of an equality: it compares two tensors part by part on every rank and joins the answers
 * into one truth value.
 */

import { build, flat } from '../../../ndarray/array.ts';
import { one, tensor } from '../../record/kernel.ts';
import { defineOp, elements, type OpContext, type OperatorRecord } from '../../record/record.ts';
import { P, R, rule, S } from '../../record/rule.ts';
import { cuttable, need, sameShape } from '../../rules/dims.ts';

const sizesAgree = (ctx: OpContext): boolean =>
  sameShape(need(ctx, 'self').shape, need(ctx, 'other').shape);

const equal = defineOp('aten.equal.default', {
  schema: 'Tensor self, Tensor other',
  cls: 'reduction',
  infer: () => [{ dtype: 'b8', shape: [] }],
  // For unequal sizes the answer is no, which no rank could tell from its parts.
  shard: (ctx) =>
    sizesAgree(ctx)
      ? cuttable(ctx.inputs[0].shape).map((d) => rule([S(d), S(d)], [P('band')]))
      : [],
  flops: (ctx) => ({ matrix: 0, vector: elements(ctx.inputs[0].shape) }),
  kernel: one((call) => {
    const [a, b] = [tensor(call, 'self'), tensor(call, 'other')];
    const other = flat(b);
    const same = sameShape(a.shape, b.shape) && flat(a).every((v, i) => v === other[i]);
    return build([], () => (same ? 1 : 0), 'b8');
  }),
});

/** Only sizes are read: parts that are cut the same way compare as the whole does. */
const isSameSize = defineOp('aten.is_same_size.default', {
  schema: 'Tensor self, Tensor other',
  cls: 'reduction',
  infer: () => [{ dtype: 'b8', shape: [] }],
  shard: (ctx) =>
    sizesAgree(ctx) ? cuttable(ctx.inputs[0].shape).map((d) => rule([S(d), S(d)], [R])) : [],
  flops: () => ({ matrix: 0, vector: 0 }),
  bytes: () => 0,
  kernel: one((call) =>
    build(
      [],
      () => (sameShape(tensor(call, 'self').shape, tensor(call, 'other').shape) ? 1 : 0),
      'b8',
    ),
  ),
});

export const comparisonOps: readonly OperatorRecord[] = [equal, isSameSize];

export const comparisonSamples: readonly string[] = [
  // Few elements: equal in a good part of the draws.
  'equal(bits[2], bits[2])',
  'equal(bits[3,1], bits[3,1])',
  'equal(x[6,5], x[5,6])',
  'is_same_size(x[6,5], x[6,5])',
  'is_same_size(x[6,5], x[5,6])',
];
