/** Maps every value of a joint graph to the parameter whose gradient it is, seen through views. */

import { ownersOfOutputs } from '../../graph/carried.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Model } from '../../plan/model/model.ts';

/**
 * For every value, the parameter (node) whose gradient it is, -1 for none: outputs, and values that
 * only views separate from one.
 */
export function gradientRoots(
  { graph, flow }: Pick<Model, 'graph' | 'flow'>,
  table: OperatorTable,
): Int32Array {
  const found = new Int32Array(flow.values.length).fill(-1);
  const users = new Int32Array(flow.values.length);
  for (const list of flow.inputs) for (const v of list) users[v]++;
  const ownerOf = ownersOfOutputs(graph);
  for (const { output, value } of flow.outputs) {
    if (output.role !== 'grad' || value < 0) continue;
    const parameter = ownerOf(output) ?? -1;
    for (let v = value; v >= 0 && found[v] < 0;) {
      found[v] = parameter;
      const { node } = flow.values[v];
      const inputs = flow.inputs[node];
      const isView = table.get(graph.nodes[node].target)?.cls === 'view' && inputs.length === 1;
      v = isView && users[inputs[0]] === 1 && flow.phases[node] === 'backward' ? inputs[0] : -1;
    }
  }
  return found;
}
