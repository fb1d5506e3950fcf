/** Removes calls that only check a type or a value. */

import type { Graph, Node } from '../../graph/types.ts';
import { getOwn, setOwn } from '../../graph/value.ts';

/** Tells whether an operator checks or sets something and returns nothing. */
export function isEffect(target: string): boolean {
  return /^(aten\.(_assert_|_linalg_check_errors|_print\.|sym_constrain_range)|torch\._C\._(set_grad_enabled|log_api_usage)|torch\._check)/.test(
    target,
  );
}

/**
 * Calls that check something and return nothing: torch.export writes one `_assert_tensor_metadata`
 * for every cast. Their types were compared at import; a plan has nothing to place for them.
 */
export function isCheck(node: Node): boolean {
  return node.kind === 'call' && node.type.kind === 'none' && isEffect(node.target);
}

/**
 * The graph without its checks and without reads of bodies, bodies included; a note says how many
 * checks there were.
 */
export function withoutChecks(graph: Graph): Graph {
  const count = { dropped: 0 };
  const made = dropped(graph, count);
  if (count.dropped === 0) return made;
  const note =
    'Checks that compute nothing (_assert_tensor_metadata and its like) are left out: ' +
    `${count.dropped}.`;
  return { ...made, notes: [...(made.notes ?? []), note] };
}

function dropped(graph: Graph, count: { dropped: number }): Graph {
  const checked = graph.nodes.filter((node) => !isCheck(node));
  count.dropped += graph.nodes.length - checked.length;
  // Reads of bodies, which FX lists as nodes, are not values either: calls name their bodies
  // themselves.
  const nodes = checked.filter((node) => node.kind !== 'get_attr' || node.type.kind !== 'none');
  let changed = nodes.length !== graph.nodes.length;
  const subgraphs: Record<string, Graph> = {};
  for (const name of Object.keys(graph.subgraphs)) {
    const before = getOwn(graph.subgraphs, name)!;
    const after = dropped(before, count);
    changed ||= after !== before;
    setOwn(subgraphs, name, after);
  }
  return changed ? { ...graph, nodes, subgraphs } : graph;
}
