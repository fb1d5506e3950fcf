/**
 * Takes a joint graph and calls to recompute and gives the graph that recomputes them in the
 * backward pass.
 */

import { ShardwrightError } from '../../errors.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { eachOperand, mapOperands } from '../../graph/value.ts';
import { backwardStart } from '../plannable/weight-views.ts';

/** A graph that computes some forward values again, and which node recomputes which. */
interface RecomputedGraph {
  readonly graph: Graph;
  /** Forward node by the name of its recomputed node. */
  readonly originalOf: ReadonlyMap<string, string>;
}

/**
 * Recomputes forward nodes in the backward pass instead of keeping their results. Each recomputed
 * node (named after the first with `_recomputed`) comes right before the first backward node that
 * needs it, with the recomputed nodes it needs before it; all other values are kept. Recomputation
 * so becomes a part of the program: it is placed, priced, lowered and verified as every other node
 * is. A node that nothing needs is not written.
 *
 * @param names forward calls; a call with several results takes its `getitem`s with it
 * @throws E_USAGE for a name that is no call of the forward pass
 */
export function recomputeInBackward(graph: Graph, names: ReadonlySet<string>): RecomputedGraph {
  const split = backwardStart(graph);
  const again = new Map<string, Node>();
  graph.nodes.slice(0, split).forEach((node) => {
    if (node.kind !== 'call') return;
    let member = false;
    if (node.target === 'operator.getitem')
      eachOperand(node, (source) => (member ||= again.has(source)));
    if (names.has(node.name) || member) again.set(node.name, node);
  });
  const missing = [...names].filter((name) => !again.has(name)).sort();
  if (missing.length > 0)
    throw new ShardwrightError('E_USAGE', `'${missing[0]}' is no call of the forward pass`, {
      hint: 'only results of the forward pass can be recomputed',
    });
  const taken = new Set(graph.nodes.map((n) => n.name));
  const written = new Map<string, string>();
  const originalOf = new Map<string, string>();
  const nodes: Node[] = graph.nodes.slice(0, split);
  /** Writes a node again, and what it needs; deep chains are walked without recursion. */
  const write = (name: string): void => {
    const stack = [name];
    while (stack.length > 0) {
      const top = stack[stack.length - 1];
      const node = again.get(top);
      if (node === undefined || written.has(top)) {
        stack.pop();
        continue;
      }
      const open: string[] = [];
      eachOperand(node, (operand) => {
        if (again.has(operand) && !written.has(operand)) open.push(operand);
      });
      if (open.length > 0) {
        // The first operand is written first.
        stack.push(...open.reverse());
        continue;
      }
      stack.pop();
      let fresh = `${top}_recomputed`;
      for (let i = 1; taken.has(fresh); i++) fresh = `${top}_recomputed_${i}`;
      taken.add(fresh);
      written.set(top, fresh);
      originalOf.set(fresh, top);
      const moved = mapOperands(node, (operand) => written.get(operand) ?? operand);
      nodes.push({
        ...moved,
        name: fresh,
        meta: { ...moved.meta, phase: 'forward', savedOnly: true, repeats: top },
      });
    }
  };
  for (const node of graph.nodes.slice(split)) {
    if (node.kind !== 'call') {
      nodes.push(node);
      continue;
    }
    eachOperand(node, write);
    nodes.push(mapOperands(node, (operand) => written.get(operand) ?? operand));
  }
  if (originalOf.size === 0) return { graph, originalOf };
  const note =
    (originalOf.size === 1
      ? 'One node of the forward pass is '
      : `${originalOf.size} nodes of the forward pass are `) + 'recomputed in the backward pass.';
  return { graph: { ...graph, nodes, notes: [...(graph.notes ?? []), note] }, originalOf };
}
