/** Marks every call of a joint graph as forward or backward. */

import { indexGraph } from '../../graph/order.ts';
import { phased } from '../../graph/phases.ts';
import type { Graph, NodeMeta, Phase } from '../../graph/types.ts';
import { without } from '../../graph/value.ts';

/**
 * Sets phases: a call is `backward` if it depends on a tangent or on one of the constants that
 * replace one (`seeds`), else `forward`; a forward call that only gradients need is `savedOnly`. A
 * stated phase `optimizer` stays.
 */
export function stampJointPhases(graph: Graph, seeds: ReadonlySet<string>): Graph {
  const { nodes } = graph;
  const { position, operandStart, operands } = indexGraph(graph);
  const backward = new Uint8Array(nodes.length);
  nodes.forEach((node, i) => {
    let depends = node.meta.role === 'tangent' || seeds.has(node.name);
    for (let k = operandStart[i]; k < operandStart[i + 1]; k++)
      depends ||= backward[operands[k]] === 1;
    backward[i] = depends ? 1 : 0;
  });
  const needed = new Uint8Array(nodes.length);
  for (const output of graph.outputs) {
    const at =
      output.value === null || output.role === 'grad' ? undefined : position.get(output.value);
    if (at !== undefined) needed[at] = 1;
  }
  for (let i = nodes.length - 1; i >= 0; i--)
    if (needed[i] === 1)
      for (let k = operandStart[i]; k < operandStart[i + 1]; k++) needed[operands[k]] = 1;

  const phases = nodes.map(({ meta }, i): Phase => {
    if (meta.phase === 'optimizer') return 'optimizer';
    return backward[i] === 1 ? 'backward' : 'forward';
  });
  const savedOnly = needed.map((isNeeded) => 1 - isNeeded);
  return phased(graph, phases, savedOnly, ownMeta);
}

/**
 * Provenance is a matter of backward calls: forward values that only they need are the forward
 * pass's own.
 */
function ownMeta(meta: NodeMeta, phase: Phase): NodeMeta {
  return phase === 'backward' ? meta : without(meta, 'of');
}
