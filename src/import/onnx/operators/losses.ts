/** `NegativeLogLikelihoodLoss` and `SoftmaxCrossEntropyLoss` of ai.onnx. */

import type { Lowering, OnnxCall, OnnxOperand } from '../call.ts';

/** The loss of each target, with classes at dim 1, and its reduction. */
function likelihoodLoss(c: OnnxCall, logarithms: OnnxOperand): OnnxOperand {
  const { dtype } = logarithms.type;
  const weights = c.optional(2);
  const ignored = c.int('ignore_index');
  const target = c.cast(c.input(1), 'i64');
  const isIgnored = ignored === undefined ? undefined : c.op('eq.Scalar', target, ignored);
  const safe = isIgnored === undefined ? target : c.op('masked_fill.Scalar', target, isIgnored, 0);
  const picked = c.op('gather', logarithms, 1, c.op('unsqueeze', safe, 1));
  let loss = c.op('neg', c.op('squeeze.dims', picked, [1]));
  let weight = weights === undefined ? undefined : c.op('index.Tensor', weights, [safe]);
  if (isIgnored !== undefined) {
    weight ??= c.filled(1, dtype, target.type.shape);
    weight = c.op('masked_fill.Scalar', weight, isIgnored, 0);
  }
  if (weight !== undefined) loss = c.op('mul.Tensor', loss, weight);
  const reduction = c.text('reduction', 'mean');
  if (reduction === 'none') return loss;
  if (reduction !== 'mean' || weight === undefined)
    return c.op(reduction === 'sum' ? 'sum' : 'mean', loss);
  return c.op('div.Tensor', c.op('sum', loss), c.op('sum', weight));
}

export const LOSSES: readonly (readonly [string, Lowering])[] = [
  ['NegativeLogLikelihoodLoss', (c) => [likelihoodLoss(c, c.input(0))]],
  [
    'SoftmaxCrossEntropyLoss',
    (c) => {
      const logarithms = c.op('log_softmax.int', c.input(0), 1);
      return [likelihoodLoss(c, logarithms), logarithms];
    },
  ],
];
