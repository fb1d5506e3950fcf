/**
 * Finds the values of a program that have an element for each logit, from the product that makes
 * the logits to the gradient that goes back into it: fused losses keep fewer of them than a program
 * says.
 */

import type { Graph } from '../../../graph/types.ts';
import { eachOperand, elementCount } from '../../../graph/value.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';

/** The logits of a program. */
export interface LossValues {
  /** The node that makes them. */
  readonly logits: number;
  /** Nodes of them and of all that is made of them element by element, their gradients too. */
  readonly nodes: ReadonlySet<number>;
}

const LOSS = /^aten\.(_log_softmax|log_softmax|cross_entropy_loss)\b/;

/** The logits of the last loss of a joint program; undefined where it takes none. */
export function lossValues(graph: Graph, table: OperatorTable): LossValues | undefined {
  const { nodes } = graph;
  const loss = nodes.findLastIndex((n) => n.kind === 'call' && LOSS.test(n.target));
  const elementsOf = (i: number): number | undefined => {
    const { type } = nodes[i];
    return type.kind === 'tensor' ? elementCount(type) : undefined;
  };
  const count = loss < 0 ? undefined : elementsOf(loss);
  if (count === undefined) return undefined;
  const at = new Map(nodes.map((n, i) => [n.name, i] as const));
  const isProduct = (i: number): boolean => table.get(nodes[i].target)?.cls === 'matmul';
  const isAlike = (i: number): boolean => nodes[i].kind === 'call' && elementsOf(i) === count;
  const found = new Set([loss]);
  let logits = loss;
  const up = [loss];
  for (let i = up.pop(); i !== undefined; i = up.pop()) {
    logits = Math.min(logits, i);
    if (isProduct(i)) continue;
    eachOperand(nodes[i], (name) => {
      const o = at.get(name);
      if (o === undefined || !isAlike(o) || found.has(o)) return;
      found.add(o);
      up.push(o);
    });
  }
  for (let i = logits + 1; i < nodes.length; i++) {
    if (!isAlike(i) || isProduct(i)) continue;
    eachOperand(nodes[i], (name) => {
      const o = at.get(name);
      if (o !== undefined && found.has(o)) found.add(i);
    });
  }
  return { logits, nodes: found };
}
