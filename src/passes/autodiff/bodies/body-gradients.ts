/** Joint graphs of bodies: what asks for one, and questions about it. */

import type { Graph, Node, ValueRef } from '../../../graph/types.ts';
import { eachOperand } from '../../../graph/value.ts';

/**
 * The joint graph of a body: its results, then one gradient slot for each input, in order. Tangents
 * are asked for the results `from` only.
 */
export type Differentiate = (body: Graph, wrt: readonly string[], from: readonly number[]) => Graph;

/** A gradient for one operand of a control-flow call. */
export interface Contribution {
  readonly operand: ValueRef;
  readonly gradient: ValueRef;
}

/** Gradients of these inputs, null where nothing contributes. */
export function gradientSlots(joint: Graph, inputs: readonly string[]): (string | null)[] {
  const byInput = new Map(
    joint.outputs.map((output) => [output.role === 'grad' ? output.of : undefined, output.value]),
  );
  return inputs.map((name) => byInput.get(name) ?? null);
}

/**
 * Names that these values depend on, themselves included; what `stop` names is not looked behind.
 */
export function neededNodes(
  graph: Graph,
  ends: Iterable<string | null>,
  stop: ReadonlySet<string> = new Set(),
): Set<string> {
  const needed = new Set<string>();
  for (const end of ends) if (end !== null) needed.add(end);
  for (let i = graph.nodes.length - 1; i >= 0; i--) {
    const node = graph.nodes[i];
    if (needed.has(node.name) && !stop.has(node.name))
      eachOperand(node, (name) => needed.add(name));
  }
  return needed;
}

/** A body as a program of its own: its inputs have names by which gradients are asked for. */
export function asProgram(body: Graph): Graph {
  const nodes = body.nodes.map((node): Node => {
    if (node.kind !== 'placeholder') return node;
    return { ...node, meta: { role: 'input', roleName: node.name } };
  });
  return {
    ...body,
    nodes,
    outputs: body.outputs.map((output, index) => ({ ...output, index: output.index ?? index })),
  };
}
