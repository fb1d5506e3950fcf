/**
 * Gives a numeric stand-in for a call of an unknown operator, so that a plan with `unknown:
 * 'replicate'` can run.
 */

import { ShardwrightError } from '../../errors.ts';
import type { Arg, Node, TensorType, ValueType } from '../../graph/types.ts';
import { exampleShape, isList, isRef } from '../../graph/value.ts';
import { build, ELEMENT_TYPES, flat, kindOf, NDArray } from '../../ndarray/array.ts';
import { streamOf } from '../../ndarray/random.ts';
import type { Value } from './values.ts';

/**
 * The value of a call of an unknown operator where a plan with `unknown: 'replicate'` is run with
 * numbers: an array of the type that the source states, whose every element depends on every
 * element of every operand, in order. A device that calls it on anything but the whole operands is
 * thus detected, whatever the operator really computes.
 *
 * Floating-point results lie between 0 and 1, so that logarithms and roots take them; whole numbers
 * are 0 or 1, so that they are rows of anything.
 *
 * @param look the values that the call reads
 * @throws E_NO_KERNEL for results that are not real tensors
 */
export function standIn(node: Node, look: (name: string) => Value): Value {
  let mix = streamOf(node.target) % 1009;
  let k = 0;
  const take = (arg: Arg): void => {
    if (isList(arg)) arg.forEach(take);
    else if (isRef(arg)) {
      const value = look(arg.name);
      if (!(value instanceof NDArray)) return;
      const numbers = flat(value);
      // A mean, so that rounding on the way in stays rounding on the way out.
      let sum = 0;
      for (const x of numbers) sum += Math.cos(1.7 * ++k) * Math.tanh(x);
      mix += sum / Math.max(1, Math.sqrt(numbers.length));
    }
  };
  node.args.forEach(take);
  for (const key of Object.keys(node.kwargs).sort()) take(node.kwargs[key]);
  const { type } = node;
  const of = (item: ValueType, at: number): NDArray | null =>
    item.kind === 'tensor' ? arrayOf(node, item, mix + at) : null;
  return type.kind === 'tuple' ? type.items.map(of) : of(type, 0);
}

function arrayOf(node: Node, { dtype, shape }: TensorType, mix: number): NDArray {
  const element = ELEMENT_TYPES.find((known) => known === dtype);
  if (element === undefined)
    throw new ShardwrightError(
      'E_NO_KERNEL',
      `${node.target} gives ${dtype}, and there are no such arrays`,
      { node: node.name },
    );
  const sizes = exampleShape({ shape });
  const share = (at: number): number => 0.5 + 0.45 * Math.sin(mix + 0.7 * at);
  return build(sizes, kindOf(element) === 'float' ? share : (at) => Math.round(share(at)), element);
}
