/** Gives the forward values of a joint graph with bytes, seconds and readers, for the choice of what to save. */

import type { Cluster } from '../../cost/hardware/cluster.ts';
import { computeCost } from '../../cost/compute.ts';
import { ShardwrightError } from '../../errors.ts';
import type { Graph, Node } from '../../graph/types.ts';
import { eachOperand, tensorBytes } from '../../graph/value.ts';
import type { OpClass, TensorMeta } from '../../ops/record/record.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import { callContext, tensorMetas } from '../call-context.ts';
import { backwardStart } from '../plannable/weight-views.ts';
import type { ForwardValue } from './saved-values.ts';

/** Classes whose results are never recomputed for free. */
const EXPENSIVE: ReadonlySet<OpClass> = new Set<OpClass>(['matmul', 'attention', 'collective', 'other', 'control']);
/** Classes that fuse into their reader: computing them again takes no kernel of their own. */
const FUSED: ReadonlySet<OpClass> = new Set<OpClass>(['pointwise', 'view', 'factory']);

/**
 * The forward values of a joint graph as the choice of what to keep sees them: bytes, time of a kernel of their own on one
 * device, who reads them in the backward pass. Unsharded sizes; symbolic sizes by their example.
 *
 * @throws E_UNSUPPORTED for a graph without a backward pass
 */
export function forwardValues(graph: Graph, table: OperatorTable, cluster: Cluster): ForwardValue[] {
  const split = backwardStart(graph);
  if (split === graph.nodes.length)
    throw new ShardwrightError('E_UNSUPPORTED', `graph '${graph.name}' has no backward pass`, {
      hint: 'give a joint graph, or make one with jointGraph',
    });
  const forward = graph.nodes.filter((n, i) => i < split || n.kind !== 'call');
  const position = new Map(forward.map((n, i) => [n.name, i]));
  const metas = tensorMetas(graph);
  const readers = readersInBackward(graph, split, position, table);
  return forward.map((node): ForwardValue => {
    const inputs = new Set<number>();
    eachOperand(node, (name) => void inputs.add(position.get(name) ?? -1));
    inputs.delete(-1);
    const cls = node.kind === 'call' ? (table.get(node.target)?.cls ?? 'other') : undefined;
    const read = readers.get(node.name);
    return {
      name: node.name,
      // Of a node with several results only the results themselves can be kept.
      bytes: node.type.kind === 'tensor' ? (tensorBytes(node.type) ?? 0) : Infinity,
      seconds: cls === undefined || FUSED.has(cls) ? 0 : kernelSeconds(node, table, metas, cluster),
      inputs: [...inputs].sort((a, b) => a - b),
      ...(cls === undefined && { isInput: true }),
      ...(cls !== undefined && EXPENSIVE.has(cls) && node.type.kind === 'tensor' && { expensive: true }),
      // The user's `save` wins over every policy.
      ...((cls === 'random' || node.meta.save === 'save') && { once: true }),
      ...(read !== undefined && { readInBackward: read.any, readByExpensive: read.expensive }),
    };
  });
}

interface Readers {
  readonly any: boolean;
  readonly expensive: boolean;
}

/**
 * Who reads each forward value in the backward pass. Views cost nothing wherever they are taken, so what an expensive kernel reads
 * through views is the value that they are views of.
 */
function readersInBackward(
  graph: Graph,
  split: number,
  position: ReadonlyMap<string, number>,
  table: OperatorTable,
): ReadonlyMap<string, Readers> {
  const readers = new Map<string, Readers>();
  const mark = (name: string, more: Readers): void => {
    const found = readers.get(name);
    readers.set(name, { any: more.any || found?.any === true, expensive: more.expensive || found?.expensive === true });
  };
  const viewOf = new Map<string, string>();
  graph.nodes.forEach((node, i) => {
    if (node.kind !== 'call') return;
    const operands: string[] = [];
    eachOperand(node, (name) => void operands.push(name));
    const cls = table.get(node.target)?.cls;
    const isView = cls === 'view' && operands.length > 0;
    if (isView) viewOf.set(node.name, viewOf.get(operands[0]) ?? operands[0]);
    if (i < split) return;
    for (const name of operands) {
      if (position.has(name)) mark(name, { any: true, expensive: false });
      const root = viewOf.get(name) ?? name;
      const expensive = !isView && (cls === undefined || EXPENSIVE.has(cls));
      if (expensive && position.has(root)) mark(root, { any: false, expensive: true });
    }
  });
  return readers;
}

function kernelSeconds(
  node: Node,
  table: OperatorTable,
  metas: ReadonlyMap<string, TensorMeta>,
  cluster: Cluster,
): number {
  const record = table.get(node.target);
  if (record === undefined) return 0;
  const ctx = callContext(node, record, metas);
  return ctx === undefined ? 0 : computeCost(record, ctx, cluster).seconds;
}
