/**
 * Computes views and casts of parameters again in the backward pass, so that they need not be
 * saved.
 */

import { NameSet } from '../../graph/names.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { eachOperand, mapOperands } from '../../graph/value.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { parameterViews, purposesOf } from '../canonical/pass-of-uses.ts';
import { firstOfWhatIsLeft } from '../dead-code.ts';

/**
 * Takes views and casts of parameters again in the backward pass. PyTorch's joint graph transposes
 * a weight once in the forward pass and uses the transpose in both; a weight that is gathered
 * before that transpose would then be kept, whole, from forward to backward at no price. After this
 * pass each direction starts from the parameter itself, so that keeping a gathered weight is never
 * free. (Deciding to keep one is a matter of activation memory.)
 *
 * New nodes are named after the old with `_recomputed`, and come before their first user. A graph
 * without a backward pass is returned as it is.
 */
export function retakeWeightViews(graph: Graph, table: OperatorTable): Graph {
  let split = backwardStart(graph);
  if (split === graph.nodes.length) return graph;
  // A view that comes right before the backward pass and serves only it is computed there already:
  // the pass leaves its own results.
  while (split > 0 && graph.nodes[split - 1].meta.savedOnly === true) split--;
  const names = new NameSet(graph.nodes.map((n) => n.name));
  const purposes = purposesOf(graph, table);
  // Views that the forward pass reads, or that stand in it, with the nodes that make them.
  const derived = parameterViews(graph, table);
  graph.nodes.forEach(({ name }, i) => {
    if (i >= split && purposes[i] === 'backward') derived.delete(name);
  });
  const again = new Map<string, string>();
  const nodes: Node[] = [];
  const retake = (name: string): string => {
    const source = derived.get(name);
    if (source === undefined) return name;
    const known = again.get(name);
    if (known !== undefined) return known;
    const moved = mapOperands(source, retake);
    const fresh = names.take(`${name}_recomputed`);
    nodes.push({
      ...moved,
      name: fresh,
      meta: { ...moved.meta, phase: 'forward', savedOnly: true, repeats: name },
    });
    again.set(name, fresh);
    return fresh;
  };
  graph.nodes.forEach((node, i) => {
    let uses = false;
    if (purposes[i] !== 'forward' && !derived.has(node.name))
      eachOperand(node, (name) => (uses ||= derived.has(name)));
    nodes.push(uses ? mapOperands(node, retake) : node);
  });
  if (again.size === 0) return graph;
  const note =
    (again.size === 1 ? 'One view of a parameter is ' : `${again.size} views of parameters are `) +
    'taken again in the backward pass, so that no gathered weight is kept for free.';
  return {
    ...graph,
    nodes: withoutDead(nodes, graph, again),
    notes: [...(graph.notes ?? []), note],
  };
}

/**
 * Index of the first call that depends on a tangent: what comes after is run in the backward pass.
 */
export function backwardStart(graph: Graph): number {
  const at = graph.nodes.findIndex((n) => n.kind === 'call' && n.meta.phase === 'backward');
  return at < 0 ? graph.nodes.length : at;
}

/**
 * Drops forward views that only the backward pass used, now that it has its own: those are taken
 * there for the first time.
 */
function withoutDead(
  nodes: readonly Node[],
  graph: Graph,
  again: ReadonlyMap<string, string>,
): readonly Node[] {
  const used = new Set(graph.outputs.map((o) => o.value));
  const kept: Node[] = [];
  for (let i = nodes.length - 1; i >= 0; i--) {
    const node = nodes[i];
    if (again.has(node.name) && !used.has(node.name)) continue;
    eachOperand(node, (name) => used.add(name));
    kept.push(node);
  }
  return firstOfWhatIsLeft(kept.reverse());
}
