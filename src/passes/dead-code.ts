/** Removes calls, attributes and bodies that no output needs. */

import { checkKinds } from '../arguments.ts';
import { lintGraph } from '../graph/lint.ts';
import { indexGraph } from '../graph/order.ts';
import type { Graph, Node, Output } from '../graph/types.ts';
import { eachGraphRef, getOwn, setOwn, without } from '../graph/value.ts';

/**
 * The graph without calls and attributes that nothing returned depends on, and without bodies that
 * nothing calls. Linear.
 */
export function withoutDeadCode(graph: Graph): Graph {
  checkKinds('withoutDeadCode', { graph: [graph, 'graph'] });
  const { operandStart, operands, returned } = indexGraph(graph);
  const needed = Uint8Array.from(returned);
  for (let i = graph.nodes.length - 1; i >= 0; i--)
    if (needed[i] === 1)
      for (let k = operandStart[i]; k < operandStart[i + 1]; k++) needed[operands[k]] = 1;
  const nodes = firstOfWhatIsLeft(
    graph.nodes.filter((node, i) => needed[i] === 1 || node.kind === 'placeholder'),
  );
  const used = new Set<string>();
  for (const node of nodes) {
    eachGraphRef(node, (name) => used.add(name));
    // An attribute node may name a body.
    if (node.kind === 'get_attr') used.add(node.target);
  }
  const names = Object.keys(graph.subgraphs);
  if (nodes.length === graph.nodes.length && names.every((name) => used.has(name))) return graph;
  const subgraphs: Record<string, Graph> = {};
  for (const name of names) {
    const body = getOwn(graph.subgraphs, name);
    if (used.has(name) && body !== undefined) setOwn(subgraphs, name, body);
  }
  return { ...graph, nodes, subgraphs };
}

/** A call whose first run is left out repeats nothing: it is the first run by now. */
export function firstOfWhatIsLeft(nodes: readonly Node[]): readonly Node[] {
  if (nodes.every(({ meta }) => meta.repeats === undefined)) return nodes;
  const left = new Set(nodes.map(({ name }) => name));
  return nodes.map((node) =>
    node.meta.repeats === undefined || left.has(node.meta.repeats)
      ? node
      : { ...node, meta: without(node.meta, 'repeats') },
  );
}

/**
 * The forward part of a graph that returns gradients: its user outputs, mutations and new states,
 * and what they need. Tangents go; the other placeholders stay, needed or not, as do their roles.
 */
export function forwardPart(graph: Graph): Graph {
  checkKinds('forwardPart', { graph: [graph, 'graph'] });
  const outputs = graph.outputs.filter((output: Output) => output.role !== 'grad');
  const forward = withoutDeadCode({ ...graph, outputs });
  const nodes = forward.nodes
    .filter((node) => node.meta.role !== 'tangent')
    .map((node) =>
      node.meta.savedOnly === true ? { ...node, meta: without(node.meta, 'savedOnly') } : node,
    );
  const result = { ...forward, nodes };
  lintGraph(result);
  return result;
}
