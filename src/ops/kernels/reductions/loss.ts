/** Losses and their gradients. A reduction is 0 none, 1 mean, 2 sum. */

import { flat, fromFlat, full, type NDArray, scalar, sizeOf } from '../../../ndarray/array.ts';
import { map, map2, map3, multiply, scale } from '../../../ndarray/elementwise.ts';
import { reduce, sumOf } from '../../../ndarray/reduce.ts';
import { expand, reshape } from '../../../ndarray/views.ts';
import {
  type Kernel,
  type KernelCall,
  type Kernels,
  one,
  optional,
  tensor,
  valueError,
} from '../../record/kernel.ts';
import { softplusOf } from '../elementwise/unary.ts';
import { logSoftmax } from './softmax.ts';

const MEAN = 1;
const SUM = 2;

function all(x: NDArray): number {
  const data = flat(x);
  return sumOf(data, 0, data.length);
}

function reduced(call: KernelCall, losses: NDArray): NDArray {
  const mode = call.ctx.int('reduction');
  if (mode === MEAN) return scalar(all(losses) / losses.size);
  return mode === SUM ? scalar(all(losses)) : losses;
}

type PairLoss = (x: number, y: number) => number;

/** A loss of pairs of input and target. */
const pairLoss = (f: (call: KernelCall) => PairLoss): Kernel =>
  one((call) => reduced(call, map2(tensor(call, 'self'), tensor(call, 'target'), f(call))));

/** Its gradient: the derivative by the input, over the number of elements for a mean. */
const pairBackward = (f: (call: KernelCall) => PairLoss): Kernel =>
  one((call) => {
    const [x, y] = [tensor(call, 'self'), tensor(call, 'target')];
    const slope = map2(x, y, f(call));
    const factor = call.ctx.int('reduction') === MEAN ? 1 / slope.size : 1;
    return map2(slope, tensor(call, 'grad_output'), (s, g) => s * factor * g);
  });

const smooth = (call: KernelCall): PairLoss => {
  const beta = call.ctx.number('beta');
  return (x, y) => {
    const d = Math.abs(x - y);
    return d < beta ? (0.5 * d * d) / beta : d - 0.5 * beta;
  };
};
const smoothSlope = (call: KernelCall): PairLoss => {
  const beta = call.ctx.number('beta');
  return (x, y) => (x - y <= -beta ? -1 : x - y >= beta ? 1 : (x - y) / beta);
};
const huber = (call: KernelCall): PairLoss => {
  const delta = call.ctx.number('delta');
  return (x, y) => {
    const d = Math.abs(x - y);
    return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
  };
};
const huberSlope = (call: KernelCall): PairLoss => {
  const delta = call.ctx.number('delta');
  return (x, y) => (x - y <= -delta ? -delta : x - y >= delta ? delta : x - y);
};

/** Cross entropy of a probability; logarithms end at -100. */
const entropy: PairLoss = (x, y) =>
  (y - 1) * Math.max(Math.log1p(-x), -100) - y * Math.max(Math.log(x), -100);
const entropySlope: PairLoss = (x, y) => (x - y) / Math.max((1 - x) * x, 1e-12);

function weighted(call: KernelCall, losses: NDArray): NDArray {
  const weight = optional(call, 'weight');
  return weight === undefined ? losses : multiply(losses, weight);
}

const withLogits: Kernel = one((call) => {
  const [x, y] = [tensor(call, 'self'), tensor(call, 'target')];
  const positive = optional(call, 'pos_weight') ?? scalar(1);
  // (1 - y) x + (1 + (w - 1) y) log(1 + exp(-x))
  const losses = map3(
    x,
    y,
    expand(positive, x.shape),
    (u, v, w) => (1 - v) * u + (1 + (w - 1) * v) * softplusOf(-u),
  );
  return reduced(call, weighted(call, losses));
});

// ---- negative log likelihood
// -----------------------------------------------------------------------------

/** Scores as [samples, classes, positions]: the class dim is 1, or the only one. */
interface Likelihood {
  readonly samples: number;
  readonly classes: number;
  readonly positions: number;
  readonly target: Float64Array;
  /** Weight of each target; 0 where it is ignored. */
  readonly weights: Float64Array;
}

function likelihood(call: KernelCall, shape: readonly number[], target: NDArray): Likelihood {
  const [samples, classes] = shape.length === 1 ? [1, shape[0]] : shape;
  const positions = sizeOf(shape.slice(2));
  const ignored = call.ctx.int('ignore_index');
  const weight = optional(call, 'weight');
  const byClass = weight === undefined ? undefined : flat(weight);
  const labels = flat(target);
  const weights = labels.map((label) => {
    if (label === ignored) return 0;
    if (label < 0 || label >= classes)
      return valueError(call, `target ${label} is not among ${classes} classes`);
    return byClass === undefined ? 1 : byClass[label];
  });
  return { samples, classes, positions, target: labels, weights };
}

/** Position of the score of target number `i`. */
function scoreOf(l: Likelihood, i: number): number {
  const sample = Math.floor(i / l.positions);
  return (sample * l.classes + l.target[i]) * l.positions + (i % l.positions);
}

const total = (l: Likelihood): number => sumOf(l.weights, 0, l.weights.length);

function negativeLogLikelihood(
  call: KernelCall,
  scores: NDArray,
  target: NDArray,
): [NDArray, NDArray] {
  const l = likelihood(call, scores.shape, target);
  const data = flat(scores);
  const losses = fromFlat(
    target.shape,
    l.weights.map((w, i) => (w === 0 ? 0 : -w * data[scoreOf(l, i)])),
  );
  const mode = call.ctx.int('reduction');
  if (mode === MEAN) return [scalar(all(losses) / total(l)), scalar(total(l))];
  return mode === SUM ? [scalar(all(losses)), scalar(total(l))] : [losses, scalar(0)];
}

const nllForward: Kernel = (call) =>
  negativeLogLikelihood(call, tensor(call, 'self'), tensor(call, 'target'));

const nllBackward: Kernel = one((call) => {
  const [scores, target] = [tensor(call, 'self'), tensor(call, 'target')];
  const l = likelihood(call, scores.shape, target);
  const divisor = call.ctx.int('reduction') === MEAN ? tensor(call, 'total_weight').item() : 1;
  const grad = flat(expand(tensor(call, 'grad_output'), target.shape));
  const out = new Float64Array(scores.size);
  l.weights.forEach((w, i) => {
    if (w !== 0) out[scoreOf(l, i)] = (-w * grad[i]) / divisor;
  });
  return fromFlat(scores.shape, out);
});

/**
 * Log-softmax over the classes, then the likelihood of a class or the mean under given
 * probabilities.
 */
const crossEntropy: Kernel = one((call) => {
  const { ctx } = call;
  const [x, target] = [tensor(call, 'self'), tensor(call, 'target')];
  const classDim = x.rank === 1 ? 0 : 1;
  const scores = logSoftmax(x, classDim);
  const smoothing = ctx.number('label_smoothing');
  const classes = x.shape[classDim];
  const weight = optional(call, 'weight');
  const alongClasses = x.shape.map((_, d) => (d === classDim ? classes : 1));
  const factors = weight === undefined ? full(alongClasses, 1) : reshape(weight, alongClasses);
  if (target.kind === 'float') {
    const smoothed = map(target, (p) => p * (1 - smoothing) + smoothing / classes);
    const terms = map3(scores, smoothed, expand(factors, x.shape), (s, p, w) => -s * p * w);
    const losses = reduce(terms, [classDim], false, sumOf);
    const mode = ctx.int('reduction');
    if (mode === MEAN) return scalar(all(losses) / (x.size / classes));
    return mode === SUM ? scalar(all(losses)) : losses;
  }
  const [plain] = negativeLogLikelihood(call, scores, target);
  if (smoothing === 0) return plain;
  const l = likelihood(call, scores.shape, target);
  const spread = reduce(multiply(scores, factors), [classDim], false, (d, s, e) => -sumOf(d, s, e));
  const kept = map2(
    spread,
    fromFlat(
      target.shape,
      l.weights.map((_, i) => (l.target[i] === ctx.int('ignore_index') ? 0 : 1)),
    ),
    (s, k) => (k === 0 ? 0 : s),
  );
  const mode = ctx.int('reduction');
  const other =
    mode === MEAN ? scalar(all(kept) / total(l)) : mode === SUM ? scalar(all(kept)) : kept;
  return map2(scale(plain, 1 - smoothing), scale(other, smoothing / classes), (a, b) => a + b);
});

export const lossKernels: Kernels = {
  'aten.nll_loss_forward.default': nllForward,
  'aten.nll_loss2d_forward.default': nllForward,
  'aten.nll_loss_backward.default': nllBackward,
  'aten.nll_loss2d_backward.default': nllBackward,
  'aten.cross_entropy_loss.default': crossEntropy,
  'aten.mse_loss.default': pairLoss(() => (x, y) => (x - y) ** 2),
  'aten.l1_loss.default': pairLoss(() => (x, y) => Math.abs(x - y)),
  'aten.smooth_l1_loss.default': pairLoss(smooth),
  'aten.huber_loss.default': pairLoss(huber),
  'aten.binary_cross_entropy.default': one((call) =>
    reduced(call, weighted(call, map2(tensor(call, 'self'), tensor(call, 'target'), entropy))),
  ),
  'aten.binary_cross_entropy_with_logits.default': withLogits,
  'aten.mse_loss_backward.default': pairBackward(() => (x, y) => 2 * (x - y)),
  'aten.smooth_l1_loss_backward.default': pairBackward(smoothSlope),
  'aten.huber_loss_backward.default': pairBackward(huberSlope),
  'aten.binary_cross_entropy_backward.default': one((call) => {
    const slope = weighted(call, map2(tensor(call, 'self'), tensor(call, 'target'), entropySlope));
    const factor = call.ctx.int('reduction') === MEAN ? 1 / slope.size : 1;
    return map2(slope, tensor(call, 'grad_output'), (s, g) => s * g * factor);
  }),
};
