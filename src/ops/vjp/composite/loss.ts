/** Decomposes cross entropy into the logarithm of the softmax and the negative log likelihood. */

import type { ValueRef } from '../../../graph/types.ts';
import { product } from '../../../product.ts';
import { isFloating } from '../../record/dtypes.ts';
import { literal } from '../build.ts';
import type { VjpCall } from '../vjp.ts';

const NONE = 0;
const MEAN = 1;

/**
 * Cross entropy: the logarithm of the softmax, then the negative log likelihood of the target
 * classes or probabilities.
 */
export function crossEntropy(c: VjpCall): ValueRef {
  const { b } = c;
  const rank = c.shape('self').length;
  const classes = rank === 1 ? 0 : 1;
  const logs = b.call('aten._log_softmax.default', [c.x('self'), classes, false]);
  const smoothing = c.ctx.number('label_smoothing');
  if (isFloating(b.dtype(c.x('target')))) return likelihood(c, logs, classes, smoothing);
  const hard = negativeLog(c, logs);
  if (smoothing === 0) return hard;
  const share = smoothing / b.shape(logs)[classes];
  return b.add(b.mul(hard, 1 - smoothing), b.mul(smoothLoss(c, logs, classes), share));
}

/** Batches of more than one position have a form of their own, with two spatial dims. */
function negativeLog(c: VjpCall, logs: ValueRef): ValueRef {
  const { b } = c;
  const settings = [c.optional('weight'), c.ctx.int('reduction'), c.ctx.int('ignore_index')];
  const shape = b.shape(logs);
  const target = c.x('target');
  if (shape.length <= 2)
    return b.item(b.call('aten.nll_loss_forward.default', [logs, target, ...settings]), 0);
  const [batch, classes, ...places] = shape;
  const spatial = places.length === 2 ? places : [1, product(places)];
  const loss = b.item(
    b.call('aten.nll_loss2d_forward.default', [
      b.reshape(logs, [batch, classes, ...spatial]),
      b.reshape(target, [batch, ...spatial]),
      ...settings,
    ]),
    0,
  );
  return c.ctx.int('reduction') === NONE ? b.reshape(loss, b.shape(target)) : loss;
}

/** The weights of the classes, with size 1 on every other dim. */
function classWeights(c: VjpCall, classes: number): ValueRef | null {
  const weight = c.optional('weight');
  if (weight === null) return null;
  const shape = c.shape('self').map((_, d) => (d === classes ? -1 : 1));
  return c.b.call('aten.view.default', [weight, shape]);
}

/**
 * The part of label smoothing: minus the sum of the logarithms of all classes, where the target
 * counts.
 */
function smoothLoss(c: VjpCall, logs: ValueRef, classes: number): ValueRef {
  const { b } = c;
  const weight = classWeights(c, classes);
  const target = c.x('target');
  const all = b.neg(b.sum(weight === null ? logs : b.mul(logs, weight), [classes]));
  const ignored = b.call('aten.eq.Scalar', [target, c.ctx.int('ignore_index')]);
  const counted = b.call('aten.masked_fill.Scalar', [all, ignored, literal(0)]);
  const reduction = c.ctx.int('reduction');
  if (reduction === NONE) return counted;
  const total = b.call('aten.sum.default', [counted]);
  if (reduction !== MEAN) return total;
  const kept = b.unary('logical_not', ignored);
  if (weight === null)
    return b.div(total, b.call('aten.sum.default', [b.cast(kept, b.dtype(logs))]));
  // The mean is over the weights of the targets; an ignored one is given class 0 and counts
  // nothing.
  const own = b.call('aten.masked_fill.Scalar', [target, ignored, 0]);
  const picked = b.call('aten.index.Tensor', [c.x('weight'), [own]]);
  return b.div(total, b.call('aten.sum.default', [b.zeroed(picked, ignored)]));
}

/**
 * Targets that are probabilities: minus their mean logarithm; the mean is over the batch and its
 * places.
 */
function likelihood(c: VjpCall, logs: ValueRef, classes: number, smoothing: number): ValueRef {
  const { b } = c;
  const shape = b.shape(logs);
  const given = c.x('target');
  const target =
    smoothing === 0 ? given : b.add(b.mul(given, 1 - smoothing), smoothing / shape[classes]);
  const weight = classWeights(c, classes);
  const terms = b.mul(weight === null ? logs : b.mul(logs, weight), target);
  const reduction = c.ctx.int('reduction');
  if (reduction === NONE) return b.neg(b.sum(terms, [classes]));
  const total = b.neg(b.call('aten.sum.default', [terms]));
  return reduction === MEAN
    ? b.div(
        total,
        shape.reduce((n, d, i) => (i === classes ? n : n * d), 1),
      )
    : total;
}
