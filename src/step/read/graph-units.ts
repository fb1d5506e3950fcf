/**
 * Assigns every call of a joint graph to a pipeline unit and a pass (forward, input gradient,
 * weight gradient).
 */

import { roleName } from '../../graph/nodes.ts';
import { type GraphIndex, indexGraph } from '../../graph/order.ts';
import type { Graph } from '../../graph/types.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { layerNumbers } from '../layers.ts';

/**
 * The pass in which a call runs. Gradients of weights are a pass of their own, because some
 * schedules move them.
 */
export type PassOf = 'forward' | 'input' | 'weight';

/**
 * The calls of a joint graph by unit of a pipeline: unit 0 comes before the layers, unit l + 1 is
 * layer l, the last unit comes after the layers. The backward pass visits them in reverse order.
 */
export interface GraphUnits {
  readonly count: number;
  /** By node index; placeholders too. */
  readonly unit: Int32Array;
  readonly pass: readonly PassOf[];
  /** The node whose storage a view shows. */
  readonly root: Int32Array;
  /** Nodes that are parameters or made of them by views alone. */
  readonly weight: Uint8Array;
  readonly index: GraphIndex;
}

const NONE: ReadonlySet<number> = new Set();

/** @param views other calls that show the storage of their first operand (`freeCopies`) */
export function graphUnits(
  graph: Graph,
  phases: readonly ('forward' | 'backward')[],
  layers: number,
  table: OperatorTable,
  views: ReadonlySet<number> = NONE,
): GraphUnits {
  const { nodes } = graph;
  const index = indexGraph(graph);
  const head = layers + 1;
  const numbers = layerNumbers(graph);
  const own = nodes.map((n) => numbers.of(n.kind === 'placeholder' ? roleName(n) : n.meta.path));
  const range = (phase: string): readonly [number, number] => {
    const list = nodes.flatMap((n, i) =>
      n.kind === 'call' && phases[i] === phase && own[i] !== undefined ? [i] : [],
    );
    return [list[0] ?? nodes.length, list.at(-1) ?? -1];
  };
  const [firstForward, lastForward] = range('forward');
  const [firstBackward] = range('backward');
  const unit = Int32Array.from(nodes, (node, i) => {
    const layer = own[i];
    if (layer !== undefined) return layer + 1;
    if (node.kind !== 'call') return -1;
    if (phases[i] === 'backward') return i < firstBackward ? head : 0;
    return i > lastForward && i > firstForward ? head : 0;
  });
  const operands = (i: number): Int32Array =>
    index.operands.subarray(index.operandStart[i], index.operandStart[i + 1]);
  const root = Int32Array.from(nodes.keys());
  const weight = new Uint8Array(nodes.length);
  nodes.forEach((node, i) => {
    if (node.kind === 'placeholder') weight[i] = Number(node.meta.role === 'parameter');
    const list = operands(i);
    const isView =
      node.target === 'operator.getitem' || table.get(node.target)?.cls === 'view' || views.has(i);
    if (!isView || list.length === 0) return;
    root[i] = root[list[0]];
    weight[i] = weight[list[0]];
    // Placeholders outside the layers belong where they are first used.
  });
  nodes.forEach((node, i) => {
    if (node.kind !== 'call' || weight[i] === 1) return;
    for (const o of operands(i)) if (unit[root[o]] < 0) unit[root[o]] = unit[i];
  });
  for (let i = 0; i < unit.length; i++) if (unit[i] < 0) unit[i] = 0;
  // The lowest unit that a backward call leads to.
  const reaches = Int32Array.from(unit);
  for (let i = nodes.length - 1; i >= 0; i--)
    if (phases[i] === 'backward')
      for (const o of operands(i)) reaches[o] = Math.min(reaches[o], reaches[i]);
  const pass = nodes.map((_, i): PassOf => {
    if (phases[i] === 'forward') return 'forward';
    return reaches[i] < unit[i] || unit[i] === 0 ? 'input' : 'weight';
  });
  return { count: layers + 2, unit, pass, root, weight, index };
}
