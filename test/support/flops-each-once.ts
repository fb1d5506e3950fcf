/**
 * A program goes in; its matrix FLOPs come out with every body counted once, as a count over the
 * text of the program gives.
 */

import { interpret } from '../../src/graph/interpret.ts';
import type { Graph, ValueType } from '../../src/graph/types.ts';
import { bind } from '../../src/ops/record/infer.ts';
import type { OperatorTable } from '../../src/ops/record/table.ts';

export function flopsEachOnce(graph: Graph, table: OperatorTable, seen = new Set<Graph>()): number {
  if (seen.has(graph)) return 0;
  seen.add(graph);
  let total = 0;
  interpret<ValueType>(graph, {
    placeholder: (node) => node.type,
    getAttr: (node) => node.type,
    call: (node, _operands, frame) => {
      const context = bind(table, node, (name) => frame.value(name));
      if (context !== undefined) total += table.get(node.target)?.flops(context).matrix ?? 0;
      return node.type;
    },
  });
  for (const body of Object.values(graph.subgraphs)) total += flopsEachOnce(body, table, seen);
  return total;
}
