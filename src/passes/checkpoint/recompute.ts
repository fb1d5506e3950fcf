/**
 * Takes a joint graph and calls to recompute and gives the graph that recomputes them in the
 * backward pass.
 */

import { ShardwrightError } from '../../errors.ts';
import { NameSet } from '../../graph/names.ts';
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
 * @throws E_USAGE for a name that is not a call of the forward pass
 */
export function recomputeInBackward(graph: Graph, names: ReadonlySet<string>): RecomputedGraph {
  const split = backwardStart(graph);
  const again = callsOf(graph.nodes.slice(0, split), names);
  const missing = [...names].filter((name) => !again.has(name)).sort();
  if (missing.length > 0)
    throw new ShardwrightError('E_USAGE', `'${missing[0]}' is not a call of the forward pass`, {
      hint: 'only results of the forward pass can be recomputed',
    });
  const writer = new SecondRuns(graph, again, split);
  for (const node of graph.nodes.slice(split)) writer.add(node);
  const { nodes, originalOf } = writer;
  if (originalOf.size === 0) return { graph, originalOf };
  const note =
    (originalOf.size === 1
      ? 'One node of the forward pass is '
      : `${originalOf.size} nodes of the forward pass are `) + 'recomputed in the backward pass.';
  return { graph: { ...graph, nodes, notes: [...(graph.notes ?? []), note] }, originalOf };
}

/** The calls of these names, with the `getitem`s that read their results. */
function callsOf(nodes: readonly Node[], names: ReadonlySet<string>): ReadonlyMap<string, Node> {
  const found = new Map<string, Node>();
  for (const node of nodes) {
    if (node.kind !== 'call') continue;
    let member = false;
    if (node.target === 'operator.getitem')
      eachOperand(node, (source) => (member ||= found.has(source)));
    if (names.has(node.name) || member) found.set(node.name, node);
  }
  return found;
}

/** Writes the backward pass, and before each of its nodes what it needs a second time. */
class SecondRuns {
  readonly nodes: Node[];
  readonly originalOf = new Map<string, string>();
  private readonly taken: NameSet;
  private readonly written = new Map<string, string>();

  constructor(
    graph: Graph,
    private readonly again: ReadonlyMap<string, Node>,
    split: number,
  ) {
    this.nodes = graph.nodes.slice(0, split);
    this.taken = new NameSet(graph.nodes.map((n) => n.name));
  }

  add(node: Node): void {
    if (node.kind !== 'call') {
      this.nodes.push(node);
      return;
    }
    eachOperand(node, (name) => this.write(name));
    this.nodes.push(mapOperands(node, (operand) => this.written.get(operand) ?? operand));
  }

  /** Writes a node again, and what it needs; deep chains are walked without recursion. */
  private write(name: string): void {
    const stack = [name];
    while (stack.length > 0) {
      const top = stack[stack.length - 1];
      const node = this.again.get(top);
      if (node === undefined || this.written.has(top)) {
        stack.pop();
        continue;
      }
      const open: string[] = [];
      eachOperand(node, (operand) => {
        if (this.again.has(operand) && !this.written.has(operand)) open.push(operand);
      });
      if (open.length > 0) {
        // The first operand is written first.
        stack.push(...open.reverse());
        continue;
      }
      stack.pop();
      this.copy(node);
    }
  }

  private copy(node: Node): void {
    const { name } = node;
    const fresh = this.taken.take(`${name}_recomputed`);
    this.written.set(name, fresh);
    this.originalOf.set(fresh, name);
    const moved = mapOperands(node, (operand) => this.written.get(operand) ?? operand);
    this.nodes.push({
      ...moved,
      name: fresh,
      meta: { ...moved.meta, phase: 'forward', savedOnly: true, repeats: name },
    });
  }
}
