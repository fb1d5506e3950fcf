/** Numbers the layers of an encoder and a decoder as one stack. */

import { roleName } from '../graph/nodes.ts';
import type { Graph, Node } from '../graph/types.ts';
import { LAYER } from './layers.ts';

/** A graph whose layers are numbered as they run, and the layers of each stack. */
interface OneStack {
  readonly graph: Graph;
  readonly stacks: readonly number[];
}

/**
 * The same graph with the layers of all stacks numbered one after another, in the order in which
 * they run: `encoder.block.0` to `encoder.block.23`, then `decoder.block.24`. Paths of calls and
 * names of parameters change; a graph of one stack stays as it is.
 */
export function oneStack(graph: Graph): OneStack {
  const sizes = new Map<string, number>();
  for (const node of graph.nodes) {
    const match = node.kind === 'call' ? LAYER.exec(node.meta.path ?? '') : null;
    if (match === null) continue;
    const [, prefix, number] = match;
    sizes.set(prefix, Math.max(sizes.get(prefix) ?? 0, Number(number) + 1));
  }
  const stacks = [...sizes.values()];
  if (stacks.length < 2) return { graph, stacks };
  const first = new Map<string, number>();
  let before = 0;
  for (const [prefix, size] of sizes) {
    first.set(prefix, before);
    before += size;
  }
  const renumbered = (path: string): string => {
    const [, prefix = '', number = ''] = LAYER.exec(path) ?? [];
    const shift = first.get(prefix);
    if (shift === undefined || number === '') return path;
    return `${prefix}${Number(number) + shift}${path.slice(prefix.length + number.length)}`;
  };
  const nodes = graph.nodes.map((node): Node => {
    const { path } = node.meta;
    if (node.kind === 'placeholder')
      return { ...node, meta: { ...node.meta, roleName: renumbered(roleName(node)) } };
    return path === undefined ? node : { ...node, meta: { ...node.meta, path: renumbered(path) } };
  });
  return { graph: { ...graph, nodes }, stacks };
}
