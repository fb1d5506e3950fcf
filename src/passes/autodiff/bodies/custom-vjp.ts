/** Reads the derivative that a call states for itself. */

import { internalError } from '../../../errors.ts';
import { bodyResult } from '../../../graph/control.ts';
import type { Arg, Graph, Node, ValueRef } from '../../../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef, NO_KWARGS, ref } from '../../../graph/value.ts';
import type { CallBuilder } from '../../../ops/vjp/build.ts';
import type { Contribution } from './body-gradients.ts';

/**
 * A call of a function that states its derivative: `call(@f, operands, vjp_forward=@f',
 * vjp_backward=@b, vjp_wrt=[...])`.
 */
export interface CustomDerivative {
  /** The call that also returns what the backward function reads. */
  readonly forward: Node;
  /** The call of the backward function. */
  backward(
    gradients: readonly (ValueRef | undefined)[],
    isWanted: (operand: Arg) => boolean,
  ): Contribution[];
}

/** The derivative that a call states; undefined for any other call. */
export function customDerivative(
  node: Node,
  subgraphs: Readonly<Record<string, Graph>>,
  calls: CallBuilder,
): CustomDerivative | undefined {
  const [replaced, back] = [
    getOwn(node.kwargs, 'vjp_forward'),
    getOwn(node.kwargs, 'vjp_backward'),
  ];
  if (node.target !== 'call' || replaced === undefined || back === undefined) return undefined;
  const withSaved = bodyOf(replaced, node, subgraphs);
  const backward = bodyOf(back, node, subgraphs);
  const [, operands] = node.args;
  if (operands === undefined || !isList(operands))
    throw internalError(`${node.name} has no operands for its derivative`);
  const results = bodyResult(withSaved);
  const count = node.type.kind === 'tuple' ? node.type.items.length : 0;
  const forward: Node = {
    ...node,
    args: [replaced, operands],
    kwargs: NO_KWARGS,
    type: { kind: 'tuple', items: results },
  };
  const listed = getOwn(node.kwargs, 'vjp_wrt');
  const wrt = listed !== undefined && isList(listed) ? listed.map(Number) : [];
  return {
    forward,
    backward(gradients, isWanted) {
      const self: ValueRef = ref(node.name);
      const saved = results.slice(count).map((_, i) => calls.item(self, count + i));
      const incoming = results.slice(0, count).map((type, i): ValueRef => {
        const gradient = gradients[i];
        if (gradient !== undefined) return gradient;
        if (type.kind !== 'tensor')
          throw internalError(`result ${i} of ${node.name} is not a tensor`);
        return calls.zerosOf(type);
      });
      const call = calls.graph.call(
        'call',
        [back, [...saved, ...incoming]],
        { kind: 'tuple', items: bodyResult(backward) },
        {
          meta: calls.meta,
          name: calls.freshName('call'),
        },
      );
      return wrt.flatMap((position, i): Contribution[] => {
        const operand = operands[position];
        return isRef(operand) && isWanted(operand)
          ? [{ operand, gradient: calls.item(call, i) }]
          : [];
      });
    },
  };
}

function bodyOf(body: Arg, node: Node, subgraphs: Readonly<Record<string, Graph>>): Graph {
  const found = isGraphRef(body) ? getOwn(subgraphs, body.name) : undefined;
  if (found === undefined) throw internalError(`${node.name} has no bodies for its derivative`);
  return found;
}
