/** Finds the optimizer states of an imported training step and gives them their roles. */

import { ownersOfOutputs } from '../../graph/carried.ts';
import { roleName } from '../../graph/nodes.ts';
import type { Graph, Node, NodeMeta, Output } from '../../graph/types.ts';
import { eachOperand } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import { isFloating } from '../../ops/record/dtypes.ts';
import { countedText } from '../../units.ts';

/**
 * Tells what an optimizer keeps from what the model has, in an imported graph that updates some of
 * its inputs. A file states at most "parameter" and "buffer"; the program itself says the rest:
 *
 *  - a state is an updated input that reaches the new value of a parameter and no result of the
 *    program;
 *  - where inputs have no stated role, an updated input that reaches a result is a parameter if its
 *    new value is made with such a state.
 *
 * Statistics of a batch norm reach results, or nothing, and are made without states: they stay what
 * they are.
 *
 * @param given names to which the user gave a role: they keep it
 */
export function withStepRoles(graph: Graph, given: ReadonlySet<string>): Graph {
  const carried = carriedInputs(graph, given);
  if (carried.size === 0) return graph;
  const { results, updates } = reachOf(graph, carried);
  const madeWithState = (node: Node): boolean => (updates.get(node.name)?.size ?? 0) > 0;
  const isParameter = (node: Node): boolean =>
    node.meta.role === 'parameter' ||
    (isOpen(node.meta) && isNumber(node) && results.has(node.name) && madeWithState(node));
  const parameters = graph.nodes.filter((node) => carried.has(node.name) && isParameter(node));
  const ownersOf = new Map<string, Node[]>();
  for (const parameter of parameters)
    for (const name of updates.get(parameter.name) ?? []) {
      const known = ownersOf.get(name);
      if (known === undefined) ownersOf.set(name, [parameter]);
      else known.push(parameter);
    }
  const candidates = graph.nodes.filter(
    ({ name, meta }) =>
      carried.has(name) &&
      !results.has(name) &&
      (meta.role === 'buffer' || isOpen(meta)) &&
      !given.has(roleName({ name, meta })) &&
      !given.has(name),
  );
  const states = new Map(
    candidates.flatMap(({ name, meta }): [string, NodeMeta][] => {
      const owners = ownersOf.get(name);
      return owners === undefined
        ? []
        : [[name, stateMeta(meta, roleName({ name, meta }), owners)]];
    }),
  );
  if (states.size === 0) return graph;
  return { ...withStates(graph, states, parameters), notes: notesWith(graph, states, parameters) };
}

/** The state of one parameter, or of all that share it. */
function stateMeta(meta: NodeMeta, stateName: string, owners: readonly Node[]): NodeMeta {
  const [only, ...others] = owners;
  const owner = only !== undefined && others.length === 0 ? roleName(only) : 'optimizer';
  return { ...meta, role: 'state', roleName: owner, stateName, inferred: true };
}

/** The graph with its states and parameters, and with the new states among its outputs. */
function withStates(
  graph: Graph,
  states: ReadonlyMap<string, NodeMeta>,
  parameters: readonly Node[],
): Graph {
  const trained = new Set(parameters.map(({ name }) => name));
  const nodes = graph.nodes.map((node) => {
    const meta =
      states.get(node.name) ??
      (trained.has(node.name) ? { ...node.meta, role: 'parameter' as const } : node.meta);
    return meta === node.meta ? node : { ...node, meta };
  });
  const ownerOf = ownersOfOutputs(graph);
  const outputs = graph.outputs.map((output): Output => {
    const at = ownerOf(output);
    const state =
      at === undefined || output.role !== 'mutation'
        ? undefined
        : states.get(itemAt(graph.nodes, at).name);
    if (state === undefined) return output;
    return {
      value: output.value,
      role: 'newstate',
      of: state.roleName!,
      stateName: state.stateName!,
    };
  });
  return { ...graph, nodes, outputs };
}

/** The notes of a graph, and what was told of it here. */
function notesWith(
  { notes = [] }: Graph,
  states: ReadonlyMap<string, NodeMeta>,
  parameters: readonly Node[],
): readonly string[] {
  const [first] = states.values();
  const others = parameters.filter(({ meta }) => meta.role !== 'parameter').length;
  const promoted =
    others === 0
      ? ''
      : `, ${countedText(others, 'other')} as ${others === 1 ? 'a parameter' : 'parameters'}`;
  return [
    ...notes,
    `${countedText(states.size, 'updated input')} ` +
      `(${first?.stateName}${states.size > 1 ? ', ..' : ''}) that only new parameters are made ` +
      `of count as optimizer state${promoted}; --role NAME=buffer corrects this.`,
  ];
}

/** A role that the front end only worked out, and a user may still know better. */
function isOpen({ role, inferred }: NodeMeta): boolean {
  return role === 'input' && inferred === true;
}

function isNumber({ type }: Node): boolean {
  return type.kind === 'tensor' && isFloating(type.dtype);
}

/** Names of the placeholders that the program replaces. */
function carriedInputs(graph: Graph, given: ReadonlySet<string>): ReadonlySet<string> {
  const ownerOf = ownersOfOutputs(graph);
  const owners = graph.outputs.flatMap((output) =>
    output.role === 'mutation' && output.value !== null ? [ownerOf(output)] : [],
  );
  return new Set(
    owners.flatMap((n) => {
      const name = n === undefined ? undefined : itemAt(graph.nodes, n).name;
      return name === undefined || given.has(name) ? [] : [name];
    }),
  );
}

/** A new value that is made of more states than this is that of no parameter. */
const MOST_STATES = 1024;

/**
 * The carried inputs that some result depends on, and the other ones that each new value depends
 * on, by the input it replaces. Only those other ones are carried along: all weights reach nearly
 * all values.
 */
function reachOf(
  graph: Graph,
  carried: ReadonlySet<string>,
): { results: ReadonlySet<string>; updates: ReadonlyMap<string, ReadonlySet<string>> } {
  const { nodes } = graph;
  const read = new Set(
    graph.outputs.flatMap(({ role, value }) =>
      role === 'output' && value !== null ? [value] : [],
    ),
  );
  for (const node of nodes.toReversed())
    if (read.has(node.name)) eachOperand(node, (name) => read.add(name));
  const results = new Set([...carried].filter((name) => read.has(name)));
  const none: ReadonlySet<string> = new Set();
  const reach = new Map<string, ReadonlySet<string>>();
  for (const node of nodes) {
    let own =
      node.kind === 'placeholder' && carried.has(node.name) && !results.has(node.name)
        ? new Set([node.name])
        : none;
    if (node.kind !== 'placeholder')
      eachOperand(node, (name) => {
        const more = reach.get(name);
        if (more === undefined || more === own || isWithin(more, own)) return;
        own = own.size === 0 ? more : new Set([...own, ...more]);
      });
    if (own.size > 0 && own.size <= MOST_STATES) reach.set(node.name, own);
  }
  const ownerOf = ownersOfOutputs(graph);
  const updates = new Map<string, ReadonlySet<string>>();
  for (const output of graph.outputs) {
    const owner = ownerOf(output);
    if (owner === undefined || output.role !== 'mutation' || output.value === null) continue;
    updates.set(itemAt(nodes, owner).name, reach.get(output.value) ?? none);
  }
  return { results, updates };
}

function isWithin(part: ReadonlySet<string>, whole: ReadonlySet<string>): boolean {
  if (part.size > whole.size) return false;
  for (const name of part) if (!whole.has(name)) return false;
  return true;
}
