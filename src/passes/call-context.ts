/**
 * Calls of a graph as operator records see them, at whole (unsharded) sizes; symbolic sizes by
 * their example.
 */

import type { Graph, Node, ValueType } from '../graph/types.ts';
import { exampleShape } from '../graph/value.ts';
import { bindCall, tensorInputs, withOutputs } from '../ops/record/context.ts';
import type { OperatorRecord, TensorMeta, TypedContext } from '../ops/record/record.ts';

export function tensorMeta(type: ValueType): TensorMeta | undefined {
  if (type.kind !== 'tensor') return undefined;
  return {
    dtype: type.dtype,
    shape: exampleShape(type),
  };
}

/** The types of all nodes whose value is a tensor, by name. */
export function tensorMetas(graph: Graph): Map<string, TensorMeta> {
  const metas = new Map<string, TensorMeta>();
  for (const node of graph.nodes) {
    const meta = tensorMeta(node.type);
    if (meta !== undefined) metas.set(node.name, meta);
  }
  return metas;
}

/**
 * The typed call of a node; undefined when one of its tensor inputs is a tuple or no value of the
 * graph.
 */
export function callContext(
  node: Node,
  record: OperatorRecord,
  metas: ReadonlyMap<string, TensorMeta>,
): TypedContext | undefined {
  if (tensorInputs(record, node.args, node.kwargs).some((name) => !metas.has(name)))
    return undefined;
  const ctx = bindCall(record, node.args, node.kwargs, (name) => metas.get(name) as TensorMeta);
  const outputs =
    node.type.kind === 'tuple'
      ? node.type.items.map((t) => tensorMeta(t) ?? null)
      : [tensorMeta(node.type) ?? null];
  return withOutputs(ctx, outputs);
}
