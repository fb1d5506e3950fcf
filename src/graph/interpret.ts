/** Walks a graph with a visitor: the loop of analyses that know something of each value. */

import { internalError } from '../errors.ts';
import { indexGraph } from './order.ts';
import type { Graph, Node } from './types.ts';
import { getOwn } from './value.ts';

/**
 * The values that one analysis has for the names of a graph: types, flags, numbers or arrays of
 * numbers.
 */
export interface Frame<V> {
  readonly graph: Graph;
  /** Value of a name that is defined before the node in hand. */
  value(name: string): V;
  /**
   * Runs a body of the node in hand on these inputs with the same visitor; returns one value per
   * body output.
   */
  run(body: string, inputs: readonly V[]): (V | null)[];
}

export interface Visitor<V> {
  /** Value of the `index`-th placeholder; bodies get theirs from `Frame.run` and do not ask. */
  placeholder(node: Node, index: number): V;
  /**
   * Value of an attribute node; without it, an attribute node is visited as a call without
   * operands.
   */
  getAttr?(node: Node, frame: Frame<V>): V;
  /** Value of a call. `operands`: the values it reads, in argument order, with repetition. */
  call(node: Node, operands: readonly V[], frame: Frame<V>): V;
}

interface Interpretation<V> {
  /** By position in `graph.nodes`. */
  readonly values: readonly V[];
  /** By position in `graph.outputs`; null where the graph returns none. */
  readonly outputs: readonly (V | null)[];
}

/**
 * The one interpreter: walks the nodes in order and gives each a value. What is said of a value
 * from the values it is made of (phases, types, FLOPs, numbers) is a visitor, so that calls, bodies
 * and returns mean the same to all of them. Passes, which write a graph, and what goes from the end
 * (liveness, dead code) read `indexGraph`.
 *
 * @param inputs values of the placeholders; without it the visitor is asked
 */
export function interpret<V>(
  graph: Graph,
  visitor: Visitor<V>,
  inputs?: readonly V[],
): Interpretation<V> {
  const { nodes } = graph;
  const { position, operandStart, operands } = indexGraph(graph);
  const values: V[] = [];
  const frame: Frame<V> = {
    graph,
    value(name) {
      const at = position.get(name);
      if (at === undefined || at >= values.length)
        throw internalError(`value ${name} is read before it is known`);
      return values[at];
    },
    run(body, bodyInputs) {
      const sub = getOwn(graph.subgraphs, body);
      if (sub === undefined) throw internalError(`graph ${graph.name} has no body @${body}`);
      return [...interpret(sub, visitor, bodyInputs).outputs];
    },
  };
  let placeholders = 0;
  for (let i = 0; i < nodes.length; i++) {
    const node = nodes[i];
    if (node.kind === 'placeholder') {
      if (inputs === undefined) {
        values.push(visitor.placeholder(node, placeholders));
      } else {
        if (placeholders >= inputs.length)
          throw internalError(`body ${graph.name} got ${inputs.length} inputs, wants more`);
        values.push(inputs[placeholders]);
      }
      placeholders++;
    } else if (node.kind === 'get_attr' && visitor.getAttr !== undefined) {
      values.push(visitor.getAttr(node, frame));
    } else {
      const read: V[] = [];
      for (let k = operandStart[i]; k < operandStart[i + 1]; k++) read.push(values[operands[k]]);
      values.push(visitor.call(node, read, frame));
    }
  }
  if (inputs !== undefined && inputs.length !== placeholders)
    throw internalError(`body ${graph.name} wants ${placeholders} inputs, got ${inputs.length}`);
  const outputs = graph.outputs.map((o) => (o.value === null ? null : frame.value(o.value)));
  return { values, outputs };
}
