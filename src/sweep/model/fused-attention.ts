/**
 * Rewrites attention whose values have other channels than its keys into one fused call, so that it
 * can be priced as one.
 */

import { internalError } from '../../errors.ts';
import { typesByName } from '../../graph/nodes.ts';
import type { Graph, Node, ValueRef, ValueType } from '../../graph/types.ts';
import { isRef } from '../../graph/value.ts';
import { bind, inferCall } from '../../ops/record/infer.ts';
import type { OperatorTable } from '../../ops/record/table.ts';

const COMPOSITE = 'aten.scaled_dot_product_attention.default';
/**
 * The rules and costs of all fused forms are one; this one is what other attention is traced to.
 */
const FUSED = 'aten._scaled_dot_product_flash_attention_for_cpu.default';

/**
 * A forward program whose attention is fused also where values have other channels than keys
 * (multi-head latent attention, 192 and 128 in DeepSeek-V3). PyTorch has no such kernel on a CPU,
 * so tracing for it writes products and a softmax, which keep all scores; on the devices that are
 * priced here cuDNN and FlashAttention-3 have one, and frameworks train with it. What is masked by
 * a tensor or drops weights stays as it is.
 */
export function withFusedAttention(graph: Graph, table: OperatorTable): Graph {
  const types = typesByName(graph);
  const typeOf = (name: string): ValueType => {
    const type = types.get(name);
    if (type === undefined) throw internalError(`value '${name}' is not defined`);
    return type;
  };
  if (!graph.nodes.some((n) => n.target === COMPOSITE)) return graph;
  const nodes = graph.nodes.flatMap((node): Node[] => {
    if (node.kind !== 'call' || node.target !== COMPOSITE || !isLatent(node, types)) return [node];
    const context = bind(table, node, typeOf);
    const [query, key, value] = node.args;
    if (
      context === undefined ||
      context.tensor('attn_mask') !== undefined ||
      context.number('dropout_p') !== 0
    )
      return [node];
    const scale = node.kwargs.scale;
    const kwargs = scale === undefined || scale === null ? {} : { scale };
    const call = {
      target: FUSED,
      args: [query, key, value, { kind: 'float' as const, value: 0 }, context.bool('is_causal')],
      kwargs,
    };
    const type = inferCall(table, call, typeOf);
    if (type === undefined) return [node];
    const fused: Node = { ...node, ...call, name: `${node.name}_fused`, type };
    const ref: ValueRef = { kind: 'value', name: fused.name };
    return [fused, { ...node, target: 'operator.getitem', args: [ref, 0], kwargs: {} }];
  });
  return { ...graph, nodes };
}

/**
 * Tells whether query, key and value have four dims and as many heads, and values other channels
 * than keys.
 */
function isLatent(node: Node, types: ReadonlyMap<string, ValueType>): boolean {
  const [query, key, value] = node.args
    .slice(0, 3)
    .map((arg) => (isRef(arg) ? types.get(arg.name) : undefined));
  if (
    query?.kind !== 'tensor' ||
    key?.kind !== 'tensor' ||
    value?.kind !== 'tensor' ||
    query.shape.length !== 4
  )
    return false;
  const heads = query.shape[1];
  return key.shape[1] === heads && value.shape[1] === heads && value.shape[3] !== query.shape[3];
}
