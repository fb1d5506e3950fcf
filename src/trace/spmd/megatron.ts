/**
 * The communication functions of Megatron-LM's tensor parallelism as typed verbs, under Megatron's
 * names. Each forward and backward there is one verb and its transpose here, so a forgotten one is
 * a type error and no wrong gradient. Source: Megatron-LM, `core/tensor_parallel/mappings.py`.
 *
 * @module
 */
import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import { needTensor } from '../tensor/core.ts';
import type { Tensor } from '../tensor/tensor.ts';
import {
  allGather,
  allReduce,
  allToAll,
  axisIndex,
  convert,
  outPartial,
  reduceScatter,
} from './verbs.ts';

const last = (x: Tensor): `S(${number})` =>
  `S(${needTensor(x, 'the operand of a Megatron function').rank - 1})`;

/** f: identity forward, all_reduce of the gradient. I to R. */
export function copyToTensorModelParallelRegion(x: Tensor, axis = 'tp'): Tensor {
  return convert(x, axis, { src: 'I', dst: 'R' });
}

/** g: all_reduce forward, identity of the gradient. P to I. */
export function reduceFromTensorModelParallelRegion(x: Tensor, axis = 'tp'): Tensor {
  return allReduce(x, axis, { src: 'P', dst: 'I' });
}

/** The own piece of the last dim; its gradient is gathered. I to S(-1). */
export function scatterToTensorModelParallelRegion(x: Tensor, axis = 'tp'): Tensor {
  return convert(x, axis, { src: 'I', dst: last(x) });
}

/** All pieces of the last dim; its gradient is sliced. S(-1) to I. */
export function gatherFromTensorModelParallelRegion(x: Tensor, axis = 'tp'): Tensor {
  return allGather(x, axis, { src: last(x), dst: 'I' });
}

/** The own piece of dim 0, the sequence. I to S(0). */
export function scatterToSequenceParallelRegion(x: Tensor, axis = 'tp'): Tensor {
  return convert(x, axis, { src: 'I', dst: 'S(0)' });
}

/**
 * The whole sequence. With `tensorParallelOutputGrad` (default) different work follows, so the
 * gradient is reduce-scattered (S(0) to R); without, duplicated work follows and it is sliced (S(0)
 * to I).
 */
export function gatherFromSequenceParallelRegion(
  x: Tensor,
  axis = 'tp',
  options: { readonly tensorParallelOutputGrad?: boolean } = {},
): Tensor {
  checkKinds('gatherFromSequenceParallelRegion', { options: [options, 'record'] });
  const { tensorParallelOutputGrad = true } = options;
  return allGather(x, axis, { src: 'S(0)', dst: tensorParallelOutputGrad ? 'R' : 'I' });
}

/** The own piece of the summed sequence; its gradient is gathered. P to S(0). */
export function reduceScatterToSequenceParallelRegion(x: Tensor, axis = 'tp'): Tensor {
  return reduceScatter(x, axis, { src: 'P', dst: 'S(0)' });
}

/**
 * All pieces of the last dim for work that differs; its gradient is reduce-scattered. S(-1) to R.
 */
export function allGatherLastDimFromTensorParallelRegion(x: Tensor, axis = 'tp'): Tensor {
  return allGather(x, axis, { src: last(x), dst: 'R' });
}

/** The own piece of the summed last dim. P to S(-1). */
export function reduceScatterLastDimToTensorParallelRegion(x: Tensor, axis = 'tp'): Tensor {
  return reduceScatter(x, axis, { src: 'P', dst: last(x) });
}

/** Rows of dim 0 to the ranks, one part each. V to V, where the parts join on dim 0 again. */
export function allToAllRegion(x: Tensor, axis = 'tp'): Tensor {
  return allToAll(x, axis, { src: 'V', dst: 'V' });
}

/**
 * The cross-entropy of each row where every rank has its piece of the classes: what `allGather` of
 * the logits to I and then the cross-entropy give, by one number for each row and rank instead of
 * all logits. Nothing is communicated for the gradient.
 *
 * @param logits `[..., classes / ranks]`, V
 * @param targets class of each row, I
 * @returns `[...]`, I
 */
export function vocabParallelCrossEntropy(logits: Tensor, targets: Tensor, axis = 'tp'): Tensor {
  needTensor(logits, 'the logits of vocabParallelCrossEntropy');
  needTensor(targets, 'the targets of vocabParallelCrossEntropy');
  const classes = logits.shape[logits.rank - 1];
  if (typeof classes !== 'number')
    throw new ShardwrightError(
      'E_SHAPE',
      `vocabParallelCrossEntropy: the number of classes has an open size`,
      { hint: 'give the last dim of the logits a fixed size' },
    );
  const sum = (x: Tensor): Tensor => allReduce(outPartial(x, axis), axis, { src: 'P', dst: 'I' });
  const tops = allGather(logits.detach().amax(-1), axis, { src: 'V', dst: 'R' });
  const shifted = logits.sub(tops.amax(0).unsqueeze(-1));
  const own = convert(targets, axis, { src: 'I', dst: 'R' }).sub(axisIndex(axis).mul(classes));
  const isHere = own.ge(0).logicalAnd(own.lt(classes));
  const picked = shifted.gather(-1, own.clamp(0, classes - 1).unsqueeze(-1)).squeeze(-1);
  return sum(shifted.exp().sum(-1))
    .log()
    .sub(sum(isHere.where(picked, 0)));
}
