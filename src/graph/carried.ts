/**
 * Finds the placeholder that each returned value belongs to. A gradient belongs to the tensor that
 * it is the gradient of, a mutation to the tensor that it replaces, a new state to the state that
 * it replaces. States share the role name of their parameter (`state "fc1.weight" "exp_avg"`), so a
 * role name alone never finds a placeholder of a whole train step.
 */

import { roleName } from './nodes.ts';
import type { Graph, Output } from './types.ts';

/**
 * Positions in `graph.nodes` of the placeholders that have a role name of their own: all but
 * states, tangents and arguments.
 */
export function placeholdersByRoleName(graph: Graph): Map<string, number> {
  const found = new Map<string, number>();
  graph.nodes.forEach(({ kind, name, meta }, n) => {
    if (
      kind !== 'placeholder' ||
      meta.role === 'state' ||
      meta.role === 'tangent' ||
      meta.role === 'arg'
    )
      return;
    found.set(roleName({ name, meta }), n);
  });
  return found;
}

/**
 * The position of the placeholder that an output belongs to; undefined for user outputs and for
 * what is not there.
 */
export function ownersOfOutputs(graph: Graph): (output: Output) => number | undefined {
  const named = placeholdersByRoleName(graph);
  const states = new Map<string, Map<string, number>>();
  graph.nodes.forEach(({ kind, meta }, n) => {
    if (kind !== 'placeholder' || meta.role !== 'state') return;
    const of = meta.roleName ?? '';
    const own = states.get(of) ?? new Map<string, number>();
    states.set(of, own.set(meta.stateName ?? '', n));
  });
  return ({ role, of = '', stateName = '' }) => {
    if (role === 'output') return undefined;
    return role === 'newstate' ? states.get(of)?.get(stateName) : named.get(of);
  };
}

/** Tells the outputs that are gradients of parameters: an optimizer waits for them, nobody else. */
export function gradientsOfParameters(graph: Graph): (output: Output) => boolean {
  const ownerOf = ownersOfOutputs(graph);
  return (output) => {
    const owner = output.role === 'grad' ? ownerOf(output) : undefined;
    return owner !== undefined && graph.nodes[owner].meta.role === 'parameter';
  };
}
