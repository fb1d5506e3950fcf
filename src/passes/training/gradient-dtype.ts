/**
 * Widens gradients of 16 bits to float32 where they are made, before data ranks sum them, as
 * trainers do that accumulate microbatches in float32 (Megatron's `main_grad`). It gives the graph
 * and the calls that widen.
 */

import { defined } from '../../defined.ts';
import { GraphBuilder } from '../../graph/build.ts';
import type { DType, Graph, Node } from '../../graph/types.ts';
import { eachOperand, ref } from '../../graph/value.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { CallBuilder } from '../../ops/vjp/build.ts';

const NARROW: ReadonlySet<DType> = new Set(['f16', 'bf16']);

/** The same graph where nothing is widened: gradients of float32 are never narrowed. */
export function gradientsIn(graph: Graph, dtype: DType, table: OperatorTable): Graph {
  const made = new Set(
    graph.outputs.flatMap(({ role, value }) => (role === 'grad' && value !== null ? [value] : [])),
  );
  const wanted = graph.nodes.filter((n) => made.has(n.name) && isCast(n, dtype));
  if (wanted.length === 0) return graph;
  const cast = new Map<string, string>();
  const builder = new GraphBuilder(graph.name);
  const calls = new CallBuilder(builder, table, new Set(graph.nodes.map((n) => n.name)));
  for (const [name, body] of Object.entries(graph.subgraphs)) builder.subgraph(name, body);
  for (const node of graph.nodes) {
    if (node.kind === 'placeholder') {
      builder.keep(node);
      continue;
    }
    calls.keep(node);
    if (!wanted.includes(node)) continue;
    calls.meta = {
      phase: 'backward',
      ...defined({ path: node.meta.path }),
    };
    cast.set(node.name, calls.cast(ref(node.name), dtype).name);
  }
  for (const output of graph.outputs) {
    const own =
      output.role === 'grad' && output.value !== null ? cast.get(output.value) : undefined;
    builder.output(own === undefined ? output : { ...output, value: own });
  }
  const { nodes, outputs, subgraphs } = builder.build();
  return { ...graph, nodes, outputs, subgraphs };
}

function isCast({ kind, target, type }: Node, dtype: DType): boolean {
  if (kind !== 'call' || !target.startsWith('aten.') || type.kind !== 'tensor') return false;
  return dtype === 'f32' && NARROW.has(type.dtype);
}

/**
 * Calls that take what they read where it is made: those that cast a gradient on its way out, and
 * the views and sums of gradients that they read, since what is summed over devices before would be
 * summed in the narrower dtype.
 */
export function gradientCasts(
  graph: Graph,
  dtype: DType,
  table: OperatorTable,
): ReadonlySet<number> {
  const made = new Set(
    graph.outputs.flatMap(({ role, value }) => (role === 'grad' && value !== null ? [value] : [])),
  );
  const found = new Set<number>();
  const through = new Set<string>();
  for (let i = graph.nodes.length - 1; i >= 0; i--) {
    const node = graph.nodes[i];
    if (node.kind !== 'call' || node.type.kind !== 'tensor') continue;
    const isCast =
      made.has(node.name) && /^aten\._to_copy\./.test(node.target) && node.type.dtype === dtype;
    const passes = table.get(node.target)?.cls === 'view' || node.target === 'aten.add.Tensor';
    if (!isCast && !(through.has(node.name) && passes && node.meta.phase !== 'forward')) continue;
    found.add(i);
    eachOperand(node, (name) => through.add(name));
  }
  return found;
}
