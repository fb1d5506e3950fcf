/** Finds the layer of a module path or a parameter name, and the layers of a graph. */

import { ShardwrightError } from '../errors.ts';
import { roleName } from '../graph/nodes.ts';
import type { Graph } from '../graph/types.ts';

/** A path up to its layer, and the number of that. */
export const LAYER = /^(.*?(?:^|[._])(?:layers?|h|blocks?)[._])(\d+)(?:[._]|$)/;

/** Number of the layer that a module path or parameter name is in; undefined outside the layers. */
export function layerOf(path: string | undefined): number | undefined {
  const match = path === undefined ? null : LAYER.exec(path);
  return match === null ? undefined : Number(match[2]);
}

/** The layers of a graph, those of an encoder and a decoder numbered one after another. */
export interface LayerNumbers {
  /** Layers of each stack, in the order in which the stacks run. */
  readonly stacks: readonly number[];
  /** Layers of all stacks. */
  readonly count: number;
  /** Number of the layer of a module path or parameter name; undefined outside the layers. */
  readonly of: (path: string | undefined) => number | undefined;
}

/**
 * Numbers the layers of a graph as they run: `encoder.block.0` to `encoder.block.23` are 0 to 23,
 * `decoder.block.0` is 24. Stacks are told by the paths of calls, or by the names of parameters
 * where no call has one.
 */
export function layerNumbers(graph: Graph): LayerNumbers {
  const sizes = new Map<string, number>();
  const meet = (path: string | undefined): void => {
    const [, prefix, number] = LAYER.exec(path ?? '') ?? [];
    if (prefix === undefined) return;
    sizes.set(prefix, Math.max(sizes.get(prefix) ?? 0, Number(number) + 1));
  };
  for (const { kind, meta } of graph.nodes) if (kind === 'call') meet(meta.path);
  if (sizes.size === 0)
    for (const node of graph.nodes) if (node.meta.role === 'parameter') meet(roleName(node));
  const first = new Map<string, number>();
  let count = 0;
  for (const [prefix, size] of sizes) {
    first.set(prefix, count);
    count += size;
  }
  return {
    stacks: [...sizes.values()],
    count,
    of(path) {
      const [, prefix, number] = LAYER.exec(path ?? '') ?? [];
      return prefix === undefined ? undefined : Number(number) + (first.get(prefix) ?? 0);
    },
  };
}

/** A module path inside its layer, '' for the layer itself; undefined outside the layers. */
export function pathInLayer(path: string | undefined): string | undefined {
  return layerOf(path) === undefined ? undefined : path?.replace(LAYER, '');
}

/**
 * Number of layers of a graph whose layers are one stack, numbered from 0.
 *
 * @throws E_UNSUPPORTED for a graph without layers, with several stacks, or with gaps
 */
export function stackLayers(graph: Graph): number {
  const stacks = new Set<string>();
  const numbers = new Set<number>();
  for (const node of graph.nodes) {
    const match = node.kind === 'placeholder' ? LAYER.exec(roleName(node)) : null;
    if (match === null || node.meta.role !== 'parameter') continue;
    stacks.add(match[1]);
    numbers.add(Number(match[2]));
  }
  const layers = Math.max(-1, ...numbers) + 1;
  if (stacks.size !== 1 || numbers.size !== layers)
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      `the layers of '${graph.name}' are not one stack, numbered from 0`,
      {
        hint: 'pipeline stages are cut between the layers of a decoder or an encoder.',
      },
    );
  return layers;
}
