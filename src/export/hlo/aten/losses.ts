/**
 * Lowers the losses of ATen and their gradients to HLO. A reduction is 0 none, 1 mean, 2 sum. The
 * score of a label is picked by comparing class numbers, so that no gather is needed.
 */
import { elements } from '../../../ops/record/record.ts';
import type { HloCall, Lowering, Lowerings } from '../call.ts';
import type { HloCode, Val } from '../code.ts';
import { allDims, logSoftmaxOf, wide } from './reductions.ts';

const MEAN = 1;
const SUM = 2;

function reduced(call: HloCall, losses: Val): Val {
  const { hlo } = call;
  const mode = call.ctx.int('reduction');
  if (mode !== MEAN && mode !== SUM) return losses;
  const total = hlo.reduce(losses, 'add', allDims(losses));
  const count = elements(losses.shape);
  return mode === SUM ? total : hlo.divide(total, hlo.like(total, count));
}

interface Labels {
  readonly classDim: number;
  /** True where a class is the label, in the shape of the scores. */
  readonly isLabel: Val;
  /** Weight of each label, 0 where it is ignored, in the shape of the target. */
  readonly weights: Val;
}

/** Scores are [samples, classes, ..], or the classes alone. */
function labelsOf(call: HloCall, scores: Val, target: Val): Labels {
  const { hlo } = call;
  const classDim = scores.shape.length === 1 ? 0 : 1;
  const others = scores.shape.map((_, d) => d).filter((d) => d !== classDim);
  const wideTarget = hlo.broadcastInDim(
    target,
    scores.shape,
    target.shape.length === 0 ? [] : others,
  );
  const isLabel = hlo.compare('EQ', wideTarget, hlo.iota(target.dtype, scores.shape, classDim));
  const ignored = call.filled('ignore_index', target.dtype, target.shape);
  const counts = hlo.compare('NE', target, ignored);
  const given = call.optional('weight');
  const one = hlo.constant(1, scores.dtype, target.shape);
  const byClass =
    given === undefined
      ? one
      : picked(
          hlo,
          hlo.broadcastInDim(hlo.convert(given, scores.dtype), scores.shape, [classDim]),
          isLabel,
          classDim,
        );
  return { classDim, isLabel, weights: hlo.select(counts, byClass, hlo.like(one, 0)) };
}

/** The values at the labels, without the class dim. */
function picked(hlo: HloCode, x: Val, isLabel: Val, classDim: number): Val {
  return hlo.reduce(hlo.select(isLabel, x, hlo.like(x, 0)), 'add', [classDim]);
}

function likelihood(call: HloCall, scores: Val, target: Val): [loss: Val, total: Val] {
  const { hlo } = call;
  const { classDim, isLabel, weights } = labelsOf(call, scores, target);
  const own = picked(hlo, scores, isLabel, classDim);
  const zero = hlo.like(weights, 0);
  const losses = hlo.select(
    hlo.compare('EQ', weights, zero),
    zero,
    hlo.unary('negate', hlo.multiply(weights, own)),
  );
  const all = (x: Val): Val => hlo.reduce(x, 'add', allDims(x));
  const mode = call.ctx.int('reduction');
  if (mode === MEAN) return [hlo.divide(all(losses), all(weights)), all(weights)];
  return mode === SUM ? [all(losses), all(weights)] : [losses, hlo.constant(0, scores.dtype)];
}

const nll: Lowering = (call) => {
  const { hlo } = call;
  const scores = call.tensor('self');
  const made = likelihood(call, hlo.convert(scores, wide(scores.dtype)), call.tensor('target'));
  return call.ctx.outputs.map((meta, k) =>
    meta === null ? null : hlo.convert(made[k], meta.dtype),
  );
};

const nllBackward: Lowering = (call) => {
  const { hlo } = call;
  const { dtype } = call.out();
  const scores = hlo.convert(call.tensor('self'), wide(dtype));
  const target = call.tensor('target');
  const { classDim, isLabel, weights } = labelsOf(call, scores, target);
  let grad = hlo.broadcast(hlo.convert(call.tensor('grad_output'), scores.dtype), target.shape);
  if (call.ctx.int('reduction') === MEAN) {
    const total = hlo.broadcast(
      hlo.convert(call.tensor('total_weight'), scores.dtype),
      target.shape,
    );
    grad = hlo.divide(grad, total);
  }
  const zero = hlo.like(weights, 0);
  const slope = hlo.select(
    hlo.compare('EQ', weights, zero),
    zero,
    hlo.unary('negate', hlo.multiply(weights, grad)),
  );
  const others = scores.shape.map((_, d) => d).filter((d) => d !== classDim);
  const spread = hlo.broadcastInDim(slope, scores.shape, others);
  return hlo.convert(hlo.select(isLabel, spread, hlo.like(spread, 0)), dtype);
};

const crossEntropy: Lowering = (call) => {
  const { hlo } = call;
  const { dtype } = call.out();
  const given = call.tensor('self');
  const x = hlo.convert(given, wide(given.dtype));
  const classDim = x.shape.length === 1 ? 0 : 1;
  const target = call.tensor('target');
  const scores = logSoftmaxOf(hlo, x, classDim);
  const smoothing = call.ctx.number('label_smoothing');
  const classes = x.shape[classDim];
  if (
    target.dtype === 'f32' ||
    target.dtype === 'f64' ||
    target.dtype === 'bf16' ||
    target.dtype === 'f16'
  ) {
    if (call.optional('weight') !== undefined)
      return call.unsupported('with class weights and probabilities');
    const wanted = hlo.scaled(hlo.convert(target, x.dtype), 1 - smoothing);
    const smooth = hlo.add(wanted, hlo.like(wanted, smoothing / classes));
    const losses = hlo.unary('negate', hlo.reduce(hlo.multiply(scores, smooth), 'add', [classDim]));
    return hlo.convert(reduced(call, losses), dtype);
  }
  const [plain, total] = likelihood(call, scores, target);
  if (smoothing === 0) return hlo.convert(plain, dtype);
  if (call.optional('weight') !== undefined)
    return call.unsupported('with class weights and label smoothing');
  const { weights } = labelsOf(call, scores, target);
  const spread = hlo.multiply(hlo.unary('negate', hlo.reduce(scores, 'add', [classDim])), weights);
  const mode = call.ctx.int('reduction');
  const sum = hlo.reduce(spread, 'add', allDims(spread));
  const other = mode === MEAN ? hlo.divide(sum, total) : mode === SUM ? sum : spread;
  return hlo.convert(
    hlo.add(hlo.scaled(plain, 1 - smoothing), hlo.scaled(other, smoothing / classes)),
    dtype,
  );
};

/** A loss of pairs, and its slope by the input. */
const pairLoss =
  (f: (hlo: HloCode, x: Val, y: Val) => Val): Lowering =>
  (call) => {
    const { hlo } = call;
    const [x, y] = [
      hlo.convert(call.tensor('self'), call.out().dtype),
      hlo.convert(call.tensor('target'), call.out().dtype),
    ];
    return reduced(call, f(hlo, x, y));
  };

const pairBackward =
  (f: (hlo: HloCode, x: Val, y: Val) => Val): Lowering =>
  (call) => {
    const { hlo } = call;
    const { dtype, shape } = call.out();
    const [x, y, g] = ['self', 'target', 'grad_output'].map((name) =>
      call.operand(name, dtype, shape),
    );
    const slope = f(hlo, x, y);
    const factor = call.ctx.int('reduction') === MEAN ? 1 / elements(shape) : 1;
    return hlo.multiply(hlo.scaled(slope, factor), g);
  };

export const lossLowerings: Lowerings = {
  'aten.nll_loss_forward.default': nll,
  'aten.nll_loss2d_forward.default': nll,
  'aten.nll_loss_backward.default': nllBackward,
  'aten.nll_loss2d_backward.default': nllBackward,
  'aten.cross_entropy_loss.default': crossEntropy,
  'aten.mse_loss.default': pairLoss((hlo, x, y) => {
    const away = hlo.subtract(x, y);
    return hlo.multiply(away, away);
  }),
  'aten.l1_loss.default': pairLoss((hlo, x, y) => hlo.unary('abs', hlo.subtract(x, y))),
  'aten.mse_loss_backward.default': pairBackward((hlo, x, y) => hlo.scaled(hlo.subtract(x, y), 2)),
};
