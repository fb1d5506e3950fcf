/** Computes the phase of each node of a graph. */

import { interpret } from './interpret.ts';
import { indexGraph } from './order.ts';
import type { Graph, Node, NodeMeta, Phase } from './types.ts';
import { eachGraphRef, setOwn, without } from './value.ts';

/** Nodes that depend on a tangent, and nodes that serve only those. */
interface Phases {
  /** 1 where the value depends on a tangent. */
  readonly backward: Uint8Array;
  /**
   * 1 for a forward call that no user output, mutation or new state needs; all 0 in a graph without
   * backward part.
   */
  readonly savedOnly: Uint8Array;
}

/**
 * A call is `backward` iff it depends on a tangent (AOTAutograd's rule), else `forward`. Linear.
 */
export function computePhases(graph: Graph): Phases {
  const { nodes } = graph;
  const { values } = interpret<boolean>(graph, {
    placeholder: (node) => node.meta.role === 'tangent',
    getAttr: () => false,
    call: (_node, operands) => operands.includes(true),
  });
  const backward = Uint8Array.from(values, Number);
  const savedOnly = new Uint8Array(nodes.length);
  if (!values.includes(true)) return { backward, savedOnly };

  const { position, operandStart, operands } = indexGraph(graph);
  const needed = new Uint8Array(nodes.length);
  for (const output of graph.outputs) {
    if (output.value !== null && output.role !== 'grad') needed[position.get(output.value)!] = 1;
  }
  for (let i = nodes.length - 1; i >= 0; i--) {
    if (needed[i] === 0) continue;
    for (let k = operandStart[i]; k < operandStart[i + 1]; k++) needed[operands[k]] = 1;
  }
  for (let i = 0; i < nodes.length; i++) {
    if (nodes[i].kind === 'call' && backward[i] === 0 && needed[i] === 0) savedOnly[i] = 1;
  }
  return { backward, savedOnly };
}

/**
 * Sets `meta.phase` and `meta.savedOnly` of calls and attributes in place. Only for a graph under
 * construction, which nobody else has seen yet and which states neither; it spares the front end a
 * copy of every node.
 */
export function stampPhases(graph: Graph): void {
  marked(graph, stated(graph), inPlace);
}

/**
 * The same graph with `meta.phase` and `meta.savedOnly` set on calls and attributes. A stated phase
 * `optimizer` is kept. Nodes of a body take the phase of the call that runs it (of the first, if
 * several do).
 */
export function withPhases(graph: Graph): Graph {
  return marked(graph, stated(graph), copied);
}

/**
 * The same graph with these phases, by position, on calls, attributes and their bodies.
 *
 * @param metaIn what a node of a phase keeps of its `meta`; by default all of it
 */
export function phased(
  graph: Graph,
  phases: readonly Phase[],
  savedOnly: Uint8Array,
  metaIn: (meta: NodeMeta, phase: Phase) => NodeMeta = (meta) => meta,
): Graph {
  return marked(graph, { phases, savedOnly }, (node, phase, isSaved) =>
    copied({ ...node, meta: metaIn(node.meta, phase) }, phase, isSaved),
  );
}

/** Phases by position, and which forward nodes serve the backward pass alone. */
interface Marks {
  readonly phases: readonly Phase[];
  readonly savedOnly: Uint8Array;
}

/** The phases that follow from a graph, but for the one that it states. */
function stated(graph: Graph): Marks {
  const { backward, savedOnly } = computePhases(graph);
  const phases = graph.nodes.map(({ meta }, i): Phase => {
    if (meta.phase === 'optimizer') return 'optimizer';
    return backward[i] === 1 ? 'backward' : 'forward';
  });
  return { phases, savedOnly };
}

type Mark = (node: Node, phase: Phase, savedOnly: boolean) => Node;

function marked(graph: Graph, { phases, savedOnly }: Marks, mark: Mark): Graph {
  const bodyPhase = new Map<string, Phase>();
  const nodes = graph.nodes.map((node, i) => {
    if (node.kind === 'placeholder') return node;
    const phase = phases[i];
    eachGraphRef(node, (name) => {
      if (!bodyPhase.has(name)) bodyPhase.set(name, phase);
    });
    return mark(node, phase, phase === 'forward' && savedOnly[i] === 1);
  });
  return { ...graph, nodes, subgraphs: markedBodies(graph, (name) => bodyPhase.get(name), mark) };
}

function markedBodies(
  graph: Graph,
  phaseOf: (name: string) => Phase | undefined,
  mark: Mark,
): Graph['subgraphs'] {
  const subgraphs: Record<string, Graph> = {};
  for (const [name, body] of Object.entries(graph.subgraphs)) {
    const phase = phaseOf(name) ?? 'forward';
    setOwn(subgraphs, name, {
      ...body,
      nodes: body.nodes.map((node) =>
        node.kind === 'placeholder' ? node : mark(node, phase, false),
      ),
      subgraphs: markedBodies(body, () => phase, mark),
    });
  }
  return subgraphs;
}

function inPlace(node: Node, phase: Phase, savedOnly: boolean): Node {
  const meta: { phase?: Phase; savedOnly?: boolean } = node.meta;
  meta.phase = phase;
  if (savedOnly) meta.savedOnly = true;
  return node;
}

function copied(node: Node, phase: Phase, savedOnly: boolean): Node {
  const { name, kind, target, args, kwargs, type } = node;
  const meta = node.meta.savedOnly === undefined ? node.meta : without(node.meta, 'savedOnly');
  return {
    name,
    kind,
    target,
    args,
    kwargs,
    type,
    meta: savedOnly ? { ...meta, phase, savedOnly } : { ...meta, phase },
  };
}
