/** Reads the counter of a `while_loop` whose condition and body are aten calls. */

import type { Arg, Node } from '../../../graph/types.ts';
import { isRef } from '../../../graph/value.ts';
import { counterIn, type FindCounter } from './counted-loops.ts';

const COMPARISONS: ReadonlyMap<string, string> = new Map(
  ['lt', 'le', 'gt', 'ge', 'ne'].flatMap((name) =>
    ['Scalar', 'Tensor'].map((form): [string, string] => [
      `aten.${name}.${form}`,
      name.toUpperCase(),
    ]),
  ),
);

/**
 * The counter of a `while_loop` in the aten vocabulary, as tracing and torch.export write it:
 * `i.lt(5)` as the condition, `i.add(1)` in the body, a constant before the loop.
 */
export const atenCounter: FindCounter = counterIn({
  constant,
  comparison: ({ target }) => COMPARISONS.get(target),
  sign: ({ target, args, kwargs }) => {
    const word = /^aten\.(add|sub)\.(Tensor|Scalar)$/.exec(target)?.[1];
    // `alpha` multiplies the second operand.
    if (word === undefined || args.length !== 2 || Object.keys(kwargs).length > 0) return undefined;
    return word === 'add' ? 1 : -1;
  },
});

/** A whole number, as a literal or as a scalar that a factory makes. */
function constant(arg: Arg | undefined, nodes: ReadonlyMap<string, Node>): number | undefined {
  if (typeof arg === 'number') return Number.isSafeInteger(arg) ? arg : undefined;
  if (arg === undefined || !isRef(arg)) return undefined;
  const node = nodes.get(arg.name);
  if (node?.type.kind !== 'tensor' || node.type.shape.length > 0) return undefined;
  switch (node.target) {
    case 'aten.full.default':
      return constant(node.args[1], nodes);
    case 'aten.zeros.default':
      return 0;
    case 'aten.ones.default':
      return 1;
    case 'aten.scalar_tensor.default':
      return constant(node.args[0], nodes);
    default:
      return undefined;
  }
}
