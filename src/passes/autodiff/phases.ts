/** Marks every call of a joint graph as forward or backward. */

import { indexGraph } from '../../graph/order.ts';
import type { Graph, Node, NodeMeta, Phase } from '../../graph/types.ts';
import { eachGraphRef, setOwn, without } from '../../graph/value.ts';

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

  const bodyPhase = new Map<string, Phase>();
  const stamped = nodes.map((node, i): Node => {
    if (node.kind === 'placeholder') return node;
    const phase =
      node.meta.phase === 'optimizer' ? 'optimizer' : backward[i] === 1 ? 'backward' : 'forward';
    eachGraphRef(node, (name) => {
      if (!bodyPhase.has(name)) bodyPhase.set(name, phase);
    });
    return { ...node, meta: metaIn(node.meta, phase, phase === 'forward' && needed[i] === 0) };
  });
  const subgraphs: Record<string, Graph> = {};
  for (const [name, body] of Object.entries(graph.subgraphs))
    setOwn(subgraphs, name, inPhase(body, bodyPhase.get(name) ?? 'forward'));
  return { ...graph, nodes: stamped, subgraphs };
}

/**
 * Provenance is a matter of backward calls: forward values that only they need are the forward
 * pass's own.
 */
function metaIn(meta: NodeMeta, phase: Phase, savedOnly: boolean): NodeMeta {
  const plain = without(phase === 'backward' ? meta : without(meta, 'of'), 'savedOnly');
  return savedOnly ? { ...plain, phase, savedOnly } : { ...plain, phase };
}

function inPhase(graph: Graph, phase: Phase): Graph {
  const subgraphs: Record<string, Graph> = {};
  for (const [name, body] of Object.entries(graph.subgraphs))
    setOwn(subgraphs, name, inPhase(body, phase));
  const nodes = graph.nodes.map((n) =>
    n.kind === 'placeholder' ? n : { ...n, meta: metaIn(n.meta, phase, false) },
  );
  return { ...graph, nodes, subgraphs };
}
