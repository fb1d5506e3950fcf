/**
 * Finds the routed blocks of a program: the value that each reads and the one that it gives back,
 * its calls in both passes, and its parameters. Trainers run them otherwise than the program says:
 * every device sorts its own tokens by expert, and exchanges them with the others.
 */

import { defined } from '../../defined.ts';
import { internalError } from '../../errors.ts';
import { nodesByName, roleName } from '../../graph/nodes.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { eachOperand, sameShape } from '../../graph/value.ts';
import { backwardStart } from '../../passes/plannable/weight-views.ts';

/** Stands in the names of the parameters of experts. */
export const EXPERTS = '.experts.';
const SHARED = /\.shared_expert/;

/** The routed block of a layer in the forward pass. */
export interface Block {
  readonly scope: string;
  /** The value that the block reads, and the one that it gives back. */
  readonly entry: string;
  readonly exit: string;
  /** Its calls, exit included. */
  readonly calls: ReadonlySet<string>;
}

type IsForward = (node: Node, i: number) => boolean;

/**
 * The routed block of each scope in a forward pass.
 *
 * @throws E_INTERNAL for a scope that nothing goes into, or comes out of
 */
export function routedBlocks(graph: Graph, isForward: IsForward): Block[] {
  return foundBlocks(graph, isForward).map(({ scope, entry, exit, calls }) => {
    if (entry === undefined || exit === undefined)
      throw internalError(`the routed block ${scope} has no value that goes in or comes out`);
    return { scope, entry, exit, calls };
  });
}

/** Tells whether all routed experts of a joint program are in blocks that are read apart. */
export function hasRoutedBlocks(graph: Graph): boolean {
  const start = backwardStart(graph);
  const found = foundBlocks(graph, (node, i) => node.kind === 'call' && i < start);
  const grouped = new Set(
    graph.nodes.flatMap(({ name, target }) => (isGroupedProduct(target) ? [name] : [])),
  );
  return (
    found.length > 0 &&
    found.every(
      ({ entry, exit, calls }) =>
        entry !== undefined && exit !== undefined && [...calls].some((name) => grouped.has(name)),
    )
  );
}

/** A product of the experts of a device with their rows. */
export function isGroupedProduct(target: string): boolean {
  return target.includes('_grouped_mm');
}

/** The nodes of the blocks and of their backward passes, by node. */
export function routedCalls(
  graph: Graph,
  phases: readonly ('forward' | 'backward')[],
  found: readonly Block[],
): boolean[] {
  const forward = new Set(found.flatMap((b) => [...b.calls]));
  return graph.nodes.map((node, i) => {
    if (node.kind !== 'call') return false;
    if (phases[i] === 'forward') return forward.has(node.name);
    const { of, path } = node.meta;
    return of !== undefined ? forward.has(of) : found.some((b) => isInside(path, b.scope));
  });
}

/** Tells whether a module or a parameter belongs to the routed block of a scope. */
export function isInside(path: string | undefined, scope: string): boolean {
  if (path === undefined || !(path === scope || path.startsWith(`${scope}.`))) return false;
  return !SHARED.test(path.slice(scope.length));
}

/** A block as far as it was found. */
type Found = Pick<Block, 'scope' | 'calls'> & Partial<Pick<Block, 'entry' | 'exit'>>;

function foundBlocks(graph: Graph, isForward: IsForward): Found[] {
  const types = nodesByName(graph);
  return routedScopes(graph).map((scope) => {
    const calls = new Set<string>();
    const expert = new Set<string>();
    let entry: string | undefined;
    let exit: string | undefined;
    for (const [i, node] of graph.nodes.entries()) {
      if (node.kind === 'placeholder') {
        if (roleName(node).startsWith(`${scope}${EXPERTS}`)) expert.add(node.name);
        continue;
      }
      if (exit !== undefined || !isForward(node, i) || !isInside(node.meta.path, scope)) continue;
      calls.add(node.name);
      eachOperand(node, (name) => {
        if (expert.has(name)) expert.add(node.name);
        const from = types.get(name);
        if (entry === undefined && from?.kind === 'call' && !calls.has(name)) entry = name;
      });
      if (entry === undefined || !expert.has(node.name)) continue;
      const [read, made] = [types.get(entry)?.type, node.type];
      if (read?.kind === 'tensor' && made.kind === 'tensor' && sameShape(read.shape, made.shape))
        exit = node.name;
    }
    return { scope, calls, ...defined({ entry, exit }) };
  });
}

/** Module paths that hold routed experts, such as `model.layers.3.mlp`. */
function routedScopes(graph: Graph): string[] {
  const scopes = new Set<string>();
  for (const node of graph.nodes) {
    const name = roleName(node);
    const at = name.indexOf(EXPERTS);
    if (node.kind === 'placeholder' && node.meta.role === 'parameter' && at > 0)
      scopes.add(name.slice(0, at));
  }
  return [...scopes];
}
