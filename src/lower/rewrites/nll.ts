/**
 * Rewrites the negative log likelihood with cut batch or classes, alone and inside of cross
 * entropy. A target whose class is another rank's counts as ignored here and in full there; the
 * total weight of all targets, by which a mean divides, is summed over the ranks that have
 * different targets.
 */
import type { Arg } from '../../graph/types.ts';
import { ref } from '../../graph/value.ts';
import { product } from '../../product.ts';
import type { LocalCall, Rewrite, Rewrites } from '../local-call.ts';
import { combine, plus, type RankInt } from '../program/rank-int.ts';
import { ownRows } from './masked.ts';
import { dividedBy } from './reduction.ts';
import { cast, reducedOver, rowStatistics } from './softmax.ts';

const NONE = 0;
const MEAN = 1;
const SUM = 2;
/** Marks targets that a local call leaves out. */
const IGNORED = -100;

function classDim(call: LocalCall): number {
  return call.global.inputs[call.global.indexOf('self')].shape.length === 1 ? 0 : 1;
}

interface LocalTargets {
  /**
   * Classes counted from the rank's first one; `IGNORED` where another rank or nobody counts the
   * target.
   */
  readonly target: string;
  readonly weight: Arg;
  /** True where the target counts for nobody. */
  readonly ignored: string;
}

/** Targets and class weights as the rank's own classes see them. */
function localTargets(call: LocalCall): LocalTargets {
  const { emit } = call;
  const target = call.tensor('target');
  const weight = call.optional('weight');
  const classes = call.inputPiece('self', classDim(call));
  const ignored = ignoredTargets(call);
  // Before the shift: whatever marks an ignored target may look like a class after it.
  const marked = emit.call('aten.masked_fill.Scalar', [ref(target), ref(ignored), -1]);
  const { rows } = ownRows(emit, marked, classes, IGNORED);
  const own = emit.call('aten.masked_fill.Scalar', [ref(rows), ref(ignored), IGNORED]);
  if (weight === undefined) return { target: own, weight: null, ignored };
  const end = plus(classes.start, classes.rows);
  const part = emit.call('aten.slice.Tensor', [
    ref(weight),
    0,
    emit.int(classes.start),
    emit.int(end),
  ]);
  return { target: own, weight: ref(part), ignored };
}

function ignoredTargets(call: LocalCall): string {
  return call.emit.call('aten.eq.Scalar', [
    ref(call.tensor('target')),
    call.global.int('ignore_index'),
  ]);
}

/** Total weight of the rank's targets, whatever rank has their class. */
function targetWeight(call: LocalCall, ignored: string): string {
  const { emit } = call;
  const dtype = call.global.inputs[call.global.indexOf('self')].dtype;
  const weight = call.optional('weight');
  const counts = emit.call('aten.logical_not.default', [ref(ignored)]);
  if (weight === undefined)
    return emit.call('aten.sum.default', [ref(counts)], {
      kwargs: { dtype: { kind: 'dtype', dtype } },
    });
  // An ignored target may not be a class at all.
  const classes = emit.call('aten.masked_fill.Scalar', [
    ref(call.tensor('target')),
    ref(ignored),
    0,
  ]);
  const looked = emit.call('aten.index.Tensor', [ref(weight), [ref(classes)]]);
  const kept = emit.call('aten.masked_fill.Scalar', [ref(looked), ref(ignored), 0]);
  return emit.call('aten.sum.default', [ref(kept)]);
}

/**
 * Reductions of the total weight that the rules hold, and of the loss with it, each a collective of
 * its own.
 */
function totals(call: LocalCall, loss: string, weight: string): { loss: string; weight: string } {
  const { emit } = call;
  let now = { loss, weight };
  call.rules.forEach((r, m) => {
    if (r?.rewrite === 'global-count')
      now = { ...now, weight: reducedOver(call, now.weight, 'sum', [m]) };
    if (r?.rewrite !== 'all-reduce-loss') return;
    const pair = emit.call('aten.stack.default', [[ref(now.loss), ref(now.weight)]]);
    const both = reducedOver(call, pair, 'sum', [m]);
    const [l, w] = emit.callTuple('aten.unbind.int', [ref(both)]);
    if (l !== null && w !== null) now = { loss: l, weight: w };
  });
  return now;
}

const forward: Rewrite = (call) => {
  const { emit, global } = call;
  const mode = global.int('reduction');
  const cutClasses = call.meshDims('mask').length > 0;
  const targets = cutClasses ? localTargets(call) : undefined;
  const replaced: Record<string, Arg> = { reduction: mode === NONE ? NONE : SUM };
  if (targets !== undefined) {
    replaced.target = ref(targets.target);
    replaced.weight = targets.weight;
    replaced.ignore_index = IGNORED;
  }
  const [sum, own] = call.run(replaced, false);
  if (sum === null || own === null) return call.unsupported('it has no loss');
  if (mode === NONE) return [sum, own];
  const weight = targets === undefined ? own : targetWeight(call, targets.ignored);
  const all = totals(call, sum, weight);
  if (mode === SUM) return [all.loss, all.weight];
  return [emit.call('aten.div.Tensor', [ref(all.loss), ref(all.weight)]), all.weight];
};

const backward: Rewrite = (call) => {
  const { target, weight } = localTargets(call);
  return call.run({ target: ref(target), weight, ignore_index: IGNORED });
};

/**
 * The loss of logarithms. PyTorch has it for rows and for images; other shapes take the form of an
 * image that is one place wide.
 */
function likelihood(
  call: LocalCall,
  logs: string,
  { target, weight }: LocalTargets,
  reduction: number,
): string {
  const { emit } = call;
  const { shape } = emit.type(logs);
  const settings = [weight, reduction, IGNORED];
  const lossOf = (form: string, scores: string, classes: string): string =>
    emit.callTuple(`aten.${form}.default`, [ref(scores), ref(classes), ...settings])[0] ??
    call.unsupported('it has no loss');
  if (shape.length <= 2) return lossOf('nll_loss_forward', logs, target);
  if (shape.length === 4) return lossOf('nll_loss2d_forward', logs, target);
  const [batch, classes, ...places] = shape;
  const image = [combine(places, 'places', (...sizes) => product(sizes)), 1];
  const shaped = (value: string, sizes: readonly RankInt[]): string =>
    emit.call('aten.reshape.default', [ref(value), emit.ints(sizes)]);
  const scores = shaped(logs, [batch, classes, ...image]);
  const loss = lossOf('nll_loss2d_forward', scores, shaped(target, [batch, ...image]));
  return reduction === NONE ? shaped(loss, [batch, ...places]) : loss;
}

/**
 * Cross entropy: the logarithm of the softmax with the classes cut, then the likelihood of the own
 * classes.
 */
const crossEntropy: Rewrite = (call) => {
  const { emit, global } = call;
  const mode = global.int('reduction');
  const target = global.inputs[global.indexOf('target')];
  if (target.dtype !== 'i64') {
    // Probabilities: a mean divides by the number of rows, which is known.
    const shape = global.inputs[global.indexOf('self')].shape;
    const rows = shape.reduce((n, size, d) => (d === classDim(call) ? n : n * size), 1);
    const sum = call.runOne({ reduction: SUM }, false);
    return [dividedBy(call, sum, rows)];
  }
  const vocabulary = call.meshDims('vocabulary-parallel');
  let loss: string;
  let ignored: string;
  if (vocabulary.length === 0) {
    loss = call.runOne({ reduction: mode === NONE ? NONE : SUM }, false);
    ignored = ignoredTargets(call);
  } else {
    const targets = localTargets(call);
    ignored = targets.ignored;
    const statistics = rowStatistics(call, call.tensor('self'), classDim(call), vocabulary);
    const log = emit.call('aten.log.default', [ref(statistics.total)]);
    const scores = emit.call('aten.sub.Tensor', [ref(statistics.shifted), ref(log)]);
    const narrow = cast(call, scores, global.inputs[global.indexOf('self')].dtype);
    loss = likelihood(call, narrow, targets, mode === NONE ? NONE : SUM);
  }
  if (mode !== MEAN) return [loss];
  const all = totals(call, loss, targetWeight(call, ignored));
  return [emit.call('aten.div.Tensor', [ref(all.loss), ref(all.weight)], { name: call.node.name })];
};

export const nllRewrites: Rewrites = {
  'aten.nll_loss_forward.default': forward,
  'aten.nll_loss2d_forward.default': forward,
  'aten.nll_loss_backward.default': backward,
  'aten.nll_loss2d_backward.default': backward,
  'aten.cross_entropy_loss.default': crossEntropy,
};
