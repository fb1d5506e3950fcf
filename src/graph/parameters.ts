/** Lists the parameters of a graph, tied ones as one. */

import { ShardwrightError } from '../errors.ts';
import { roleName } from './nodes.ts';
import { DTYPE_BYTES, type Graph, type Node, type TensorType } from './types.ts';
import { elementCount } from './value.ts';

/** One parameter tensor: a placeholder, or several that are tied. */
interface Parameter {
  /** Role name of the first placeholder, which owns the storage. */
  readonly name: string;
  readonly type: TensorType;
  readonly elements: number;
  readonly bytes: number;
  /** All placeholders that are this tensor, the owner first. */
  readonly placeholders: readonly Node[];
}

/**
 * The parameters of a graph in the order of their placeholders; a tied group is one parameter.
 *
 * @throws E_TYPE when a parameter is not a tensor or has a size without a known value
 */
export function parametersOf(graph: Graph): readonly Parameter[] {
  const owner = new Map<string, string>();
  for (const group of graph.ties ?? []) for (const name of group) owner.set(name, group[0]);
  const groups = new Map<string, Node[]>();
  for (const node of graph.nodes) {
    if (node.kind !== 'placeholder') break;
    if (node.meta.role !== 'parameter') continue;
    const name = roleName(node);
    const key = owner.get(name) ?? name;
    const members = groups.get(key);
    if (members === undefined) groups.set(key, [node]);
    else members.push(node);
  }
  return [...groups].map(([name, placeholders]) => {
    const { type } = placeholders[0];
    const elements = type.kind === 'tensor' ? elementCount(type) : undefined;
    if (type.kind !== 'tensor' || elements === undefined)
      throw new ShardwrightError('E_TYPE', `parameter '${name}' has no known size`, {
        node: placeholders[0].name,
        hint: 'state the size of each symbol',
      });
    return { name, type, elements, bytes: elements * DTYPE_BYTES[type.dtype], placeholders };
  });
}
