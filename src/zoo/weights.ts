import { placeholdersByRoleName } from '../graph/carried.ts';
import type { Graph } from '../graph/types.ts';
import type { Dataflow } from '../strategy/dataflow.ts';

/**
 * What Megatron does with a weight: cut it on `dim`, or keep it whole. The dim of an expert weight is that of the experts; `inner`
 * is the dim inside each expert that is the output of its first product and the input of its second.
 */
export type WeightRole =
  | { readonly kind: 'column' | 'row' | 'vocabulary'; readonly dim: number }
  | { readonly kind: 'expert'; readonly dim: 0; readonly inner?: 1 | 2 }
  | { readonly kind: 'whole' };

// Names that Hugging Face, torchtitan, Megatron and plain MLPs give to the first and the second weight of a pair.
const COLUMN =
  /(^|[._])(q|k|v|qkv|q_b|kv_b|gate|up|gate_up|in|query_key_value)_proj|(^|[._])(query|key|value|c_attn|c_fc|fc1|wq|wk|wv|w1|w3|lm_head|linear1|linear_fc1|linear_qkv)([._]|$)|intermediate\.dense/;
const ROW = /(^|[._])(o|down|out)_proj|(^|[._])(c_proj|fc2|wo|w2|linear2|linear_fc2|linear_proj)([._]|$)|output\.dense/;
const EXPERTS = /(^|[._])experts([._]|$)/;
const TOKENS = /(^|[._])(embed_tokens|wte|word_embeddings|tok_embeddings)([._]|$)/;

/**
 * Megatron's role of every parameter, by node index. Column and row are told by name; which of a matrix's dims is the
 * output is told by the program: a weight that is transposed before its product is stored [out, in], one that is not
 * [in, out].
 */
export function weightRoles(graph: Graph, flow: Dataflow): Map<number, WeightRole> {
  const roles = new Map<number, WeightRole>();
  // By first use: the backward pass transposes what the forward did not.
  const seen = new Set<number>();
  const transposed = new Set<number>();
  graph.nodes.forEach((node, n) => {
    for (const v of flow.inputs[n]) {
      if (!seen.has(v) && node.kind === 'call' && TRANSPOSES.has(node.target)) transposed.add(v);
      seen.add(v);
    }
  });
  const table = graph.nodes.findIndex((n) => n.kind === 'placeholder' && TOKENS.test(n.meta.roleName ?? n.name));
  const stream = table < 0 ? undefined : flow.values[flow.results[table][0]].meta.shape[1];
  graph.nodes.forEach((node, n) => {
    if (node.kind !== 'placeholder' || node.meta.role !== 'parameter') return;
    const name = node.meta.roleName ?? node.name;
    const value = flow.results[n][0];
    const rank = flow.values[value].meta.shape.length;
    const out = transposed.has(value) || rank === 1 ? 0 : 1;
    if (TOKENS.test(name)) roles.set(n, { kind: 'vocabulary', dim: 0 });
    else if (EXPERTS.test(name) && rank === 3) {
      const inner = innerDim(name, flow.values[value].meta.shape, stream, transposed.has(value));
      roles.set(n, { kind: 'expert', dim: 0, ...(inner === undefined ? {} : { inner }) });
    } else if (COLUMN.test(name) && rank <= 2) roles.set(n, { kind: 'column', dim: out });
    else if (ROW.test(name) && rank === 2) roles.set(n, { kind: 'row', dim: 1 - out });
    else roles.set(n, { kind: 'whole' });
  });
  for (const group of tiedParameters(graph)) {
    // Names of one tensor have one role: that of the name under which the program reads it.
    const owner = group.find((n) => seen.has(flow.results[n][0])) ?? group[0];
    for (const n of group) roles.set(n, roles.get(owner) ?? { kind: 'whole' });
  }
  return roles;
}

/**
 * The dim inside an expert of a weight [experts, a, b]: the one that is not as wide as the stream; where both are or none, told as
 * for other weights; undefined where its name tells nothing.
 */
function innerDim(name: string, shape: readonly number[], stream: number | undefined, isTransposed: boolean): 1 | 2 | undefined {
  const [, a, b] = shape;
  if ((a === stream) !== (b === stream)) return a === stream ? 2 : 1;
  const isRow = ROW.test(name);
  if (!isRow && !COLUMN.test(name)) return undefined;
  return isRow === isTransposed ? 2 : 1;
} // prettier-ignore

/** Node numbers of the parameters that are one tensor, group by group. */
function tiedParameters(graph: Graph): number[][] {
  const byName = placeholdersByRoleName(graph);
  return (graph.ties ?? []).map((names) => names.flatMap((name) => byName.get(name) ?? []));
}

const TRANSPOSES = new Set(['aten.t.default', 'aten.transpose.int', 'aten.permute.default', 'aten.linear.default']);
