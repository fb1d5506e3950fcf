/** Gives the graph of tied weights one gradient output for each tied weight. */

import { ShardwrightError } from '../../errors.ts';
import { NameSet } from '../../graph/names.ts';
import type { Graph, Node, Output } from '../../graph/types.ts';
import { NO_KWARGS, ref } from '../../graph/value.ts';

/**
 * Joins the gradients of tied weights. A text that lists the names of one tensor separately returns
 * a gradient for each name, and their sum is the gradient of the tensor. The sum takes the slot of
 * the first name; the others are empty.
 *
 * @throws E_TYPE where the program updates a weight under two of its names
 */
export function withOneGradient(graph: Graph): Graph {
  const nodes = [...graph.nodes];
  let outputs = graph.outputs;
  const taken = new NameSet(nodes.map((node) => node.name));
  for (const group of graph.ties ?? []) {
    const of = (role: Output['role']): Output[] =>
      outputs.filter((o) => o.role === role && o.value !== null && group.includes(o.of ?? ''));
    const updates = of('mutation');
    if (updates.length > 1)
      throw new ShardwrightError(
        'E_TYPE',
        `${updates.map((o) => `'${o.of}'`).join(' and ')} are tied, but the program updates ` +
          'each of them',
        {
          hint: 'leave the tie out, or export a step that updates the weight once',
        },
      );
    const gradients = of('grad').flatMap(({ value }) => (value === null ? [] : [value]));
    const [first, ...others] = gradients;
    if (first === undefined || others.length === 0) continue;
    let sum = first;
    for (const next of others) {
      const node = added(nodes, sum, next, taken);
      nodes.push(node);
      sum = node.name;
    }
    outputs = outputs.map((o) =>
      o.role !== 'grad' || !group.includes(o.of ?? '')
        ? o
        : { ...o, value: o.of === group[0] ? sum : null },
    );
  }
  return outputs === graph.outputs ? graph : { ...graph, nodes, outputs };
}

/** The sum of two gradients, in the operators of the program. */
function added(nodes: readonly Node[], a: string, b: string, taken: NameSet): Node {
  const first = nodes.find((node) => node.name === a)!;
  const target = nodes.some((node) => node.target.startsWith('stablehlo.'))
    ? 'stablehlo.add'
    : 'aten.add.Tensor';
  const name = taken.take(`${a}_tied`);
  const refs = [ref(a), ref(b)];
  return {
    name,
    kind: 'call',
    target,
    args: refs,
    kwargs: NO_KWARGS,
    type: first.type,
    meta: { phase: 'backward' },
  };
}
