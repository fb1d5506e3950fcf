/**
 * Gives Megatron's role of every parameter (column, row, expert, replicated), by its name and by
 * its use in the program (arXiv:1909.08053).
 */

import { defined } from '../defined.ts';
import { placeholdersByRoleName } from '../graph/carried.ts';
import { roleName } from '../graph/nodes.ts';
import type { Graph, Node } from '../graph/types.ts';
import { push } from '../list-map.ts';
import type { Dataflow } from '../strategy/dataflow.ts';

/**
 * Megatron's treatment of a weight: cut on `dim`, or whole. The dim of an expert weight is that of
 * the experts; `inner` is the dim inside each expert that is the output of its first product and
 * the input of its second.
 */
export type WeightRole =
  | { readonly kind: 'column' | 'row' | 'vocabulary'; readonly dim: number }
  | { readonly kind: 'expert'; readonly dim: 0; readonly inner?: 1 | 2 }
  | { readonly kind: 'whole' };

// Names that Hugging Face (T5 has its own), torchtitan, Megatron and plain MLPs give to the first
// and the second weight of a pair.
const COLUMN =
  /(^|[._])(q|k|v|qkv|q_b|kv_b|gate|up|gate_up|in|query_key_value)_proj|(^|[._])(query|key|value|c_attn|c_fc|fc1|wq|wk|wv|w1|w3|lm_head|linear1|linear_fc1|linear_qkv)([._]|$)|intermediate\.dense|Attention[._][qkv][._]|DenseReluDense[._]wi(_[01])?[._]/;
const ROW =
  /(^|[._])(o|down|out)_proj|(^|[._])(c_proj|fc2|wo|w2|linear2|linear_fc2|linear_proj)([._]|$)|output\.dense|Attention[._]o[._]/;
const EXPERTS = /(^|[._])experts([._]|$)/;
const TOKENS =
  /(^|[._])(embed_tokens|wte|word_embeddings|tok_embeddings)([._]|$)|^(p_)?shared[._]weight$/;

/**
 * Tells whether a name is of the half of an adapter that stays whole: `B` is cut as the result of a
 * column weight, `A` as the input of a row weight, the other one not (torchtitan 0.3,
 * `components/lora.py`).
 */
function isWholeAdapter(name: string): boolean {
  const [, which] = /\.lora_([AB])\./.exec(name) ?? [];
  return which === 'A' ? COLUMN.test(name) : which === 'B' && ROW.test(name);
}

/** Tells whether a call gives its input in another dtype. */
export function isCast({ kind, target }: Node): boolean {
  return kind === 'call' && /^(aten\._to_copy|aten\.to|prims\.convert_element_type)\./.test(target);
}

/**
 * Megatron's role of every parameter, by node index. Names decide column and row; the program
 * decides which of a matrix's dims is the output: a weight that is transposed before its product is
 * stored [out, in], one that is not [in, out].
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
  const table = graph.nodes.findIndex((n) => n.kind === 'placeholder' && TOKENS.test(roleName(n)));
  const stream = table < 0 ? undefined : flow.values[flow.results[table][0]].meta.shape[1];
  graph.nodes.forEach((node, n) => {
    if (node.kind !== 'placeholder' || node.meta.role !== 'parameter') return;
    const name = roleName(node);
    const value = flow.results[n][0];
    const rank = flow.values[value].meta.shape.length;
    const out = transposed.has(value) || rank === 1 ? 0 : 1;
    if (isWholeAdapter(name)) roles.set(n, { kind: 'whole' });
    else if (TOKENS.test(name)) roles.set(n, { kind: 'vocabulary', dim: 0 });
    else if (EXPERTS.test(name) && rank === 3) {
      const inner = innerDim(name, flow.values[value].meta.shape, stream, transposed.has(value));
      roles.set(n, { kind: 'expert', dim: 0, ...defined({ inner }) });
    } else if (COLUMN.test(name) && rank <= 2) roles.set(n, { kind: 'column', dim: out });
    else if (ROW.test(name) && rank === 2) roles.set(n, { kind: 'row', dim: 1 - out });
    else roles.set(n, { kind: 'whole' });
  });
  keepPairs(graph, flow, roles);
  for (const group of tiedParameters(graph)) {
    // Names of one tensor have one role: that of the name under which the program reads it.
    const owner = group.find((n) => seen.has(flow.results[n][0])) ?? group[0];
    for (const n of group) roles.set(n, roles.get(owner) ?? { kind: 'whole' });
  }
  return roles;
}

/**
 * The dim inside an expert of a weight [experts, a, b]: the one that is not as wide as the stream;
 * where both are or none, told as for other weights; undefined where its name tells nothing.
 */
function innerDim(
  name: string,
  shape: readonly number[],
  stream: number | undefined,
  isTransposed: boolean,
): 1 | 2 | undefined {
  const [, a, b] = shape;
  if ((a === stream) !== (b === stream)) return a === stream ? 2 : 1;
  const isRow = ROW.test(name);
  if (!isRow && !COLUMN.test(name)) return undefined;
  return isRow === isTransposed ? 2 : 1;
}

/**
 * A name alone makes no pair: a column weight stays one if what its product gives goes, without
 * being gathered or scattered by an index (as along the edges of a graph), into the product of a
 * row weight, and a row weight if some column weight leads to it. The head, whose result is the
 * logits, needs no partner.
 */
function keepPairs(graph: Graph, flow: Dataflow, roles: Map<number, WeightRole>): void {
  const owner = parameterOfValues(graph, flow);
  const users = forwardUsers(graph, flow);
  const usersOf = (n: number): number[] =>
    [...flow.results[n]]
      .flatMap((v) => users.get(v) ?? [])
      .filter((next) => !BY_INDEX.test(graph.nodes[next].target));
  const rowsOf = (n: number): number[] =>
    [...flow.inputs[n]].flatMap((v) => {
      const p = owner.get(v);
      return p !== undefined && roles.get(p)?.kind === 'row' ? [p] : [];
    });
  // Products by parameter: a view of a parameter is still the parameter.
  const products = new Map<number, number[]>();
  for (const [value, parameter] of owner)
    if (roles.get(parameter)?.kind === 'column')
      for (const n of users.get(value) ?? [])
        if (!owner.has(flow.results[n][0])) push(products, parameter, n);
  const leads = leadsToRow(graph, usersOf, rowsOf);
  const kept = new Set([...products].flatMap(([p, own]) => (own.some((n) => leads[n]) ? [p] : [])));
  const reached = rowsReached([...products.values()].flat(), usersOf, rowsOf);
  for (const [n, role] of roles) {
    const name = roleName(graph.nodes[n]);
    if (
      role.kind === 'column'
        ? !kept.has(n) && !HEAD.test(name)
        : role.kind === 'row' && !reached.has(n)
    )
      roles.set(n, { kind: 'whole' });
  }
}

/** The calls of the forward pass that read a value. */
function forwardUsers(graph: Graph, flow: Dataflow): Map<number, number[]> {
  const users = new Map<number, number[]>();
  graph.nodes.forEach((node, n) => {
    if (node.kind === 'call' && flow.phases[n] === 'forward')
      for (const v of flow.inputs[n]) push(users, v, n);
  });
  return users;
}

/** The parameter of a value that is one, or a view of one. */
function parameterOfValues(graph: Graph, flow: Dataflow): Map<number, number> {
  const owner = new Map<number, number>();
  graph.nodes.forEach((node, n) => {
    if (node.kind === 'placeholder' && node.meta.role === 'parameter')
      owner.set(flow.results[n][0], n);
    else if (node.kind === 'call' && flow.inputs[n].length === 1 && owner.has(flow.inputs[n][0]))
      owner.set(flow.results[n][0], owner.get(flow.inputs[n][0])!);
  });
  return owner;
}

/**
 * Tells of each node whether its result goes into the product of a row weight. Users come after
 * what they read.
 */
function leadsToRow(
  graph: Graph,
  usersOf: (n: number) => readonly number[],
  rowsOf: (n: number) => readonly number[],
): boolean[] {
  const leads = graph.nodes.map(() => false);
  for (let n = leads.length - 1; n >= 0; n--)
    leads[n] = usersOf(n).some((next) => leads[next] || rowsOf(next).length > 0);
  return leads;
}

/** The row weights of the first products of row weights that results of these products come to. */
function rowsReached(
  products: readonly number[],
  usersOf: (n: number) => readonly number[],
  rowsOf: (n: number) => readonly number[],
): Set<number> {
  const reached = new Set<number>();
  const seen = new Set(products);
  const stack = [...seen];
  for (let n = stack.pop(); n !== undefined; n = stack.pop())
    for (const next of usersOf(n)) {
      const rows = rowsOf(next);
      for (const p of rows) reached.add(p);
      if (rows.length > 0 || seen.has(next)) continue;
      seen.add(next);
      stack.push(next);
    }
  return reached;
}

const HEAD = /(^|[._])lm_head([._]|$)/;
/** Reads and writes of rows by an index, as messages along edges are. */
const BY_INDEX =
  /index_add|index_select|index_put|index_reduce|(?<!slice_|select_)scatter|gather|segment_reduce|_sparse_mm|\.index\.Tensor/;

/** Node numbers of the parameters that are one tensor, group by group. */
function tiedParameters(graph: Graph): number[][] {
  const byName = placeholdersByRoleName(graph);
  return (graph.ties ?? []).map((names) => names.flatMap((name) => byName.get(name) ?? []));
}

const TRANSPOSES = new Set([
  'aten.t.default',
  'aten.transpose.int',
  'aten.permute.default',
  'aten.linear.default',
]);
