/**
 * Writes a graph without the names of the program that it is from, so that stages of equal layers
 * are equal texts and are planned once.
 */

import { printGraph } from '../../graph/text/write.ts';
import type { Graph, Node, NodeMeta, Output } from '../../graph/types.ts';
import { mapOperands } from '../../graph/value.ts';

/** A graph with names by position, its text, and what its inputs were called. */
export interface Unnamed {
  readonly graph: Graph;
  readonly text: string;
  /** Role name there, by the role name that an input had. */
  readonly roles: ReadonlyMap<string, string>;
  /** Names of values there, by the names that they had. */
  readonly values: ReadonlyMap<string, string>;
}

/** The same graph with values and inputs named by their positions. */
export function unnamed(graph: Graph): Unnamed {
  const values = new Map(graph.nodes.map(({ name }, i) => [name, `v${i}`]));
  const roles = new Map(
    graph.nodes.flatMap(({ name, kind, meta }, i) =>
      kind === 'placeholder' ? [[meta.roleName ?? name, `input${i}`] as const] : [],
    ),
  );
  const valueOf = (name: string): string => values.get(name) ?? name;
  const roleOf = (name: string): string => roles.get(name) ?? name;
  const nodes = graph.nodes.map((node): Node => {
    const { kind, target } = node;
    const name = valueOf(node.name);
    const renamed = mapOperands(node, valueOf);
    return {
      ...renamed,
      name,
      target: kind === 'placeholder' ? name : target,
      meta: metaOf(node.meta, roleOf, valueOf),
    };
  });
  const outputs = graph.outputs.map((output): Output => ({
    ...output,
    value: output.value === null ? null : valueOf(output.value),
    ...(output.of === undefined ? {} : { of: roleOf(output.of) }),
  }));
  const { notes: _notes, ties, given, ...rest } = graph;
  const same: Graph = {
    ...rest,
    name: 'stage',
    nodes,
    outputs,
    ...(ties === undefined ? {} : { ties: ties.map((group) => group.map(roleOf)) }),
    ...(given === undefined
      ? {}
      : {
          given: given.map((one) =>
            one.value === undefined ? one : { ...one, value: valueOf(one.value) },
          ),
        }),
  };
  return { graph: same, text: printGraph(same, { source: false }), roles, values };
}

/** Roles, phases and wishes stay; places in the source and names do not. */
function metaOf(
  { role, roleName, roleIndex, stateName, phase, savedOnly, save, repeats }: NodeMeta,
  roleOf: (name: string) => string,
  valueOf: (name: string) => string,
): NodeMeta {
  return {
    ...(role === undefined ? {} : { role }),
    ...(roleName === undefined ? {} : { roleName: roleOf(roleName) }),
    ...(roleIndex === undefined ? {} : { roleIndex }),
    ...(stateName === undefined ? {} : { stateName }),
    ...(phase === undefined ? {} : { phase }),
    ...(savedOnly === undefined ? {} : { savedOnly }),
    ...(save === undefined ? {} : { save }),
    ...(repeats === undefined ? {} : { repeats: valueOf(repeats) }),
  };
}
